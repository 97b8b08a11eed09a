/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/environment.h - the environment of a process as it is now, out of its memory.
 */
#ifndef CLI_TARGET_ENVIRONMENT_H
#define CLI_TARGET_ENVIRONMENT_H

#include <sys/types.h>

#include "sdk/lib/buf.h"

/* Add "NAME=VALUE" and a NUL for each variable; nothing where the program has none of a libc.  0 or
 * -errno with err_set(), as apart_run(); -EPERM: it may not be read, as by ptrace(2). */
int environment_now(pid_t pid, struct buf *ret);

#endif
