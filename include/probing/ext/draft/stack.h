/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/stack.h - "probing.stack/1", by the core: native stacks and symbols.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_STACK_H
#define PROBING_EXT_STACK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_STACK_1 "probing.stack/1"

struct probing_stack_frame {
    uint64_t ip, sp; /* innermost first; in caller frames ip is the return address */
};

struct probing_stack_thread {
    uint32_t size; /* sizeof(struct probing_stack_thread), set by the caller */
    int32_t tid;
    char name[16];       /* comm */
    int32_t state;       /* letter of /proc: R S D T Z */
    int32_t end;         /* 0: whole; 1: unwinding was lost; 2: more than max_frames */
    int64_t syscall;     /* system call it waits in, -1: none or unknown */
    uint32_t max_frames; /* in: room in frames */
    uint32_t n_frames;   /* out */
    struct probing_stack_frame *frames;
};

struct probing_stack_symbol {
    uint32_t size, reserved; /* sizeof(struct probing_stack_symbol), 0 */
    char name[256];          /* demangled; "" when unknown */
    char module[256];        /* path of the object file; "" when in none */
    uint64_t offset;         /* of the address inside the function */
    uint64_t module_offset;  /* what addr2line wants */
};

struct probing_stack_1 {
    uint32_t size, reserved;
    /* Look at one thread of this process without changing what it does: a thread that waits in a
     * call that a signal would end is read from /proc instead.  -ESRCH, -ETIMEDOUT.   [worker] */
    int (*thread)(int32_t tid, uint64_t timeout_ns, struct probing_stack_thread *ret);
    /* The same, and fn(arg) runs on the caller's thread while thread `tid` stands still, so that
     * what fn reads of it is of the same moment as its frames.  It stands for 20 ms at most; fn
     * must be short and take no lock that the thread may hold (so: no malloc, no GIL).
     * 1: it stood still to the end of fn; 0: it did not, or fn did not run.           [worker] */
    int (*thread_held)(int32_t tid, uint64_t timeout_ns, void (*fn)(void *arg), void *arg,
                       struct probing_stack_thread *ret);
    /* Name an address (for a return address ask for ip - 1).  -ENOENT: unknown.       [worker] */
    int (*symbol)(uint64_t address, struct probing_stack_symbol *ret);
    /* Read the memory map again: once for each dump, not for each thread, since thousands of
     * threads have thousands of mappings.  The other functions use the map as it was read last;
     * they read it again for an address that it does not have.  0 or -errno.          [worker] */
    int (*refresh)(void);
};

#ifdef __cplusplus
}
#endif
#endif
