/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/signals.c - a signal that nobody else uses, taken and given back.
 *
 * [control] or the profiler's thread, one at a time.
 */
#include "signals.h"

#include <errno.h>

bool signals_is_ours(int number, signals_handler *handler)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
           now.sa_sigaction == handler;
}

bool signals_take_unused(int number, signals_handler *handler)
{
    struct sigaction now,
        ours = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    (void)sigfillset(&ours.sa_mask);
    (void)sigdelset(&ours.sa_mask,
                    SIGBUS); /* a lost page of the rings is mended: core/base/mapped.h */
    return sigaction(number, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
           now.sa_handler == SIG_DFL && sigaction(number, &ours, NULL) == 0;
}

int signals_take(signals_handler *handler, int *ret)
{
    if (signals_take_unused(SIGURG, handler)) {
        *ret = SIGURG;
        return 0;
    }
    for (int number = SIGRTMAX - 2; number > SIGRTMIN; number--) {
        if (signals_take_unused(number, handler)) {
            *ret = number;
            return 0;
        }
    }
    return -EBUSY;
}

void signals_give(int number, signals_handler *handler)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN}, none = {.sa_handler = SIG_DFL};
    if (!signals_is_ours(number, handler))
        return;
    /* ignoring it for a moment drops those that are on their way and would end the program */
    (void)sigaction(number, &ignore, NULL);
    (void)sigaction(number, &none, NULL);
}
