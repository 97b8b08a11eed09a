/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/plain_name.c - names of C++'s functions as people write them.
 *
 * One thread.  By the C++ library of this machine, where it has one; else they stay as they are.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "sdk/lib/hash.h"

#define NAMES 512u /* that are kept; a newer one takes an older's place */

cli_demangler_fn *cli_demangler(void)
{
    static void *library; /* for as long as we run */
    cli_demangler_fn *fn = NULL;
    if (library == NULL)
        library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    void *found = library != NULL ? dlsym(library, "__cxa_demangle") : NULL;
    memcpy(&fn, &found, sizeof(fn));
    return fn;
}

static char *demangled(const char *name)
{
    static cli_demangler_fn *demangle; /* sought once */
    static bool sought;
    int status = -1;
    if (!sought)
        demangle = cli_demangler();
    sought = true;
    char *made = demangle != NULL ? demangle(name, NULL, NULL, &status) : NULL;
    if (status == 0)
        return made;
    free(made);
    return NULL;
}

/* Kernels' names are long, few, and come again and again. */
const char *cli_plain_name(const char *name)
{
    static struct {
        char *name, *plain;
    } kept[NAMES];
    if (strncmp(name, "_Z", 2) != 0)
        return name;
    size_t at = hash_bytes(HASH_FNV, name, strlen(name)) % NAMES;
    if (kept[at].name == NULL || strcmp(kept[at].name, name) != 0) {
        free(kept[at].name);
        free(kept[at].plain);
        kept[at].name = strdup(name);
        kept[at].plain = demangled(name);
    }
    return kept[at].name != NULL && kept[at].plain != NULL ? kept[at].plain : name;
}
