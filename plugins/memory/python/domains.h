/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/python/domains.h - our functions before CPython's allocators of small blocks.
 *
 * CPython cuts objects of up to 512 bytes out of arenas of its own, which malloc() never hears of.
 * PyMem_SetAllocator() puts us before the domains "mem" and "obj"; larger blocks go on to malloc()
 * and are counted there.  Arenas are not counted as mappings meanwhile.
 */
#ifndef MEMORY_PYTHON_DOMAINS_H
#define MEMORY_PYTHON_DOMAINS_H

#include <probing/plugin.h>
#include <stdbool.h>

/* 0; -ENODEV: there is no Python, or not yet; -ENOTSUP: it has other allocators, and *ret_why says
 * so in words that stay.  Nothing waits for the GIL.                              [worker] */
int domains_in(const char **ret_why);
/* One line that names Python's allocations that nobody can see; "": none are known.   [worker] */
const char *domains_unseen(void);
void domains_out(void);    /* [control] */
void domains_forked(void); /* [child] */

#endif
