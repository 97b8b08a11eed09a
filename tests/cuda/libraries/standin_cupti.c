/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/standin_cupti.c - a stand-in for libcupti: NOT CUPTI, and no GPU is behind
 * it.  It has the functions of CUPTI's public interface that the cuda plugin calls, and writes
 * records where the headers of a version say that their fields are (STANDIN_CUPTI, "13.5.25").
 *
 * What "happens" is said by the program, by the functions standin_...() below: nothing that a test
 * finds with it says anything of a real device, only of what is done with what CUPTI delivers.
 *
 * Threads: any.  Callbacks are called without a lock.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <sys/syscall.h>

#include "tests/cuda/cupti_figures.h"

/* Whoever loads it declares what it calls. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
#define UNKNOWN_KIND 61u
#define UNKNOWN_BYTES 64u
#define HELD 64

typedef void requested_fn(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void completed_fn(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                          size_t valid);

struct held {
    uint8_t *bytes;
    size_t size, valid;
};

static struct {
    pthread_mutex_t lock;
    const struct cupti_version *version;
    requested_fn *requested;
    completed_fn *completed;
    bool enabled[64];
    uint32_t correlation, calls[4]; /* calls: enable, disable, flush, register */
    int thread_type;
    struct held now, late[HELD];
    uint32_t n_late;
    bool holds, kernels_first, tears;
    size_t dropped;
    int result; /* of ActivityEnable, from now on */
    int64_t clock_offset;
} s = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct cupti_version *version(void)
{
    const char *name = getenv("STANDIN_CUPTI");
    for (size_t i = 0; !s.version && name && i < CUPTI_VERSIONS; i++)
        if (strcmp(versions[i].name, name) == 0)
            s.version = &versions[i];
    if (!s.version)
        s.version = &versions[CUPTI_VERSIONS - 1];
    return s.version;
}

static uint64_t now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + (uint64_t)s.clock_offset;
}

static const struct {
    uint32_t kind;
    const char *record;
} kinds[] = {{1, "memcpy"},   {2, "memset"},  {3, "kernel"},  {4, "api"},
             {5, "api"},      {9, "context"}, {10, "kernel"}, {17, "overhead"},
             {22, "memcpy2"}, {38, "sync"},   {49, "memory"}, {51, "graph"}};

static const struct cupti_layout *layout_of(uint32_t kind)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].kind == kind)
            return figures_of(version(), kinds[i].record);
    return NULL;
}

static size_t size_of(uint32_t kind)
{
    const struct cupti_layout *l = layout_of(kind);
    return l ? l->size : kind == UNKNOWN_KIND ? UNKNOWN_BYTES : 0;
}

/* ---- buffers ---- */

/* The buffer that is being filled goes back; with the lock, which is given up meanwhile. */
static void give_back(void)
{
    struct held b = s.now;
    completed_fn *completed = s.completed;
    s.now = (struct held){.bytes = NULL};
    if (!b.bytes)
        return;
    if (s.holds && s.n_late < HELD) {
        s.late[s.n_late++] = b;
        return;
    }
    (void)pthread_mutex_unlock(&s.lock);
    completed(NULL, 0, b.bytes, b.size, b.valid);
    (void)pthread_mutex_lock(&s.lock);
}

static void add_bytes(const void *bytes, size_t n)
{
    if (s.now.bytes && s.now.valid + n > s.now.size)
        give_back();
    if (!s.now.bytes) {
        size_t most;
        struct held b = {.bytes = NULL};
        requested_fn *requested = s.requested;
        (void)pthread_mutex_unlock(&s.lock);
        if (requested)
            requested(&b.bytes, &b.size, &most);
        (void)pthread_mutex_lock(&s.lock);
        if (!b.bytes || b.size < n) {
            s.dropped++;
            return;
        }
        if (!s.now.bytes)
            s.now = b;
        else { /* another thread was quicker */
            completed_fn *completed = s.completed;
            (void)pthread_mutex_unlock(&s.lock);
            completed(NULL, 0, b.bytes, b.size, 0);
            (void)pthread_mutex_lock(&s.lock);
        }
    }
    if (s.now.valid + n > s.now.size) {
        s.dropped++;
        return;
    }
    memcpy(s.now.bytes + s.now.valid, bytes, n);
    s.now.valid += n;
}

struct made {
    uint32_t kind;
    const struct cupti_layout *layout;
    uint8_t bytes[256];
};

static struct made make(uint32_t kind)
{
    struct made m = {.kind = kind, .layout = layout_of(kind)};
    memset(m.bytes, 0xee, sizeof(m.bytes)); /* what is not told is no number */
    memcpy(m.bytes, &kind, sizeof(kind));
    return m;
}

#define PUT(m, field, value) figures_put((m).layout, (m).bytes, field, (uint64_t)(value))

static void add(const struct made *m)
{
    (void)pthread_mutex_lock(&s.lock);
    if (s.enabled[m->kind])
        add_bytes(m->bytes, m->layout->size);
    (void)pthread_mutex_unlock(&s.lock);
}

/* ---- what the program says that happens ---- */

static uint32_t thread_id(void)
{
    return s.thread_type == 1 ? (uint32_t)syscall(SYS_gettid) : (uint32_t)(uintptr_t)pthread_self();
}

static struct made made_call(uint32_t kind, uint32_t id, uint64_t begin, uint64_t end,
                             uint32_t correlation)
{
    struct made m = make(kind);
    PUT(m, "cbid", id);
    PUT(m, "start", begin);
    PUT(m, "end", end);
    PUT(m, "processId", getpid());
    PUT(m, "threadId", thread_id());
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

/* A call of the runtime that takes call_ns, and its work, which begins after_ns from the begin of
 * the call.  Gives the moment at which the work ends, of CLOCK_REALTIME. */
EXPORT uint64_t standin_kernel(const char *name, uint32_t device, uint32_t stream, int32_t grid,
                               uint64_t call_ns, uint64_t after_ns, uint64_t ns)
{
    uint32_t correlation = next_correlation();
    uint64_t begin = now();
    struct made call = made_call(5, 211, begin, begin + call_ns, correlation);
    struct made m = make(10);
    put_place(&m, device, stream, correlation);
    PUT(m, "start", begin + after_ns);
    PUT(m, "end", begin + after_ns + ns);
    PUT(m, "name", (uintptr_t)name);
    PUT(m, "gridX", grid);
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
    return begin + after_ns + ns;
}

/* So many a second, for so long, without anybody's Python. */
EXPORT void standin_burst(const char *name, uint32_t a_second, double seconds)
{
    uint64_t begin = now(), n = 0;
    for (uint64_t t = begin; t < begin + (uint64_t)(seconds * 1e9); t = now()) {
        for (; n < (uint64_t)((double)(t - begin) / 1e9 * a_second); n++)
            (void)standin_kernel(name, 0, 7, 1, 1000, 2000, 3000);
        (void)usleep(1000);
    }
}

EXPORT uint64_t standin_copy(uint32_t kind, uint64_t bytes, bool async, uint64_t call_ns,
                             uint64_t after_ns, uint64_t ns)
{
    uint32_t correlation = next_correlation();
    uint64_t begin = now();
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
    uint64_t begin = now();
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
    uint64_t begin = now();
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
    uint64_t begin = now();
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
    begin = begin ? begin : now();
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

EXPORT void standin_graph(uint32_t graph, uint64_t ns)
{
    uint32_t correlation = next_correlation();
    uint64_t begin = now();
    struct made call = made_call(5, 311, begin, begin + 1000, correlation);
    struct made m = make(51);
    put_place(&m, 0, 7, correlation);
    PUT(m, "start", begin);
    PUT(m, "end", begin + ns);
    PUT(m, "graphId", graph);
    add(&call);
    add(&m);
}

EXPORT void standin_overhead(uint32_t kind, uint64_t ns)
{
    uint64_t begin = now();
    struct made m = make(17);
    PUT(m, "overheadKind", kind);
    PUT(m, "objectKind", 2);
    PUT(m, "objectId", (uint64_t)thread_id() << 32 | (uint32_t)getpid());
    PUT(m, "start", begin);
    PUT(m, "end", begin + ns);
    add(&m);
}

/* A record of a kind that no version has, among the others. */
EXPORT void standin_unknown(void)
{
    uint8_t bytes[UNKNOWN_BYTES] = {UNKNOWN_KIND};
    (void)pthread_mutex_lock(&s.lock);
    add_bytes(bytes, sizeof(bytes));
    (void)pthread_mutex_unlock(&s.lock);
}

/* The next kernel's record is cut in the middle by the end of its buffer. */
EXPORT void standin_torn(void)
{
    (void)pthread_mutex_lock(&s.lock);
    uint8_t half[64] = {10};
    add_bytes(half, sizeof(half));
    s.tears = true;
    give_back();
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
    while (s.n_late > 0) {
        struct held b = s.late[--s.n_late];
        completed_fn *completed = s.completed;
        (void)pthread_mutex_unlock(&s.lock);
        completed(NULL, 0, b.bytes, b.size, b.valid);
        (void)pthread_mutex_lock(&s.lock);
    }
    (void)pthread_mutex_unlock(&s.lock);
}

EXPORT void standin_drop(size_t n)
{
    s.dropped += n;
}

EXPORT void standin_refuse(int result)
{
    s.result = result;
}

EXPORT void standin_set_clock(int64_t offset_ns)
{
    s.clock_offset = offset_ns;
}

EXPORT bool standin_enabled(uint32_t kind)
{
    return s.enabled[kind % 64];
}

EXPORT int standin_thread_type(void)
{
    return s.thread_type;
}

EXPORT uint32_t standin_calls(uint32_t which) /* enable, disable, flush, register */
{
    return s.calls[which % 4];
}

/* ---- CUPTI's interface ---- */

EXPORT int cuptiGetVersion(uint32_t *ret)
{
    *ret = version()->api;
    return 0;
}

EXPORT int cuptiGetTimestamp(uint64_t *ret)
{
    *ret = now();
    return 0;
}

EXPORT int cuptiGetResultString(int result, const char **ret)
{
    if (getenv("STANDIN_MUTE")) /* as CUPTI 13.3 and newer without a driver */
        return 999;
    *ret = result == 39   ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
           : result == 15 ? "CUPTI_ERROR_NOT_INITIALIZED"
                          : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char **ret)
{
    static const struct {
        uint32_t id;
        const char *name;
    } runtime[] = {{20, "cudaMalloc_v3020"},
                   {22, "cudaFree_v3020"},
                   {31, "cudaMemcpy_v3020"},
                   {41, "cudaMemcpyAsync_v3020"},
                   {131, "cudaStreamSynchronize_v3020"},
                   {211, "cudaLaunchKernel_v7000"},
                   {311, "cudaGraphLaunch_v10000"}};
    for (size_t i = 0; domain == 2 && i < sizeof(runtime) / sizeof(runtime[0]); i++)
        if (runtime[i].id == id) {
            *ret = runtime[i].name;
            return 0;
        }
    return 1;
}

EXPORT int cuptiActivityRegisterCallbacks(requested_fn *requested, completed_fn *completed)
{
    (void)pthread_mutex_lock(&s.lock);
    s.calls[3]++;
    s.requested = requested;
    s.completed = completed;
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityEnable(uint32_t kind)
{
    (void)pthread_mutex_lock(&s.lock);
    int result = s.result;
    s.calls[0]++;
    if (!result)
        s.enabled[kind % 64] = true;
    (void)pthread_mutex_unlock(&s.lock);
    return result;
}

EXPORT int cuptiActivityEnableAndDump(uint32_t kind)
{
    int rc = cuptiActivityEnable(kind);
    for (uint32_t device = 0; rc == 0 && kind == 9 && device < 2; device++) {
        struct made m = make(9);
        PUT(m, "contextId", device + 1);
        PUT(m, "deviceId", device);
        add(&m);
    }
    return rc;
}

EXPORT int cuptiActivityDisable(uint32_t kind)
{
    (void)pthread_mutex_lock(&s.lock);
    s.calls[1]++;
    s.enabled[kind % 64] = false;
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    (void)pthread_mutex_lock(&s.lock);
    s.calls[2]++;
    give_back();
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    uint32_t kind;
    uint8_t *at = buffer;
    if (*record) {
        memcpy(&kind, *record, sizeof(kind));
        at = *record + size_of(kind);
    }
    if (at >= buffer + valid)
        return 12; /* CUPTI_ERROR_MAX_LIMIT_REACHED */
    memcpy(&kind, at, sizeof(kind));
    if (size_of(kind) == 0)
        return 21; /* CUPTI_ERROR_INVALID_KIND */
    *record = at;  /* also when it does not fit: who reads it must look */
    return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *ret)
{
    (void)context;
    (void)stream;
    (void)pthread_mutex_lock(&s.lock);
    *ret = s.dropped;
    s.dropped = 0;
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiSetThreadIdType(int type)
{
    if (getenv("STANDIN_HALF_THREADS"))
        return 1; /* threads stay halves of pthread_t */
    s.thread_type = type;
    return 0;
}

EXPORT int cuptiGetThreadIdType(int *ret)
{
    *ret = s.thread_type;
    return 0;
}
