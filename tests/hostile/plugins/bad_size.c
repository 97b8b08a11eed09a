/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/bad_size.c - a plugin whose settings have an absurd stride.
 */
#include "hostile.h"

static const struct probing_config settings[] = {
    {.name = "one", .value = "1", .doc = "", .type = PROBING_I64}};

HOSTILE("bad_size", .config = settings, .config_size = UINT32_MAX)
