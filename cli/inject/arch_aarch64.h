/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/arch_aarch64.h - registers, system calls and the stub of aarch64.
 * Included by internal.h only; arch_x86_64.h says the same words for that machine.
 *
 * At a stop the kernel has already done what it does about the thread's system call: one that goes
 * on has pc at its svc again, one that failed has its error where its first argument was, and which
 * call it was is forgotten.  What the thread waited in is seen shortly before the stop; the first
 * argument the kernel still has, and /proc shows it.
 */
#ifndef CLI_INJECT_ARCH_AARCH64_H
#define CLI_INJECT_ARCH_AARCH64_H

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <time.h>

#include "core/stack/stack.h"
#include "sdk/lib/proc/memory.h"
#include "sdk/lib/proc/task.h"

#define ARCH_MACHINE EM_AARCH64
#define ARCH_NAME "aarch64"
#define ARCH_LOADER "ld-linux-aarch64"

/* The kernel's set first: NT_PRSTATUS reads and writes that much only. */
typedef struct {
    struct user_regs_struct set;
    int64_t call;       /* the system call that the stop came into, -1: none */
    uint64_t first;     /* its first argument */
    uint64_t sp, after; /* of the last look: where it waits, the instruction behind its svc */
    bool waited;        /* it was seen waiting in that very call before the stop */
} arch_registers;

#ifndef NT_ARM_SYSTEM_CALL
#define NT_ARM_SYSTEM_CALL 0x404 /* linux/elf.h */
#endif
#ifndef NT_ARM_SVE
#define NT_ARM_SVE 0x405
#endif

/* The SVE set holds the FP registers too; the first one is for the signal frame. */
static const int arch_sets[] = {NT_PRFPREG, NT_ARM_SVE};
enum { ARCH_SETS = 2, ARCH_SET_BYTES = 32768 };

/* Bits an indirect branch just taken leaves in pstate: neither stub nor svc is a landing pad. */
#define ARCH_BTYPE UINT64_C(0xc00)
#define ARCH_SVC UINT32_C(0xd4000001) /* the instruction of a system call */
#define ARCH_SVC_BYTES 4

/* The first calls are made from the unused end of a page of code, before there is memory of ours.
 * x21: the block on the thread's own stack, x23: the signal that says done.  Result in x19. */
static const unsigned char arch_cave[] = {
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0xf3, 0x03, 0x00, 0xaa, /* mov x19, x0 */
    0x88, 0x15, 0x80, 0xd2, /* mov x8, #172 getpid */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0xf6, 0x03, 0x00, 0xaa, /* mov x22, x0 */
    0x48, 0x16, 0x80, 0xd2, /* mov x8, #178 gettid */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0xe1, 0x03, 0x00, 0xaa, /* mov x1, x0 */
    0xe0, 0x03, 0x16, 0xaa, /* mov x0, x22 */
    0xe2, 0x03, 0x17, 0xaa, /* mov x2, x23 */
    0x68, 0x10, 0x80, 0xd2, /* mov x8, #131 tgkill */
    0x01, 0x00, 0x00, 0xd4, /* svc #0; if nobody holds the thread now, it goes on: */
    0xbf, 0x02, 0x00, 0x91, /* mov sp, x21 */
    0x68, 0x11, 0x80, 0xd2, /* mov x8, #139 rt_sigreturn */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0x00, 0x00, 0x20, 0xd4, /* brk #0 */
};
enum { ARCH_CAVE_DONE = 48, ARCH_RED_ZONE = 128, ARCH_BLOCK_BYTES = 592 + 4096 };

/* Calls on memory of ours: x20 is called, and its result is in x19.  Behind the code lie, at 0x180,
 * where errno is and what it was, and at 0x200 the signal frame that brings the thread back. */
static const unsigned char arch_stub[] = {
    0x80, 0x02, 0x3f, 0xd6, /* blr x20 */
    0xf3, 0x03, 0x00, 0xaa, /* mov x19, x0 */
    0x88, 0x15, 0x80, 0xd2, /* mov x8, #172 getpid */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0xf6, 0x03, 0x00, 0xaa, /* mov x22, x0 */
    0x48, 0x16, 0x80, 0xd2, /* mov x8, #178 gettid */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0xe1, 0x03, 0x00, 0xaa, /* mov x1, x0 */
    0xe0, 0x03, 0x16, 0xaa, /* mov x0, x22 */
    0xe2, 0x03, 0x17, 0xaa, /* mov x2, x23 */
    0x68, 0x10, 0x80, 0xd2, /* mov x8, #131 tgkill */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0x89, 0x0a, 0x00, 0x58, /* ldr x9, 0x180 */
    0x69, 0x00, 0x00, 0xb4, /* cbz x9 over the next two */
    0x8a, 0x0a, 0x00, 0x18, /* ldr w10, 0x188 */
    0x2a, 0x01, 0x00, 0xb9, /* str w10, [x9] */
    0x09, 0x0e, 0x00, 0x10, /* adr x9, 0x200 */
    0x3f, 0x01, 0x00, 0x91, /* mov sp, x9 */
    0x68, 0x11, 0x80, 0xd2, /* mov x8, #139 rt_sigreturn */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0x00, 0x00, 0x20, 0xd4, /* brk #0 */
};
enum { ARCH_STUB_DONE = 48, ARCH_STUB_ERRNO = 0x180 };

/* A function of ours in the stub's page, which leaves errno alone: system call x0 with (x1, x2),
 * gives its result or a negative errno. */
static const unsigned char arch_system[] = {0xe8, 0x03, 0x00, 0xaa, 0xe0, 0x03, 0x01,
                                            0xaa, 0xe1, 0x03, 0x02, 0xaa, 0x01, 0x00,
                                            0x00, 0xd4, 0xc0, 0x03, 0x5f, 0xd6};
enum { ARCH_STUB_SYSTEM = 0xe0 };

/* The helper's code, a function: x0 points to struct helper_mail.  It blocks all signals, detaches
 * itself, tells who it is and naps until it is told to leave or has lost patience.  Its last step
 * is munmap() of all this, which returns to who called it. */
static const unsigned char arch_helper[] = {
    0xfd, 0x7b, 0xbe, 0xa9, /* stp x29, x30, [sp, #-32]! */
    0xf3, 0x0b, 0x00, 0xf9, /* str x19, [sp, #16] */
    0xf3, 0x03, 0x00, 0xaa, /* mov x19, x0 */
    0x00, 0x00, 0x80, 0xd2, /* mov x0, #0 */
    0x61, 0xc2, 0x00, 0x91, /* add x1, x19, #0x30 */
    0x02, 0x00, 0x80, 0xd2, /* mov x2, #0 */
    0x03, 0x01, 0x80, 0xd2, /* mov x3, #8 */
    0xe8, 0x10, 0x80, 0xd2, /* mov x8, #135 */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0x69, 0x02, 0x40, 0xa9, /* ldp x9, x0, [x19] */
    0x20, 0x01, 0x3f, 0xd6, /* blr x9 */
    0x48, 0x16, 0x80, 0xd2, /* mov x8, #178 */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0x60, 0x0a, 0x00, 0xf9, /* str x0, [x19, #0x10] */
    0x69, 0x1a, 0x40, 0xb9, /* ldr w9, [x19, #0x18] */
    0x49, 0x01, 0x00, 0x35, /* cbnz w9, 3f */
    0x69, 0x12, 0x40, 0xf9, /* ldr x9, [x19, #0x20] */
    0x29, 0x05, 0x00, 0xd1, /* sub x9, x9, #1 */
    0x69, 0x12, 0x00, 0xf9, /* str x9, [x19, #0x20] */
    0xc9, 0x00, 0x00, 0xb4, /* cbz x9, 3f */
    0x60, 0xe2, 0x00, 0x91, /* add x0, x19, #0x38 */
    0x01, 0x00, 0x80, 0xd2, /* mov x1, #0 */
    0xa8, 0x0c, 0x80, 0xd2, /* mov x8, #101 */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0xf6, 0xff, 0xff, 0x17, /* b 1b */
    0x70, 0x26, 0x40, 0xf9, /* ldr x16, [x19, #0x48] */
    0x60, 0x06, 0x45, 0xa9, /* ldp x0, x1, [x19, #0x50] */
    0xf3, 0x0b, 0x40, 0xf9, /* ldr x19, [sp, #16] */
    0xfd, 0x7b, 0xc2, 0xa8, /* ldp x29, x30, [sp], #32 */
    0x00, 0x02, 0x1f, 0xd6, /* br x16 */
};

static inline uint64_t arch_ip(const arch_registers *r)
{
    return r->set.pc;
}

static inline uint64_t arch_sp(const arch_registers *r)
{
    return r->set.sp;
}

static inline void arch_to_stack(const arch_registers *r, struct stack_registers *ret)
{
    memcpy(ret->value, r->set.regs, 31 * sizeof(ret->value[0]));
    ret->value[31] = r->set.sp;
    ret->value[32] = r->set.pc;
    ret->known = (UINT64_C(1) << 33) - 1;
}

/* A thread that runs, or stands outside of any call, leaves call -1. */
static inline void arch_read_waiting(pid_t pid, pid_t tid, arch_registers *r)
{
    struct proc_syscall now;
    r->call = -1;
    if (proc_syscall_of(pid, tid, &now) != PROC_WAITS)
        return;
    r->call = now.number;
    r->first = now.arguments[0];
    r->sp = now.sp;
    r->after = now.ip;
}

static inline void arch_before_stop(pid_t pid, pid_t tid, arch_registers *r)
{
    arch_read_waiting(pid, tid, r);
}

static inline bool arch_is_svc(pid_t pid, uint64_t at)
{
    struct proc_memory memory = PROC_MEMORY_OF(pid);
    uint32_t code = 0;
    size_t n = proc_memory_read(&memory, at, &code, sizeof(code));
    proc_memory_close(&memory);
    return n == sizeof(code) && code == ARCH_SVC;
}

/* Below the stack lies what the last signal handler returned by.  If that led to just here, EINTR
 * is the handler's doing and not ours (or an earlier one's here: then the program knows it). */
static inline bool arch_handler_returned(pid_t pid, const struct user_regs_struct *set)
{
    enum { FRAME_BYTES_MAX = 16384, X0_TO_SP = 31 * 8 };
    unsigned char below[FRAME_BYTES_MAX];
    const uint64_t place[2] = {set->sp, set->pc};
    struct proc_memory memory = PROC_MEMORY_OF(pid);
    ssize_t n = (ssize_t)proc_memory_read(&memory, set->sp - sizeof(below), below, sizeof(below));
    proc_memory_close(&memory);
    for (ssize_t i = X0_TO_SP; i + (ssize_t)sizeof(place) <= n; i += 8) {
        if (memcmp(below + i, place, sizeof(place)) == 0 &&
            memcmp(below + i - X0_TO_SP, set->regs, sizeof(set->regs[0])) == 0)
            return true;
    }
    return false;
}

/* The thread stands behind a call that gave EINTR.  /proc tells the first argument of a thread that
 * has a call's number, and the stopped one may be given one. */
static inline void arch_ask_first(pid_t pid, pid_t tid, arch_registers *r)
{
    int32_t number = (int32_t)r->set.regs[8], none = -1;
    struct iovec give = {&number, sizeof(number)}, take = {&none, sizeof(none)};
    uint64_t seen = r->first;
    r->call = -1;
    if (ptrace(PTRACE_SETREGSET, tid, (void *)NT_ARM_SYSTEM_CALL, &give) == -1)
        return;
    arch_read_waiting(pid, tid, r);
    (void)ptrace(PTRACE_SETREGSET, tid, (void *)NT_ARM_SYSTEM_CALL, &take);
    if (r->waited && r->first != seen)
        r->call = -1;
}

static inline void arch_after_stop(pid_t pid, pid_t tid, arch_registers *r)
{
    const struct user_regs_struct *set = &r->set;
    bool ended = (int64_t)set->regs[0] == -EINTR;
    uint64_t svc = ended ? set->pc - ARCH_SVC_BYTES : set->pc;
    r->waited = r->call >= 0 && set->regs[8] == (uint64_t)r->call && set->sp == r->sp &&
                svc + ARCH_SVC_BYTES == r->after && (ended || set->regs[0] == r->first);
    r->call = arch_is_svc(pid, svc) ? (int64_t)set->regs[8] : -1;
    if (r->call >= 0 && ended && (r->waited || !arch_handler_returned(pid, set)))
        arch_ask_first(pid, tid, r);
    else if (ended)
        r->call = -1;
}

static inline int64_t arch_waits_in(const arch_registers *r)
{
    return r->call;
}

static inline int64_t arch_interrupted(const arch_registers *r)
{
    return (int64_t)r->set.regs[0] == -EINTR ? r->call : -1;
}

/* The fourth argument of the call: the time limit of epoll_wait and epoll_pwait. */
static inline uint64_t arch_fourth(const arch_registers *r)
{
    return r->set.regs[3];
}

static inline void arch_set_fourth(arch_registers *r, uint64_t value)
{
    r->set.regs[3] = value;
}

static inline void arch_rewind(arch_registers *r)
{
    r->set.regs[0] = r->first;
    r->set.pc -= ARCH_SVC_BYTES;
}

/* The kernel chooses restart_syscall(2) after the stop, where we cannot keep it from that. */
static inline bool arch_call_anew(arch_registers *r)
{
    (void)r;
    return false;
}

/* The kernel has done it at the stop; who waits for a while begins anew. */
static inline void arch_restart(arch_registers *r)
{
    (void)r;
}

/* The thread was used, so the kernel does not remember that it was in a call with a relative time
 * limit: let it ask for what is left of that. */
static inline void arch_go_on(arch_registers *r)
{
    const unsigned long long *a = r->set.regs;
    bool relative = r->call == SYS_nanosleep ||
                    (r->call == SYS_clock_nanosleep && !(a[1] & TIMER_ABSTIME)) ||
                    (r->call == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && a[3]);
    if (relative && r->waited && (int64_t)a[0] != -EINTR)
        r->set.regs[8] = SYS_restart_syscall;
}

/* The record that holds SVE's registers as NT_ARM_SVE gave them, both in the order of the kernel's
 * asm/sve_context.h.  Gives its size, 0: the thread uses none, or they need more than a frame has
 * (vectors above 64 bytes: only what plain floating point sees then comes back). */
static inline size_t arch_sve_record(unsigned char *out, const unsigned char *set, size_t size)
{
    enum { HEAD = 16, FULL = 1, ROOM = 3000 };
    uint16_t length, flags;
    uint32_t head[2] = {0x53564501, 0}; /* SVE_MAGIC */
    if (size < HEAD)
        return 0;
    memcpy(&length, set + 8, sizeof(length)); /* struct user_sve_header */
    memcpy(&flags, set + 12, sizeof(flags));
    size_t bytes = (size_t)length * 32 + (size_t)length / 8 * 17; /* z0-z31; p0-p15 and ffr */
    size_t whole = (HEAD + bytes + 15) & ~(size_t)15;
    if (!(flags & FULL) || whole > ROOM || HEAD + bytes > size)
        return 0;
    head[1] = (uint32_t)whole;
    memcpy(out, head, sizeof(head));
    memcpy(out + 8, &length, sizeof(length));
    memcpy(out + HEAD, set + HEAD, bytes);
    return whole;
}

/* The address of the thread's block: on its own stack, below what it may use of it. */
static inline uint64_t arch_block_at(const arch_registers *r)
{
    return (r->set.sp - ARCH_RED_ZONE - ARCH_BLOCK_BYTES) & ~UINT64_C(15);
}

/* struct rt_sigframe of the kernel: 128 bytes siginfo, ucontext (flags, link, stack, mask padded to
 * 128 bytes, aligned to 16), sigcontext (fault address, x0..x30, sp, pc, pstate, records up to an
 * empty one).  0: no vector registers. */
static inline size_t arch_block(unsigned char out[ARCH_BLOCK_BYTES], const arch_registers *r,
                                unsigned char *const sets[ARCH_SETS], const size_t sizes[ARCH_SETS],
                                uint64_t mask)
{
    enum { MASK_AT = 128 + 40, GENERAL_AT = 128 + 176 + 8, RECORDS_AT = 128 + 176 + 288 };
    const uint32_t head[2] = {0x46508001, 528}; /* FPSIMD_MAGIC, sizeof(struct fpsimd_context) */
    if (sizes[0] < 520)
        return 0;
    memset(out, 0, ARCH_BLOCK_BYTES);
    memcpy(out + MASK_AT, &mask, sizeof(mask));
    memcpy(out + GENERAL_AT, r->set.regs, 31 * sizeof(r->set.regs[0]));
    memcpy(out + GENERAL_AT + 248, &r->set.sp, 8);
    memcpy(out + GENERAL_AT + 256, &r->set.pc, 8);
    memcpy(out + GENERAL_AT + 264, &r->set.pstate, 8);
    memcpy(out + RECORDS_AT, head, sizeof(head));
    memcpy(out + RECORDS_AT + 8, sets[0] + 512, 8); /* fpsr, fpcr */
    memcpy(out + RECORDS_AT + 16, sets[0], 512);
    (void)arch_sve_record(out + RECORDS_AT + head[1], sets[1], sizes[1]);
    return ARCH_BLOCK_BYTES;
}

/* The stub, its data and arch_system; errno is filled in later.  Gives the bytes, 0: no room. */
static inline size_t arch_stub_make(unsigned char *out, size_t room, const arch_registers *r,
                                    unsigned char *const sets[ARCH_SETS],
                                    const size_t sizes[ARCH_SETS], uint64_t mask)
{
    enum { FRAME_AT = 0x200 };
    if (FRAME_AT + ARCH_BLOCK_BYTES > room)
        return 0;
    memset(out, 0, FRAME_AT);
    memcpy(out, arch_stub, sizeof(arch_stub));
    memcpy(out + ARCH_STUB_SYSTEM, arch_system, sizeof(arch_system));
    size_t n = arch_block(out + FRAME_AT, r, sets, sizes, mask);
    return n ? FRAME_AT + n : 0;
}

/* A system call from the cave.  `sign`: the signal that says it is done. */
static inline void arch_set_first(arch_registers *r, uint64_t cave, uint64_t block, int sign,
                                  uint64_t number, const uint64_t a[6])
{
    r->set.pc = cave;
    r->set.sp = block;
    r->set.regs[8] = number;
    memcpy(r->set.regs, a, 6 * sizeof(r->set.regs[0]));
    r->set.regs[21] = block;
    r->set.regs[23] = (uint64_t)sign;
    r->set.pstate &= ~ARCH_BTYPE; /* there is no landing pad */
}

static inline void arch_set_call(arch_registers *r, uint64_t stub, uint64_t sp, int sign,
                                 uint64_t function, const uint64_t a[4])
{
    r->set.pc = stub;
    r->set.sp = sp & ~UINT64_C(15);
    memcpy(r->set.regs, a, 4 * sizeof(r->set.regs[0]));
    r->set.regs[20] = function;
    r->set.regs[23] = (uint64_t)sign;
    r->set.regs[29] = 0;
    r->set.pstate &= ~ARCH_BTYPE;
}

/* Give the result of a call from the cave or the stub. */
static inline uint64_t arch_result(const arch_registers *r)
{
    return r->set.regs[19];
}

#endif
