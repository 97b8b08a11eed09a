/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/stack.h - native code of a process, read from its memory: modules, symbols, unwinding.
 *
 * Everything here works on "a process" given by its pid: our own (stacks on demand in the target)
 * or another one (the injector's safety check, the CLI's look from outside).  Memory is read with
 * process_vm_readv(2), so a wild pointer gives an error, never a fault; ELF headers, symbols and
 * .eh_frame come from what is mapped, never from files in our own mount namespace, except that
 * .symtab names may be read from the module's file through /proc/PID/map_files or /proc/PID/root.
 *
 * Owner's thread only unless tagged.  Nothing here allocates or locks in a signal handler: the
 * handler of stack_capture() copies registers and stack into memory prepared before.
 * Sources: System V gABI (ELF), DWARF 5 section 6.4, LSB .eh_frame_hdr; the search in the table is
 * libunwind's (UNW_OBJ(dwarf_search_unwind_table)).
 */
#ifndef CORE_STACK_STACK_H
#define CORE_STACK_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STACK_FRAMES_MAX 512

/* ---- a process's memory and modules ---- */

struct stack_process; /* open view of one process: its maps, its modules, a cache of pages */

/* -ESRCH, -EPERM, -ENOMEM ...; err_set() done. */
int stack_process_open(pid_t pid, struct stack_process **ret);
void stack_process_free(struct stack_process *p);
/* Our own process, all memory out of one pool that is mapped here: from then on neither malloc nor
 * a lock of the host is needed, so it works while any thread of it stands still anywhere.  Names
 * are not demangled.  _renew forgets everything and reads the maps again. */
int stack_process_open_pool(size_t pool_bytes, struct stack_process **ret);
int stack_process_renew(struct stack_process *p);
/* A process that is gone: its proc(5) maps (malloc'ed, taken over when it works) and pieces of its
 * memory (borrowed, in order of address).  What was mapped from files is read from them, as they
 * are here and now. */
struct stack_piece {
    uint64_t address, size;
    const unsigned char *bytes;
};
int stack_process_open_dead(char *maps, size_t size, const struct stack_piece *pieces, uint32_t n,
                            struct stack_process **ret);
/* Forget cached pages of writable memory (call before each new look); re-read maps when asked.
 * Without, an address in no known module has them read again; after one time in vain
 * that waits for 20 times as long as it took. */
void stack_process_refresh(struct stack_process *p, bool maps_too);

/* Exactly `size` bytes at `address`, or -EFAULT.  _cached goes through the page cache. */
int stack_read(struct stack_process *p, uint64_t address, void *ret, size_t size);
int stack_read_cached(struct stack_process *p, uint64_t address, void *ret, size_t size);
/* As many of `size` bytes as there are from `address` on; 0: none. */
size_t stack_read_some(struct stack_process *p, uint64_t address, void *ret, size_t size);
/* Put a copied piece of the target's stack into the page cache: reads inside it are answered from
 * the copy.  Borrowed until the next call or refresh. */
void stack_overlay(struct stack_process *p, uint64_t address, const void *copy, size_t size);

/* Is that memory mapped executable? */
bool stack_is_code(const struct stack_process *p, uint64_t address);

struct stack_range {
    uint64_t start, end;
};

struct stack_module {
    const char *path;           /* as /proc/PID/maps names it: "/usr/lib/.../libc.so.6", "[vdso]" */
    uint64_t base, end;         /* first and last mapped address */
    uint64_t bias;              /* what to add to a p_vaddr or st_value */
    uint64_t eh_frame_hdr;      /* address, 0: none */
    struct stack_range text[4]; /* executable segments */
    uint32_t n_text;
    uint16_t machine;  /* e_machine */
    uint8_t elf_class; /* ELFCLASS64 or 32 */
};

/* The module that holds `address` / the first whose file name begins with `name` ("libc.so.6",
 * "libc-2.", "ld-linux").  NULL: none.  Borrowed until the next refresh with maps. */
const struct stack_module *stack_module_at(struct stack_process *p, uint64_t address);
const struct stack_module *stack_module_named(struct stack_process *p, const char *name);
/* Every module in turn: fn gives non-zero to stop, which is returned. */
int stack_modules(struct stack_process *p, int (*fn)(void *arg, const struct stack_module *m),
                  void *arg);

/* Address of a dynamic symbol by name, through DT_GNU_HASH; 0: not defined there. */
uint64_t stack_symbol_address(struct stack_process *p, const struct stack_module *m,
                              const char *name);
/* Every defined dynamic function symbol of m: name, start, size.  For ranges such as malloc's. */
int stack_symbols(struct stack_process *p, const struct stack_module *m,
                  int (*fn)(void *arg, const char *name, uint64_t start, uint64_t size), void *arg);

struct stack_symbol {
    char name[256];     /* demangled where it can be; "" when unknown */
    uint64_t offset;    /* of the address inside the function */
    const char *module; /* module path, NULL when the address is in none; borrowed like modules */
    uint64_t module_offset; /* address - bias: what addr2line wants */
};

/* Name an address: .symtab of the module's file where it can be read and fits (same build-id),
 * else .dynsym.  For a return address pass address - 1.  0, or -ENOENT (ret is still filled). */
int stack_symbol(struct stack_process *p, uint64_t address, struct stack_symbol *ret);

/* ---- unwinding by CFI ---- */

/* Registers to begin with, in DWARF order of the machine (x86-64: rax rdx rcx rbx rsi rdi rbp rsp
 * r8..r15 rip = 17; aarch64: x0..x30 sp pc = 33).  `known`: bit per register; ip and sp must be. */
struct stack_registers {
    uint64_t value[33];
    uint64_t known;
};
#if defined(__x86_64__)
enum { STACK_REG_SP = 7, STACK_REG_IP = 16, STACK_REG_FP = 6 };
#elif defined(__aarch64__)
enum { STACK_REG_SP = 31, STACK_REG_IP = 32, STACK_REG_FP = 29 };
#endif

struct stack_frame {
    uint64_t ip, sp;
}; /* innermost first; ip of caller frames is the return address */

enum stack_end {
    STACK_END_OUTERMOST = 0, /* whole: reached the thread's first function */
    STACK_END_LOST = 1,      /* no unwind information, an unknown register or unreadable memory */
    STACK_END_LIMIT = 2      /* `max` frames and there were more */
};

/* Unwind.  Gives the number of frames (>= 1), or -errno; *ret_end says why it stopped.  For stacks
 * that somebody asks for; samples are unwound by sdk/sampling/unwind.h, to the same frames. */
int stack_unwind(struct stack_process *p, const struct stack_registers *r,
                 struct stack_frame *frames, uint32_t max, enum stack_end *ret_end);

/* From a signal handler's third argument.                                             [signal] */
void stack_registers_of(const void *ucontext, struct stack_registers *ret);

/* ---- a thread of our own process ---- */

struct stack_thread {
    pid_t tid;
    char name[16];   /* comm */
    char state;      /* R S D T Z of /proc */
    int64_t syscall; /* number it waits in, -1: none or unknown */
    uint32_t n;
    enum stack_end end;
    struct stack_frame frames[STACK_FRAMES_MAX];
};

/* Look at one thread of this process.  A thread that waits in a system call which a signal would
 * end with EINTR even under SA_RESTART (signal(7): poll, select, epoll_wait, nanosleep, sigwait,
 * io_getevents, ...) is never signalled: its ip and sp come from /proc/self/task/TID/syscall, and
 * the frame pointer from the code (x86-64: sdk/frame_size.h); the unwind may end LOST where it
 * needs a register that cannot be known.  Any other thread gets one real-time signal whose handler
 * copies registers and up to 256 KiB of stack, and nothing else.
 * -ESRCH: gone; -ETIMEDOUT: it did not answer in timeout_ns (then only comm, state and syscall).
 * One call at a time (the caller holds a lock); `self` = an open view of our own process. */
int stack_capture(struct stack_process *self, pid_t tid, uint64_t timeout_ns,
                  struct stack_thread *ret);

/* The same, and fn(arg) runs on the caller while the thread stands still: in our handler, or in the
 * system call it waits in.  So what fn reads of it is of the same moment as the frames.  fn takes
 * no lock that the thread may hold (so: no malloc) and is short: a thread in the handler goes on
 * after STACK_HOLD_NS in any case.  1: it stood still to the end of fn; 0: it did not, or fn did
 * not run; -errno as above. */
#define STACK_HOLD_NS UINT64_C(20000000)
int stack_capture_held(struct stack_process *self, pid_t tid, uint64_t timeout_ns,
                       void (*fn)(void *arg), void *arg, struct stack_thread *ret);

/* Put back the signal's previous handler; no capture or gathering may run.  For eject. */
void stack_capture_off(void);

/* ---- all threads of our own process at once ---- */

#define STACK_GATHER_MAX 2048                /* threads */
#define STACK_GATHER_NS UINT64_C(5000000000) /* nobody stands still longer than this */

/* Take the signal and the memory, before anything goes wrong. */
int stack_gather_prepare(void);
/* Make these threads stand still in our handler.  No malloc, no lock.  One gathering at a time, by
 * one thread. */
void stack_gather_begin(const pid_t *tids, uint32_t n);
/* Until all stand but those that wait in a system call with the signal blocked, or the time is up.
 * A thread that runs with it blocked is asked as soon as it takes it. */
void stack_gather_wait(uint64_t timeout_ns);
/* Give the known registers of a thread, standing or waiting in a system call (then ip and sp only).
 * *ret_call: the system call it waited in before, -1: none.  false: nothing is known. */
bool stack_gather_registers(pid_t tid, struct stack_registers *ret, int64_t *ret_call);
void stack_gather_end(void); /* all go on [signal] */

/* Give a thread that has no alternate signal stack this one, or take it back; so that a handler can
 * run when its stack has overflowed.  By the rules of stack_capture(): -EAGAIN: not now; -ESRCH: it
 * is gone; -EBUSY: the program has taken our signal.
 * 1: done, and nobody runs on it; 0: it has one of its own (or, taking back, not this one).
 * One call at a time. */
int altstack_give(pid_t tid, void *memory, size_t size, bool take_back, uint64_t timeout_ns);

#endif
