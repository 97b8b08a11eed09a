/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/origin.h - which function an allocation is put down to.
 *
 * The innermost Python function of its stack, not counting comprehensions: it is what its author
 * knows, where the code that asks for memory is an extension's or the interpreter's.  A stack
 * without Python is put down to the innermost native function that is no allocator, C or C++
 * library, or interpreter.  Where both are there, the native function between is told beside it.
 *
 * The sampler's lock; numbers and texts stay as long as the origins do.
 */
#ifndef MEMORY_SAMPLE_ORIGIN_H
#define MEMORY_SAMPLE_ORIGIN_H

#include <probing/ext/draft/python_frames.h>

#include "sampling/stack_table.h"
#include "tables.h"

struct origins;

int origins_new(struct origins **ret);
void origins_free(struct origins *o);

/* The number of the origin that a stack has; 0: there is no room, or no stack.  frames: of
 * stacks_number(), innermost first.  python: NULL where there is none. */
uint32_t origin_number(struct origins *o, const struct stacks *stacks,
                       const struct probing_python_frames_1 *python, int64_t stack,
                       const uint32_t *frames, uint32_t n);
/* Its domain is not filled in; number 0: an origin of which nothing is known. */
const struct origin *origin_at(const struct origins *o, uint32_t number);
const struct origin_texts *origin_texts(const struct origins *o, uint32_t number);
uint32_t origins_count(const struct origins *o); /* numbers are below */

/* Is a native function one of an allocator, libc, the C++ library or the dynamic linker? */
bool origin_is_library(const char *function, const char *module);

#endif
