/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/thread.h - our threads: named, signals blocked, joined by their owner; and waiting.
 *
 * [signal] and [child] functions anywhere in core may call only each other and:
 *   atomic operations, memcpy, memset, clock_gettime, syscall(2) wrappers without a lock
 *   (write, close, fcntl, gettid, tgkill, fallocate by syscall()), clock_now(), ring_append().
 */
#ifndef CORE_GUEST_THREAD_H
#define CORE_GUEST_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Start a thread of ours: every signal but SIGBUS blocked in it, named `name` (at most 15 bytes,
 * "probing/drain"), with a stack of stack_bytes (0: 512 KiB).  Caller joins with pthread_join(). */
int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*run)(void *),
                 void *arg);

/* A condition with a time limit: a flag that many may raise and one or more wait for. */
struct event {
    pthread_mutex_t mutex;
    pthread_cond_t cond; /* on CLOCK_MONOTONIC */
    bool raised;         /* lock: mutex */
    bool woken;          /* who waits is to look around.  lock: mutex */
    uint64_t raises;     /* how often ever, so that all who wait see one raise.  lock: mutex */
};

int event_init(struct event *e);
void event_done(struct event *e);
void event_raise(struct event *e); /* wakes all who wait [any] */
void event_wake(struct event *e);  /* ends one wait, now or the next, and raises nothing [any] */
/* Wait until raised, or woken, or `timeout_ns` from now has gone by; lowers the flag.  true: it was
 * raised. */
bool event_wait(struct event *e, uint64_t timeout_ns);

/* Processor time in ns that the calling thread has used, and others for it.             [any] */
uint64_t thread_cpu(void);
/* Another thread has used so much for the calling one, which waited: what it gained of its own
 * thread_cpu() meanwhile.                                                               [any] */
void thread_cpu_add(uint64_t ns);

#endif
