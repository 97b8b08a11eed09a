/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/recorder.c - communicators begin and end, events are switched on and off.
 *
 * Threads of the program that make communicators, [control], and the writer: all under the
 * recorder's mutex, which no event takes.  Memory of pools is mapped here and never given back: a
 * handle may come late, and a communicator that begins takes the place of one that has ended.
 */
#include "record/recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "callbacks/profiler_abi.h"
#include "lib/sparse_map.h"
#include "probing_sdk.h"

#define SHRINKS 5 /* times that pools are halved where address space is short */
#define WANTED                                                                                   \
    (NCCL_COLL | NCCL_P2P | NCCL_PROXY_OP | NCCL_PROXY_STEP | NCCL_KERNEL_CH | NCCL_NET_PLUGIN | \
     NCCL_CE_COLL)

void recorder_init(struct recorder *r)
{
    r->size = sizeof(*r);
    (void)pthread_mutex_init(&r->mutex, NULL);
    atomic_store_explicit(&r->pid, (int32_t)getpid(), memory_order_relaxed);
    r->layout = RECORDER_LAYOUT;
}

int recorder_mask(const struct recorder *r)
{
    return atomic_load_explicit(&r->on, memory_order_relaxed) ? WANTED : 0;
}

/* ---- pools ---- */

static int map_pools(struct comm *c, uint32_t shrink)
{
    const struct {
        struct pool *pool;
        uint32_t slots, size;
    } parts[] = {{&c->pools_room.op, OPS_MAX >> shrink, sizeof(struct op_slot)},
                 {&c->pools_room.proxy, PROXIES_MAX >> shrink, sizeof(struct proxy_slot)},
                 {&c->pools_room.kernel, KERNELS_MAX >> shrink, sizeof(struct kernel_slot)},
                 {&c->pools_room.net, NETS_MAX >> shrink, sizeof(struct net_slot)}};
    size_t size = 0;
    for (size_t i = 0; i < PROBING_LENGTH(parts); i++)
        size += (size_t)parts[i].slots * parts[i].size;
    char *memory = sparse_map(size);
    if (!memory)
        return -ENOMEM;
    c->memory = memory;
    c->memory_bytes = size;
    for (size_t i = 0; i < PROBING_LENGTH(parts); i++) {
        pool_init(parts[i].pool, memory, parts[i].slots, parts[i].size);
        memory += (size_t)parts[i].slots * parts[i].size;
    }
    return 0;
}

/* Under the mutex. */
static int make_pools(struct comm *c)
{
    if (atomic_load_explicit(&c->pools, memory_order_relaxed))
        return 0;
    int rc = -ENOMEM;
    for (uint32_t shrink = 0; shrink < SHRINKS && rc < 0; shrink++)
        rc = map_pools(c, shrink);
    if (rc == 0)
        atomic_store_explicit(&c->pools, &c->pools_room, memory_order_release);
    return rc;
}

/* ---- on and off ---- */

/* NCCL reads the word at the beginning of each group of operations: it is one of its own, and its
 * example profiler writes there at any time, too.  It is kept only if it is a library's: somebody
 * else's NCCL may have it on a stack. */
static bool is_of_library(const int *mask)
{
    Dl_info about;
    return dladdr(mask, &about) != 0;
}

static void tell_mask(struct recorder *r)
{
    if (r->mask)
        __atomic_store_n(r->mask, recorder_mask(r), __ATOMIC_RELAXED);
}

int recorder_switch(struct recorder *r, bool on)
{
    int rc = 0;
    (void)pthread_mutex_lock(&r->mutex);
    for (uint32_t i = 0; i < COMMS_MAX && on; i++) {
        struct comm *c = atomic_load_explicit(&r->comms[i], memory_order_relaxed);
        if (c && atomic_load_explicit(&c->state, memory_order_relaxed) == COMM_OPEN &&
            make_pools(c) < 0)
            rc = -ENOMEM;
    }
    atomic_store_explicit(&r->on, on, memory_order_release);
    tell_mask(r);
    (void)pthread_mutex_unlock(&r->mutex);
    return rc;
}

void recorder_forked(struct recorder *r)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    atomic_store_explicit(&r->on, false, memory_order_relaxed);
    atomic_store_explicit(&r->writer, false, memory_order_relaxed);
    memcpy(&r->mutex, &fresh, sizeof(fresh)); /* who held it is not in this process */
    tell_mask(r);
}

/* ---- communicators ---- */

/* Under the mutex; NULL: all places are taken, or there is no memory. */
static struct comm *find_place(struct recorder *r)
{
    for (uint32_t i = 0; i < COMMS_MAX; i++) {
        struct comm *c = atomic_load_explicit(&r->comms[i], memory_order_relaxed);
        if (c && atomic_load_explicit(&c->state, memory_order_relaxed) == COMM_FREE)
            return c;
        if (c)
            continue;
        /* Not by malloc(): this memory is for the process's life, whoever's heap that is. */
        c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (c == MAP_FAILED)
            return NULL;
        c->recorder = r;
        c->index = i;
        atomic_store_explicit(&r->comms[i], c, memory_order_release);
        return c;
    }
    return NULL;
}

static void describe_comm(struct comm *c, const struct comm_about *about)
{
    size_t n = about->name ? strnlen(about->name, COMM_NAME_BYTES - 1) : 0;
    if (n)
        memcpy(c->name, about->name, n);
    c->name[n] = '\0';
    text_clean(c->name);
    c->version = about->version;
    c->born_ns = probing_clock_ns(CLOCK_MONOTONIC);
    uint64_t serials = atomic_fetch_add_explicit(&c->recorder->serials, 1, memory_order_relaxed);
    atomic_store_explicit(&c->serial, serials + 1, memory_order_relaxed);
    c->told_counters = c->told_live = 0;
    atomic_store_explicit(&c->hash, about->hash, memory_order_relaxed);
    atomic_store_explicit(&c->rank, about->rank, memory_order_relaxed);
    atomic_store_explicit(&c->n_ranks, about->n_ranks, memory_order_relaxed);
    atomic_store_explicit(&c->n_nodes, about->n_nodes, memory_order_relaxed);
    atomic_store_explicit(&c->finished_start_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&c->ids, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < FUNCS; i++)
        atomic_store_explicit(&c->symmetric[i], 0, memory_order_relaxed);
    for (uint32_t i = 0; i < COUNTERS; i++)
        atomic_store_explicit(&c->counters[i], 0, memory_order_relaxed);
}

struct comm *comm_begin(struct recorder *r, const struct comm_about *about, int *mask)
{
    bool fixed_mask = !is_of_library(mask); /* the loader's lock is not taken under ours */
    (void)pthread_mutex_lock(&r->mutex);
    struct comm *c = find_place(r);
    if (c) {
        describe_comm(c, about);
        if (atomic_load_explicit(&r->on, memory_order_relaxed) && make_pools(c) < 0)
            comm_count(c, COUNT_NO_ROOM);
        atomic_store_explicit(&c->state, COMM_OPEN, memory_order_release);
        r->n_comms++;
        atomic_store_explicit(&r->pid, (int32_t)getpid(), memory_order_relaxed);
        r->fixed_mask = fixed_mask;
        r->mask = r->fixed_mask ? NULL : mask;
    } else {
        (void)atomic_fetch_add_explicit(&r->refused, 1, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&r->mutex);
    return c;
}

/* The last one takes NCCL's word with it: its library may be closed after that. */
void comm_end(struct comm *c)
{
    struct recorder *r = c->recorder;
    (void)pthread_mutex_lock(&r->mutex);
    if (atomic_load_explicit(&c->state, memory_order_relaxed) == COMM_OPEN) {
        atomic_store_explicit(&c->state, COMM_CLOSED, memory_order_release);
        if (--r->n_comms == 0)
            r->mask = NULL;
        if (!atomic_load_explicit(&r->writer, memory_order_relaxed)) { /* nobody will read it */
            comm_discard(c);
            atomic_store_explicit(&c->state, COMM_FREE, memory_order_release);
        }
    }
    (void)pthread_mutex_unlock(&r->mutex);
}

void comm_release(struct comm *c)
{
    (void)pthread_mutex_lock(&c->recorder->mutex);
    atomic_store_explicit(&c->state, COMM_FREE, memory_order_release);
    (void)pthread_mutex_unlock(&c->recorder->mutex);
}
