/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/names/demangle.h - the name of a kernel as a person writes it, from the one that
 * the compiler has made of it (Itanium C++ ABI, "External Names").
 *
 * Threads: one at a time.
 *
 * The C++ library of the program has a function for that, too, but a name of a few hundred bytes
 * makes it fill all memory there is, or its stack: it would end the program.  Here a fixed room is
 * filled, and names that do not fit, or have what kernels do not have, are not understood.
 */
#ifndef CUDA_NAMES_DEMANGLE_H
#define CUDA_NAMES_DEMANGLE_H

#include <stddef.h>

struct plainer;

int plainer_new(struct plainer **ret); /* 0 or -ENOMEM */
void plainer_free(struct plainer *p);
/* As c++filt writes it; NULL: it is not understood, or is no name of C++.  Borrowed until the next
 * call. */
const char *plainer_name(struct plainer *p, const char *mangled);

#endif
