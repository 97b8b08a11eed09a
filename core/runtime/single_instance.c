/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/single_instance.c - one core a process: who came first holds an abstract socket.
 *
 * Threads: a borrowed thread of the host that may hold any lock of libc: system calls only.
 */
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/guest/own_descriptors.h"
#include "core/runtime/internal.h"

#define SIBLING_FDS 4096 /* descriptors looked at to find another copy of the core */

int guard_take(bool *ret_sibling)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX}, other;
    static const char prefix[] = "probing-";
    char digits[12];
    size_t n = 0, at = 1;

    memcpy(name.sun_path + at, prefix, sizeof(prefix) - 1);
    at += sizeof(prefix) - 1;
    for (unsigned pid = (unsigned)getpid(); pid; pid /= 10)
        digits[n++] = (char)('0' + pid % 10);
    while (n > 0)
        name.sun_path[at++] = digits[--n];
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);

    *ret_sibling = false;
    /* Not socket(), which gives a high number (core/compat/descriptors.c): a larger table takes the
     * kernel ten milliseconds where a process has threads (expand_fdtable() of Linux 6.1). */
    descriptor_begin();
    int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd != -1)
        descriptor_note(fd);
    descriptor_end_low();
    if (fd == -1)
        return -1;
    if (bind(fd, (struct sockaddr *)&name, size) == 0)
        return fd;
    (void)close(fd);
    for (int i = 0; i < SIBLING_FDS && !*ret_sibling; i++) {
        socklen_t got = sizeof(other);
        *ret_sibling = getsockname(i, (struct sockaddr *)&other, &got) == 0 && got == size &&
                       memcmp(&other, &name, size) == 0;
    }
    return -1;
}
