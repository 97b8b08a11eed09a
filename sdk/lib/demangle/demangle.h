/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/demangle/demangle.h - the name of a function of C++ as a person writes it, from the one
 * that the compiler has made of it (Itanium C++ ABI, "External Names").
 *
 * Threads: one at a time, with 120 KB of stack.
 *
 * The C++ library of the program has a function for that, too, but a name of a few hundred bytes
 * makes it fill all memory there is, or its stack: it would end the program.  Here a fixed room is
 * filled, and names that do not fit, or have what functions rarely have, are not understood.
 */
#ifndef SDK_LIB_DEMANGLE_DEMANGLE_H
#define SDK_LIB_DEMANGLE_DEMANGLE_H

#include <stddef.h>

struct plainer;

int plainer_new(struct plainer **ret); /* 0 or -ENOMEM: 800 KB, of which little is touched */
void plainer_free(struct plainer *p);  /* NULL, too */
/* As c++filt writes it; NULL: it is not understood, or is no name of C++.  Borrowed until the next
 * call. */
const char *plainer_name(struct plainer *p, const char *mangled);

#endif
