/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/thread_state.h - threads as the kernel sees them: name, state, call.
 *
 * Any thread; reads /proc/PID/task only, touches no thread.
 */
#ifndef PYTHON_INSPECT_THREAD_STATE_H
#define PYTHON_INSPECT_THREAD_STATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Ids of all threads, ascending: how many (at most max), or -errno. */
int threads_list(pid_t pid, int32_t *ret, size_t max);

/* A thread's id as its own pid namespace has it, and as ours does. */
struct threads_id {
    int32_t inner, outer;
};

/* All threads' ids of a process in another pid namespace, by the inner ones; the caller frees.  How
 * many, 0: the namespace is ours, or -errno. */
int threads_ids(pid_t pid, struct threads_id **ret);
/* The outer id, 0: there is none. */
int32_t threads_outer(const struct threads_id *ids, int n, int32_t inner);

struct threads_state {
    char name[16];   /* comm */
    char letter;     /* R S D T Z */
    int64_t syscall; /* it waits in, -1: none or unknown */
    uint64_t sp;     /* its stack pointer while it waits, 0: unknown */
};

/* -ESRCH: it is gone. */
int threads_state(pid_t pid, int32_t tid, struct threads_state *ret);

/* "futex"; NULL: not one of those that threads wait in. */
const char *threads_syscall_name(int64_t number);

/* "running", "waiting" (for somebody's work or lock), "idle" (for time or outside events). */
const char *threads_state_word(char letter, int64_t number);

#endif
