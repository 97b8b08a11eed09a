/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/kineto_player.c - a program part that is linked with CUPTI and traces, as
 * torch's profiler (Kineto) does: by the old interface, or with KINETO_SHARES as one of several
 * subscribers.  NOT Kineto.
 *
 * Threads: one at a time; its buffers come back on any.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
#define BYTES 65536
#define KERNEL 10

int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record);
#define GIVEN 64
static _Atomic uint32_t kernels, unknown;
static uint8_t *_Atomic given[GIVEN];

#ifdef KINETO_SHARES
struct params {
    size_t size;
    const char *name;
    char *old_name;
    size_t old_size;
    uint8_t allow, padding[7];
};
int cuptiSubscribe_v2(void **ret, void *callback, void *arg, struct params *p);
int cuptiUnsubscribe(void *subscriber);
int cuptiActivityEnable_v2(void *subscriber, uint32_t kind, void *config);
int cuptiActivityRegisterCallbacks_v2(void *subscriber,
                                      void (*requested)(uint8_t **, size_t *, size_t *, void *),
                                      void (*completed)(uint8_t *, size_t, size_t, void *));
__attribute__((weak)) int cuptiActivityGetNextRecord_v2(void *subscriber, uint8_t *buffer,
                                                        size_t valid, uint8_t **record);
static void *subscriber;
#else
int cuptiActivityEnable(uint32_t kind);
int cuptiActivityDisable(uint32_t kind);
int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                   void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t));
#endif

static int next_record(uint8_t *buffer, size_t valid, uint8_t **record)
{
#ifdef KINETO_SHARES
    if (cuptiActivityGetNextRecord_v2) /* not in 13.2 */
        return cuptiActivityGetNextRecord_v2(subscriber, buffer, valid, record);
#endif
    return cuptiActivityGetNextRecord(buffer, valid, record);
}

/* As Kineto, which says "bufferCompleted called with unknown buffer" and does not read it. */
static int is_known(uint8_t *buffer)
{
    for (int i = 0; i < GIVEN; i++) {
        uint8_t *it = buffer;
        if (atomic_compare_exchange_strong(&given[i], &it, NULL))
            return 1;
    }
    unknown++;
    return 0;
}

static void count(uint8_t *buffer, size_t valid)
{
    if (!is_known(buffer))
        return;
    uint8_t *record = NULL;
    while (next_record(buffer, valid, &record) == 0)
        kernels += *(uint32_t *)(void *)record == KERNEL;
    free(buffer);
}

static void give(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = aligned_alloc(8, BYTES);
    *size = BYTES;
    *max_records = 0;
    for (int i = 0; i < GIVEN; i++) {
        uint8_t *none = NULL;
        if (atomic_compare_exchange_strong(&given[i], &none, *buffer))
            return;
    }
    abort(); /* so many are never out at a time */
}

#ifdef KINETO_SHARES
static void requested(uint8_t **buffer, size_t *size, size_t *max_records, void *info)
{
    (void)info;
    give(buffer, size, max_records);
}

static void completed(uint8_t *buffer, size_t size, size_t valid, void *info)
{
    (void)size;
    (void)info;
    count(buffer, valid);
}

EXPORT int kineto_start(int alone)
{
    struct params p = {.size = sizeof(p), .name = "Kineto", .allow = !alone};
    int rc = cuptiSubscribe_v2(&subscriber, NULL, NULL, &p);
    if (rc == 0)
        rc = cuptiActivityRegisterCallbacks_v2(subscriber, requested, completed);
    return rc ? rc : cuptiActivityEnable_v2(subscriber, KERNEL, NULL);
}

EXPORT void kineto_stop(void)
{
    (void)cuptiActivityFlushAll(1);
    (void)cuptiUnsubscribe(subscriber);
}
#else
static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context;
    (void)stream;
    (void)size;
    count(buffer, valid);
}

EXPORT int kineto_start(void)
{
    int rc = cuptiActivityRegisterCallbacks(give, completed);
    return rc ? rc : cuptiActivityEnable(KERNEL);
}

EXPORT void kineto_stop(void)
{
    (void)cuptiActivityFlushAll(1);
    (void)cuptiActivityDisable(KERNEL);
}
#endif

EXPORT uint32_t kineto_kernels(void)
{
    return kernels;
}

EXPORT uint32_t kineto_unknown(void)
{
    return unknown;
}
