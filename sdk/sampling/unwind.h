/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/unwind.h - a native stack from the registers and a copy of the stack's memory.
 *
 * Its owner's thread only.
 *
 * There are two unwinders, which give the same frames (unwind_test.c).  This one serves samples,
 * hundreds of times a second: it reads a copy, keeps the rules of the places that it has seen, and
 * takes no lock of ld.so's.  core/stack/stack.h has libunwind, for stacks that somebody asks for,
 * of the dead and of other processes too: slower, and it knows all of DWARF.
 */
#ifndef SAMPLING_UNWIND_H
#define SAMPLING_UNWIND_H

#include <stdint.h>

#include "unwind_index.h"

struct registers {
    uint64_t value[CFI_REGISTERS]; /* DWARF's order; x86-64's instruction pointer is CFI_RA */
    uint64_t known;                /* bit for each */
    uint64_t ip;
};

/* Memory of the stack as it was: `size` bytes from address `from` on. */
struct stack_copy {
    const uint8_t *bytes;
    uint64_t from;
    uint32_t size;
};

enum unwind_end { UNWIND_WHOLE = 0, UNWIND_LOST = 1, UNWIND_LIMIT = 2 };

/* Frames, innermost first; of callers the return address.  How many, at least 1.  ret_sps: where
 * each one's part of the stack begins; may be NULL. */
uint32_t unwind_stack(struct code *c, const struct registers *r, const struct stack_copy *stack,
                      uint64_t *ret_ips, uint64_t *ret_sps, uint32_t max, enum unwind_end *ret_end);

#endif
