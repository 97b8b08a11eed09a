/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/memory.h - memory that may vanish, ours or another process's: what cannot be read
 * is told instead of a fault.
 *
 * Any thread, handlers too: see proc_file.h.  A reader belongs to one thread.  The kernel does the
 * reading: process_vm_readv(2), and /proc/PID/mem where that call is filtered, as older profiles of
 * containers do.
 */
#ifndef SDK_LIB_PROC_MEMORY_H
#define SDK_LIB_PROC_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_memory {
    pid_t pid;    /* 0: whoever reads, in a forked child the child */
    int fd;       /* of /proc/PID/mem, -1: not open; never kept where pid is 0 */
    bool by_file; /* process_vm_readv(2) was refused */
};

#define PROC_MEMORY_OF(p) ((struct proc_memory){.pid = (p), .fd = -1})

/* How many bytes could be read from `address` on, until `size` or the first that could not.
 * [signal] */
size_t proc_memory_read(struct proc_memory *m, uint64_t address, void *ret, size_t size);
/* The same of our own memory by process_vm_readv(2) only: no descriptor is opened.  -errno where
 * nothing could be read.  [signal] */
int64_t proc_own_memory(uint64_t address, void *ret, size_t size);
/* [signal] */
void proc_memory_close(struct proc_memory *m);

#endif
