/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/internal.h - what the files here share: the target, its places, the thread used.
 * Own thread only.
 */
#ifndef CLI_INJECT_INTERNAL_H
#define CLI_INJECT_INTERNAL_H

#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>

#include "cli/inject/inject.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/stack/stack.h"

#if defined(__x86_64__)
#include "cli/inject/arch_x86_64.h"
#elif defined(__aarch64__)
#include "cli/inject/arch_aarch64.h"
#endif

#define AVOID_MAX 1024 /* regions; some 40 in each libc that is mapped */
#define PENDING_MAX 64

/* Our memory in the target, one mapping: a path, the helper's mail, settings, the stub with what
 * brings the thread back and the helper's code, which are not writable and so guard the stack that
 * grows down from the end. */
#define SCRATCH_MAIL 0x800u
#define SCRATCH_SETTINGS 0x1000u
#define SETTINGS_MAX_BYTES 65536
#define SCRATCH_STUB 0x12000u
#define STUB_BYTES 0x9000u /* code and vector state */
#define SCRATCH_HELPER (SCRATCH_STUB + 0x8f00u)
#define SCRATCH_BYTES 0x60000u /* 276 KiB of stack */

#define CAVES_MAX 4
#define FILTERS_KNOWN_MAX 32

/* Code in which a thread must not be used. */
struct avoid {
    uint64_t start, end;
    char what[32];
};

/* Our library: the bytes that dlopen needs, and what it says of itself. */
struct library {
    unsigned char *bytes;   /* mapped privately */
    size_t file_size, size; /* size: up to the end of the last loaded segment */
    uint64_t start;         /* value of probing_start */
    char version[32];
};

/* A wait with a time limit, before its thread is stopped. */
struct wait {
    int64_t call; /* -1: no such wait */
    int32_t limit_ms;
    uint64_t switches; /* of the thread, to something else: as many mean that it waits still */
    uint64_t waited_ns, looked_at;
};

struct target {
    pid_t pid;
    struct stack_process *view;
    uint64_t deadline_ns, timeout_ns;
    struct inject_result *result;

    /* locate.c */
    uint64_t libc_base;
    struct stack_range libc, loader; /* whole modules */
    uint64_t dlopen, dlclose, dlerror;
    uint64_t pthread_create, pthread_detach, munmap; /* 0: no helper can be made */
    uint64_t caves[CAVES_MAX]; /* unused ends of pages of code, with room for arch_cave */
    uint32_t n_caves;
    uint64_t errno_location;
    bool one_libc;   /* glibc from 2.34 on holds what libdl and libpthread did */
    bool old_dlopen; /* __libc_dlopen_mode() of glibc before 2.34 without libdl */
    struct avoid avoid[AVOID_MAX];
    uint32_t n_avoid;
    uint64_t present_start; /* probing_start of a core that is mapped already, 0: none */
    char present_version[32];

    /* seccomp.c */
    bool filtered;   /* one of its threads is under a filter */
    bool no_restart; /* a filter may kill for restart_syscall(), by which the kernel goes on with a
                      * wait that a stop has ended */
    uint64_t filters_known[FILTERS_KNOWN_MAX]; /* hashes of those that do no harm */
    uint32_t n_filters_known;

    /* tracee.c: the thread used */
    pid_t tid;
    bool seized, stopped;
    bool group_stopped; /* by SIGSTOP and the like: must not run on before SIGCONT */
    uint64_t stopped_at;
    bool own_thread;          /* the helper's, not one of the program */
    int mem;                  /* /proc/PID/mem */
    arch_registers registers; /* as they were at the last stop */
    bool saved;
    uint64_t mask, caught; /* signals: blocked in the thread; with a handler in the process */
    int sign;              /* the signal by which our code there says that it is done */
    uint64_t cave, block;  /* 0: not written yet */
    bool masked, vectors_changed;
    unsigned char *sets[ARCH_SETS]; /* ARCH_SET_BYTES each */
    size_t set_sizes[ARCH_SETS];
    int pending[PENDING_MAX]; /* signals that came meanwhile, to be sent again */
    uint32_t n_pending;
    char why_unsafe[400];
    struct wait wait; /* pick_thread.c */

    /* inject.c: what is to be undone in the target */
    uint64_t scratch, stub;
    uint64_t handle;   /* of the library that was loaded; 0: none */
    uint64_t errno_at; /* of the thread used, 0: not known yet */
    int32_t errno_kept;
    int fd;          /* -1 or the memfd's number there */
    int memfd_error; /* 0 or why there is none */
    int own_fd;      /* -1 or the same file opened here */
    int folder;      /* -1 or where a temporary file lies there */
    char file[100];  /* its name, "" none */
    bool left_alone; /* a call hangs: the thread puts itself back when it returns */
};

/* inject.c: probing_start() has given `code`, below 0: why, for either way in. */
int core_refused(pid_t pid, int code);

/* payload.c */
int library_open(const char *path, struct library *ret);
void library_done(struct library *l);
/* Strike a library off the list of those needed: the target's libc holds what was in it. */
void library_need_not(struct library *l, const char *name);

/* By the loader of the target, whose thread is stopped: -ELIBACC with its reason. */
int library_load(struct target *t, const struct library *l, const char *path, uint64_t *ret_start);
/* For a core that could make no thread. */
void library_unload(struct target *t);

/* preflight.c: refusals, each one line with reason and remedy */
int check_target(struct target *t);

/* headroom.c: -ENOMEM, -EMFILE, -EAGAIN: too little left of what its limits allow for the core and
 * the options that are asked for. */
int limits_check(const struct target *t, const struct inject_options *o);

/* locate.c */
int find_places(struct target *t);

/* seccomp.c */
/* -ENOTSUP: a seccomp filter of one of its threads would kill it for the core's calls. */
int filter_check(struct target *t);
/* The same of the thread that is stopped, whose filters those will have that it makes. */
int filter_check_stopped(struct target *t);
/* The same of a process that somebody else traces, so that nobody can read its filters. */
int filter_check_traced(pid_t pid);

/* pick_thread.c: waits with a time limit, which the kernel begins anew after a stop */
#define WAIT_UNSCORED 60 /* after all that were looked at, before those that had better be left */
int wait_score(const struct target *t, pid_t tid); /* how well it can be used; least is best */
void wait_look(struct target *t);                  /* before it is stopped */
void wait_shorten(struct target *t);               /* stopped: it waits for the rest of its time */

/* safe_point.c */
bool safe_point_is_safe(struct target *t);
bool in_restartable_sequence(struct target *t);
bool safe_point_inspect(struct target *t, const arch_registers *r);
/* The system call that the thread was in when it was stopped, if it ended with EINTR for that. */
bool call_may_be_made_again(const arch_registers *r);

/* helper_thread.c: the thread that is stopped makes one of ours and goes on; ours is stopped
 * instead, and t->own_thread.  0 also where that cannot be: then all is as it was. */
int helper_make(struct target *t);
bool helper_is_gone(const struct target *t);
void helper_leave(struct target *t); /* with all that we have there */

/* target_files.c: files as the target sees them, with its user's rights.  A descriptor, or
 * -errno. */
int theirs_folder(pid_t pid, const char *path);
int theirs_open(pid_t pid, int folder, const char *name, int flags, mode_t mode);
int theirs_remove(pid_t pid, int folder, const char *name);
/* A nameless file that the target has open, for writing; made: what it is called if it is ours. */
int theirs_descriptor(pid_t pid, int number, const char *made);
/* By which name in its own /proc the target has that descriptor, which is `fd` here: its number, or
 * "self" where that is not known.  Of "self" a debugger that looks at the target or at its core
 * dump would open a descriptor of its own, and read from a pipe for ever. */
void theirs_owner(pid_t pid, int number, int fd, char ret[24]);

/* remote_exec.c */
struct buf;
int remote_exec(const struct inject_options *o, const struct library *l, struct buf *settings,
                struct inject_result *ret);

/* tracee.c */
int tracee_seize(struct target *t, pid_t tid);
int tracee_stop(struct target *t, uint64_t timeout_ns);
void tracee_release(struct target *t); /* put everything back and detach */
int tracee_save(struct target *t);
int tracee_write(struct target *t, uint64_t address, const void *data, size_t size);
/* A system call on nothing but the thread's own stack; tracee_call() needs memory of ours. */
int tracee_syscall(struct target *t, uint64_t number, const uint64_t a[6], uint64_t *ret);
int tracee_make_stub(struct target *t);
int tracee_call(struct target *t, uint64_t function, const uint64_t a[4], uint64_t *ret);
int tracee_find(struct target *t);       /* choose a thread and stop it at a safe place */
int tracee_find_again(struct target *t); /* the same thread, or another */
int tracee_find_any(struct target *t);   /* at any place: for system calls of ours only */
bool signal_pending(void);               /* Ctrl-C and its like wait to be taken */

#endif
