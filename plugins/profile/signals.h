/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/signals.h - a signal that nobody else uses, taken and given back.
 *
 * [control] or the profiler's thread, one at a time.
 */
#ifndef PROFILE_SIGNALS_H
#define PROFILE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

typedef void signals_handler(int number, siginfo_t *info, void *context);

/* SIGURG, or else a real-time signal that nobody has, from the top; the core's own stands above.
 * By default SIGURG is ignored, and the others end the process: programs put back the default of
 * all signals without asking (PyTorch Lightning at the end of fit()).  -EBUSY: there is none. */
int signals_take(signals_handler *handler, int *ret);
/* This one, if nobody has it. */
bool signals_take_unused(int number, signals_handler *handler);
bool signals_is_ours(int number, signals_handler *handler);
void signals_give(int number, signals_handler *handler);

#endif
