/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/reader_thread.c - a thread with signals blocked and a small stack.
 */
#include "reader_thread.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

#define STACK_BYTES ((size_t)256 << 10)
#define STACK_MOST ((size_t)64 << 20)

static int start(pthread_t *ret, size_t stack, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attributes;
    int rc = pthread_attr_init(&attributes);
    if (rc)
        return rc;
    rc = pthread_attr_setstacksize(&attributes, stack);
    if (rc == 0)
        rc = pthread_create(ret, &attributes, run, arg);
    (void)pthread_attr_destroy(&attributes);
    return rc;
}

int reader_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int rc = EINVAL;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* core/base/mmap_guard.h */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    /* EINVAL: the program's thread-local storage, which lies on the stack, is larger than that. */
    for (size_t stack = STACK_BYTES; rc == EINVAL && stack <= STACK_MOST; stack *= 2)
        rc = start(ret, stack, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}
