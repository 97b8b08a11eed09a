/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/stop_refuses.c - a plugin that does not want to stop.
 */
#include "hostile.h"

static int stop(void *self)
{
    (void)self;
    return host->fail(host, -EBUSY, "its hooks cannot be removed");
}

HOSTILE("stop_refuses", .stop = stop)
