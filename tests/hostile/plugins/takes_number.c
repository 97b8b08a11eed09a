/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/takes_number.c - a plugin that leaves a descriptor open under a number that
 * was another's when its start began.  So it happens when another thread closes one at that moment;
 * here it is standard input, and the plugin closes it itself.
 */
#include <fcntl.h>
#include <unistd.h>

#include "hostile.h"

static int start(void *self)
{
    (void)self;
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    int taken = fd == -1 ? -1 : dup3(fd, STDIN_FILENO, O_CLOEXEC);
    if (fd != -1)
        (void)close(fd);
    return taken == -1 ? -errno : 0;
}

HOSTILE("takes_number", .start = start)
