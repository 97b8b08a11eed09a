/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/own_thread.h - starting a thread of ours in somebody else's program, unnoticed.
 *
 * No signal of the program comes to it, so none of its handlers runs there.  Faults of the thread
 * itself stay unblocked: if a blocked one happens, the kernel ends the process without calling any
 * handler (force_sig_info_to_task() of kernel/signal.c, Linux 6.1), neither the one that mends a
 * lost page of the store nor the one that writes the crash report.  For the same reason the thread
 * has an alternate signal stack, on which a handler runs even if the thread's own stack is full.
 * It takes 64 KiB of address space, and no memory until a handler runs on it.
 */
#ifndef SDK_LIB_OWN_THREAD_H
#define SDK_LIB_OWN_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Run run(arg) on a new thread with a stack of stack_bytes, more where the program's thread-local
 * storage, which lies on the stack, leaves too little.  0 or -errno.  Any thread but a handler's.
 * The first is joined by the caller; the second ends by itself, and ret may be NULL. */
int own_thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg), void *arg);
int own_thread_start_detached(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg),
                              void *arg);

/* Take the signals out of a mask that a thread gets for what it does itself.  SIGABRT is none:
 * abort() lets it through, and sent from outside it may wait for a sigwait() of the program's. */
void own_thread_spare_faults(sigset_t *mask);

#endif
