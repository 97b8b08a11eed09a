/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/live_environment.h - a variable of the environment as it is now.
 */
#ifndef GPU_LIVE_ENVIRONMENT_H
#define GPU_LIVE_ENVIRONMENT_H

#include <stddef.h>

/* The value of `name` into ret, cut where it is longer.  1; 0: it is not set; -errno: that cannot
 * be told, as where a filter of system calls forbids process_vm_readv().
 * Programs set variables for libraries while they run (os.environ in Python), which /proc does not
 * show; and getenv() must not meet a setenv() of another thread.                       [any] */
int live_environment(const char *name, char *ret, size_t size);

#endif
