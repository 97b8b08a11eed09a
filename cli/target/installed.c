/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/installed.c - files that come with this command: the library, plugins, scripts.
 *
 * They lie beside the executable (a build) or below ../lib/probing (installed).  One thread.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"

/* Directory of our own executable, without a slash at its end. */
static int own_directory(char *ret, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);

    if (n <= 0)
        return err_set(-errno, "cannot read /proc/self/exe: %s", strerror(errno));
    ret[n] = '\0';
    char *slash = strrchr(ret, '/');
    if (slash == NULL)
        return err_set(-EINVAL, "/proc/self/exe is '%s'", ret);
    *slash = '\0';
    return 0;
}

int installed_file(const char *name, char *ret, size_t size)
{
    char own[3000];
    int r = own_directory(own, sizeof own);

    if (r < 0)
        return r;
    int n = snprintf(ret, size, "%s/%s", own, name);
    if (n > 0 && (size_t)n < size && access(ret, R_OK) == 0)
        return 0;
    n = snprintf(ret, size, "%s/../lib/probing/%s", own, name);
    if (n > 0 && (size_t)n < size && access(ret, R_OK) == 0)
        return 0;
    return err_set(-ENOENT,
                   "%s is neither in %s nor in %s/../lib/probing; is probing installed whole?",
                   name, own, own);
}

int plugin_find(const char *name, char *ret, size_t size)
{
    const char *path = getenv("PROBING_PLUGIN_PATH");
    char leaf[128];

    for (const char *p = path; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ":");
        int written = snprintf(ret, size, "%.*s/%s.so", (int)n, p, name);
        if (n > 0 && written > 0 && (size_t)written < size && access(ret, R_OK) == 0)
            return 0;
        p += n + (p[n] == ':');
    }
    (void)snprintf(leaf, sizeof leaf, "plugins/%s.so", name);
    int r = installed_file(leaf, ret, size);
    if (r != -ENOENT)
        return r;
    return err_set(r,
                   "no plugin '%s' in PROBING_PLUGIN_PATH or among those installed; one of your "
                   "own is named by its file: ./%s.so",
                   name, name);
}
