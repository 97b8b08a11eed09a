/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/arch_aarch64.h - registers, system calls and the stub of aarch64.
 * Included by target.h only.  It has not run on such a machine yet.  A system call that ended with
 * EINTR cannot be rewound here (x0 is overwritten), see arch_interrupted().
 */
#ifndef CLI_INJECT_ARCH_AARCH64_H
#define CLI_INJECT_ARCH_AARCH64_H

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "core/stack/stack.h"

#define ARCH_MACHINE EM_AARCH64
#define ARCH_NAME "aarch64"
#define ARCH_LOADER "ld-linux-aarch64"

typedef struct user_regs_struct arch_registers;

#ifndef NT_ARM_SVE
#define NT_ARM_SVE 0x405 /* linux/elf.h */
#endif

/* The SVE set holds the FP registers too; the first one is for the signal frame. */
static const int arch_sets[] = {NT_PRFPREG, NT_ARM_SVE};
enum { ARCH_SETS = 2, ARCH_SET_BYTES = 32768 };

static const unsigned char arch_syscall_code[] = {0x01, 0x00, 0x00, 0xd4}; /* svc #0 */

/* blr x20; mov x19, x0; tgkill(getpid(), gettid(), SIGURG); sp = x21; rt_sigreturn() */
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
    0xe2, 0x02, 0x80, 0xd2, /* mov x2, #23 SIGURG */
    0x68, 0x10, 0x80, 0xd2, /* mov x8, #131 tgkill */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0xbf, 0x02, 0x00, 0x91, /* mov sp, x21 */
    0x68, 0x11, 0x80, 0xd2, /* mov x8, #139 rt_sigreturn */
    0x01, 0x00, 0x00, 0xd4, /* svc #0 */
    0x00, 0x00, 0x20, 0xd4, /* brk #0 */
};
enum { ARCH_STUB_DONE = 48 };

/* A function of ours in the stub's page, which leaves errno alone: system call x0 with (x1, x2),
 * gives its result or a negative errno. */
static const unsigned char arch_system[] = {0xe8, 0x03, 0x00, 0xaa, 0xe0, 0x03, 0x01,
                                            0xaa, 0xe1, 0x03, 0x02, 0xaa, 0x01, 0x00,
                                            0x00, 0xd4, 0xc0, 0x03, 0x5f, 0xd6};

static inline uint64_t arch_ip(const arch_registers *r)
{
    return r->pc;
}

static inline uint64_t arch_sp(const arch_registers *r)
{
    return r->sp;
}

static inline void arch_to_stack(const arch_registers *r, struct stack_registers *ret)
{
    memcpy(ret->value, r->regs, 31 * sizeof ret->value[0]);
    ret->value[31] = r->sp;
    ret->value[32] = r->pc;
    ret->known = (UINT64_C(1) << 33) - 1;
}

static inline int64_t arch_waits_in(const arch_registers *r)
{
    (void)r;
    return -1; /* unknown without NT_ARM_SYSTEM_CALL: the careful answer */
}

/* At a stop the kernel has already moved pc back and x0 to the first argument for calls it
 * restarts; one that ended with EINTR has lost its first argument. */
static inline int64_t arch_interrupted(const arch_registers *r)
{
    (void)r;
    return -1;
}

static inline void arch_rewind(arch_registers *r)
{
    (void)r;
}

static inline void arch_restart(arch_registers *r)
{
    (void)r;
}

static inline void arch_set_syscall(arch_registers *r, uint64_t gadget, uint64_t number,
                                    const uint64_t a[6])
{
    r->pc = gadget;
    r->regs[8] = number;
    memcpy(r->regs, a, 6 * sizeof r->regs[0]);
}

static inline uint64_t arch_syscall_result(const arch_registers *r)
{
    return r->regs[0];
}

static inline void arch_set_call(arch_registers *r, uint64_t stub, uint64_t sp, uint64_t function,
                                 const uint64_t a[4], uint64_t frame)
{
    r->pc = stub;
    r->sp = sp & ~UINT64_C(15);
    memcpy(r->regs, a, 4 * sizeof r->regs[0]);
    r->regs[20] = function;
    r->regs[21] = frame;
    r->regs[29] = 0;
    r->pstate &= ~UINT64_C(0xc00); /* BTYPE: the stub has no landing pad */
}

static inline uint64_t arch_call_result(const arch_registers *r)
{
    return r->regs[19];
}

/* struct rt_sigframe of the kernel: 128 bytes siginfo, ucontext (flags, link, stack, mask padded to
 * 128 bytes, aligned to 16), sigcontext (fault address, x0..x30, sp, pc, pstate, records). */
static inline size_t arch_frame(unsigned char *out, size_t room, uint64_t at,
                                const arch_registers *r, unsigned char *const sets[ARCH_SETS],
                                const size_t sizes[ARCH_SETS], uint64_t mask)
{
    enum { MASK_AT = 128 + 40, GENERAL_AT = 128 + 176 + 8, RECORDS_AT = 128 + 176 + 288 };
    const uint32_t head[2] = {0x46508001, 528}; /* FPSIMD_MAGIC, sizeof(struct fpsimd_context) */
    (void)at;
    if (RECORDS_AT + 4096 > room || sizes[0] < 520)
        return 0;
    memset(out, 0, RECORDS_AT + 4096);
    memcpy(out + MASK_AT, &mask, sizeof mask);
    memcpy(out + GENERAL_AT, r->regs, 31 * sizeof r->regs[0]);
    memcpy(out + GENERAL_AT + 248, &r->sp, 8);
    memcpy(out + GENERAL_AT + 256, &r->pc, 8);
    memcpy(out + GENERAL_AT + 264, &r->pstate, 8);
    memcpy(out + RECORDS_AT, head, sizeof head);
    memcpy(out + RECORDS_AT + 8, sets[0] + 512, 8); /* fpsr, fpcr */
    memcpy(out + RECORDS_AT + 16, sets[0], 512);
    return RECORDS_AT + 4096;
}

#endif
