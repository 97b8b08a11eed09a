/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/leaks_fds.c - a plugin that leaves descriptors open.
 */
#include <fcntl.h>

#include "hostile.h"

static int start(void *self)
{
    (void)self;
    return open("/dev/zero", O_RDONLY | O_CLOEXEC) == -1 ? -errno : 0;
}

HOSTILE("leaks_fds", .start = start)
