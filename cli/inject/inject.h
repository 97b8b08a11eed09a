/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/inject.h - bring libprobing.so into a running process, or leave no trace there.
 *
 * One thread of the target is stopped for well under a millisecond at a place where it holds no
 * lock of malloc or the loader, calls dlopen() and probing_start() on a stack of ours, and goes on
 * as if nothing had been: registers, vector state, errno, signal mask and interrupted system call
 * are put back.  If we die in the middle of a call the thread puts itself back.  Own thread only;
 * signals of ours are blocked meanwhile, so that Ctrl-C undoes everything first.
 */
#ifndef CLI_INJECT_INJECT_H
#define CLI_INJECT_INJECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum inject_way {
    INJECT_AUTO = 0, /* ptrace; where a debugger is there already, remote */
    INJECT_PTRACE = 1,
    INJECT_REMOTE = 2 /* CPython from 3.14 on is asked to run a script (remote_exec.c) */
};

struct inject_options {
    pid_t pid;
    enum inject_way way;
    const char *library;         /* path of libprobing.so */
    const char *const *settings; /* NULL-ended list of "key=value" for the core; may be NULL */
    uint64_t timeout_ns;         /* for finding a safe place, and for each call; 0: 5 s */
    bool dry_run;                /* find everything and a safe place, then leave */
};

struct inject_result {
    uint64_t stopped_ns, total_ns; /* one thread, all its stops together; wall time */
    uint32_t stops;
    pid_t tid;           /* the thread used, or that would be */
    bool mapped;         /* the core was mapped, whether it ran or not */
    bool already_there;  /* the core was mapped and running */
    bool revived;        /* the core was mapped, had been ejected, and runs again */
    bool remote;         /* entered without ptrace: no thread was stopped */
    bool target_stopped; /* SIGSTOPped: the core answers after SIGCONT */
    char version[32];
    char filtered[128]; /* system calls that its seccomp filter refuses, of those the core makes */
};

/* Why we may not look at that process, by which rule, and what to do: gives -EPERM.  code: what
 * the kernel said, -errno. */
int inject_no_permission(pid_t pid, int code);
/* Have we CAP_SYS_PTRACE?  And yama's ptrace_scope, '0' to '3'; '0' where there is no yama. */
bool inject_can_trace_all(void);

/* Name the capabilities that root lacks to enter processes of other users, beside CAP_SYS_PTRACE,
 * as "DAC_OVERRIDE, SETGID".  false: none, or we are not root. */
#define INJECT_CAPABILITIES_BYTES 40
bool inject_lacks_for_others(char ret[INJECT_CAPABILITIES_BYTES]);
char inject_yama_scope(void);
/* Has the process threads beside its first one? */
bool inject_runs_on(pid_t pid);

/* 0, or -errno with err_set(): one line with reason and remedy. */
int inject_into(const struct inject_options *o, struct inject_result *ret);

#endif
