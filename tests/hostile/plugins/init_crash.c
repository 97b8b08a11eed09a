/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/init_crash.c - a plugin whose init writes to nowhere.
 */
#include "hostile.h"

static volatile int *volatile nowhere = (int *)(uintptr_t)64;

static int init(const struct probing_host *h, void **ret_self)
{
    (void)h;
    (void)ret_self;
    *nowhere = 1;
    return 0;
}

HOSTILE("init_crash", .init = init)
