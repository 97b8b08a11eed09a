/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/subscriber.c - calls of CUPTI that there are with and without a subscriber.
 *
 * Threads: one at a time, and CUPTI's callbacks for buffers on any.
 * What the new interface needs, and in which order, is NVIDIA's "Multiple Subscribers" (CUPTI
 * documentation, 2.4).  13.2 has it as a beta: there, times, records and losses are asked for as
 * before.
 */
#include "cupti/subscriber.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "cupti/buffer_pool.h"
#include "cupti/cupti_inside.h"

#define NAMES_API 130000u   /* CUPTI 13.0: it tells who was there before */
#define SHARING_API 130200u /* CUPTI 13.2 */

enum { /* attributes */
       MULTIPLE_SUBSCRIBER_STATE = 12,
       THREAD_ID_TYPE = 21
};

/* CUPTI's callbacks have no argument, and may come at any time. */
static struct {
    _Atomic bool wanted; /* buffers are given */
    _Atomic uint64_t refused;
} shared;

static bool can_share(const struct cupti *c)
{
    return c->version >= SHARING_API && c->Subscribe_v2 && c->Unsubscribe && c->ActivityEnable_v2 &&
           c->ActivityDisable_v2 && c->ActivityRegisterCallbacks_v2 && c->ActivityGetAttribute_v2 &&
           c->ActivitySetAttribute_v2;
}

enum sharing subscriber_sharing(const struct cupti *c)
{
    static const enum sharing states[] = {SHARING_OFF, SHARING_ON, SHARING_OPEN};
    uint8_t state = 2;
    size_t size = sizeof(state);
    if (!can_share(c))
        return SHARING_NOT;
    int rc = CUPTI(c, ActivityGetAttribute_v2, NULL, MULTIPLE_SUBSCRIBER_STATE, &size, &state);
    return rc == CUPTI_SUCCESS && state < sizeof(states) / sizeof(states[0]) ? states[state]
                                                                             : SHARING_OPEN;
}

/* Callbacks of calls are never switched on: only a subscriber needs one. */
static void on_call(void *arg, int domain, uint32_t id, const void *data)
{
    (void)arg;
    (void)domain;
    (void)id;
    (void)data;
}

/* Another program part's text, which goes to tables and terminals. */
static void make_printable(char *name)
{
    name[SUBSCRIBER_NAME - 1] = '\0';
    for (char *p = name; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static int subscribe_to(const struct cupti *c, bool share, void **ret_handle, char *ret_other)
{
    memset(ret_other, 0, SUBSCRIBER_NAME);
    struct cupti_params params = {
        .size = c->version >= SHARING_API ? sizeof(params) : offsetof(struct cupti_params, share),
        .name = "probing",
        .other = ret_other,
        .other_size = SUBSCRIBER_NAME,
        .share = share};
    *ret_handle = NULL;
    int rc = CUPTI(c, Subscribe_v2, ret_handle, on_call, NULL, &params);
    make_printable(ret_other);
    return rc == CUPTI_SUCCESS && !*ret_handle ? CUPTI_UNKNOWN : rc;
}

int subscriber_join(struct subscriber *s, char *other)
{
    return subscribe_to(s->cupti, /* share= */ true, &s->handle, other);
}

void subscriber_leave(struct subscriber *s)
{
    if (s->handle)
        (void)CUPTI(s->cupti, Unsubscribe, s->handle);
    s->handle = NULL;
}

void subscriber_who(const struct cupti *c, char *ret_other)
{
    struct subscriber s = {.cupti = c};
    ret_other[0] = '\0';
    if (c->version < NAMES_API || !c->Subscribe_v2 || !c->Unsubscribe)
        return;
    (void)subscribe_to(c, /* share= */ false, &s.handle, ret_other);
    subscriber_leave(&s); /* it has gone meanwhile */
}

bool subscriber_has_company(const struct subscriber *s)
{
    uint32_t n = 0;
    return s->handle && s->cupti->ActivityGetEnabledKinds &&
           CUPTI(s->cupti, ActivityGetEnabledKinds, NULL, NULL, NULL, &n) == CUPTI_SUCCESS && n > 0;
}

/* ---- CUPTI's callbacks ---- */

static void on_buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
    bool wanted = atomic_load_explicit(&shared.wanted, memory_order_acquire);
    uint8_t *free_one = wanted ? buffer_take() : NULL;
    if (wanted && !free_one)
        atomic_fetch_add_explicit(&shared.refused, 1, memory_order_relaxed);
    *buffer = free_one;
    *size = free_one ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static void on_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                size_t valid)
{
    (void)context;
    (void)stream;
    (void)size;
    (void)buffer_complete(buffer, valid);
}

static void requested_v2(uint8_t **buffer, size_t *size, size_t *max_records, void *info)
{
    (void)info;
    on_buffer_requested(buffer, size, max_records);
}

static void completed_v2(uint8_t *buffer, size_t size, size_t valid, void *info)
{
    (void)info;
    on_buffer_completed(NULL, 0, buffer, size, valid);
}

void subscriber_want(bool wanted)
{
    atomic_store_explicit(&shared.wanted, wanted, memory_order_release);
}

uint64_t subscriber_refused(void)
{
    return atomic_load_explicit(&shared.refused, memory_order_relaxed);
}

/* ---- calls by either interface ---- */

int subscriber_register(const struct subscriber *s)
{
    return s->handle ? CUPTI(s->cupti, ActivityRegisterCallbacks_v2, s->handle, requested_v2,
                             completed_v2)
                     : CUPTI(s->cupti, ActivityRegisterCallbacks, on_buffer_requested,
                             on_buffer_completed);
}

int subscriber_enable(const struct subscriber *s, int kind)
{
    return s->handle ? CUPTI(s->cupti, ActivityEnable_v2, s->handle, kind, NULL)
                     : CUPTI(s->cupti, ActivityEnable, kind);
}

int subscriber_disable(const struct subscriber *s, int kind)
{
    return s->handle ? CUPTI(s->cupti, ActivityDisable_v2, s->handle, kind, NULL)
                     : CUPTI(s->cupti, ActivityDisable, kind);
}

int subscriber_enable_and_dump(const struct subscriber *s, int kind)
{
    const struct cupti *c = s->cupti;
    if (s->handle)
        return c->ActivityEnableAndDump_v2
                   ? CUPTI(c, ActivityEnableAndDump_v2, s->handle, kind, NULL)
                   : CUPTI_SUCCESS;
    return c->ActivityEnableAndDump ? CUPTI(c, ActivityEnableAndDump, kind) : CUPTI_SUCCESS;
}

int subscriber_next_record(const struct subscriber *s, uint8_t *buffer, size_t valid,
                           uint8_t **record)
{
    return s->handle && s->cupti->ActivityGetNextRecord_v2
               ? CUPTI(s->cupti, ActivityGetNextRecord_v2, s->handle, buffer, valid, record)
               : CUPTI(s->cupti, ActivityGetNextRecord, buffer, valid, record);
}

uint64_t subscriber_dropped(const struct subscriber *s)
{
    size_t n = 0;
    int rc = s->handle && s->cupti->ActivityGetNumDroppedRecords_v2
                 ? CUPTI(s->cupti, ActivityGetNumDroppedRecords_v2, s->handle, NULL, 0, &n)
                 : CUPTI(s->cupti, ActivityGetNumDroppedRecords, NULL, 0, &n);
    return rc == CUPTI_SUCCESS ? n : 0;
}

int subscriber_timestamp(const struct subscriber *s, uint64_t *now)
{
    int rc = s->handle && s->cupti->GetTimestamp_v2
                 ? CUPTI(s->cupti, GetTimestamp_v2, s->handle, now)
                 : CUPTI_UNKNOWN;
    return rc == CUPTI_SUCCESS ? rc : CUPTI(s->cupti, GetTimestamp, now);
}

int subscriber_thread_type(const struct subscriber *s, int *ret)
{
    size_t size = sizeof(*ret);
    if (s->handle)
        return CUPTI(s->cupti, ActivityGetAttribute_v2, s->handle, THREAD_ID_TYPE, &size, ret);
    return s->cupti->GetThreadIdType ? CUPTI(s->cupti, GetThreadIdType, ret) : CUPTI_SUCCESS;
}

int subscriber_set_thread_type(const struct subscriber *s, int type)
{
    size_t size = sizeof(type);
    if (s->handle)
        return CUPTI(s->cupti, ActivitySetAttribute_v2, s->handle, THREAD_ID_TYPE, &size, &type);
    return s->cupti->SetThreadIdType ? CUPTI(s->cupti, SetThreadIdType, type) : CUPTI_UNKNOWN;
}

bool subscriber_number_threads(const struct subscriber *s, int *ret_before)
{
    int type = CUPTI_THREADS_BY_PTHREAD;
    *ret_before = -1;
    if (subscriber_thread_type(s, &type) != CUPTI_SUCCESS)
        return false;
    if (type != CUPTI_THREADS_BY_SYSTEM &&
        subscriber_set_thread_type(s, CUPTI_THREADS_BY_SYSTEM) == CUPTI_SUCCESS)
        *ret_before = type;
    return type == CUPTI_THREADS_BY_SYSTEM || *ret_before >= 0;
}
