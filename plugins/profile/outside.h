/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/outside.h - where a thread waits, without touching it.
 *
 * The profiler's thread only.  A thread that waits is never signalled: many system calls would end
 * with EINTR.  Its stack lies still, and the kernel tells where it begins.
 */
#ifndef PROFILE_OUTSIDE_H
#define PROFILE_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind.h"

/* Registers (ip and sp only) and stack of a thread that waits in the kernel; ret_stack has room for
 * `room` bytes.  false: it runs, or the kernel does not tell.  The caller checks by its CPU time
 * that it waited all the while. */
bool outside_look(int32_t tid, struct registers *ret, uint8_t *ret_stack, uint32_t room,
                  uint32_t *ret_bytes);

#endif
