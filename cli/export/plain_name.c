/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/plain_name.c - names of C++'s functions as people write them.
 *
 * One thread.
 */
#include "cli/export/plain_name.h"

#include <stdlib.h>
#include <string.h>

#include "sdk/lib/demangle/demangle.h"
#include "sdk/lib/hash.h"

#define NAMES 512u /* that are kept; a newer one takes an older's place */

/* Kernels' names are long, few, and come again and again. */
const char *cli_plain_name(const char *name)
{
    static struct {
        char *name, *plain;
    } kept[NAMES];
    static struct plainer *reader; /* for as long as we run */
    if (strncmp(name, "_Z", 2) != 0 || (reader == NULL && plainer_new(&reader) < 0))
        return name;
    size_t at = hash_bytes(HASH_FNV, name, strlen(name)) % NAMES;
    if (kept[at].name == NULL || strcmp(kept[at].name, name) != 0) {
        const char *plain = plainer_name(reader, name);
        free(kept[at].name);
        free(kept[at].plain);
        kept[at].name = strdup(name);
        kept[at].plain = plain != NULL ? strdup(plain) : NULL;
    }
    return kept[at].name != NULL && kept[at].plain != NULL ? kept[at].plain : name;
}
