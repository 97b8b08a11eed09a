/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/bad_name.c - texts and functions at addresses that lead nowhere.
 */
#include "hostile.h"

HOSTILE("bad_name", .doc = (const char *)(uintptr_t)0x1000, .start = (int (*)(void *))(uintptr_t)64)
