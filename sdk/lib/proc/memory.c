/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/memory.c - reads of memory by the kernel, one way or the other.
 *
 * Any thread, handlers too.  The bare calls: a sanitizer's own would take freed memory for a
 * mistake of ours.
 */
#include "sdk/lib/proc/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sdk/lib/proc/proc_file.h"

static int64_t by_call(pid_t pid, uint64_t address, void *ret, size_t size)
{
    struct iovec here = {ret, size}, there = {(void *)(uintptr_t)address, size};
    /* The seventh argument is on the stack, and the kernel reads all 64 bits of it. */
    int64_t n = syscall(SYS_process_vm_readv, pid, &here, 1ul, &there, 1ul, 0ul);
    return n == -1 ? -errno : n;
}

int64_t proc_own_memory(uint64_t address, void *ret, size_t size)
{
    return by_call(getpid(), address, ret, size);
}

static size_t by_file(struct proc_memory *m, uint64_t address, void *ret, size_t size)
{
    char path[PROC_PATH_BYTES];
    int64_t n = -1;
    if (m->fd == -1) {
        proc_path(m->pid, 0, "mem", path);
        m->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (m->fd != -1)
        do {
            n = pread(m->fd, ret, size, (off_t)address);
        } while (n == -1 && errno == EINTR);
    if (m->pid == 0) /* a child would read its parent by it */
        proc_memory_close(m);
    return n > 0 ? (size_t)n : 0;
}

size_t proc_memory_read(struct proc_memory *m, uint64_t address, void *ret, size_t size)
{
    if (!m->by_file) {
        int64_t n = by_call(m->pid ? m->pid : getpid(), address, ret, size);
        if (n != -EPERM && n != -ENOSYS)
            return n > 0 ? (size_t)n : 0;
        m->by_file = true;
    }
    return by_file(m, address, ret, size);
}

void proc_memory_close(struct proc_memory *m)
{
    if (m->fd != -1)
        (void)close(m->fd);
    m->fd = -1;
}
