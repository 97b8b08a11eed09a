/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/plugin_files.h - a plugin whose descriptors no child of the program has, if it is linked with
 * plugin_files.c.
 */
#ifndef SDK_PLUGIN_FILES_H
#define SDK_PLUGIN_FILES_H

#include <probing/ext/draft/descriptor.h>

/* In plugin_files.c; where that is not linked (a test) open() is what it was. */
#define FILES_LINKED __attribute__((weak, visibility("hidden")))
FILES_LINKED void files_set(const struct probing_descriptor_1 *d);
/* Around a system call that gives a descriptor; it keeps its number.  -1: it gave none.  [any] */
FILES_LINKED void files_begin(void);
FILES_LINKED void files_end(int fd);

/* Among the first things in init().                                            [control] */
static inline void files_take(const struct probing_host *h)
{
    if (files_set)
        files_set((const struct probing_descriptor_1 *)h->extension(h, PROBING_DESCRIPTOR_1));
}

#endif
