/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/record.h - what one record of CUPTI's says, whatever version wrote it.
 *
 * Threads: any; nothing is kept.
 * The records of CUPTI 11.7 to 13.5 have what is read here in the same places: a new version of a
 * record is the old one with more at its end (scripts/tools/cupti_layouts.py compares that with
 * the headers of each).  So what matters is that a record is at least as long as it is read.
 */
#ifndef CUDA_CUPTI_RECORD_H
#define CUDA_CUPTI_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum { /* CUPTI's own numbers of kinds (cupti_activity.h) */
       CUPTI_MEMCPY = 1,
       CUPTI_MEMSET = 2,
       CUPTI_KERNEL = 3,
       CUPTI_DRIVER = 4,
       CUPTI_RUNTIME = 5,
       CUPTI_CONTEXT = 9,
       CUPTI_CONCURRENT_KERNEL = 10,
       CUPTI_OVERHEAD = 17,
       CUPTI_MEMCPY2 = 22, /* between devices */
       CUPTI_SYNCHRONIZATION = 38,
       CUPTI_MEMORY2 = 49
};

#define CUPTI_NONE UINT32_MAX /* a number that is not there */
#define RECORD_ASYNC 1u       /* CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC, _MEMSET_ASYNC */

struct record {
    uint32_t kind;        /* CUPTI_MEMCPY ...; CUPTI_KERNEL is CUPTI_CONCURRENT_KERNEL here */
    uint32_t device;      /* CUPTI_NONE: it does not say */
    uint32_t context;     /* likewise */
    uint32_t stream;      /* likewise */
    uint32_t correlation; /* of the call that asked for it; 0: none */
    uint64_t start, end;  /* of CUPTI's clock, ns; 0: not known */
    union {
        struct {
            const char *name; /* CUPTI's, stays as long as its module of the driver; may be NULL */
            int32_t grid[3], block[3];
            uint32_t registers, graph;
            uint64_t shared_bytes, graph_node; /* graph_node: 0: none */
        } kernel;
        struct { /* a copy, or with CUPTI_MEMSET a set, whose memory is dst_kind */
            uint64_t bytes;
            uint32_t kind, src_kind, dst_kind, flags, graph; /* flags: RECORD_ASYNC */
            uint32_t src_device, dst_device;
        } copy;
        struct {
            uint32_t id, thread, result; /* thread: 0: not known */
        } call;
        struct { /* start is when it was done */
            uint32_t operation, kind, asynchronous;
            uint64_t address, bytes;
        } memory;
        struct {
            uint32_t type, event;
        } sync;
        struct {
            uint32_t kind, thread; /* thread: CUPTI_NONE: it is about something else */
        } overhead;
    };
};

/* Read the record at `at`, with `room` bytes to the end of its buffer.  0; -ENOENT: of a kind that
 * is not read here; -EBADMSG: it does not fit into what is left.                      [any] */
int record_read(const uint8_t *at, size_t room, struct record *ret);

#endif
