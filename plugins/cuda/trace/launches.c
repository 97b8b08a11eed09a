/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/launches.c - calls by correlation number; a newer one takes an older's place.
 *
 * Threads: one at a time.
 */
#include "trace/launches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int launches_init(struct launches *l)
{
    l->all = calloc(LAUNCHES, sizeof(l->all[0]));
    return l->all ? 0 : -ENOMEM;
}

void launches_done(struct launches *l)
{
    free(l->all);
    l->all = NULL;
}

void launches_forget(struct launches *l)
{
    memset(l->all, 0, LAUNCHES * sizeof(l->all[0]));
}

void launches_put(struct launches *l, const struct launch *launch)
{
    struct launch *at = &l->all[launch->correlation % LAUNCHES];
    /* A call of the runtime makes one of the driver, which has the same number: the outer one took
     * the program's time. */
    bool inner = at->correlation == launch->correlation && at->begin_ns <= launch->begin_ns &&
                 at->end_ns >= launch->end_ns;
    if (launch->correlation && !inner)
        *at = *launch;
}

const struct launch *launches_find(const struct launches *l, uint32_t correlation)
{
    const struct launch *at = &l->all[correlation % LAUNCHES];
    return correlation && at->correlation == correlation ? at : NULL;
}
