/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/init_99.c - a plugin whose init gives neither 0 nor a negative errno.
 */
#include "hostile.h"

static int init(const struct probing_host *h, void **ret_self)
{
    (void)plain_init(h, ret_self);
    return 99;
}

HOSTILE("init_99", .init = init)
