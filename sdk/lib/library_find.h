/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/library_find.h - a library of the system by its name, as dlopen() finds it, but not from
 * a directory in which everybody may put one.
 *
 * Any thread.
 */
#ifndef SDK_LIB_LIBRARY_FIND_H
#define SDK_LIB_LIBRARY_FIND_H

#include <stddef.h>

/* name: without a directory.  What the process has loaded is the process's own, wherever it lies.
 * NULL with ret_why: "" where dlerror() says why, else words. */
void *library_find(const char *name, int flags, char *ret_why, size_t size);

#endif
