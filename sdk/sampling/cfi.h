/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/cfi.h - how to leave one function at one instruction, by its .eh_frame entry.
 *
 * Pure functions on copied bytes: any thread, nothing kept.  A rule is what a profiler needs of
 * DWARF's call frame information: where the caller's frame, return address and frame pointer are.
 * Forms that no compiler's .eh_frame uses are refused, never guessed.
 */
#ifndef SAMPLING_CFI_H
#define SAMPLING_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
enum { CFI_FP = 6, CFI_SP = 7, CFI_RA = 16, CFI_REGISTERS = 17 };
#elif defined(__aarch64__)
enum { CFI_FP = 29, CFI_RA = 30, CFI_SP = 31, CFI_REGISTERS = 33 };
#endif

enum cfi_kind {
    CFI_LOST = 0,      /* nothing is known here */
    CFI_STEP = 1,      /* a caller */
    CFI_OUTERMOST = 2, /* the thread's first function */
    CFI_SIGNAL = 3     /* a signal's frame: the registers lie at the stack pointer */
};

enum cfi_cfa {                 /* the caller's stack pointer is ... */
               CFA_OFFSET = 0, /* register + offset */
               CFA_DEREF = 1,  /* what lies at register + deref, + offset */
               CFA_PLT = 2     /* in x86-64's linkage table: sp + 8, or + 16 behind its push */
};

enum cfi_where {
    CFI_SAME = 0,   /* still in its register */
    CFI_AT_CFA = 1, /* in memory at cfa + offset */
    CFI_AT_FP = 2,  /* in memory at this function's frame pointer + offset */
    CFI_UNKNOWN = 3
};

struct cfi_rule {
    uint8_t kind, cfa, cfa_register, fp, ra;
    int32_t cfa_offset, cfa_deref, fp_offset, ra_offset;
};

/* The length of the entry (CIE or FDE) that begins with `head`, itself included; 0: none. */
uint32_t cfi_entry_size(const uint8_t head[4]);

/* Address of an FDE's CIE, by the FDE's own address. */
uint64_t cfi_cie_address(const uint8_t fde[8], uint64_t fde_address);

/* The rule at `ip` by copies of an FDE and its CIE (whole entries, length word and all).
 * 0, or -EBADMSG: damaged, or a form that is not known; -ENOENT: ip is not in the FDE. */
int cfi_rule(const uint8_t *cie, uint32_t cie_size, const uint8_t *fde, uint32_t fde_size,
             uint64_t fde_address, uint64_t ip, struct cfi_rule *ret);

#endif
