/* SPDX-License-Identifier: Apache-2.0
 *
 * core/life/preload.c - started with the program: LD_PRELOAD, and `probing launch` which uses it.
 *
 * Threads: the program's first one, before main(); nobody else is there yet.
 *
 *     LD_PRELOAD=.../libprobing.so[:others]      start here, and in all that is started from here
 *     PROBING=0                                  do not, for all that
 *     PROBING_LAUNCH=settings, a line each       start in this process only: both variables are
 *                                                taken out of the environment before main() sees it
 *     PROBING_LAUNCH_ALL=settings                as LD_PRELOAD alone, with settings
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "core/life/life.h"

#define ALL "PROBING_LAUNCH_ALL="
#define ONE "PROBING_LAUNCH="
#define PRELOAD "LD_PRELOAD="

/* Our entry in a list as LD_PRELOAD has it, by the last part of its path, because ld.so may have
 * found it in a directory of its own.  NULL: it is not there. */
static char *own_entry(char *list, size_t *ret_n)
{
    Dl_info info;
    if (!dladdr(probing_version, &info) || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *own = slash ? slash + 1 : info.dli_fname;
    size_t own_n = strlen(own);
    for (char *at = list; *at; at += strspn(at, ": ")) {
        size_t n = strcspn(at, ": ");
        if (n >= own_n && strncmp(at + n - own_n, own, own_n) == 0 &&
            (n == own_n || at[n - own_n - 1] == '/')) {
            *ret_n = n;
            return at;
        }
        at += n;
    }
    return NULL;
}

static void remove_variable(char **at)
{
    for (; *at; at++)
        at[0] = at[1];
}

/* The rest of the list stays, where it is: the strings are the program's own. */
static void remove_entry(char **variable, char *entry, size_t n)
{
    char *rest = entry + n + strspn(entry + n, ": ");
    memmove(entry, rest, strlen(rest) + 1);
    size_t length = strlen(*variable);
    if (length > sizeof(PRELOAD) - 1 && strchr(": ", (*variable)[length - 1]))
        (*variable)[length - 1] = '\0';
    if (strcmp(*variable, PRELOAD) == 0)
        remove_variable(variable);
}

/* Brought in in any other way, it does nothing.  glibc hands the environment to constructors, and
 * it is the array that `environ` points to. */
__attribute__((constructor)) static void preloaded(int argc, char **argv, char **environment)
{
    char **list = NULL, **launch = NULL;
    bool off = false, all = false;
    size_t n;

    (void)argc;
    (void)argv;
    for (char **e = environment; e && *e; e++) {
        if (strncmp(*e, PRELOAD, sizeof(PRELOAD) - 1) == 0)
            list = e;
        off = off || strcmp(*e, "PROBING=0") == 0;
        all = all || strncmp(*e, ALL, sizeof(ALL) - 1) == 0;
        if (strncmp(*e, ONE, sizeof(ONE) - 1) == 0 || strncmp(*e, ALL, sizeof(ALL) - 1) == 0)
            launch = e;
    }
    char *entry = list ? own_entry(*list + sizeof(PRELOAD) - 1, &n) : NULL;
    if (!entry || (off && !launch))
        return;
    const char *settings = launch ? strchr(*launch, '=') + 1 : NULL;
    if (launch && !all) {
        if (launch > list) { /* the later one first: the other stays where it is */
            remove_variable(launch);
            remove_entry(list, entry, n);
        } else {
            remove_entry(list, entry, n);
            remove_variable(launch);
        }
    }
    (void)probing_start(settings);
}
