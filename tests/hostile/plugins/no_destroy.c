/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/no_destroy.c - a plugin without destroy().
 */
#include "hostile.h"

HOSTILE("no_destroy", .destroy = NULL)
