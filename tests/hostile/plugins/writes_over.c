/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/writes_over.c - writes over and cuts the file it was mapped from.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hostile.h"

/* A page of its own that nobody touches before the file is cut. */
__attribute__((aligned(4096))) static const char far_away[8192] = {[4096] = 'x'};

static int init(const struct probing_host *h, void **ret_self)
{
    char line[512], name[512];
    unsigned long from, to; /* as /proc/PID/maps writes them */
    FILE *maps = fopen("/proc/self/maps", "re");

    (void)plain_init(h, ret_self);
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%lx-%lx", &from, &to) != 2 || from > (uintptr_t)far_away ||
            to <= (uintptr_t)far_away)
            continue;
        (void)snprintf(name, sizeof(name), "/proc/self/map_files/%lx-%lx", from, to);
        int fd = open(name, O_RDWR | O_CLOEXEC);
        if (fd == -1)
            continue;
        static const char junk[65536];
        (void)!pwrite(fd, junk, sizeof(junk), 0);
        (void)!ftruncate(fd, 0);
        (void)close(fd);
    }
    if (maps != NULL)
        (void)fclose(maps);
    return ((volatile const char *)far_away)[4096] == 'x' ? 0 : -EIO;
}

HOSTILE("writes_over", .init = init)
