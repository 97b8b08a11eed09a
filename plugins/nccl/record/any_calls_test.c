/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/any_calls_test.c - any of NCCL's calls in any order, on many threads at once,
 * beside the writer: each operation has its row once, and no slot is lost.
 */
#include "record/recording_test.h"

#include <limits.h>
#include <pthread.h>

#include "tests/nccl/other_versions.h"

#define COMMS 7 /* one of each version */
#define THREADS 2
#define CALLS 20000

/* ---- anything, on many threads ---- */

struct player {
    pthread_t thread;
    int version;
    void *context;
    uint64_t seed;
};

static _Atomic bool playing;
static void *const symbols[] = {NULL,
                                &ncclProfiler_v1,
                                &ncclProfiler_v2,
                                &ncclProfiler_v3,
                                &ncclProfiler_v4,
                                &ncclProfiler_v5,
                                &ncclProfiler_v6,
                                &ncclProfiler_v7};

static uint64_t random_of(uint64_t *seed) /* xorshift64* */
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(2685821657736338717);
}

/* 0 to 7, and now and then what is none: the smallest, the largest, none of a kind. */
static int number_of_any(uint64_t r)
{
    static const int odd[] = {INT_MIN, INT_MAX, -1, 255};
    return r % 16 ? (int)(r >> 4 & 7) : odd[r >> 4 & 3];
}

/* Make NCCL's description of an event in the words of interface 6.  net: what it points to. */
static struct nccl_descr_v6 any_event(uint64_t r, void *parent, struct nccl_net_ib_v1 *net)
{
    static const uint64_t kinds[] = {NCCL_COLL, NCCL_PROXY_OP,   NCCL_KERNEL_CH, NCCL_PROXY_STEP,
                                     NCCL_P2P,  NCCL_NET_PLUGIN, NCCL_CE_COLL,   NCCL_GROUP};
    static const char *const names[] = {NULL, "", "AllReduce",
                                        "\xff\x01 of more than 24 bytes, \n"};
    struct nccl_descr_v6 d = {
        .type = r % 61 ? kinds[r % 8] : r, .parent = parent, .rank = number_of_any(r >> 9)};
    const char *name = names[r >> 16 & 3];
    switch (d.type) {
    case NCCL_COLL:
        d.coll.seq = r >> 20 & 3 ? r >> 24 & 7 : UINT64_MAX;
        d.coll.func = d.coll.algo = d.coll.proto = name;
        d.coll.datatype = r >> 30 & 1 ? "ncclFloat64" : name;
        d.coll.count = r >> 31 & 3 ? r >> 40 : SIZE_MAX;
        d.coll.root = number_of_any(r >> 33);
        d.coll.n_channels = (uint8_t)number_of_any(r >> 41);
        break;
    case NCCL_P2P:
        d.p2p.func = d.p2p.datatype = name;
        d.p2p.count = r >> 31 & 3 ? r >> 40 : SIZE_MAX;
        d.p2p.peer = number_of_any(r >> 33);
        d.p2p.n_channels = (uint8_t)number_of_any(r >> 41);
        break;
    case NCCL_PROXY_OP:
        d.proxy_op = (struct nccl_proxy_op){.pid = r >> 20 & 7 ? getpid() : 1,
                                            .channel = (uint8_t)number_of_any(r >> 24),
                                            .peer = number_of_any(r >> 32),
                                            .n_steps = number_of_any(r >> 40),
                                            .is_send = (int)(r >> 48 & 1)};
        break;
    case NCCL_PROXY_STEP:
        d.proxy_step.step = number_of_any(r >> 20);
        break;
    case NCCL_KERNEL_CH:
        d.kernel_ch.timer_ns = r >> 20 & 7 ? r >> 33 : UINT64_MAX;
        break;
    case NCCL_NET_PLUGIN:
        *net = (struct nccl_net_ib_v1){.type = (uint8_t)(r >> 20 & 3), .qp = {.length = r >> 40}};
        d.net_plugin.id = NCCL_NET_IB | (int64_t)(r >> 24 & 3);
        d.net_plugin.data = r >> 28 & 7 ? net : NULL;
        break;
    case NCCL_CE_COLL:
        d.ce_coll.func = d.ce_coll.datatype = name;
        d.ce_coll.count = r >> 40;
        break;
    default: /* a group, or what no NCCL has */
        break;
    }
    return d;
}

static void start_any(const struct player *p, void **h, const struct nccl_descr_v6 *d, uint64_t r)
{
    void *symbol = symbols[p->version];
    if (p->version == 7)
        start_v7(symbol, p->context, h, d, r >> 50 & 1 ? "LL_R" : NULL, r);
    else if (p->version >= 5)
        (void)((struct nccl_profiler_v6 *)symbol)->start_event(p->context, h, (void *)d);
    else
        start_old(p->version, symbol, p->context, r, h, d);
}

static void state_any(const struct player *p, void *h, uint64_t r)
{
    void *symbol = symbols[p->version];
    int which = (int)(r >> 33 & 63) - 2;
    union nccl_state_v1 old = {.proxy_op = {.trans_size = r >> 40}};
    union nccl_state_v4 new = {.proxy_step = {.trans_size = r >> 40}};
    if (p->version < 4)
        (void)((struct nccl_profiler_v1 *)symbol)
            ->record_event_state(h, which, r & 1 ? &old : NULL);
    else
        (void)((struct nccl_profiler_v6 *)symbol)
            ->record_event_state(h, which, r & 1 ? &new : NULL);
}

static void *play(void *arg)
{
    struct player *p = arg;
    void *mine[32] = {NULL};
    uint64_t seed = p->seed;
    for (uint32_t i = 0; i < CALLS; i++) {
        uint64_t r = random_of(&seed), of_event = random_of(&seed);
        void **h = &mine[r % 32], *parent = mine[(r >> 8) % 32];
        struct nccl_net_ib_v1 net;
        if ((r >> 16) % 50 == 0)
            parent = (void *)(uintptr_t)random_of(&seed);
        struct nccl_descr_v6 d = any_event(of_event, parent, &net);
        if ((r >> 24) % 10 < 5)
            start_any(p, h, &d, r);
        else if ((r >> 24) % 10 < 7)
            state_any(p, *h, r);
        else /* also one that has ended, or none */
            (void)((struct nccl_profiler_v6 *)symbols[p->version])->stop_event(*h);
    }
    return NULL;
}

static void *begin_any(int version)
{
    void *context = NULL, *symbol = symbols[version];
    if (version < 4)
        CHECK_INT(((struct nccl_profiler_v1 *)symbol)->init(&context, &mask), 0);
    else if (version == 4)
        CHECK_INT(ncclProfiler_v4.init(&context, &mask, NULL, UINT64_MAX, -1, INT_MAX, -7, NULL),
                  0);
    else
        CHECK_INT(((struct nccl_profiler_v6 *)symbol)
                      ->init(&context, (uint64_t)version, &mask, NULL, 0, INT_MIN, 3, NULL),
                  0);
    CHECK(context != NULL);
    return context;
}

static void *write_on(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; atomic_load(&playing); i++)
        (void)writer_turn(writer, clock_now() + (i % 7) * PROBING_NS_PER_S, i % 2 == 0);
    return NULL;
}

static void play_all(void *const contexts[COMMS], uint64_t seed)
{
    static struct player players[COMMS * THREADS];
    pthread_t writing;
    atomic_store(&playing, true);
    for (uint32_t i = 0; i < COMMS * THREADS; i++) {
        players[i] = (struct player){
            .context = contexts[i % COMMS], .version = (int)(i % COMMS) + 1, .seed = seed + i};
        CHECK_INT(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    CHECK_INT(pthread_create(&writing, NULL, write_on, NULL), 0);
    for (uint32_t i = 0; i < COMMS * THREADS; i++)
        (void)pthread_join(players[i].thread, NULL);
    atomic_store(&playing, false);
    (void)pthread_join(writing, NULL);
}

TEST(any_calls_in_any_order_lose_nothing)
{
    void *contexts[COMMS];
    uint64_t ops = 0, proxies = 0, nets = 0;
    begin();
    for (uint32_t i = 0; i < COMMS; i++)
        contexts[i] = begin_any((int)i + 1);
    play_all(contexts, 77);
    for (uint32_t i = 0; i < COMMS; i++) {
        ops += counted(contexts[i], COUNT_OPS);
        proxies += counted(contexts[i], COUNT_PROXIES);
        nets += counted(contexts[i], COUNT_NETS);
        CHECK_INT(((struct nccl_profiler_v6 *)symbols[i + 1])->finalize(contexts[i]), 0);
    }
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, ops); /* each once, ended or aborted */
    CHECK_INT(table("proxy_ops")->rows, proxies);
    CHECK(table("net_qp")->rows > 0 && table("net_qp")->rows <= nets);
    CHECK(ops > 1000 && proxies > 1000);
    play_all(contexts, 4711); /* after finalize() nothing is taken */
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, ops);
    CHECK_INT(table("proxy_ops")->rows, proxies);
    for (uint32_t i = 0; i < COMMS; i++) { /* and no slot is left behind */
        struct pools *p = atomic_load(&((struct comm *)contexts[i])->pools);
        for (uint32_t k = 0; k < atomic_load(&p->op.fresh); k++)
            CHECK_INT(slot_state(atomic_load(&pool_slot(&p->op, k)->head)), SLOT_FREE);
        for (uint32_t k = 0; k < atomic_load(&p->kernel.fresh); k++)
            CHECK_INT(slot_state(atomic_load(&pool_slot(&p->kernel, k)->head)), SLOT_FREE);
    }
}

int main(void)
{
    RUN(any_calls_in_any_order_lose_nothing);
    return test_end();
}
