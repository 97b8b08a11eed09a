/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/record_test.c - records laid out as the headers of each version of CUPTI say
 * are read right, whole or not at all.
 */
#include "cupti/record.h"

#include <errno.h>

#include "tests/cuda/cupti_figures.h"
#include "tests/test.h"

static uint8_t bytes[512];
static const struct cupti_layout *layout;

static void begin(const struct cupti_version *v, const char *name, uint32_t kind)
{
    layout = figures_of(v, name);
    memset(bytes, 0xee, sizeof(bytes)); /* what nobody has written is no number of ours */
    memcpy(bytes, &kind, sizeof(kind));
}

static void put(const char *field, uint64_t value)
{
    figures_put(layout, bytes, field, value);
}

/* Put the place of work on the device. */
static void put_place(void)
{
    put("deviceId", 3);
    put("contextId", 11);
    put("streamId", 19);
    put("correlationId", 4000000001);
}

static void put_span(void)
{
    put("start", 1795414253974459494);
    put("end", 1795414253974460000);
}

/* It is read when all of it is there, and not when it is cut where it is read. */
static struct record read_back(void)
{
    struct record r = {.kind = 0}, cut = {.kind = 77};
    CHECK(record_read(bytes, layout->size, &r) == 0);
    for (size_t room = 0; room < layout->size; room++) {
        uint8_t *exact = malloc(room ? room : 1); /* for asan: nothing behind it is read */
        memcpy(exact, bytes, room);
        int rc = record_read(exact, room, &cut);
        CHECK(rc == -EBADMSG || rc == 0);
        free(exact);
    }
    CHECK(record_read(bytes, 0, &cut) == -EBADMSG);
    return r;
}

static void check_place(const struct record *r)
{
    CHECK(r->device == 3);
    CHECK(r->context == 11);
    CHECK(r->stream == 19);
    CHECK(r->correlation == 4000000001);
}

static void check_span(const struct record *r)
{
    CHECK(r->start == 1795414253974459494);
    CHECK(r->end == 1795414253974460000);
}

static void check_kernel(const struct cupti_version *v)
{
    static const char name[] = "kernel";
    begin(v, "kernel", CUPTI_CONCURRENT_KERNEL);
    put_place();
    put_span();
    put("name", (uintptr_t)name);
    put("gridX", 2147483647);
    put("gridY", 65535);
    put("gridZ", 3);
    put("blockX", 1024);
    put("blockY", 2);
    put("blockZ", 1);
    put("registersPerThread", 255);
    put("staticSharedMemory", 1000);
    put("dynamicSharedMemory", 100000);
    put("graphId", 7);
    put("graphNodeId", UINT64_C(0x700000009));
    struct record r = read_back();
    check_place(&r);
    check_span(&r);
    CHECK(r.kernel.name == name);
    CHECK(r.kernel.grid[0] == 2147483647 && r.kernel.grid[1] == 65535 && r.kernel.grid[2] == 3);
    CHECK(r.kernel.block[0] == 1024 && r.kernel.block[1] == 2 && r.kernel.block[2] == 1);
    CHECK(r.kernel.registers == 255);
    CHECK(r.kernel.shared_bytes == 101000);
    CHECK(r.kernel.graph == 7);
    CHECK(r.kernel.graph_node == UINT64_C(0x700000009));
}

static void check_copies(const struct cupti_version *v, const char *name, uint32_t kind)
{
    begin(v, name, kind);
    put_place();
    put_span();
    put("bytes", UINT64_C(1) << 40);
    put("graphId", 8);
    if (kind == CUPTI_MEMSET) {
        put("memoryKind", 3);
    } else {
        put("copyKind", 2);
        put("srcKind", 3);
        put("dstKind", 1);
    }
    put("flags", 1);
    if (kind == CUPTI_MEMCPY2) {
        put("srcDeviceId", 5);
        put("dstDeviceId", 6);
    }
    struct record r = read_back();
    check_place(&r);
    check_span(&r);
    CHECK(r.kind == kind);
    CHECK(r.copy.bytes == UINT64_C(1) << 40);
    CHECK(r.copy.flags == 1);
    CHECK(r.copy.graph == 8);
    CHECK(r.copy.dst_kind == (kind == CUPTI_MEMSET ? 3 : 1));
    CHECK(r.copy.src_device == (kind == CUPTI_MEMCPY2 ? 5 : CUPTI_NONE));
    CHECK(r.copy.dst_device == (kind == CUPTI_MEMCPY2 ? 6 : CUPTI_NONE));
    if (kind != CUPTI_MEMSET)
        CHECK(r.copy.kind == 2 && r.copy.src_kind == 3);
}

static void check_call(const struct cupti_version *v, uint32_t kind)
{
    begin(v, "api", kind);
    put("cbid", 211);
    put_span();
    put("threadId", 4711);
    put("correlationId", 12);
    put("returnValue", 700);
    struct record r = read_back();
    check_span(&r);
    CHECK(r.kind == kind && r.call.id == 211 && r.call.thread == 4711 && r.call.result == 700);
    CHECK(r.correlation == 12 && r.device == CUPTI_NONE);
}

static void check_others(const struct cupti_version *v)
{
    begin(v, "memory", CUPTI_MEMORY2);
    put_place();
    put("memoryOperationType", 2);
    put("memoryKind", 3);
    put("address", UINT64_C(0x7f0000000100));
    put("bytes", 4096);
    put("timestamp", 99);
    put("isAsync", 1);
    struct record r = read_back();
    check_place(&r);
    CHECK(r.memory.operation == 2 && r.memory.kind == 3 && r.memory.asynchronous == 1);
    CHECK(r.memory.address == UINT64_C(0x7f0000000100) && r.memory.bytes == 4096 && r.start == 99);

    begin(v, "sync", CUPTI_SYNCHRONIZATION);
    put_span();
    put("type", 3);
    put("contextId", 11);
    put("streamId", 19);
    put("correlationId", 13);
    put("cudaEventId", 21);
    r = read_back();
    check_span(&r);
    CHECK(r.sync.type == 3 && r.sync.event == 21 && r.context == 11 && r.stream == 19);
    CHECK(r.correlation == 13 && r.device == CUPTI_NONE);

    begin(v, "overhead", CUPTI_OVERHEAD);
    put_span();
    put("overheadKind", 2u << 16);
    put("objectKind", 2);
    put("objectId", UINT64_C(4711) << 32 | 4700); /* process, then thread */
    r = read_back();
    check_span(&r);
    CHECK(r.overhead.kind == 2u << 16 && r.overhead.thread == 4711);
    put("objectKind", 3);
    r = read_back();
    CHECK(r.overhead.thread == CUPTI_NONE);

    begin(v, "context", CUPTI_CONTEXT);
    put("contextId", 11);
    put("deviceId", 3);
    r = read_back();
    CHECK(r.context == 11 && r.device == 3);
}

TEST(every_version)
{
    for (size_t i = 0; i < CUPTI_VERSIONS; i++) {
        const struct cupti_version *v = &versions[i];
        check_kernel(v);
        check_copies(v, "memcpy", CUPTI_MEMCPY);
        check_copies(v, "memcpy2", CUPTI_MEMCPY2);
        check_copies(v, "memset", CUPTI_MEMSET);
        check_call(v, CUPTI_RUNTIME);
        check_call(v, CUPTI_DRIVER);
        check_others(v);
    }
}

TEST(unknown_kinds)
{
    struct record r;
    for (uint32_t kind = 60; kind < 70; kind++) { /* what a newer CUPTI may have */
        memcpy(bytes, &kind, sizeof(kind));
        CHECK(record_read(bytes, sizeof(bytes), &r) == -ENOENT);
    }
}

int main(void)
{
    RUN(every_version);
    RUN(unknown_kinds);
    return test_end();
}
