/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/owned_signals.h - the one owner of the signals that we take from the program to send
 * them to its own threads: taken, sent, handled, and given back when none can come any more.
 *
 * Whoever wants a signal gets it here, plugins too ("probing.signal/1").  Under the default action
 * a late signal ends the process, so a number is given back only when it is proved that none is on
 * its way: no thread of the process has one pending (/proc/self/task/TID/status; what is found
 * there is dropped by the kernel), and no debugger holds a thread that may have taken one already.
 * Else a handler stays that does nothing, and signals_kept() says so.  This code is never unmapped.
 *
 * Before a signal is given back its owner ends what sends it: timers deleted, descriptors closed,
 * threads joined.  Signals of faults (core/crash, core/guest/mmap_guard.h) are not sent by us, so
 * they need none of this.
 */
#ifndef CORE_GUEST_OWNED_SIGNALS_H
#define CORE_GUEST_OWNED_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

#define SIGNALS_KINDS 8    /* kinds below this may be sent */
#define SIGNALS_FOREIGN -1 /* not sent by signals_send(): a timer's, or the program's */

/* The action on a signal; info: siginfo_t *.  All signals but SIGBUS are blocked.  false: it is not
 * ours; then the handler that stood there before gets it.                             [signal] */
typedef bool signals_fn(int kind, void *info, void *context);

/* The highest real-time signal below `below` that nobody has; where a runtime has put one handler
 * of its own on all of them (Go's does) one of those, and what is not ours is handed on to it.
 * Gives the number, or -EBUSY. */
int signals_take_below(int below, signals_fn *fn);
/* This one, if nobody has it, or it is fn's already: 0 or -EBUSY. */
int signals_take(int number, signals_fn *fn);
bool signals_is_ours(int number); /* our handler is the one that stands there */
/* To one thread of this process: 0, -ESRCH, -EAGAIN (too many are pending: ulimit -i). */
int signals_send(int number, pid_t tid, int kind); /* [any] */
/* Reasons why a thread does not get it; both when that cannot be seen. */
enum { SIGNALS_BLOCKED = 1, SIGNALS_PENDING = 2 /* it has one to take already */ };
unsigned signals_of_thread(int number, pid_t tid);
/* 0: the program has what it had; 1: our handler stays, and does nothing. */
int signals_give(int number);
/* A line for each that stayed, with the reason; how many. */
uint32_t signals_kept(struct buf *b);
/* A forked child has none of ours pending; what stood there before does again.         [child] */
void signals_disable_in_child(void);

#endif
