/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/own_thread.c - a thread with signals blocked, as large a stack as libc wants, and room to
 * handle a signal when that stack is full.
 */
#include "sdk/lib/own_thread.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_MOST ((size_t)64 << 20)
/* For a handler's frame, which is 12 KiB where a processor has AVX-512 and AMX (AT_MINSIGSTKSZ),
 * for another one inside it, and for what a handler of the program's needs. */
#define ALT_STACK_BYTES ((size_t)64 << 10)

struct begin {
    void *(*run)(void *arg);
    void *arg;
};

/* The compiler's probes of a large frame have touched all its pages (-fstack-clash-protection): the
 * kernel takes the whole ones back. */
static void drop_pages(char *at, size_t bytes)
{
    uintptr_t page = (uintptr_t)getpagesize(), skip = -(uintptr_t)at & (page - 1);
    if (skip < bytes && bytes - skip >= page)
        (void)madvise(at + skip, (bytes - skip) & ~(page - 1), MADV_DONTNEED);
}

/* The alternate signal stack is the outermost part of the thread's own stack.  So it is no mapping,
 * goes with the thread, and what fills the stack up does not come to it. */
static void *begin_thread(void *arg)
{
    struct begin begin = *(struct begin *)arg;
    char room[ALT_STACK_BYTES];
    const stack_t ours = {.ss_sp = room, .ss_size = sizeof(room)}, none = {.ss_flags = SS_DISABLE};
    stack_t there;

    free(arg);
    bool given = sigaltstack(NULL, &there) == 0 && there.ss_flags & SS_DISABLE &&
                 sigaltstack(&ours, NULL) == 0;
    drop_pages(room, sizeof(room));
    void *result = begin.run(begin.arg);
    if (given)
        (void)sigaltstack(&none, NULL);
    return result;
}

static int start_thread(pthread_t *ret, int detach, size_t stack, void *(*run)(void *arg),
                        void *arg)
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
    struct begin *begin = malloc(sizeof(*begin));
    sigset_t all, before;
    int rc = EINVAL;
    if (!begin)
        return -ENOMEM;
    *begin = (struct begin){run, arg};
    stack += ALT_STACK_BYTES;
    (void)sigfillset(&all);
    own_thread_spare_faults(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    /* EINVAL: the thread-local storage does not fit. */
    for (; rc == EINVAL && stack <= STACK_MOST; stack *= 2)
        rc = start_thread(ret, detach, stack, begin_thread, begin);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        free(begin);
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
