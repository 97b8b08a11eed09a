/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/own_thread.c - a thread with signals blocked and as large a stack as libc wants.
 */
#include "sdk/lib/own_thread.h"

#include <errno.h>

#define STACK_MOST ((size_t)64 << 20)

static int start(pthread_t *ret, int detach, size_t stack, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attributes;
    int rc = pthread_attr_init(&attributes);
    if (rc)
        return rc;
    (void)pthread_attr_setdetachstate(&attributes, detach);
    rc = pthread_attr_setstacksize(&attributes, stack);
    if (rc == 0)
        rc = pthread_create(ret, &attributes, run, arg);
    (void)pthread_attr_destroy(&attributes);
    return rc;
}

/* The new thread inherits the mask, so no signal can reach it even at its first instruction. */
static int start_quietly(pthread_t *ret, int detach, size_t stack, void *(*run)(void *arg),
                         void *arg)
{
    sigset_t all, before;
    int rc = EINVAL;
    (void)sigfillset(&all);
    own_thread_spare_faults(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    /* EINVAL: the thread-local storage does not fit. */
    for (; rc == EINVAL && stack <= STACK_MOST; stack *= 2)
        rc = start(ret, detach, stack, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

int own_thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg), void *arg)
{
    return start_quietly(ret, PTHREAD_CREATE_JOINABLE, stack_bytes, run, arg);
}

int own_thread_start_detached(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg),
                              void *arg)
{
    pthread_t unnamed;
    return start_quietly(ret ? ret : &unnamed, PTHREAD_CREATE_DETACHED, stack_bytes, run, arg);
}

void own_thread_spare_faults(sigset_t *mask)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        (void)sigdelset(mask, faults[i]);
}
