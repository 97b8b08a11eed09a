/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/standin_device.c - the stand-in for libcupti: what "happens" on a device,
 * as the program says it.
 *
 * Threads: any.
 */
#include "tests/cuda/libraries/standin.h"

#include <stdatomic.h>

static _Atomic uint64_t next_begin;

/* The next thing begins then, of CLOCK_REALTIME, whenever the program comes to say it. */
EXPORT void standin_begin(uint64_t ns)
{
    next_begin = ns;
}

static uint64_t begins_at(void)
{
    uint64_t begin = next_begin ? atomic_exchange(&next_begin, 0) : 0;
    return begin ? begin : now();
}

static struct made made_call(uint32_t kind, uint32_t id, uint64_t begin, uint64_t end,
                             uint32_t correlation)
{
    struct made m = make(kind);
    m.call = id;
    PUT(m, "cbid", id);
    PUT(m, "start", begin);
    PUT(m, "end", end);
    PUT(m, "processId", getpid());
    PUT(m, "correlationId", correlation);
    PUT(m, "returnValue", 0);
    return m;
}

static void put_place(struct made *m, uint32_t device, uint32_t stream, uint32_t correlation)
{
    PUT(*m, "deviceId", device);
    PUT(*m, "contextId", device + 1);
    PUT(*m, "streamId", stream);
    PUT(*m, "correlationId", correlation);
}

static uint32_t next_correlation(void)
{
    (void)pthread_mutex_lock(&s.lock);
    uint32_t n = ++s.correlation;
    (void)pthread_mutex_unlock(&s.lock);
    return n;
}

struct kernel {
    const char *name;
    uint32_t device, stream;
    int32_t grid;
    uint64_t call_ns, after_ns, ns;
};

/* Gives the moment at which its work ends. */
static uint64_t launch(uint64_t begin, const struct kernel *k)
{
    uint32_t correlation = next_correlation();
    struct made call = made_call(5, 211, begin, begin + k->call_ns, correlation);
    struct made m = make(10);
    put_place(&m, k->device, k->stream, correlation);
    PUT(m, "start", begin + k->after_ns);
    PUT(m, "end", begin + k->after_ns + k->ns);
    PUT(m, "name", (uintptr_t)k->name);
    PUT(m, "gridX", k->grid);
    PUT(m, "gridY", 2);
    PUT(m, "gridZ", 1);
    PUT(m, "blockX", 256);
    PUT(m, "blockY", 1);
    PUT(m, "blockZ", 1);
    PUT(m, "registersPerThread", 32);
    PUT(m, "staticSharedMemory", 1024);
    PUT(m, "dynamicSharedMemory", 100);
    PUT(m, "graphId", 0);
    PUT(m, "graphNodeId", 0);
    add(s.kernels_first ? &m : &call);
    add(s.kernels_first ? &call : &m);
    return begin + k->after_ns + k->ns;
}

/* A call of the runtime that takes call_ns, and its work, which begins after_ns from the begin of
 * the call.  Gives the moment at which the work ends, of CLOCK_REALTIME. */
EXPORT uint64_t standin_kernel(const char *name, uint32_t device, uint32_t stream, int32_t grid,
                               uint64_t call_ns, uint64_t after_ns, uint64_t ns)
{
    return launch(begins_at(), &(struct kernel){name, device, stream, grid, call_ns, after_ns, ns});
}

/* So many a second, for so long, without anybody's Python: each takes `ns` and has stood in its
 * queue for after_ns.  They are said a millisecond's worth at a time. */
EXPORT void standin_load(const char *name, uint32_t a_second, double seconds, uint64_t after_ns,
                         uint64_t ns)
{
    uint64_t begin = now(), n = 0;
    for (uint64_t t = begin; t < begin + (uint64_t)(seconds * 1e9); t = now()) {
        for (; n < (uint64_t)((double)(t - begin) / 1e9 * a_second); n++)
            launch(begin + n * 1000000000 / a_second,
                   &(struct kernel){name, 0, 7, 1, 1000, after_ns, ns});
        (void)usleep(1000);
    }
}

EXPORT void standin_burst(const char *name, uint32_t a_second, double seconds)
{
    standin_load(name, a_second, seconds, 2000, 3000);
}

EXPORT uint64_t standin_copy(uint32_t kind, uint64_t bytes, bool async, uint64_t call_ns,
                             uint64_t after_ns, uint64_t ns)
{
    uint32_t correlation = next_correlation();
    uint64_t begin = begins_at();
    struct made call = made_call(5, async ? 41 : 31, begin, begin + call_ns, correlation);
    struct made m = make(1);
    put_place(&m, 0, 7, correlation);
    PUT(m, "copyKind", kind);
    PUT(m, "srcKind", kind == 1 ? 1 : 3);
    PUT(m, "dstKind", kind == 1 ? 3 : 1);
    PUT(m, "flags", async);
    PUT(m, "bytes", bytes);
    PUT(m, "start", begin + after_ns);
    PUT(m, "end", begin + after_ns + ns);
    PUT(m, "graphId", 0);
    add(&call);
    add(&m);
    return begin + after_ns + ns;
}

EXPORT void standin_set(uint64_t bytes, uint64_t ns)
{
    uint64_t begin = begins_at();
    struct made m = make(2);
    put_place(&m, 0, 7, next_correlation());
    PUT(m, "bytes", bytes);
    PUT(m, "start", begin);
    PUT(m, "end", begin + ns);
    PUT(m, "memoryKind", 3);
    PUT(m, "flags", 1);
    PUT(m, "graphId", 0);
    add(&m);
}

EXPORT void standin_peer(uint64_t bytes, uint32_t from, uint32_t to, uint64_t ns)
{
    uint64_t begin = begins_at();
    struct made m = make(22);
    put_place(&m, from, 7, next_correlation());
    PUT(m, "copyKind", 10);
    PUT(m, "srcKind", 3);
    PUT(m, "dstKind", 3);
    PUT(m, "flags", 1);
    PUT(m, "bytes", bytes);
    PUT(m, "start", begin);
    PUT(m, "end", begin + ns);
    PUT(m, "srcDeviceId", from);
    PUT(m, "dstDeviceId", to);
    PUT(m, "graphId", 0);
    add(&m);
}

EXPORT void standin_memory(uint32_t operation, uint64_t address, uint64_t bytes, uint64_t call_ns)
{
    uint32_t correlation = next_correlation();
    uint64_t begin = begins_at();
    struct made call = made_call(5, operation == 1 ? 20 : 22, begin, begin + call_ns, correlation);
    struct made m = make(49);
    put_place(&m, 0, 0, correlation);
    PUT(m, "memoryOperationType", operation);
    PUT(m, "memoryKind", 3);
    PUT(m, "address", address);
    PUT(m, "bytes", bytes);
    PUT(m, "timestamp", begin + call_ns);
    PUT(m, "processId", getpid());
    PUT(m, "isAsync", 0);
    add(&call);
    add(&m);
}

/* cudaStreamSynchronize() that began at `begin` (0: now) and took ns. */
EXPORT void standin_sync(uint64_t begin, uint64_t ns)
{
    uint32_t correlation = next_correlation();
    begin = begin ? begin : begins_at();
    struct made call = made_call(5, 131, begin, begin + ns, correlation);
    struct made m = make(38);
    PUT(m, "type", 3);
    PUT(m, "start", begin);
    PUT(m, "end", begin + ns);
    PUT(m, "correlationId", correlation);
    PUT(m, "contextId", 1);
    PUT(m, "streamId", 7);
    PUT(m, "cudaEventId", 0);
    add(&call);
    add(&m);
}

/* cudaGetDevice(), as torch calls it a dozen times for each kernel. */
EXPORT void standin_ask(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct made call = made_call(5, 16, now(), now() + 100, next_correlation());
        add(&call);
    }
}

/* Calls of the runtime that are told of, by the old interface. */
EXPORT uint32_t standin_chosen(void)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < CALL_IDS; id++)
        n += s.chosen[0][id];
    return n;
}

EXPORT void standin_overhead(uint32_t kind, uint64_t ns)
{
    uint64_t begin = begins_at();
    struct made m = make(17);
    PUT(m, "overheadKind", kind);
    PUT(m, "objectKind", 2);
    PUT(m, "start", begin);
    PUT(m, "end", begin + ns);
    add(&m);
}

/* A record of a kind that no version has, among the others. */
EXPORT void standin_unknown(void)
{
    uint8_t bytes[UNKNOWN_BYTES] = {UNKNOWN_KIND};
    (void)pthread_mutex_lock(&s.lock);
    for (int i = 0; i < USERS; i++)
        if (s.users[i].there)
            add_bytes(&s.users[i], bytes, sizeof(bytes));
    (void)pthread_mutex_unlock(&s.lock);
}

/* A buffer as some CUPTI wrote it. */
EXPORT void standin_play(const uint8_t *bytes, size_t n)
{
    for (int i = 0; i < USERS; i++) {
        struct held b = {.bytes = NULL};
        const struct user *u = &s.users[i];
        if (u->there)
            request(u, &b);
        if (b.bytes && b.size >= n) {
            memcpy(b.bytes, bytes, n);
            b.valid = n;
        }
        if (b.bytes)
            complete(u, &b);
    }
}

/* The next kernel's record is cut in the middle by the end of its buffer. */
EXPORT void standin_torn(void)
{
    (void)pthread_mutex_lock(&s.lock);
    uint8_t half[64] = {10};
    for (int i = 0; i < USERS; i++)
        if (s.users[i].there) {
            add_bytes(&s.users[i], half, sizeof(half));
            give_back(&s.users[i]);
        }
    s.tears = true;
    (void)pthread_mutex_unlock(&s.lock);
}

/* How it behaves from now on. */
EXPORT void standin_kernels_first(bool yes)
{
    s.kernels_first = yes;
}

EXPORT void standin_hold(bool yes) /* buffers are not given back until standin_release() */
{
    s.holds = yes;
}

EXPORT void standin_release(void)
{
    (void)pthread_mutex_lock(&s.lock);
    for (struct user *u = s.users; u < s.users + USERS; u++)
        while (u->n_late > 0) {
            struct held b = u->late[--u->n_late];
            const struct user whose = *u;
            (void)pthread_mutex_unlock(&s.lock);
            complete(&whose, &b);
            (void)pthread_mutex_lock(&s.lock);
        }
    (void)pthread_mutex_unlock(&s.lock);
}

EXPORT void standin_drop(size_t n)
{
    for (int i = 0; i < USERS; i++)
        s.users[i].dropped += n;
}

EXPORT void standin_refuse(int result)
{
    s.result = result;
}

EXPORT void standin_set_clock(int64_t offset_ns)
{
    s.clock_offset = offset_ns;
}

EXPORT bool standin_enabled(uint32_t kind) /* by anybody */
{
    bool enabled = false;
    for (int i = 0; i < USERS; i++)
        enabled |= s.users[i].enabled[kind % 64];
    return enabled;
}

EXPORT int standin_thread_type(void) /* by the old interface */
{
    return s.users[0].thread_type;
}

EXPORT int standin_subscribers(void)
{
    int n = 0;
    for (int i = 1; i < USERS; i++)
        n += s.users[i].there;
    return n;
}

EXPORT uint32_t standin_calls(uint32_t which) /* enable, disable, flush, register */
{
    return s.calls[which % 4];
}
