/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/capture_signal.h - the one real-time signal that core/stack takes from the host, and
 * what /proc tells of a thread that it might be sent to.
 *
 * Private to this folder.  core/guest/owned_signals.h owns it.
 */
#ifndef CORE_STACK_CAPTURE_SIGNAL_H
#define CORE_STACK_CAPTURE_SIGNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucontext.h>

#include "sdk/lib/proc/task.h"

enum signal_kind { SIGNAL_CAPTURE, SIGNAL_GATHER, SIGNAL_ALTSTACK, SIGNAL_KINDS };

int signal_take(void); /* our handler on a signal that nobody has; again: is it still there? */
void signal_give_back(void);
int signal_number(void); /* 0: none taken */
bool signal_is_blocked(pid_t tid);
/* It blocks our signal, or does not run and has one to take already, and real-time signals queue:
 * do not send it another. */
bool signal_comes_late(pid_t tid);
int signal_send(pid_t tid, enum signal_kind kind);

/* The handler calls these, one for each kind.  All signals are blocked. */
void capture_on_signal(const ucontext_t *context); /* [signal] */
void gather_on_signal(const ucontext_t *context);  /* [signal] */
void altstack_on_signal(ucontext_t *context);      /* [signal] */

/* ---- threads that wait ---- */

/* true: it waits, or is kept from running (number -1), and where that is is known. */
bool signal_waits_in(pid_t tid, struct proc_syscall *ret);
/* It does, but then our handler can have it made again, and it waits for the same moment or for
 * ever: nobody can tell. */
bool signal_repeats_call(const struct proc_syscall *w);
/* Does this call end with EINTR after a signal, even under SA_RESTART?               [signal] */
bool signal_ends_call(int64_t number, const uint64_t arguments[6]);

#endif
