/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/offcpu.c - /proc/self/task/TID/syscall and a copy of the stack.
 *
 * The profiler's thread only; nothing kept.
 */
#include "offcpu.h"

#include "lib/proc/memory.h"
#include "lib/proc/task.h"

enum outside offcpu_inspect(int32_t tid, struct registers *ret, uint8_t *ret_stack, uint32_t room,
                            uint32_t *ret_bytes)
{
    struct proc_syscall call;
    int where = proc_syscall_of(0, tid, &call);
    if (where == PROC_RUNS)
        return OFFCPU_READY;
    if (where < 0 || call.sp == 0 || call.ip == 0)
        return OFFCPU_UNKNOWN;
    int64_t n = proc_own_memory(call.sp, ret_stack, room);
    *ret_bytes = n > 0 ? (uint32_t)n : 0;
    *ret = (struct registers){.known = UINT64_C(1) << CFI_SP, .ip = call.ip};
    ret->value[CFI_SP] = call.sp;
    return OFFCPU_WAITS;
}
