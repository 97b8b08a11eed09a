/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/any_calls_test.c - any of NCCL's calls in any order, on many threads at once,
 * beside the writer: each operation has its row once, and no slot is lost.
 */
#include "record/recording_test.h"

#include <pthread.h>

#define COMMS 4
#define THREADS 3
#define CALLS 20000

/* ---- anything, on many threads ---- */

struct player {
    pthread_t thread;
    void *context;
    uint64_t seed;
};

static _Atomic bool playing;

static uint64_t random_of(uint64_t *seed) /* xorshift64* */
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(2685821657736338717);
}

static void *play(void *arg)
{
    struct player *p = arg;
    void *mine[32] = {NULL};
    uint64_t seed = p->seed;
    for (uint32_t i = 0; i < CALLS; i++) {
        uint64_t r = random_of(&seed);
        void **h = &mine[r % 32], *parent = mine[(r >> 8) % 32];
        struct nccl_net_ib_v1 ib = {.type = NCCL_NET_IB_QP, .qp = {.length = r % 5000}};
        struct nccl_descr_v6 net = {.type = NCCL_NET_PLUGIN,
                                    .net_plugin = {.id = NCCL_NET_IB | (r >> 30) % 3, .data = &ib}};
        if ((r >> 16) % 50 == 0)
            parent = (void *)(uintptr_t)random_of(&seed);
        switch ((r >> 24) % 10) {
        case 0:
            *h = coll_v6(p->context, i, (int)(r >> 32) % 3);
            break;
        case 1:
            *h = proxy_v6(p->context, parent, (r >> 32) % 8 ? getpid() : 1, (int)(r >> 40) & 1);
            break;
        case 2:
            *h = kernel_v6(p->context, parent, r >> 33);
            break;
        case 3:
            *h = step_v6(p->context, parent, (int)(r >> 40));
            break;
        case 4:
            (void)ncclProfiler_v6.start_event(p->context, h, &net);
            break;
        case 5:
        case 6:
            if (*h)
                state_v6(*h, (int)((r >> 33) % 40) - 2, r % 5000);
            break;
        default:
            if (*h)
                (void)ncclProfiler_v6.stop_event(*h);
        }
    }
    return NULL;
}

static void *write_on(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; atomic_load(&playing); i++)
        (void)writer_turn(writer, clock_now() + (i % 7) * PROBING_NS_PER_S, i % 2 == 0);
    return NULL;
}

TEST(any_calls_in_any_order_lose_nothing)
{
    static struct player players[COMMS * THREADS];
    void *contexts[COMMS];
    pthread_t writing;
    uint64_t ops = 0, proxies = 0, nets = 0;
    begin();
    atomic_store(&playing, true);
    for (uint32_t i = 0; i < COMMS; i++)
        contexts[i] = comm_v6(i + 1);
    for (uint32_t i = 0; i < COMMS * THREADS; i++) {
        players[i] = (struct player){.context = contexts[i % COMMS], .seed = 77 + i};
        CHECK_INT(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    CHECK_INT(pthread_create(&writing, NULL, write_on, NULL), 0);
    for (uint32_t i = 0; i < COMMS * THREADS; i++)
        (void)pthread_join(players[i].thread, NULL);
    atomic_store(&playing, false);
    (void)pthread_join(writing, NULL);
    for (uint32_t i = 0; i < COMMS; i++) {
        ops += counted(contexts[i], COUNT_OPS);
        proxies += counted(contexts[i], COUNT_PROXIES);
        nets += counted(contexts[i], COUNT_NETS);
        ncclProfiler_v6.finalize(contexts[i]);
    }
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, ops); /* each once, ended or aborted */
    CHECK_INT(table("proxy_ops")->rows, proxies);
    CHECK(table("net_qp")->rows > 0 && table("net_qp")->rows <= nets);
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
