/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/takes_signal.c - a plugin that leaves its handler of a signal.
 */
#include <signal.h>

#include "hostile.h"

static void on_signal(int signo)
{
    (void)signo;
}

static int start(void *self)
{
    (void)self;
    return signal(SIGUSR2, on_signal) == SIG_ERR ? -errno : 0;
}

HOSTILE("takes_signal", .start = start)
