/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/init_hangs.c - a plugin whose init does not come back.
 */
#include <unistd.h>

#include "hostile.h"

static int init(const struct probing_host *h, void **ret_self)
{
    (void)plain_init(h, ret_self);
    for (;;)
        (void)pause();
    return 0;
}

HOSTILE("init_hangs", .init = init)
