/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/standin_cupti.c - a stand-in for libcupti: NOT CUPTI, and no GPU is behind
 * it.  It has the functions of CUPTI's public interface that the cuda plugin calls, and writes
 * records where the headers of a version say that their fields are (STANDIN_CUPTI, "13.5.25").
 *
 * What "happens" is said by the program, by functions standin_...() of standin_device.c: nothing
 * that a test finds with it says anything of a real device, only of what is done with what CUPTI
 * delivers.
 *
 * Threads: any.  Callbacks are called without a lock.
 */
#include "tests/cuda/libraries/standin.h"

#define SEVERAL 39 /* CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED */

/* One function hangs from now on, as where the driver does; NULL: none, and those inside return. */
static char hang_name[64]; /* stays when nothing hangs */
static const char *_Atomic hangs_in;
static _Atomic int hanging;

EXPORT void standin_hang_in(const char *function)
{
    if (function)
        (void)snprintf(hang_name, sizeof(hang_name), "%s", function);
    hangs_in = function ? hang_name : NULL;
}

EXPORT int standin_hanging(void) /* threads */
{
    return hanging;
}

static void may_hang(const char *function)
{
    const char *in = hangs_in;
    if (!in || strcmp(in, function) != 0)
        return;
    hanging++;
    while (hangs_in)
        (void)usleep(1000);
    hanging--;
}

EXPORT int cuptiGetVersion(uint32_t *ret)
{
    may_hang(__func__);
    *ret = version()->api;
    return 0;
}

EXPORT int cuptiGetTimestamp(uint64_t *ret)
{
    may_hang(__func__);
    *ret = now();
    return 0;
}

EXPORT int cuptiGetResultString(int result, const char **ret)
{
    may_hang(__func__);
    if (getenv("STANDIN_MUTE")) /* as CUPTI 13.3 and newer without a driver */
        return 999;
    *ret = result == 39   ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
           : result == 15 ? "CUPTI_ERROR_NOT_INITIALIZED"
                          : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char **ret)
{
    may_hang(__func__);
    static const struct {
        uint32_t id;
        const char *name;
    } runtime[] = {{16, "cudaGetDevice_v3020"},     {20, "cudaMalloc_v3020"},
                   {22, "cudaFree_v3020"},          {31, "cudaMemcpy_v3020"},
                   {41, "cudaMemcpyAsync_v3020"},   {131, "cudaStreamSynchronize_v3020"},
                   {211, "cudaLaunchKernel_v7000"}, {311, "cudaGraphLaunch_v10000"}};
    for (size_t i = 0; domain == 2 && i < sizeof(runtime) / sizeof(runtime[0]); i++)
        if (runtime[i].id == id) {
            *ret = runtime[i].name;
            return 0;
        }
    return 1;
}

/* The old and the new interface exclude each other: by the old one, while there is a subscriber. */
static int old_user(void)
{
    return standin_subscribers() ? SEVERAL : 0;
}

static bool old_is_used(void)
{
    bool used = false;
    for (uint32_t kind = 0; kind < 64; kind++)
        used |= s.users[0].enabled[kind];
    return used;
}

static struct user *user_of(void *subscriber)
{
    for (int i = 1; i < USERS; i++)
        if (&s.users[i] == subscriber && s.users[i].there)
            return &s.users[i];
    return NULL;
}

static int enable(struct user *u, uint32_t kind, bool on)
{
    (void)pthread_mutex_lock(&s.lock);
    int result = on ? s.result : 0;
    s.calls[on ? 0 : 1]++;
    if (!result) {
        u->enabled[kind % 64] = on;
        u->there = true;
        if (u == &s.users[0] && (kind == 4 || kind == 5))
            memset(s.chosen[kind == 4], on, CALL_IDS);
    }
    (void)pthread_mutex_unlock(&s.lock);
    return result;
}

static int dump(struct user *u, uint32_t kind)
{
    int rc = enable(u, kind, true);
    for (uint32_t device = 0; rc == 0 && kind == 9 && device < 2; device++) {
        struct made m = make(9);
        PUT(m, "contextId", device + 1);
        PUT(m, "deviceId", device);
        (void)pthread_mutex_lock(&s.lock);
        add_to(u, &m);
        (void)pthread_mutex_unlock(&s.lock);
    }
    return rc;
}

EXPORT int cuptiActivityRegisterCallbacks(requested_fn *requested, completed_fn *completed)
{
    may_hang(__func__);
    int rc = old_user();
    (void)pthread_mutex_lock(&s.lock);
    s.calls[3]++;
    if (rc == 0) {
        s.users[0].there = true;
        s.users[0].requested = requested;
        s.users[0].completed = completed;
    }
    (void)pthread_mutex_unlock(&s.lock);
    return rc;
}

EXPORT int cuptiActivityEnable(uint32_t kind)
{
    may_hang(__func__);
    int rc = old_user();
    return rc ? rc : enable(&s.users[0], kind, true);
}

EXPORT int cuptiActivityEnableAndDump(uint32_t kind)
{
    may_hang(__func__);
    int rc = old_user();
    return rc ? rc : dump(&s.users[0], kind);
}

EXPORT int cuptiActivityDisable(uint32_t kind)
{
    may_hang(__func__);
    int rc = old_user();
    return rc ? rc : enable(&s.users[0], kind, false);
}

/* As NVIDIA's header has them, but as 13.0 does it: without the kind nothing comes. */
static int choose(int driver, uint32_t id, bool on)
{
    if (version()->api < 23 || id >= CALL_IDS) /* CUDA 12.5 */
        return 1;
    (void)pthread_mutex_lock(&s.lock);
    s.chosen[driver][id] = on;
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityEnableDriverApi(uint32_t id, uint8_t on)
{
    may_hang(__func__);
    return choose(1, id, on);
}

EXPORT int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on)
{
    may_hang(__func__);
    return choose(0, id, on);
}

/* true: calls hang from now on, as those into a driver that does; false: no more. */
EXPORT void standin_hang(bool yes)
{
    (void)(yes ? pthread_mutex_lock(&s.lock) : pthread_mutex_unlock(&s.lock));
}

EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    may_hang(__func__);
    (void)flag;
    (void)pthread_mutex_lock(&s.lock);
    s.calls[2]++;
    for (int i = 0; i < USERS; i++)
        give_back(&s.users[i]);
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    may_hang(__func__);
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

static int take_dropped(struct user *u, size_t *ret)
{
    (void)pthread_mutex_lock(&s.lock);
    *ret = u->dropped;
    u->dropped = 0;
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *ret)
{
    may_hang(__func__);
    (void)context;
    (void)stream;
    return take_dropped(&s.users[0], ret);
}

EXPORT int cuptiSetThreadIdType(int type)
{
    may_hang(__func__);
    if (getenv("STANDIN_HALF_THREADS"))
        return 1; /* threads stay halves of pthread_t */
    s.users[0].thread_type = type;
    return 0;
}

EXPORT int cuptiGetThreadIdType(int *ret)
{
    may_hang(__func__);
    *ret = s.users[0].thread_type;
    return 0;
}

/* ---- the interface for several subscribers, of 13.2 and newer ---- */

struct params { /* CUpti_SubscriberParams: 13.0 and 13.1 end before allow */
    size_t size;
    const char *name;
    char *old_name;
    size_t old_size;
    uint8_t allow, padding[7];
};

static bool has_subscribers(void)
{
    return version()->api >= 130200;
}

/* Is there a user already: a subscriber, or somebody by the old interface? */
static const struct user *first_user(void)
{
    for (int i = 1; i < USERS; i++)
        if (s.users[i].there)
            return &s.users[i];
    return old_is_used() ? &s.users[0] : NULL;
}

EXPORT int cuptiSubscribe_v2(void **ret, void *callback, void *arg, struct params *p)
{
    may_hang(__func__);
    const struct user *first;
    uint8_t allow = has_subscribers() && p && p->size >= sizeof(*p) ? p->allow : 0;
    (void)callback;
    (void)arg;
    if (version()->api < 130000)
        return 999;
    if (p && p->size != sizeof(*p) && p->size != offsetof(struct params, allow))
        return 1; /* CUPTI_ERROR_INVALID_PARAMETER */
    if (getenv("STANDIN_OLD_DRIVER"))
        return 27; /* CUPTI_ERROR_NOT_SUPPORTED */
    (void)pthread_mutex_lock(&s.lock);
    int rc = (first = first_user()) && !(allow && s.sharing == 1 && first != s.users) ? SEVERAL : 0;
    if (first && p && p->old_name)
        (void)snprintf(p->old_name, p->old_size, "%s", first->name);
    for (int i = 1; rc == 0 && i < USERS; i++) {
        struct user *u = &s.users[i];
        if (u->there)
            continue;
        *u = (struct user){.there = true};
        (void)snprintf(u->name, sizeof(u->name), "CUPTI for %s", p && p->name ? p->name : "");
        s.sharing = allow;
        *ret = u;
        break;
    }
    (void)pthread_mutex_unlock(&s.lock);
    return rc;
}

EXPORT int cuptiUnsubscribe(void *subscriber)
{
    may_hang(__func__);
    struct user *u = user_of(subscriber);
    if (!u)
        return 1;
    (void)pthread_mutex_lock(&s.lock);
    u->there = false;
    memset(u->enabled, 0, sizeof(u->enabled));
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityEnable_v2(void *subscriber, uint32_t kind, void *config)
{
    may_hang(__func__);
    struct user *u = user_of(subscriber);
    (void)config;
    return u ? enable(u, kind, true) : 1;
}

EXPORT int cuptiActivityDisable_v2(void *subscriber, uint32_t kind, void *config)
{
    may_hang(__func__);
    struct user *u = user_of(subscriber);
    (void)config;
    return u ? enable(u, kind, false) : 1;
}

EXPORT int cuptiActivityEnableAndDump_v2(void *subscriber, uint32_t kind, void *config)
{
    may_hang(__func__);
    struct user *u = user_of(subscriber);
    (void)config;
    return u ? dump(u, kind) : 1;
}

EXPORT int cuptiActivityRegisterCallbacks_v2(void *subscriber, requested_v2_fn *requested,
                                             completed_v2_fn *completed)
{
    may_hang(__func__);
    struct user *u = user_of(subscriber);
    if (!u)
        return 1;
    (void)pthread_mutex_lock(&s.lock);
    s.calls[3]++;
    u->requested_v2 = requested;
    u->completed_v2 = completed;
    (void)pthread_mutex_unlock(&s.lock);
    return 0;
}

EXPORT int cuptiActivityGetAttribute_v2(void *subscriber, uint32_t attribute, size_t *size,
                                        void *ret)
{
    may_hang(__func__);
    const struct user *u = user_of(subscriber);
    if (attribute == 12 && *size == 1)
        *(uint8_t *)ret = s.sharing;
    else if (attribute == 21 && *size == sizeof(int) && u)
        *(int *)ret = u->thread_type;
    else
        return 1;
    return has_subscribers() ? 0 : 27;
}

EXPORT int cuptiActivitySetAttribute_v2(void *subscriber, uint32_t attribute, size_t *size,
                                        const void *value)
{
    may_hang(__func__);
    struct user *u = user_of(subscriber);
    if (getenv("STANDIN_HALF_THREADS") || !u || attribute != 21 || *size != sizeof(int))
        return 1;
    u->thread_type = *(const int *)value;
    return 0;
}

EXPORT int cuptiActivityGetEnabledKinds(void *subscriber, int *kinds_of, uint32_t *size,
                                        uint32_t *ret)
{
    may_hang(__func__);
    const struct user *u = user_of(subscriber);
    if (kinds_of || size)
        return 1; /* the stand-in only counts them */
    *ret = 0;
    for (uint32_t kind = 0; kind < 64; kind++)
        *ret += u ? u->enabled[kind] : standin_enabled(kind);
    return 0;
}

#ifndef STANDIN_BETA /* 13.2 has not got these yet */
EXPORT int cuptiGetTimestamp_v2(void *subscriber, uint64_t *ret)
{
    may_hang(__func__);
    return user_of(subscriber) ? cuptiGetTimestamp(ret) : 1;
}

EXPORT int cuptiActivityGetNextRecord_v2(void *subscriber, uint8_t *buffer, size_t valid,
                                         uint8_t **record)
{
    may_hang(__func__);
    return user_of(subscriber) ? cuptiActivityGetNextRecord(buffer, valid, record) : 1;
}

EXPORT int cuptiActivityGetNumDroppedRecords_v2(void *subscriber, void *context, uint32_t stream,
                                                size_t *ret)
{
    may_hang(__func__);
    struct user *u = user_of(subscriber);
    (void)context;
    (void)stream;
    return u ? take_dropped(u, ret) : 1;
}
#endif
