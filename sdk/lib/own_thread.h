/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/own_thread.h - starting a thread of ours in somebody else's program, unnoticed.
 *
 * No signal of the program comes to it, so none of its handlers runs there.  What the thread
 * itself does wrong is asked about as anywhere: where a fault is blocked the kernel ends the
 * process without a word to any handler (force_sig_info_to_task() of kernel/signal.c, Linux 6.1),
 * to the one that mends a lost page of the store and the one that writes the crash report, too.
 * For the same reason the thread has an alternate signal stack: one whose stack is full is heard,
 * too.  It is 64 KiB of address space more, and no memory until a handler runs on it.
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
