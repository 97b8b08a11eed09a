/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/safe_read.h - read memory that may vanish, ours or another process's: an
 * error instead of a fault.
 *
 * The kernel does the reading (process_vm_readv(2), /proc/PID/mem where that call is filtered), so
 * no signal handler of ours is ever put into the host.  Any thread; no state beyond the struct, no
 * lock; only peek_open() allocates.
 */
#ifndef PYTHON_INSPECT_SAFE_READ_H
#define PYTHON_INSPECT_SAFE_READ_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

struct peek {
    pid_t pid;
    int mem;          /* /proc/PID/mem, -1: not needed */
    const pid_t *own; /* reading ourselves: our pid, and 0 in a forked child; NULL: as from afar */
};

/* Read our own process if pid is 0.  `known`: an address there that holds at least four bytes; 0: a
 * variable of ours.  0, or -errno when neither way of reading works. */
int peek_open(struct peek *p, pid_t pid, uint64_t known);
void peek_close(struct peek *p);

/* Exactly `size` bytes, or -EFAULT. */
int peek_bytes(const struct peek *p, uint64_t address, void *ret, size_t size);

/* All the pieces one behind the other, in as few system calls as can be: how many bytes until one
 * was not readable.  What stands at `to` after them is undefined. */
size_t peek_pieces(const struct peek *p, const struct iovec *pieces, size_t n, uint8_t *to);

/* The same, and it comes to two places: first `to[0]` is filled, then `to[1]`.  At most 64 pieces,
 * each of which has been read before.  0 also where that takes more than one system call. */
size_t peek_both(const struct peek *p, const struct iovec *pieces, size_t n,
                 const struct iovec to[2]);

/* Up to `size` bytes, as many as are readable from the start; how many. */
size_t peek_some(const struct peek *p, uint64_t address, void *ret, size_t size);

static inline int peek_u64(const struct peek *p, uint64_t address, uint64_t *ret)
{
    return peek_bytes(p, address, ret, sizeof(*ret));
}

static inline int peek_i32(const struct peek *p, uint64_t address, int32_t *ret)
{
    return peek_bytes(p, address, ret, sizeof(*ret));
}

static inline struct iovec peek_piece(uint64_t address, size_t size)
{
    return (struct iovec){(void *)(uintptr_t)address, size};
}

static inline uint64_t address_of(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* A field of what was read. */
static inline uint64_t u64_at(const uint8_t *p, int offset)
{
    uint64_t value;
    memcpy(&value, p + offset, sizeof(value));
    return value;
}

static inline int32_t i32_at(const uint8_t *p, int offset)
{
    int32_t value;
    memcpy(&value, p + offset, sizeof(value));
    return value;
}

#endif
