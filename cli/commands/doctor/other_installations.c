/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/doctor/other_installations.c - what has our names and is not of this installation:
 * another project's `probing`, and files of ours of another build.
 *
 * One thread.  It looks where a shell and where Python would; nothing of it is run or loaded.
 */
#include "cli/commands/doctor/other_installations.h"

#include "cli/terminal/check_lines.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/launch.h"
#include "cli/target/installed.h"
#include "core/base/file.h"
#include "core/base/version.h"

#define FOLDERS_MAX 64
#define PATTERN_BYTES (PATH_MAX + 64)
#define HEAD_BYTES 16384 /* of a source or a script: more than those of ours have */
/* In our package's __init__.py, of every version. */
#define OWN_MODULE "\nfrom . import _where"

struct others {
    const char *no; /* stands before each line about another project */
    int n;          /* such lines */
    char seen[FOLDERS_MAX][PATH_MAX];
    size_t n_seen;
    struct lines *lines;
};

static size_t read_head(const char *path, char ret[HEAD_BYTES + 1])
{
    int fd = file_open(AT_FDCWD, path);
    ssize_t n = fd >= 0 ? read(fd, ret, HEAD_BYTES) : 0;

    if (fd >= 0)
        (void)close(fd);
    n = n > 0 ? n : 0;
    ret[n] = '\0';
    return (size_t)n;
}

static void say_foreign(struct others *o, const char *what, const char *more)
{
    o->n++;
    lines_add(o->lines, "beware",
              "%s%s is of another project, which has the same names%s: keep one of the two "
              "(pip uninstall probing, then install libprobing again)",
              o->no, what, more);
}

/* ---- as a shell finds it ---- */

/* A program that is none of ours, or pip's script for a module `probing`; who has written a script
 * around the command knows what it does. */
static bool is_foreign_command(const char *path, const char *build)
{
    char head[HEAD_BYTES + 1];
    size_t n = read_head(path, head);

    if (n >= 4 && memcmp(head, "\177ELF", 4) == 0)
        return build[0] == '\0';
    return strstr(head, "\nfrom probing") != NULL || strstr(head, "\nimport probing") != NULL;
}

static void look_at_command(struct others *o)
{
    char found[PATH_MAX], whole[PATH_MAX], own[PATH_MAX], build[BUILD_MAX];

    launch_find("probing", found, sizeof(found));
    if (found[0] == '\0' || realpath(found, whole) == NULL ||
        realpath("/proc/self/exe", own) == NULL || strcmp(whole, own) == 0)
        return;
    installed_build_of(whole, build);
    if (is_foreign_command(whole, build))
        say_foreign(o, found, ", and a shell finds it first");
    else if (build[0] != '\0' && strcmp(build, probing_build) != 0)
        lines_add(o->lines, "beware", "a shell finds %s first, which is probing %s: this is %s",
                  found, build, probing_build);
}

/* ---- as Python finds it ---- */

static bool is_new(struct others *o, const char *folder)
{
    char whole[PATH_MAX];

    if (realpath(folder, whole) == NULL)
        return false;
    for (size_t i = 0; i < o->n_seen; i++)
        if (strcmp(o->seen[i], whole) == 0)
            return false;
    if (o->n_seen < FOLDERS_MAX)
        memcpy(o->seen[o->n_seen++], whole, sizeof(whole));
    return true;
}

/* A folder that Python may import from. */
static void look_at_folder(struct others *o, const char *folder)
{
    char path[PATTERN_BYTES], head[HEAD_BYTES + 1], build[BUILD_MAX];
    glob_t found;

    if (!is_new(o, folder))
        return;
    (void)snprintf(path, sizeof(path), "%s/probing/__init__.py", folder);
    if (read_head(path, head) > 0 && strstr(head, OWN_MODULE) == NULL) {
        (void)snprintf(path, sizeof(path), "%s/probing", folder);
        say_foreign(o, path, "");
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/probing/_native/libprobing.so", folder);
    installed_build_of(path, build);
    if (build[0] != '\0' && strcmp(build, probing_build) != 0)
        lines_add(o->lines, "beware", "%s/probing is probing %s: this is %s", folder, build,
                  probing_build);
    (void)snprintf(path, sizeof(path), "%s/probing-[0-9]*.dist-info", folder);
    if (strpbrk(folder, "*?[\\") == NULL && glob(path, 0, NULL, &found) == 0) {
        say_foreign(o, found.gl_pathv[0], "");
        globfree(&found);
    }
}

/* The folders below a prefix, as pip and distributions make them. */
static void look_below(struct others *o, const char *prefix)
{
    static const char *const folders[] = {
        "lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages"};
    char pattern[PATTERN_BYTES];
    glob_t found;

    if (prefix == NULL || prefix[0] != '/' || strpbrk(prefix, "*?[\\") != NULL)
        return;
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        (void)snprintf(pattern, sizeof(pattern), "%s/%s", prefix, folders[i]);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc; k++)
            look_at_folder(o, found.gl_pathv[k]);
        globfree(&found);
    }
}

static void look_at_modules(struct others *o)
{
    char path[PATH_MAX];
    const char *named = getenv("PYTHONPATH"), *home = getenv("HOME");

    for (const char *at = named; at != NULL && *at != '\0'; at = at[0] == ':' ? at + 1 : at) {
        int n = (int)strcspn(at, ":");
        if (n > 0 && snprintf(path, sizeof(path), "%.*s", n, at) < (int)sizeof(path))
            look_at_folder(o, path);
        at += n;
    }
    if (realpath("/proc/self/exe", path) != NULL) { /* PREFIX/bin/probing */
        for (int i = 0; i < 2 && strrchr(path, '/') != NULL; i++)
            *strrchr(path, '/') = '\0';
        look_at_folder(o, path); /* pip --target */
        look_below(o, path);
    }
    look_below(o, getenv("VIRTUAL_ENV"));
    look_below(o, getenv("CONDA_PREFIX"));
    if (home != NULL && snprintf(path, sizeof(path), "%s/.local", home) < (int)sizeof(path))
        look_below(o, path);
    look_below(o, "/usr/local");
    look_below(o, "/usr");
}

int other_installations_print(struct lines *l, const char *no)
{
    struct others *o = calloc(1, sizeof(*o));

    if (o == NULL)
        return 0;
    o->no = no;
    o->lines = l;
    look_at_command(o);
    look_at_modules(o);
    int n = o->n;
    free(o);
    return n;
}
