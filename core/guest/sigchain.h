/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/sigchain.h - a handler of ours before one of the program's: handing a signal on as the
 * kernel would have sent it.
 *
 * Runs on the thread that the signal came to.
 */
#ifndef CORE_GUEST_SIGCHAIN_H
#define CORE_GUEST_SIGCHAIN_H

#include <signal.h>
#include <stdbool.h>

typedef void handler_fn(int signo, siginfo_t *info, void *context);

/* Is it the default action?                                                           [signal] */
bool handler_is_default(const struct sigaction *a);
/* `fn` to run before `before`: on the alternate stack only where that would be there too.  Faults
 * inside it come to it again: blocked they would end the process at once. */
void handler_fill(struct sigaction *ret, const struct sigaction *before, handler_fn *fn);
/* Run it with its mask, its flags, its arguments.  It may never come back.            [signal] */
void handler_run(const struct sigaction *before, int signo, siginfo_t *info, void *context);
/* The default action, after the handler that calls this: the same signal with the same siginfo
 * waits for this thread until it is back where it was, so that a core dump shows that place and
 * that fault.                                                                         [signal] */
void handler_die(int signo, siginfo_t *info);

#endif
