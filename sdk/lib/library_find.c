/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/library_find.c - see library_find.h.
 *
 * Any thread.  LD_LIBRARY_PATH may name a directory that is anybody's, and the program may never
 * have loaded anything from there: then a library that we look for would be the first.
 */
#include "sdk/lib/library_find.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define DIRECTORIES_MAX 4096

/* The loader looks into this folder first, too. */
#define PROCESSORS "glibc-hwcaps"

static bool is_open_to_all(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && (st.st_mode & S_IWOTH) != 0;
}

/* Would the library, or one before it, be from this directory?  *ret_open: and be anybody's. */
static bool is_in(const char *directory, const char *name, bool *ret_open)
{
    char path[4096], processors[4096];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", directory[0] != '\0' ? directory : ".", name);
    (void)snprintf(processors, sizeof(processors), "%s/%s", directory[0] != '\0' ? directory : ".",
                   PROCESSORS);
    bool there = stat(path, &st) == 0, by_processor = stat(processors, &st) == 0;
    *ret_open = (there || by_processor) &&
                (is_open_to_all(directory[0] != '\0' ? directory : ".") ||
                 (there && is_open_to_all(path)) || (by_processor && is_open_to_all(processors)));
    return there;
}

/* Is the first of the loader's directories that has it, or one before it, anybody's? */
static bool anybody_may_write(void *program, const char *name, char *ret_why, size_t size)
{
    Dl_serinfo head, *all = NULL;
    bool open = false, there = false;

    if (dlinfo(program, RTLD_DI_SERINFOSIZE, &head) == 0 && head.dls_cnt < DIRECTORIES_MAX)
        all = malloc(head.dls_size);
    if (all == NULL)
        return false;
    all->dls_size = head.dls_size;
    all->dls_cnt = head.dls_cnt;
    unsigned n = dlinfo(program, RTLD_DI_SERINFO, all) == 0 ? all->dls_cnt : 0;
    for (unsigned i = 0; i < n && !open && !there; i++) {
        there = is_in(all->dls_serpath[i].dls_name, name, &open);
        if (open)
            (void)snprintf(ret_why, size,
                           "%s would be loaded from %s, and everybody may write there", name,
                           all->dls_serpath[i].dls_name);
    }
    free(all);
    return open;
}

void *library_find(const char *name, int flags, char *ret_why, size_t size)
{
    void *found = dlopen(name, flags | RTLD_NOLOAD), *program = dlopen(NULL, RTLD_LAZY);
    bool open = found == NULL && program != NULL && anybody_may_write(program, name, ret_why, size);

    if (program != NULL)
        (void)dlclose(program);
    if (!open)
        ret_why[0] = '\0';
    return found != NULL ? found : open ? NULL : dlopen(name, flags);
}
