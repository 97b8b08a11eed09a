/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/leaks_threads.c - a plugin that leaves a thread running.
 */
#include <pthread.h>
#include <unistd.h>

#include "hostile.h"

static void *wait_for_ever(void *arg)
{
    for (;;)
        (void)pause();
    return arg;
}

static int start(void *self)
{
    pthread_t thread;
    return -pthread_create(&thread, NULL, wait_for_ever, self);
}

HOSTILE("leaks_threads", .start = start)
