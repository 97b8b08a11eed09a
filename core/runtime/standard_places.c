/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/standard_places.c - descriptors 0 to 2 of a process that has closed them, as daemons
 * do: the next that anybody opens gets such a number, and what the process prints goes into it.
 *
 * The thread that starts the core, and "probing/main" when all else of ours is closed.  While the
 * core is here these numbers have a descriptor that does nothing: reading and writing fail as they
 * did, and a program that the process becomes does not get it.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/guest/own_descriptors.h"
#include "core/runtime/internal.h"

static const char NOTHING[] = "/dev/null";

uint32_t standard_places_take(bool before_main)
{
    /* To a program that has not begun a closed output is one that takes everything: Python makes
     * its sys.stdout of what it finds, and its print() would raise. */
    int flags = (before_main ? O_RDWR : O_PATH) | O_CLOEXEC;
    uint32_t taken = 0;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) != -1)
            continue;
        /* By the system call: open() gives ours other numbers (core/compat/descriptors.c). */
        descriptor_begin();
        int got = (int)syscall(SYS_openat, AT_FDCWD, NOTHING, flags);
        if (got != -1 && !before_main)
            descriptor_note(got);
        descriptor_end_low();
        if (got == fd)
            taken |= 1u << fd;
        else if (got != -1) /* a thread of the process was there first */
            (void)close(got);
    }
    return taken;
}

/* Descriptors that the process has put there meanwhile are its own. */
void standard_places_give_back(uint32_t taken)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int flags = taken & 1u << fd ? fcntl(fd, F_GETFL) : -1;
        if (flags != -1 && (flags & O_PATH) != 0)
            (void)close(fd);
    }
}
