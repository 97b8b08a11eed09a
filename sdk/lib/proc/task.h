/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/task.h - what the kernel says of a process or thread: stat, comm, syscall, status,
 * sched.
 *
 * Any thread, handlers too: see proc_file.h, for pid and tid as well.  Each *_of() gives 0, -ESRCH
 * when it has ended or may not be seen, another -errno, or -EPROTO for a text that is not as
 * proc(5) says (a read that was cut short): nothing of that is believed.
 */
#ifndef SDK_LIB_PROC_TASK_H
#define SDK_LIB_PROC_TASK_H

#include "lines.h"
#include "proc_file.h"

/* ---- stat ---- */

struct proc_stat {
    char comm[64]; /* what it is called: any bytes, blanks, newlines and ')' too; cut to fit */
    char state;    /* R S D T t Z X I: proc(5) */
    /* Numbers are PROC_UNKNOWN where the kernel is older than the field. */
    uint64_t ppid;
    uint64_t flags;        /* PF_* of linux/sched.h */
    uint64_t major_faults; /* since it began */
    uint64_t user_ticks;   /* of sysconf(_SC_CLK_TCK), since it began */
    uint64_t system_ticks;
    uint64_t threads;
    uint64_t start_ticks; /* when it began, since the machine did */
    uint64_t size_bytes;  /* of its address space */
    uint64_t rss_pages;   /* resident, of sysconf(_SC_PAGESIZE); behind by some pages a thread */
    uint64_t cpu;         /* the processor it ran on last */
};

#define PROC_STAT_BYTES 1024

/* text: `size` bytes and a NUL.  0 or -EPROTO.  [signal] */
int proc_stat_parse(const char *text, size_t size, struct proc_stat *ret);
/* [signal] */
int proc_stat_of(pid_t pid, pid_t tid, struct proc_stat *ret);

/* ---- schedstat ---- */

struct proc_schedstat { /* since it began */
    uint64_t ran_ns;
    uint64_t
        waited_ns; /* ready and not on a processor, a cgroup's quota too; a wait is counted when
                           it ends */
};

/* "RAN WAITED TIMES".  0 or -EPROTO.  [signal] */
int proc_schedstat_parse(const char *text, struct proc_schedstat *ret);
/* -ENOENT, too: the kernel has no such file.  [signal] */
int proc_schedstat_of(pid_t pid, pid_t tid, struct proc_schedstat *ret);

/* ---- comm ---- */

#define PROC_COMM_BYTES 16

/* The name alone; "" when it fails.  [signal] */
int proc_comm_of(pid_t pid, pid_t tid, char *ret, size_t size);
/* Call a thread of our own process otherwise.  [signal] */
int proc_comm_set(pid_t tid, const char *name);

/* ---- syscall ---- */

enum proc_where {
    PROC_RUNS,    /* or could run: nothing more is known */
    PROC_OUTSIDE, /* it is kept from running, in no system call: sp and ip are known */
    PROC_WAITS    /* in a system call: all is known */
};

struct proc_syscall {
    int64_t number;        /* of the call, -1: in none */
    uint64_t arguments[6]; /* zeros where it is in none */
    uint64_t sp, ip;       /* 0: not known */
};

/* enum proc_where, or -EPROTO.  [signal] */
int proc_syscall_parse(const char *text, size_t size, struct proc_syscall *ret);
/* enum proc_where, or -errno as said above; -EPERM, -EACCES: only who may trace it is told.
 * [signal] */
int proc_syscall_of(pid_t pid, pid_t tid, struct proc_syscall *ret);

/* ---- status ---- */

/* Numbers are PROC_UNKNOWN where the file does not say them (a zombie has no memory, an old kernel
 * no NSpid). */
struct proc_status {
    char state;
    uint64_t tgid, ppid;
    uint64_t tracer; /* who traces it, 0: nobody */
    uint64_t uid[4]; /* real, effective, saved, of the file system */
    uint64_t gid[4];
    uint64_t inner_id;    /* its number in the innermost pid namespace that it is in */
    uint64_t namespaces;  /* how many it is in, from that of this /proc on: 1 if it is the same */
    uint64_t threads;     /* of its process */
    uint64_t queued;      /* signals that wait, and POSIX timers: of all processes of its user */
    uint64_t pending;     /* signals, bit number - 1: of the thread, */
    uint64_t shared;      /* of its process, */
    uint64_t blocked;     /* blocked, */
    uint64_t caught;      /* and with a handler */
    uint64_t permitted;   /* capabilities, bit number: capabilities(7) */
    uint64_t effective;   /* those of them that are in use */
    uint64_t seccomp;     /* 0: none, 1: strict, 2: a filter */
    uint64_t filters;     /* of seccomp; Linux 5.9 */
    uint64_t voluntary;   /* times that it gave up the processor */
    uint64_t involuntary; /* times that the processor was taken from it */
    uint64_t size_bytes;  /* VmSize: address space */
    uint64_t peak_size_bytes;                     /* VmPeak: the most it ever was */
    uint64_t data_bytes;                          /* VmData: private and writable */
    uint64_t locked_bytes;                        /* VmLck: of the address space, by mlock() */
    uint64_t rss_bytes, peak_rss_bytes;           /* VmRSS, VmHWM */
    uint64_t anon_bytes, file_bytes, shmem_bytes; /* RssAnon, RssFile, RssShmem */
    uint64_t swap_bytes;
};

/* Takes what is known of the lines that come.  [signal] */
int proc_status_parse(struct proc_lines *l, struct proc_status *ret);
/* [signal] */
int proc_status_of(pid_t pid, pid_t tid, struct proc_status *ret);

/* ---- sched ---- */

/* A kernel without CONFIG_SCHED_DEBUG has none of it (-ENOENT).  -ENODATA: the thread was moved to
 * another processor, and has not run there; the kernel has forgotten when it ran. */
struct proc_sched {
    uint64_t ran_ns;   /* when it ran last, by the clock of its processor, which began with the
                        * machine */
    uint64_t switches; /* times that it gave up the processor */
};

/* [signal] */
int proc_sched_parse(struct proc_lines *l, struct proc_sched *ret);
/* [signal] */
int proc_sched_of(pid_t pid, pid_t tid, struct proc_sched *ret);

#endif
