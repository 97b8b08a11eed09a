/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/every_blocks.c - a plugin with more functions of every() that do not come
 * back than there are workers.
 */
#include <unistd.h>

#include "hostile.h"

#define BLOCKING(n)                                \
    static void tick_##n(void *self, uint64_t now) \
    {                                              \
        (void)self, (void)now;                     \
        for (;;)                                   \
            (void)pause();                         \
    }
BLOCKING(0)
BLOCKING(1)
BLOCKING(2)
BLOCKING(3)
BLOCKING(4)
BLOCKING(5)
BLOCKING(6)
BLOCKING(7)
BLOCKING(8)
BLOCKING(9)

static int start(void *self)
{
    static void (*const ticks[])(void *, uint64_t) = {tick_0, tick_1, tick_2, tick_3, tick_4,
                                                      tick_5, tick_6, tick_7, tick_8, tick_9};
    int rc = 0;
    (void)self;
    for (unsigned i = 0; i < sizeof(ticks) / sizeof(ticks[0]) && rc == 0; i++)
        rc = host->every(host, 10000000, ticks[i]);
    return rc;
}

HOSTILE("every_blocks", .start = start)
