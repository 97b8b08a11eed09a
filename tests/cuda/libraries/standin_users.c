/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/standin_users.c - the stand-in for libcupti: who wants records, and the
 * buffers that they go into.
 *
 * Threads: any.  Callbacks are called without a lock.
 */
#include "tests/cuda/libraries/standin.h"

#include <sys/syscall.h>

struct standin s = {.lock = PTHREAD_MUTEX_INITIALIZER, .sharing = 2};

const struct cupti_version *version(void)
{
    const char *name = getenv("STANDIN_CUPTI");
    for (size_t i = 0; !s.version && name && i < CUPTI_VERSIONS; i++)
        if (strcmp(versions[i].name, name) == 0)
            s.version = &versions[i];
    if (!s.version)
        s.version = &versions[CUPTI_VERSIONS - 1];
    return s.version;
}

uint64_t now(void)
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
             {22, "memcpy2"}, {38, "sync"},   {49, "memory"}};

static const struct cupti_layout *layout_of(uint32_t kind)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].kind == kind)
            return figures_of(version(), kinds[i].record);
    return NULL;
}

size_t size_of(uint32_t kind)
{
    static _Atomic uint16_t sizes[64]; /* CUPTI does not look for them, either */
    if (kind < 64 && sizes[kind])
        return sizes[kind];
    const struct cupti_layout *l = layout_of(kind);
    size_t size = l ? l->size : kind == UNKNOWN_KIND ? UNKNOWN_BYTES : 0;
    if (kind < 64)
        sizes[kind] = (uint16_t)size;
    return size;
}

/* ---- buffers ---- */

/* Called without the lock. */
void request(const struct user *u, struct held *ret)
{
    size_t most;
    if (u->requested_v2)
        u->requested_v2(&ret->bytes, &ret->size, &most, NULL);
    else if (u->requested)
        u->requested(&ret->bytes, &ret->size, &most);
}

void complete(const struct user *u, const struct held *b)
{
    if (u->completed_v2)
        u->completed_v2(b->bytes, b->size, b->valid, NULL);
    else
        u->completed(NULL, 0, b->bytes, b->size, b->valid);
}

/* The buffer that is being filled goes back; with the lock, which is given up meanwhile. */
void give_back(struct user *u)
{
    struct held b = u->now;
    const struct user whose = *u;
    u->now = (struct held){.bytes = NULL};
    if (!b.bytes)
        return;
    if (s.holds && u->n_late < HELD) {
        u->late[u->n_late++] = b;
        return;
    }
    (void)pthread_mutex_unlock(&s.lock);
    complete(&whose, &b);
    (void)pthread_mutex_lock(&s.lock);
}

void add_bytes(struct user *u, const void *bytes, size_t n)
{
    if (u->now.bytes && u->now.valid + n > u->now.size)
        give_back(u);
    if (!u->now.bytes) {
        struct held b = {.bytes = NULL};
        const struct user whose = *u;
        (void)pthread_mutex_unlock(&s.lock);
        request(&whose, &b);
        (void)pthread_mutex_lock(&s.lock);
        if (!b.bytes || b.size < n) {
            u->dropped++;
            return;
        }
        if (!u->now.bytes)
            u->now = b;
        else { /* another thread was quicker */
            b.valid = 0;
            (void)pthread_mutex_unlock(&s.lock);
            complete(&whose, &b);
            (void)pthread_mutex_lock(&s.lock);
        }
    }
    if (u->now.valid + n > u->now.size) {
        u->dropped++;
        return;
    }
    memcpy(u->now.bytes + u->now.valid, bytes, n);
    u->now.valid += n;
}

struct made make(uint32_t kind)
{
    struct made m = {.kind = kind, .layout = layout_of(kind)};
    memset(m.bytes, 0xee, sizeof(m.bytes)); /* what is not told is no number */
    memcpy(m.bytes, &kind, sizeof(kind));
    return m;
}

static uint32_t thread_id(const struct user *u)
{
    return u->thread_type == 1 ? (uint32_t)syscall(SYS_gettid)
                               : (uint32_t)(uintptr_t)pthread_self();
}

void add_to(struct user *u, struct made *m)
{
    bool call = m->kind == 4 || m->kind == 5;
    if (!u->enabled[m->kind])
        return;
    if (call && u == &s.users[0] && !s.chosen[m->kind == 4][m->call % CALL_IDS])
        return;
    if (call)
        PUT(*m, "threadId", thread_id(u));
    if (m->kind == 17)
        PUT(*m, "objectId", (uint64_t)thread_id(u) << 32 | (uint32_t)getpid());
    add_bytes(u, m->bytes, m->layout->size);
}

void add(struct made *m)
{
    (void)pthread_mutex_lock(&s.lock);
    for (int i = 0; i < USERS; i++)
        add_to(&s.users[i], m);
    (void)pthread_mutex_unlock(&s.lock);
}
