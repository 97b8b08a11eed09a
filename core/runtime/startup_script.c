/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/startup_script.c - probing.lua: what the user wants in every process, read at the
 * start.
 *
 * Thread: the core's main thread, before the host starts; no lock, as it takes what Lua takes.  It
 * is never a reason not to start: what is wrong is in probing.log.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/rights.h"
#include "core/plugin_host/plugin_host.h"
#include "core/runtime/internal.h"
#include "core/script/script.h"

#define NAME "probing.lua"
#define SOURCE_BYTES ((size_t)1 << 20)
#define LINES_NS (2 * NS_PER_S) /* nothing answers before */

/* Nobody but us and root may say what runs in this process. */
static int check_file(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(-EINVAL, "%s is not a file", path);
    return rights_file_check(fd);
}

/* 0, or -errno; -ENOENT is said, too. */
static int read_source(const char *path, struct buf *ret)
{
    char self[40];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    int rc = check_file(fd, path);
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (rc == 0)
        rc = file_read(AT_FDCWD, self, ret);
    (void)close(fd);
    return rc;
}

static int is_home(void *arg, const char *key, const char *value)
{
    if (!key[0] && value[0] == '/')
        (void)snprintf(arg, DATADIR_PATH_BYTES, "%s", value);
    return 0;
}

/* The first that is there: beside the data directories, at home, in /etc.  Its path, or "". */
static int find_source(struct core *c, char path[DATADIR_PATH_BYTES + 64], struct buf *ret)
{
    char home[DATADIR_PATH_BYTES] = "", beside[DATADIR_PATH_BYTES];
    size_t n = (size_t)DATADIR_PATH_BYTES + 64;
    (void)snprintf(beside, sizeof(beside), "%s", c->place.directory);
    char *slash = strrchr(beside, '/');
    if (slash)
        *slash = '\0';
    (void)environment_read("HOME", is_home, home);
    for (int i = 0; i < 3; i++) {
        if (i == 1 && !home[0])
            continue;
        if (i == 0)
            (void)snprintf(path, n, "%s/" NAME, beside);
        else if (i == 1)
            (void)snprintf(path, n, "%s/.config/probing/" NAME, home);
        else
            (void)snprintf(path, n, "/etc/probing/" NAME);
        int rc = read_source(path, ret);
        if (rc == -EPERM && i == 0) { /* in a root of many users anybody may put one */
            host_log(c->host, PROBING_WARN, "not run: %s", err_text());
            continue;
        }
        if (rc != -ENOENT && rc != -ENOTDIR && rc != -EACCES) /* a home that is closed to us */
            return rc;
    }
    path[0] = '\0';
    return 0;
}

void run_startup_script(struct core *c)
{
    char path[DATADIR_PATH_BYTES + 64];
    const char *asked = c->config->lua;
    struct buf source;
    if (strcmp(asked, "off") == 0 || strcmp(asked, "0") == 0)
        return;
    buf_init(&source, SOURCE_BYTES);
    (void)snprintf(path, sizeof(path), "%s", asked);
    int rc = asked[0] && asked[0] != '/'
                 ? err_set(-EINVAL, "probing.startup_script=%s is not an absolute path", asked)
             : asked[0] ? read_source(asked, &source)
                        : find_source(c, path, &source);
    bool found = rc == 0 && path[0];
    if (found)
        rc = scripts_run_within(c->scripts, "probing", buf_text(&source), source.size, LINES_NS);
    buf_done(&source);
    if (rc < 0)
        host_log(c->host, PROBING_ERROR, "%s%s%s", found ? path : "", found ? ": " : "",
                 err_text());
    else if (found)
        host_log(c->host, PROBING_INFO, "%s has run", path);
}
