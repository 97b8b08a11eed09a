/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/next_settings.c - what the user has set, until the next step takes it.
 *
 * Threads: settings_hand() [control]; settings_take_over() any; settings_take() any that holds the
 * GIL.
 */
#include "steps/next_settings.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct settings wanted;   /* lock: mutex */
static _Atomic uint32_t version; /* of `wanted`; any thread, acquire and release */
static uint32_t taken;           /* lock: the GIL */

void settings_hand(const struct settings *s)
{
    (void)pthread_mutex_lock(&mutex);
    wanted = *s;
    (void)pthread_mutex_unlock(&mutex);
    (void)atomic_fetch_add_explicit(&version, 1, memory_order_release);
}

void settings_take_over(struct settings *ret)
{
    (void)pthread_mutex_lock(&mutex);
    *ret = wanted;
    (void)pthread_mutex_unlock(&mutex);
}

bool settings_take(struct settings *ret)
{
    uint32_t now = atomic_load_explicit(&version, memory_order_acquire);
    if (now == taken)
        return false;
    taken = now;
    settings_take_over(ret);
    return true;
}
