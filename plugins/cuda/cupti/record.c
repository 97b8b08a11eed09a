/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/record.c - where the fields of CUPTI's records lie, and how they are read.
 *
 * Threads: any.
 * Nothing but offsets: no header of CUDA is needed, neither to build nor to run.
 */
#include "cupti/record.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define ACTIVITY_THREAD 2u /* CUPTI_ACTIVITY_OBJECT_THREAD: what an overhead is about */

static uint64_t load_bytes(const uint8_t *at, size_t offset, size_t bytes)
{
    uint8_t b8;
    uint16_t b16;
    uint32_t b32;
    uint64_t b64;
    switch (bytes) {
    case sizeof(b8):
        return at[offset];
    case sizeof(b16):
        memcpy(&b16, at + offset, sizeof(b16));
        return b16;
    case sizeof(b32):
        memcpy(&b32, at + offset, sizeof(b32));
        return b32;
    default: /* the only other one that is used */
        memcpy(&b64, at + offset, sizeof(b64));
        return b64;
    }
}

#define U8(offset) ((uint32_t)load_bytes(at, offset, 1))
#define U16(offset) ((uint32_t)load_bytes(at, offset, 2))
#define U32(offset) ((uint32_t)load_bytes(at, offset, 4))
#define U64(offset) load_bytes(at, offset, 8)

static void set_place(struct record *r, uint32_t device, uint32_t context, uint32_t stream,
                      uint32_t correlation)
{
    r->device = device;
    r->context = context;
    r->stream = stream;
    r->correlation = correlation;
}

static void read_kernel(const uint8_t *at, struct record *r)
{
    r->kind = CUPTI_CONCURRENT_KERNEL;
    r->start = U64(16);
    r->end = U64(24);
    set_place(r, U32(40), U32(44), U32(48), U32(92));
    for (size_t i = 0; i < 3; i++) {
        r->kernel.grid[i] = (int32_t)U32(52 + 4 * i);
        r->kernel.block[i] = (int32_t)U32(64 + 4 * i);
    }
    r->kernel.registers = U16(6);
    r->kernel.shared_bytes = (uint64_t)U32(76) + U32(80);
    memcpy(&r->kernel.name, at + 104, sizeof(r->kernel.name));
    r->kernel.graph_node = U64(144);
    r->kernel.graph = U32(156);
}

static void read_copy(const uint8_t *at, struct record *r)
{
    bool peer = r->kind == CUPTI_MEMCPY2;
    r->copy.kind = U8(4);
    r->copy.src_kind = U8(5);
    r->copy.dst_kind = U8(6);
    r->copy.flags = U8(7);
    r->copy.bytes = U64(8);
    r->start = U64(16);
    r->end = U64(24);
    set_place(r, U32(32), U32(36), U32(40), peer ? U32(60) : U32(44));
    r->copy.src_device = peer ? U32(44) : CUPTI_NONE;
    r->copy.dst_device = peer ? U32(52) : CUPTI_NONE;
    r->copy.graph = peer ? U32(80) : U32(72);
}

static void read_set(const uint8_t *at, struct record *r)
{
    r->copy.bytes = U64(8);
    r->start = U64(16);
    r->end = U64(24);
    set_place(r, U32(32), U32(36), U32(40), U32(44));
    r->copy.flags = U16(48);
    r->copy.dst_kind = U16(50);
    r->copy.src_device = r->copy.dst_device = CUPTI_NONE;
    r->copy.graph = U32(72);
}

static void read_call(const uint8_t *at, struct record *r)
{
    r->call.id = U32(4);
    r->start = U64(8);
    r->end = U64(16);
    r->call.thread = U32(28);
    r->correlation = U32(32);
    r->call.result = U32(36);
}

static void read_memory(const uint8_t *at, struct record *r)
{
    r->memory.operation = U32(4);
    r->memory.kind = U32(8);
    r->memory.address = U64(16);
    r->memory.bytes = U64(24);
    r->start = r->end = U64(32);
    set_place(r, U32(52), U32(56), U32(60), U32(12));
    r->memory.asynchronous = U32(72);
}

static void read_sync(const uint8_t *at, struct record *r)
{
    r->sync.type = U32(4);
    r->start = U64(8);
    r->end = U64(16);
    set_place(r, CUPTI_NONE, U32(28), U32(32), U32(24));
    r->sync.event = U32(36);
}

static void read_overhead(const uint8_t *at, struct record *r)
{
    r->overhead.kind = U32(4);
    r->overhead.thread = U32(8) == ACTIVITY_THREAD ? U32(16) : CUPTI_NONE;
    r->start = U64(24);
    r->end = U64(32);
}

static void read_context(const uint8_t *at, struct record *r)
{
    set_place(r, U32(8), U32(4), CUPTI_NONE, 0);
}

int record_read(const uint8_t *at, size_t room, struct record *ret)
{
    static const struct {
        uint32_t kind;
        uint32_t bytes; /* as far as it is read, at least as long is it in every version */
        void (*read)(const uint8_t *at, struct record *r);
    } kinds[] = {{CUPTI_MEMCPY, 76, read_copy},
                 {CUPTI_MEMSET, 76, read_set},
                 {CUPTI_KERNEL, 160, read_kernel},
                 {CUPTI_DRIVER, 40, read_call},
                 {CUPTI_RUNTIME, 40, read_call},
                 {CUPTI_CONTEXT, 12, read_context},
                 {CUPTI_CONCURRENT_KERNEL, 160, read_kernel},
                 {CUPTI_OVERHEAD, 40, read_overhead},
                 {CUPTI_MEMCPY2, 84, read_copy},
                 {CUPTI_SYNCHRONIZATION, 40, read_sync},
                 {CUPTI_MEMORY2, 76, read_memory}};
    if (room < sizeof(uint32_t))
        return -EBADMSG;
    uint32_t kind = U32(0);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].kind != kind)
            continue;
        if (room < kinds[i].bytes)
            return -EBADMSG;
        *ret = (struct record){
            .kind = kind, .device = CUPTI_NONE, .context = CUPTI_NONE, .stream = CUPTI_NONE};
        kinds[i].read(at, ret);
        return 0;
    }
    return -ENOENT;
}
