/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/registers.h - the registers where a function stands, for the unwinder.
 *
 * Inline, so that they are those of the function that asks: it must not return before its stack has
 * been copied.  Those that functions keep for their callers are enough.                  [signal]
 */
#ifndef MEMORY_SAMPLE_REGISTERS_H
#define MEMORY_SAMPLE_REGISTERS_H

#include "sampling/unwind.h"

__attribute__((always_inline)) static inline void registers_here(struct registers *r)
{
#if defined(__x86_64__)
    __asm__ volatile("movq %%rbx, 24(%1)\n\t"
                     "movq %%rbp, 48(%1)\n\t"
                     "movq %%rsp, 56(%1)\n\t"
                     "movq %%r12, 96(%1)\n\t"
                     "movq %%r13, 104(%1)\n\t"
                     "movq %%r14, 112(%1)\n\t"
                     "movq %%r15, 120(%1)\n\t"
                     "leaq 0(%%rip), %0"
                     : "=&r"(r->ip)
                     : "r"(r->value)
                     : "memory");
    r->known = UINT64_C(0xf0c8); /* bits 3, 6, 7, 12 to 15 */
#elif defined(__aarch64__)
    __asm__ volatile("stp x19, x20, [%1, 152]\n\t"
                     "stp x21, x22, [%1, 168]\n\t"
                     "stp x23, x24, [%1, 184]\n\t"
                     "stp x25, x26, [%1, 200]\n\t"
                     "stp x27, x28, [%1, 216]\n\t"
                     "stp x29, x30, [%1, 232]\n\t"
                     "mov %0, sp\n\t"
                     "str %0, [%1, 248]\n\t"
                     "adr %0, ."
                     : "=&r"(r->ip)
                     : "r"(r->value)
                     : "memory");
    r->known = UINT64_C(0xfff80000); /* bits 19 to 31 */
#endif
}

#endif
