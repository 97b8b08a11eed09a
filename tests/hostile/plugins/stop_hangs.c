/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/stop_hangs.c - a plugin whose stop does not come back.
 */
#include <unistd.h>

#include "hostile.h"

static int stop(void *self)
{
    (void)self;
    for (;;)
        (void)pause();
    return 0;
}

HOSTILE("stop_hangs", .stop = stop)
