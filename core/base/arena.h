/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/arena.h - arenas, of the library below us.
 */
#ifndef CORE_BASE_ARENA_H
#define CORE_BASE_ARENA_H

#include "sdk/lib/arena.h"

#endif
