/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/arch_x86_64.h - registers, system calls and the stub of x86-64.
 * Included by target.h only; arch_aarch64.h says the same words for that machine.
 */
#ifndef CLI_INJECT_ARCH_X86_64_H
#define CLI_INJECT_ARCH_X86_64_H

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "core/stack/stack.h"

#define ARCH_MACHINE EM_X86_64
#define ARCH_NAME "x86-64"
#define ARCH_LOADER "ld-linux-x86-64"

typedef struct user_regs_struct arch_registers;

/* Register sets beside the general ones, restored in this order. */
static const int arch_sets[] = {NT_X86_XSTATE};
enum { ARCH_SETS = 1, ARCH_SET_BYTES = 32768 }; /* 2.5 KB with AVX-512, 11 KB with AMX */

static const unsigned char arch_syscall_code[] = {0x0f, 0x05};
enum { ARCH_CODE_ALIGN = 1 };

/* call *rax; rbx = rax; tgkill(getpid(), gettid(), SIGURG); rsp = r14; rt_sigreturn() */
static const unsigned char arch_stub[] = {
    0xff, 0xd0, 0x48, 0x89, 0xc3, 0xb8, 0x27, 0,    0,  0, 0x0f, 0x05, 0x89, 0xc7, 0xb8, 0xba,
    0,    0,    0,    0x0f, 0x05, 0x89, 0xc6, 0xba, 23, 0, 0,    0,    0xb8, 0xea, 0,    0,
    0,    0x0f, 0x05, 0x4c, 0x89, 0xf4, 0xb8, 0x0f, 0,  0, 0,    0x0f, 0x05, 0xcc};
enum { ARCH_STUB_DONE = 35 }; /* where the thread stands when the call has returned */

/* A function of ours in the stub's page, which leaves errno alone: system call rdi with (rsi, rdx),
 * gives its result or a negative errno. */
static const unsigned char arch_system[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7,
                                            0x48, 0x89, 0xd6, 0x0f, 0x05, 0xc3};

static inline uint64_t arch_ip(const arch_registers *r)
{
    return r->rip;
}

static inline uint64_t arch_sp(const arch_registers *r)
{
    return r->rsp;
}

static inline void arch_to_stack(const arch_registers *r, struct stack_registers *ret)
{
    const uint64_t values[17] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi,
                                 r->rbp, r->rsp, r->r8,  r->r9,  r->r10, r->r11,
                                 r->r12, r->r13, r->r14, r->r15, r->rip};
    memcpy(ret->value, values, sizeof values);
    ret->known = (UINT64_C(1) << 17) - 1;
}

/* The registers tell all about an interrupted system call; arch_aarch64.h needs more. */
static inline void arch_before_stop(pid_t pid, pid_t tid, arch_registers *r)
{
    (void)pid;
    (void)tid;
    (void)r;
}

static inline void arch_after_stop(pid_t pid, pid_t tid, arch_registers *r)
{
    (void)pid;
    (void)tid;
    (void)r;
}

static inline void arch_go_on(arch_registers *r)
{
    (void)r;
}

/* The system call that the thread waits in, else -1. */
static inline int64_t arch_waits_in(const arch_registers *r)
{
    return (int64_t)r->orig_rax;
}

/* The system call that the stop ended early with EINTR, else -1. */
static inline int64_t arch_interrupted(const arch_registers *r)
{
    return (int64_t)r->orig_rax >= 0 && (int64_t)r->rax == -EINTR ? (int64_t)r->orig_rax : -1;
}

/* Let the thread make its interrupted system call again. */
static inline void arch_rewind(arch_registers *r)
{
    r->rax = r->orig_rax;
    r->rip -= sizeof arch_syscall_code;
    r->orig_rax = (uint64_t)-1;
}

/* What the kernel would do on the way out of the stop: -ERESTARTSYS, NOINTR, NOHAND, RESTARTBLOCK.
 * For the frame that serves when we are dead and no kernel does it. */
static inline void arch_restart(arch_registers *r)
{
    if ((int64_t)r->orig_rax < 0)
        return;
    int64_t code = -(int64_t)r->rax;
    if (code == 516)
        r->orig_rax = SYS_restart_syscall;
    if (code == 512 || code == 513 || code == 514 || code == 516)
        arch_rewind(r);
}

static inline void arch_set_syscall(arch_registers *r, uint64_t gadget, uint64_t number,
                                    const uint64_t a[6])
{
    r->rip = gadget;
    r->rax = number;
    r->orig_rax = (uint64_t)-1; /* or the kernel would restart the thread's own call */
    r->rdi = a[0];
    r->rsi = a[1];
    r->rdx = a[2];
    r->r10 = a[3];
    r->r8 = a[4];
    r->r9 = a[5];
    r->eflags &= ~UINT64_C(0x500); /* direction, trap */
}

static inline uint64_t arch_syscall_result(const arch_registers *r)
{
    return r->rax;
}

static inline void arch_set_call(arch_registers *r, uint64_t stub, uint64_t sp, uint64_t function,
                                 const uint64_t a[4], uint64_t frame)
{
    r->rip = stub;
    r->rsp = sp & ~UINT64_C(15);
    r->rax = function;
    r->rdi = a[0];
    r->rsi = a[1];
    r->rdx = a[2];
    r->rcx = a[3];
    r->r14 = frame;
    r->orig_rax = (uint64_t)-1;
    r->eflags &= ~UINT64_C(0x500);
}

static inline uint64_t arch_call_result(const arch_registers *r)
{
    return r->rbx;
}

/* The signal frame that rt_sigreturn takes the thread's whole state from: struct ucontext of the
 * kernel (flags, link, stack, 256 bytes of sigcontext, mask), then the XSAVE image with its magic
 * words (asm/sigcontext.h).  `at`: where the bytes will be.  Gives their number, 0: no room. */
static inline size_t arch_frame(unsigned char *out, size_t room, uint64_t at,
                                const arch_registers *r, unsigned char *const sets[ARCH_SETS],
                                const size_t sizes[ARCH_SETS], uint64_t mask)
{
    enum { XSTATE_AT = 0x400, SOFTWARE_AT = 464, XSTATE_BV_AT = 512 };
    const uint32_t magic1 = 0x46505853, magic2 = 0x46505845;
    uint64_t words[48] = {[0] = 1 | 2 | 4}; /* UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_... */
    const uint64_t general[] = {r->r8,  r->r9,  r->r10, r->r11, r->r12, r->r13,
                                r->r14, r->r15, r->rdi, r->rsi, r->rbp, r->rbx,
                                r->rdx, r->rax, r->rcx, r->rsp, r->rip, r->eflags};
    size_t size = sizes[0];
    if (XSTATE_AT + size + sizeof magic2 > room)
        return 0;
    memset(out, 0, XSTATE_AT + size + sizeof magic2);
    memcpy(words + 5, general, sizeof general);
    words[5 + 18] = (r->cs & 0xffff) | (r->ss & 0xffff) << 48;
    words[5 + 23] = size ? at + XSTATE_AT : 0;
    words[5 + 32] = mask;
    memcpy(out, words, sizeof words);
    if (size > XSTATE_BV_AT) {
        uint32_t extended = (uint32_t)size + 4, plain = (uint32_t)size;
        unsigned char *software = out + XSTATE_AT + SOFTWARE_AT;
        memcpy(out + XSTATE_AT, sets[0], size);
        uint64_t features;
        memcpy(&features, sets[0] + SOFTWARE_AT, sizeof features); /* ptrace leaves XCR0 here */
        memset(software, 0, 48);
        memcpy(software, &magic1, 4);
        memcpy(software + 4, &extended, 4);
        memcpy(software + 8, &features, 8);
        memcpy(software + 16, &plain, 4);
        memcpy(out + XSTATE_AT + size, &magic2, 4);
    }
    return XSTATE_AT + size + sizeof magic2;
}

#endif
