/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/start_waits.c - it leaves nothing open.  Its start says by the file BEGUN
 * that it has begun, and says no when the file GO is there; both are of the process's environment.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "hostile.h"

static int start(void *self)
{
    const char *go = getenv("GO"), *begun = getenv("BEGUN");
    int fd = begun ? open(begun, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;

    (void)self;
    if (fd != -1)
        (void)close(fd);
    while (go && access(go, F_OK) == -1)
        (void)poll(NULL, 0, 5);
    return host->fail(host, -ENODEV, "no such device");
}

HOSTILE("start_waits", .start = start)
