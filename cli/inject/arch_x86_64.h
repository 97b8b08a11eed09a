/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/arch_x86_64.h - registers, system calls and the stub of x86-64.
 * Included by internal.h only; arch_aarch64.h says the same words for that machine.
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

/* The first calls are made from the unused end of a page of code, before there is memory of ours.
 * These bytes are the same for every thread and every command, so they may stay there and be used
 * by several at once; what is a thread's own lies on its stack, see arch_block().
 * r14 and rsp: the block, r12: the signal that says done.  Result in rbx. */
static const unsigned char arch_cave[] = {
    0x0f, 0x05,                         /* syscall */
    0x48, 0x89, 0xc3,                   /* mov %rax, %rbx */
    0xb8, 0x27, 0,    0,    0,          /* mov $39, %eax: getpid */
    0x0f, 0x05,                         /* syscall */
    0x89, 0xc7,                         /* mov %eax, %edi */
    0xb8, 0xba, 0,    0,    0,          /* mov $186, %eax: gettid */
    0x0f, 0x05,                         /* syscall */
    0x89, 0xc6,                         /* mov %eax, %esi */
    0x44, 0x89, 0xe2,                   /* mov %r12d, %edx */
    0xb8, 0xea, 0,    0,    0,          /* mov $234, %eax: tgkill */
    0x0f, 0x05,                         /* syscall; if nobody holds the thread now, it goes on: */
    0xb8, 0x0e, 0,    0,    0,          /* mov $14, %eax: rt_sigprocmask */
    0xbf, 0x02, 0,    0,    0,          /* mov $2, %edi: SIG_SETMASK */
    0x4c, 0x89, 0xf6,                   /* mov %r14, %rsi */
    0x31, 0xd2,                         /* xor %edx, %edx */
    0x41, 0xba, 0x08, 0,    0,    0,    /* mov $8, %r10d */
    0x0f, 0x05,                         /* syscall */
    0x49, 0x8d, 0x66, 0x08,             /* lea 8(%r14), %rsp */
    0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, /* pop %r15, %r14, %r13 */
    0x41, 0x5c, 0x41, 0x5b, 0x41, 0x5a, /* pop %r12, %r11, %r10 */
    0x41, 0x59, 0x41, 0x58, 0x5f, 0x5e, /* pop %r9, %r8, %rdi, %rsi */
    0x5d, 0x5b, 0x5a, 0x59, 0x58,       /* pop %rbp, %rbx, %rdx, %rcx, %rax */
    0x9d,                               /* popf */
    0xc2, 0x80, 0};                     /* ret $128: over the red zone */
enum { ARCH_CAVE_DONE = 33, ARCH_RED_ZONE = 128, ARCH_BLOCK_BYTES = 18 * 8 };

/* Calls on memory of ours: rax is called on our stack, and its result is in rbx.  Behind the code
 * lies what brings the thread back, all of it, should nobody hold it when the call has returned:
 * from 0x100 on the registers and ip, at 0x180 where errno is and what it was, at 0x190 flags, sp
 * and mask, at 0x200 the XSAVE image.  Protection keys are no part of that (bit 9). */
static const unsigned char arch_stub[] = {
    0xff, 0xd0,                               /* call *%rax */
    0x48, 0x89, 0xc3,                         /* mov %rax, %rbx */
    0xb8, 0x27, 0,    0,    0,                /* mov $39, %eax: getpid */
    0x0f, 0x05,                               /* syscall */
    0x89, 0xc7,                               /* mov %eax, %edi */
    0xb8, 0xba, 0,    0,    0,                /* mov $186, %eax: gettid */
    0x0f, 0x05,                               /* syscall */
    0x89, 0xc6,                               /* mov %eax, %esi */
    0x44, 0x89, 0xe2,                         /* mov %r12d, %edx */
    0xb8, 0xea, 0,    0,    0,                /* mov $234, %eax: tgkill */
    0x0f, 0x05,                               /* syscall */
    0xb8, 0xff, 0xfd, 0xff, 0xff,             /* mov $0xfffffdff, %eax */
    0xba, 0xff, 0xff, 0xff, 0xff,             /* mov $0xffffffff, %edx */
    0x48, 0x0f, 0xae, 0x2d, 0xcd, 0x01, 0, 0, /* xrstor64 0x200 */
    0x48, 0x8b, 0x0d, 0x46, 0x01, 0,    0,    /* mov 0x180, %rcx */
    0xe3, 0x08,                               /* jrcxz over the next two */
    0x8b, 0x05, 0x46, 0x01, 0,    0,          /* mov 0x188, %eax */
    0x89, 0x01,                               /* mov %eax, (%rcx) */
    0x48, 0x8d, 0x25, 0x45, 0x01, 0,    0,    /* lea 0x190, %rsp */
    0x9d,                                     /* popf */
    0x48, 0x8b, 0x25, 0x45, 0x01, 0,    0,    /* mov 0x198, %rsp */
    0xb8, 0x0e, 0,    0,    0,                /* mov $14, %eax: rt_sigprocmask */
    0xbf, 0x02, 0,    0,    0,                /* mov $2, %edi: SIG_SETMASK */
    0x48, 0x8d, 0x35, 0x3c, 0x01, 0,    0,    /* lea 0x1a0, %rsi */
    0xba, 0,    0,    0,    0,                /* mov $0, %edx */
    0x41, 0xba, 0x08, 0,    0,    0,          /* mov $8, %r10d */
    0x0f, 0x05,                               /* syscall */
    0x4c, 0x8b, 0x3d, 0x88, 0,    0,    0,    /* mov 0x100, %r15 */
    0x4c, 0x8b, 0x35, 0x89, 0,    0,    0,    /* mov 0x108, %r14 */
    0x4c, 0x8b, 0x2d, 0x8a, 0,    0,    0,    /* mov 0x110, %r13 */
    0x4c, 0x8b, 0x25, 0x8b, 0,    0,    0,    /* mov 0x118, %r12 */
    0x4c, 0x8b, 0x1d, 0x8c, 0,    0,    0,    /* mov 0x120, %r11 */
    0x4c, 0x8b, 0x15, 0x8d, 0,    0,    0,    /* mov 0x128, %r10 */
    0x4c, 0x8b, 0x0d, 0x8e, 0,    0,    0,    /* mov 0x130, %r9 */
    0x4c, 0x8b, 0x05, 0x8f, 0,    0,    0,    /* mov 0x138, %r8 */
    0x48, 0x8b, 0x3d, 0x90, 0,    0,    0,    /* mov 0x140, %rdi */
    0x48, 0x8b, 0x35, 0x91, 0,    0,    0,    /* mov 0x148, %rsi */
    0x48, 0x8b, 0x2d, 0x92, 0,    0,    0,    /* mov 0x150, %rbp */
    0x48, 0x8b, 0x1d, 0x93, 0,    0,    0,    /* mov 0x158, %rbx */
    0x48, 0x8b, 0x15, 0x94, 0,    0,    0,    /* mov 0x160, %rdx */
    0x48, 0x8b, 0x0d, 0x95, 0,    0,    0,    /* mov 0x168, %rcx */
    0x48, 0x8b, 0x05, 0x96, 0,    0,    0,    /* mov 0x170, %rax */
    0xff, 0x25, 0x98, 0,    0,    0};         /* jmp *0x178 */
enum { ARCH_STUB_DONE = 33, ARCH_STUB_ERRNO = 0x180 };

/* A function of ours in the stub's page, which leaves errno alone: system call rdi with (rsi, rdx),
 * gives its result or a negative errno. */
static const unsigned char arch_system[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7,
                                            0x48, 0x89, 0xd6, 0x0f, 0x05, 0xc3};
enum { ARCH_STUB_SYSTEM = 0xe0 };

/* The helper's code, a function: rdi points to struct helper_mail.  It blocks all signals, detaches
 * itself, tells who it is and naps until it is told to leave or has lost patience.  Its last step
 * is munmap() of all this, which returns to who called it. */
static const unsigned char arch_helper[] = {
    0x53,                               /* push %rbx */
    0x48, 0x89, 0xfb,                   /* mov %rdi, %rbx */
    0x31, 0xff,                         /* xor %edi, %edi */
    0x48, 0x8d, 0x73, 0x30,             /* lea 0x30(%rbx), %rsi */
    0x31, 0xd2,                         /* xor %edx, %edx */
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00, /* mov $8, %r10d */
    0xb8, 0x0e, 0x00, 0x00, 0x00,       /* mov $14, %eax */
    0x0f, 0x05,                         /* syscall */
    0x48, 0x8b, 0x7b, 0x08,             /* mov 0x08(%rbx), %rdi */
    0xff, 0x13,                         /* call *(%rbx) */
    0xb8, 0xba, 0x00, 0x00, 0x00,       /* mov $186, %eax */
    0x0f, 0x05,                         /* syscall */
    0x48, 0x89, 0x43, 0x10,             /* mov %rax, 0x10(%rbx) */
    0x83, 0x7b, 0x18, 0x00,             /* cmpl $0, 0x18(%rbx) */
    0x75, 0x15,                         /* jne 3f */
    0x48, 0xff, 0x4b, 0x20,             /* decq 0x20(%rbx) */
    0x74, 0x0f,                         /* jz 3f */
    0x48, 0x8d, 0x7b, 0x38,             /* lea 0x38(%rbx), %rdi */
    0x31, 0xf6,                         /* xor %esi, %esi */
    0xb8, 0x23, 0x00, 0x00, 0x00,       /* mov $35, %eax */
    0x0f, 0x05,                         /* syscall */
    0xeb, 0xe5,                         /* jmp 1b */
    0x48, 0x8b, 0x43, 0x48,             /* mov 0x48(%rbx), %rax */
    0x48, 0x8b, 0x7b, 0x50,             /* mov 0x50(%rbx), %rdi */
    0x48, 0x8b, 0x73, 0x58,             /* mov 0x58(%rbx), %rsi */
    0x5b,                               /* pop %rbx */
    0xff, 0xe0,                         /* jmp *%rax */
};

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
    memcpy(ret->value, values, sizeof(values));
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

/* The fourth argument of the call: the time limit of epoll_wait and epoll_pwait. */
static inline uint64_t arch_fourth(const arch_registers *r)
{
    return r->r10;
}

static inline void arch_set_fourth(arch_registers *r, uint64_t value)
{
    r->r10 = value;
}

/* Let the thread make its interrupted system call again. */
static inline void arch_rewind(arch_registers *r)
{
    r->rax = r->orig_rax;
    r->rip -= 2; /* the syscall instruction */
    r->orig_rax = (uint64_t)-1;
}

/* A wait that the kernel would go on with by restart_syscall(2): let it begin the call again, with
 * all of its time, unless a handler runs first.  true: so it was. */
static inline bool arch_call_anew(arch_registers *r)
{
    bool restarts = (int64_t)r->orig_rax >= 0 && (int64_t)r->rax == -516; /* RESTARTBLOCK */
    if (restarts)
        r->rax = (uint64_t)-514; /* ERESTARTNOHAND */
    return restarts;
}

/* Do as the kernel would on the way out of the stop: -ERESTARTSYS, NOINTR, NOHAND, RESTARTBLOCK.
 * This is for the way back that serves when we are dead and no kernel does it. */
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

/* The address of the thread's block: on its own stack, below what it may use of it. */
static inline uint64_t arch_block_at(const arch_registers *r)
{
    return r->rsp - ARCH_RED_ZONE - ARCH_BLOCK_BYTES;
}

static inline void arch_general(const arch_registers *r, uint64_t ret[15])
{
    const uint64_t words[15] = {r->r15, r->r14, r->r13, r->r12, r->r11, r->r10, r->r9, r->r8,
                                r->rdi, r->rsi, r->rbp, r->rbx, r->rdx, r->rcx, r->rax};
    memcpy(ret, words, sizeof(words));
}

/* Fill the block that brings the thread back from the cave by itself.  A system call leaves vector
 * state alone. */
static inline size_t arch_block(unsigned char out[ARCH_BLOCK_BYTES], const arch_registers *r,
                                unsigned char *const sets[ARCH_SETS], const size_t sizes[ARCH_SETS],
                                uint64_t mask)
{
    uint64_t words[18] = {[0] = mask, [16] = r->eflags & ~UINT64_C(0x100), [17] = r->rip};
    (void)sets;
    (void)sizes;
    arch_general(r, words + 1);
    memcpy(out, words, sizeof(words));
    return sizeof(words);
}

/* The stub, its data and arch_system; `errno` is filled in later.  Gives the bytes, 0: no room. */
static inline size_t arch_stub_make(unsigned char *out, size_t room, const arch_registers *r,
                                    unsigned char *const sets[ARCH_SETS],
                                    const size_t sizes[ARCH_SETS], uint64_t mask)
{
    enum { GENERAL_AT = 0x100, FLAGS_AT = 0x190, SETS_AT = 0x200 };
    uint64_t general[16];
    const uint64_t others[3] = {r->eflags & ~UINT64_C(0x100), r->rsp, mask};
    if (SETS_AT + sizes[0] > room)
        return 0;
    memset(out, 0, SETS_AT);
    memcpy(out, arch_stub, sizeof(arch_stub));
    memcpy(out + ARCH_STUB_SYSTEM, arch_system, sizeof(arch_system));
    arch_general(r, general);
    general[15] = r->rip;
    memcpy(out + GENERAL_AT, general, sizeof(general));
    memcpy(out + FLAGS_AT, others, sizeof(others));
    memcpy(out + SETS_AT, sets[0], sizes[0]);
    return SETS_AT + sizes[0];
}

/* A system call from the cave.  `sign`: the signal that says it is done. */
static inline void arch_set_first(arch_registers *r, uint64_t cave, uint64_t block, int sign,
                                  uint64_t number, const uint64_t a[6])
{
    r->rip = cave;
    r->rsp = block;
    r->rax = number;
    r->orig_rax = (uint64_t)-1; /* or the kernel would restart the thread's own call */
    r->rdi = a[0];
    r->rsi = a[1];
    r->rdx = a[2];
    r->r10 = a[3];
    r->r8 = a[4];
    r->r9 = a[5];
    r->r12 = (uint64_t)sign;
    r->r14 = block;
    r->eflags &= ~UINT64_C(0x500); /* direction, trap */
}

static inline void arch_set_call(arch_registers *r, uint64_t stub, uint64_t sp, int sign,
                                 uint64_t function, const uint64_t a[4])
{
    r->rip = stub;
    r->rsp = sp & ~UINT64_C(15);
    r->rax = function;
    r->rdi = a[0];
    r->rsi = a[1];
    r->rdx = a[2];
    r->rcx = a[3];
    r->r12 = (uint64_t)sign;
    r->orig_rax = (uint64_t)-1;
    r->eflags &= ~UINT64_C(0x500);
}

/* Give the result of a call from the cave or the stub. */
static inline uint64_t arch_result(const arch_registers *r)
{
    return r->rbx;
}

#endif
