/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/nccl/other_versions.h - an event in the words of NCCL's profiler interface 1 to 4, and 7:
 * what an older NCCL says of it, or a newer one.  One thread at a time for each event.
 */
#ifndef TESTS_NCCL_OTHER_VERSIONS_H
#define TESTS_NCCL_OTHER_VERSIONS_H

#include "plugins/nccl/callbacks/profiler_abi.h"

#include <string.h>

static uint8_t number_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (name && strcmp(names[i], name) == 0)
            return (uint8_t)i;
    return 0;
}

static const char *const funcs[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                    "AllReduce", "SendRecv", "Send",      "Recv"};
static const char *const types[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",
                                    "ncclUint32",  "ncclInt64",   "ncclUint64",
                                    "ncclFloat16", "ncclFloat32", "ncclFloat64"};

static void start_v1(void *symbol, void *context, uint64_t hash, void **h,
                     const struct nccl_descr_v6 *d)
{
    struct nccl_descr_v1 old = {.type = (uint8_t)d->type, .parent = d->parent, .rank = d->rank};
    if (d->type == NCCL_COLL) {
        old.coll.comm_hash = hash;
        old.coll.seq = d->coll.seq;
        old.coll.func = number_of(funcs, 8, d->coll.func);
        old.coll.datatype = number_of(types, 9, d->coll.datatype);
        old.coll.count = d->coll.count;
        old.coll.root = d->coll.root;
        old.coll.algo = 1;
        old.coll.proto = 2;
    } else if (d->type == NCCL_P2P) {
        old.p2p.comm_hash = hash;
        old.p2p.func = number_of(funcs, 8, d->p2p.func);
        old.p2p.datatype = number_of(types, 9, d->p2p.datatype);
        old.p2p.count = d->p2p.count;
        old.p2p.peer = d->p2p.peer;
    } else if (d->type == NCCL_PROXY_OP) {
        old.proxy_op = d->proxy_op;
    } else {
        old.proxy_step = d->proxy_step;
    }
    (void)((struct nccl_profiler_v1 *)symbol)->start_event(context, h, &old);
}

#define FILL_OLD(old)                               \
    do {                                            \
        if (d->type == NCCL_COLL) {                 \
            (old).coll.seq = d->coll.seq;           \
            (old).coll.func = d->coll.func;         \
            (old).coll.datatype = d->coll.datatype; \
            (old).coll.count = d->coll.count;       \
            (old).coll.root = d->coll.root;         \
            (old).coll.algo = d->coll.algo;         \
            (old).coll.proto = d->coll.proto;       \
        } else if (d->type == NCCL_P2P) {           \
            (old).p2p.func = d->p2p.func;           \
            (old).p2p.datatype = d->p2p.datatype;   \
            (old).p2p.count = d->p2p.count;         \
            (old).p2p.peer = d->p2p.peer;           \
        } else if (d->type == NCCL_PROXY_OP) {      \
            (old).proxy_op = d->proxy_op;           \
        } else if (d->type == NCCL_PROXY_STEP) {    \
            (old).proxy_step = d->proxy_step;       \
        }                                           \
    } while (0)
#define FILL_HASH(old)                   \
    do {                                 \
        if (d->type == NCCL_COLL)        \
            (old).coll.comm_hash = hash; \
        else if (d->type == NCCL_P2P)    \
            (old).p2p.comm_hash = hash;  \
    } while (0)
#define HEAD                                                           \
    {                                                                  \
        .type = (uint8_t)d->type, .parent = d->parent, .rank = d->rank \
    }

static void start_old(int version, void *symbol, void *context, uint64_t hash, void **h,
                      const struct nccl_descr_v6 *d)
{
    if (d->type == NCCL_CE_COLL || (version < 3 && d->type >= NCCL_KERNEL_CH))
        return; /* that NCCL knows no such event */
    if (version == 1) {
        start_v1(symbol, context, hash, h, d);
    } else if (version == 2) {
        struct nccl_descr_v2 old = HEAD;
        FILL_OLD(old);
        FILL_HASH(old);
        (void)((struct nccl_profiler_v2 *)symbol)->start_event(context, h, &old);
    } else if (version == 3) {
        struct nccl_descr_v3 old = HEAD;
        FILL_OLD(old);
        FILL_HASH(old);
        if (d->type == NCCL_KERNEL_CH)
            old.kernel_ch.channel = d->kernel_ch.channel;
        if (d->type == NCCL_NET_PLUGIN)
            old.net_plugin = d->net_plugin;
        (void)((struct nccl_profiler_v3 *)symbol)->start_event(context, h, &old);
    } else {
        struct nccl_descr_v4 old = HEAD;
        FILL_OLD(old);
        if (d->type == NCCL_COLL)
            old.coll.n_channels = d->coll.n_channels;
        if (d->type == NCCL_P2P)
            old.p2p.n_channels = d->p2p.n_channels;
        if (d->type == NCCL_KERNEL_CH)
            old.kernel_ch = d->kernel_ch;
        if (d->type == NCCL_NET_PLUGIN)
            old.net_plugin = d->net_plugin;
        (void)((struct nccl_profiler_v4 *)symbol)->start_event(context, h, &old);
    }
}

/* symmetric: the variant of a collective over symmetric memory, or NULL. */
static void start_v7(void *symbol, void *context, void **h, const struct nccl_descr_v6 *d,
                     const char *symmetric, uint64_t user_tag)
{
    struct nccl_descr_v7 newer = {.type = d->type, .parent = d->parent, .rank = d->rank};
    /* Each kind of 7 begins as that of 6 does. */
    memcpy((char *)&newer + offsetof(struct nccl_descr_v7, coll),
           (const char *)d + offsetof(struct nccl_descr_v6, coll),
           sizeof(*d) - offsetof(struct nccl_descr_v6, coll));
    if (d->type == NCCL_COLL) {
        newer.coll.kernel_variant = symmetric;
        newer.coll.is_symmetric = symmetric != NULL;
        newer.coll.user_tag = user_tag;
    }
    (void)((struct nccl_profiler_v7 *)symbol)->start_event(context, h, &newer);
}

#endif
