/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/installed.c - files that come with this command: the library, plugins, scripts.
 *
 * They lie in one folder, the home: libprobing.so, plugins/, scripts/, licenses.txt.  Where it may
 * be, from the executable, stands in `places`; the first whose library is of the command's own
 * build is taken.  One thread.
 */

#include "cli/target/installed.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/check_lines.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/version.h"

#define PATH_BYTES 3000
#define HOMES_MAX 16
#define BLOCK 65536 /* bytes that are searched at once */

/* docs/installation.md says who puts it there. */
static const char *const places[] = {
    "",                /* a build */
    "/../lib/probing", /* scons install, the package of a distribution, the archive */
    "/../lib/python3*/site-packages/probing/_native", /* pip: venv, --user, --prefix, conda */
    "/../lib64/python3*/site-packages/probing/_native",
    "/../lib/python3*/dist-packages/probing/_native", /* the pip of Debian, for the system */
    "/../probing/_native",                            /* pip --target */
    "/../../probing/_native"};                        /* uv, linked to its cache */

struct home {
    char path[PATH_BYTES];
    char build[BUILD_MAX]; /* of its libprobing.so, "" where that tells none */
};

/* Found once, lives as long as the command. */
static struct {
    char own[PATH_BYTES]; /* the directory of the executable */
    struct home homes[HOMES_MAX];
    size_t n, used; /* used: which of them; n: none */
    bool looked;
} installed;

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

void installed_build_of(const char *file, char ret[BUILD_MAX])
{
    /* Our own mark, so that the command's file has it once. */
    const size_t mark_size = sizeof(BUILD_MARK) - 1, keep = sizeof(BUILD_MARK) + BUILD_MAX;
    const char *mark = probing_build - mark_size;
    static char block[BLOCK];
    size_t have = 0;
    int fd = file_open(AT_FDCWD, file);

    ret[0] = '\0';
    for (ssize_t n = 1; fd >= 0 && n > 0 && ret[0] == '\0';) {
        n = read(fd, block + have, sizeof(block) - have);
        have += n > 0 ? (size_t)n : 0;
        const char *at = memmem(block, have, mark, mark_size);
        size_t left = at != NULL ? have - (size_t)(at - block) - mark_size : 0;
        if (at != NULL && (left >= BUILD_MAX || n <= 0)) {
            size_t length = strnlen(at + mark_size, left < BUILD_MAX ? left : BUILD_MAX - 1);
            memcpy(ret, at + mark_size, length);
            ret[length] = '\0';
        } else if (at == NULL && have > keep) { /* the mark may lie across two blocks */
            memmove(block, block + have - keep, keep);
            have = keep;
        } else if (at != NULL) {
            memmove(block, at, have - (size_t)(at - block));
            have -= (size_t)(at - block);
        }
    }
    if (fd >= 0)
        (void)close(fd);
}

static void add_home(const char *path)
{
    char library[PATH_BYTES + 32], whole[PATH_MAX];

    (void)snprintf(library, sizeof(library), "%s/libprobing.so", path);
    if (installed.n == HOMES_MAX || access(library, R_OK) < 0 || realpath(path, whole) == NULL)
        return;
    struct home *h = &installed.homes[installed.n];
    if (snprintf(h->path, sizeof(h->path), "%s", whole) >= (int)sizeof(h->path))
        return;
    for (size_t i = 0; i < installed.n; i++)
        if (strcmp(installed.homes[i].path, h->path) == 0) /* lib64 is a link to lib */
            return;
    installed_build_of(library, h->build);
    installed.n++;
}

static void add_homes(const char *place)
{
    char pattern[PATH_BYTES + 64];
    glob_t found;

    (void)snprintf(pattern, sizeof(pattern), "%s%s", installed.own, place);
    if (strchr(place, '*') == NULL) {
        add_home(pattern);
    } else if (strpbrk(installed.own, "*?[\\") == NULL && glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            add_home(found.gl_pathv[i]);
        globfree(&found);
    }
}

/* PROBING_LIBRARY: who names a library wants that one. */
static int add_named(const char *library)
{
    const char *slash = strrchr(library, '/');
    char home[PATH_BYTES];

    (void)snprintf(home, sizeof(home), "%.*s", slash != NULL ? (int)(slash - library) : 1,
                   slash != NULL ? library : ".");
    add_home(home);
    return installed.n > 0
               ? 0
               : err_set(-ENOENT, "PROBING_LIBRARY is '%s', and there is no library", library);
}

/* Else it is not known whether it tells a build. */
static int can_be_opened(const struct home *h)
{
    char library[PATH_BYTES + 32];

    (void)snprintf(library, sizeof(library), "%s/libprobing.so", h->path);
    int fd = file_open(AT_FDCWD, library);
    if (fd < 0)
        return err_set(fd, "%s cannot be opened: %s", library, strerror(-fd));
    (void)close(fd);
    return 0;
}

/* Look once; one of another build is better than none, and says so. */
static int look_for_homes(void)
{
    const char *named = getenv("PROBING_LIBRARY");
    int rc = installed.looked ? 0 : own_directory(installed.own, sizeof(installed.own));

    if (rc < 0 || installed.looked)
        return rc;
    if (named != NULL && named[0] != '\0' && (rc = add_named(named)) < 0)
        return rc;
    installed.looked = true;
    bool chosen = installed.n > 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        add_homes(places[i]);
    while (!chosen && installed.used < installed.n &&
           strcmp(installed.homes[installed.used].build, probing_build) != 0)
        installed.used++;
    if (installed.n == 0)
        return 0;
    installed.used = installed.used < installed.n ? installed.used : 0;
    const struct home *h = &installed.homes[installed.used];
    if (strcmp(h->build, probing_build) == 0)
        return 0;
    if (h->build[0] == '\0' && (rc = can_be_opened(h)) < 0)
        return rc;
    terminal_say("this command is %s, but %s/libprobing.so %s%s: install them from one package",
                 probing_build, h->path, h->build[0] != '\0' ? "is " : "tells no build", h->build);
    return 0;
}

int installed_file(const char *name, char *ret, size_t size)
{
    int rc = look_for_homes();

    if (rc < 0)
        return rc;
    if (installed.used < installed.n) {
        int n = snprintf(ret, size, "%s/%s", installed.homes[installed.used].path, name);
        if (n > 0 && (size_t)n < size && access(ret, R_OK) == 0)
            return 0;
        return err_set(-ENOENT, "%s is not in %s; is probing installed completely?", name,
                       installed.homes[installed.used].path);
    }
    return err_set(-ENOENT,
                   "%s belongs to no libprobing.so that can be found from %s (beside it, "
                   "../lib/probing, ../lib/python3*/site-packages/probing/_native, "
                   "../probing/_native): install probing whole, or set PROBING_LIBRARY",
                   name, installed.own);
}

/* The Python package that a home belongs to, if it is in one. */
static void say_package(struct lines *l, const char *home)
{
    const char *end = strstr(home, "/_native");

    if (end != NULL && end[strlen("/_native")] == '\0')
        lines_add(l, "package", "%.*s", (int)(end - home), home);
}

int installed_print(struct lines *l)
{
    char path[PATH_MAX];
    int rc = look_for_homes();

    if (rc < 0)
        return rc;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    lines_add(l, "command", "%.*s", n > 0 ? (int)n : 0, path);
    if (installed.n == 0)
        return installed_file("libprobing.so", path, sizeof(path));
    for (size_t i = 0; i < installed.n; i++) {
        const struct home *h = &installed.homes[i];
        const char *build = h->build[0] != '\0' ? h->build : "tells no build";
        if (i == installed.used) {
            lines_add(l, "library", "%s/libprobing.so, %s", h->path, build);
            lines_add(l, "plugins", "%s/plugins", h->path);
            lines_add(l, "scripts", "%s/scripts", h->path);
            say_package(l, h->path);
        } else {
            lines_add(l, "not used", "%s/libprobing.so, %s", h->path, build);
        }
    }
    return 0;
}

int installed_licenses(void)
{
    char path[PATH_BYTES + 32];
    struct buf text;
    int rc = installed_file("licenses.txt", path, sizeof(path));

    buf_init(&text, 1 << 20);
    if (rc == 0)
        rc = file_read(AT_FDCWD, path, &text);
    if (rc == 0)
        fputs(buf_text(&text), stdout);
    buf_done(&text);
    return rc;
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
    (void)snprintf(leaf, sizeof(leaf), "plugins/%s.so", name);
    int rc = installed_file(leaf, ret, size);
    if (rc != -ENOENT)
        return rc;
    return err_set(rc,
                   "plugin '%s' is neither in PROBING_PLUGIN_PATH nor installed; load your own "
                   "plugin by its file: ./%s.so",
                   name, name);
}
