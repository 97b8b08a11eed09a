/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/offcpu.h - where a thread waits, without touching it.
 *
 * The profiler's thread only.  A thread that waits is never signalled: many system calls would end
 * with EINTR.  Its stack lies still, and the kernel tells where it begins.
 */
#ifndef PROFILE_OFFCPU_H
#define PROFILE_OFFCPU_H

#include <stdint.h>

#include "sampling/unwind.h"

enum outside {
    OFFCPU_UNKNOWN, /* it has ended, or the kernel does not tell */
    OFFCPU_READY,   /* it runs, or could if there were a CPU */
    OFFCPU_WAITS    /* in the kernel */
};

/* Registers (ip and sp only) and stack of a thread that waits in the kernel; ret_stack has room for
 * `room` bytes.  Else nothing is set.  The caller checks by its CPU time that it stood still all
 * the while. */
enum outside offcpu_inspect(int32_t tid, struct registers *ret, uint8_t *ret_stack, uint32_t room,
                            uint32_t *ret_bytes);

#endif
