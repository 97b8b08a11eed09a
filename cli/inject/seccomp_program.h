/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/seccomp_program.h - what a seccomp filter says to a call of which only some arguments
 * are known.
 */
#ifndef CLI_INJECT_SECCOMP_PROGRAM_H
#define CLI_INJECT_SECCOMP_PROGRAM_H

#include <linux/filter.h>
#include <stdint.h>

#define SECCOMP_ARGUMENTS 6

/* A system call as we make it. */
struct call_shape {
    uint32_t number;
    struct {
        const uint32_t *values; /* one of these; NULL: any */
        uint32_t n;
    } argument[SECCOMP_ARGUMENTS];
};

/* Possible answers to a call, a bit each. */
enum {
    SAYS_ERROR = 1,
    SAYS_END = 2,     /* of the process or the thread, or a SIGSYS of which nobody knows the end */
    SAYS_ANYTHING = 4 /* the program branches too often to be followed */
};

/* program: n instructions that the kernel has checked, so they only jump forward.  Wherever it
 * depends on what is not known, both ways are gone.  Own thread only. */
uint32_t program_says(const struct sock_filter *program, uint32_t n, const struct call_shape *call);

#endif
