/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/live_environment.h - a variable of the environment as it is now.
 */
#ifndef GPU_LIVE_ENVIRONMENT_H
#define GPU_LIVE_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* The value of `name` into ret, cut where it is longer; false: it is not set, or could not be read.
 * Programs set variables for libraries while they run (os.environ in Python), which /proc does not
 * show; and getenv() must not meet a setenv() of another thread.                       [any] */
bool live_environment(const char *name, char *ret, size_t size);

#endif
