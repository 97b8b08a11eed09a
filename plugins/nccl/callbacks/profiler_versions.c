/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/callbacks/profiler_versions.c - the symbols that NCCL looks up, ncclProfiler_v7 to
 * ncclProfiler_v1: each tells the recorder the same things in its version's structs.
 *
 * Any thread of NCCL and of the program.  Nothing here ever fails towards NCCL: an event that
 * cannot be taken has no handle, and NCCL does not ask for it again.  Without a core in the
 * process, or with the plugin stopped, the mask is 0 and NCCL calls nothing but init() and
 * finalize_comm().
 */
#include "callbacks/attach.h"
#include "callbacks/profiler_abi.h"

/* ---- names of version 1's numbers: nccl_common.h and nccl.h of 2.23 ---- */

static const char *name_of(const char *const *names, size_t n, uint8_t number)
{
    return number < n ? names[number] : NULL;
}

#define NAME_OF(names, number) name_of(names, sizeof(names) / sizeof((names)[0]), number)

static const char *const functions[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                        "AllReduce", "SendRecv", "Send",      "Recv"};
static const char *const algorithms[] = {
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
static const char *const protocols[] = {"LL", "LL128", "SIMPLE"};
static const char *const datatypes[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                        "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                        "ncclFloat64", "ncclBfloat16"};

/* ---- what all versions share ---- */

static uint64_t of_pointer(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static int begin_comm(void **ret_context, int *ret_mask, const struct comm_about *about)
{
    struct recorder *r = attach_recorder(NULL);
    if (!ret_context || !ret_mask)
        return NCCL_SUCCESS;
    *ret_context = comm_begin(r, about, ret_mask);
    /* It is one word for all communicators: what one says counts for each. */
    __atomic_store_n(ret_mask, recorder_mask(r), __ATOMIC_RELAXED);
    return NCCL_SUCCESS;
}

static int finalize_comm(void *context)
{
    if (context)
        comm_end(context);
    return NCCL_SUCCESS;
}

static int stop_event(void *handle)
{
    if (handle)
        record_stop(attach_recorder(NULL), of_pointer(handle));
    return NCCL_SUCCESS;
}

static int give_handle(void **ret_handle, uint64_t handle)
{
    *ret_handle = (void *)(uintptr_t)handle; /* NULL: not taken */
    return NCCL_SUCCESS;
}

static uint64_t proxy_begins(void *context, const void *parent, int rank,
                             const struct nccl_proxy_op *p)
{
    const struct proxy_about about = {.parent = of_pointer(parent),
                                      .pid = p->pid,
                                      .rank = rank,
                                      .channel = p->channel,
                                      .peer = p->peer,
                                      .n_steps = p->n_steps,
                                      .chunk_bytes = p->chunk_size,
                                      .is_send = p->is_send != 0};
    return record_proxy(context, &about);
}

static uint64_t net_begins(void *context, int rank, const struct nccl_net_plugin *n)
{
    if (NCCL_NET_KIND(n->id) != NCCL_NET_IB || NCCL_NET_VERSION(n->id) != 1 || !n->data)
        return 0; /* another network's: its struct is not known */
    const struct nccl_net_ib_v1 *ib = n->data;
    if (ib->type != NCCL_NET_IB_QP)
        return 0;
    const struct net_about about = {.rank = rank,
                                    .device = ib->qp.device,
                                    .opcode = ib->qp.opcode,
                                    .qp_num = ib->qp.qp_num,
                                    .wr_id = ib->qp.wr_id,
                                    .length = ib->qp.length};
    return record_net(context, &about);
}

static int state_v1(void *handle, int which, union nccl_state_v1 *a)
{
    uint64_t bytes = a && which >= NCCL_OP_SEND_POSTED && which <= NCCL_OP_RECV_DONE
                         ? a->proxy_op.trans_size
                         : 0;
    if (handle)
        record_state(attach_recorder(NULL), of_pointer(handle), which, bytes, /* total= */ true);
    return NCCL_SUCCESS;
}

static int state_v4(void *handle, int which, union nccl_state_v4 *a)
{
    if (!handle || which == NCCL_OP_IN_PROGRESS || which == NCCL_NET_UPDATE ||
        which == NCCL_KERNEL_PHASE_STOP)
        return NCCL_SUCCESS;
    struct recorder *r = attach_recorder(NULL);
    if (which == NCCL_KERNEL_CH_STOP)
        record_kernel_end(r, of_pointer(handle), a ? a->kernel_ch.timer_ns : 0);
    else
        record_state(r, of_pointer(handle), which, a ? a->proxy_step.trans_size : 0,
                     /* total= */ false);
    return NCCL_SUCCESS;
}

/* Up to 2.27 (versions 1 to 4) NCCL tells of the operations of a group only where the group has a
 * handle, so it has one.  Newer ones do not ask for that, and get none: it would have NCCL count
 * operations of CUDA graphs, which RAS compares with those of ranks that have no profiler. */
#define START_GROUP  \
    case NCCL_GROUP: \
        return give_handle(ret_handle, record_group());

/* The kinds that are of one layout in all versions that have them. */
#define START_PROXY(context, d)                                                                    \
    case NCCL_PROXY_OP:                                                                            \
        return give_handle(ret_handle,                                                             \
                           proxy_begins(context, (d)->parent, (d)->rank, &(d)->proxy_op));         \
    case NCCL_PROXY_STEP:                                                                          \
        return give_handle(ret_handle, record_step(attach_recorder(NULL), of_pointer((d)->parent), \
                                                   (d)->proxy_step.step));
#define START_NET(context, d) \
    case NCCL_NET_PLUGIN:     \
        return give_handle(ret_handle, net_begins(context, (d)->rank, &(d)->net_plugin));

/* An operation from coll in versions 1 to 3, and in 4 to 7; from p2p likewise. */
#define COLL_ABOUT(d, ...)                                                                \
    {                                                                                     \
        .kind = OP_COLL, .has_seq = true, .seq = (d)->coll.seq, .count = (d)->coll.count, \
        .rank = (d)->rank, .peer = (d)->coll.root, __VA_ARGS__                            \
    }
#define P2P_ABOUT(d, ...)                                                                  \
    {                                                                                      \
        .kind = OP_P2P, .count = (d)->p2p.count, .rank = (d)->rank, .peer = (d)->p2p.peer, \
        __VA_ARGS__                                                                        \
    }
#define CE_ABOUT(d)                                                               \
    .kind = OP_CE, .has_seq = true, .seq = (d)->ce_coll.seq, TEXTS((d)->ce_coll), \
    .count = (d)->ce_coll.count, .rank = (d)->rank, .peer = (d)->ce_coll.root
#define OF_COMM(part) .comm_hash = (part).comm_hash
#define TEXTS(part) .func = (part).func, .datatype = (part).datatype
#define COLL_TEXTS(part) TEXTS(part), .algo = (part).algo, .proto = (part).proto

/* ---- startEvent() of each ---- */

static int start_v1(void *context, void **ret_handle, struct nccl_descr_v1 *d)
{
    *ret_handle = NULL;
    switch (d->type) {
    case NCCL_COLL: {
        const struct op_about about = COLL_ABOUT(
            d, OF_COMM(d->coll), .func = NAME_OF(functions, d->coll.func),
            .datatype = NAME_OF(datatypes, d->coll.datatype),
            .algo = NAME_OF(algorithms, d->coll.algo), .proto = NAME_OF(protocols, d->coll.proto));
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_P2P: {
        const struct op_about about =
            P2P_ABOUT(d, OF_COMM(d->p2p), .func = NAME_OF(functions, d->p2p.func),
                      .datatype = NAME_OF(datatypes, d->p2p.datatype));
        return give_handle(ret_handle, record_op(context, &about));
    }
        START_GROUP
        START_PROXY(context, d)
    default: /* not asked for */
        return NCCL_SUCCESS;
    }
}

static int start_v2(void *context, void **ret_handle, struct nccl_descr_v2 *d)
{
    *ret_handle = NULL;
    switch (d->type) {
    case NCCL_COLL: {
        const struct op_about about = COLL_ABOUT(d, OF_COMM(d->coll), COLL_TEXTS(d->coll));
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_P2P: {
        const struct op_about about = P2P_ABOUT(d, OF_COMM(d->p2p), TEXTS(d->p2p));
        return give_handle(ret_handle, record_op(context, &about));
    }
        START_GROUP
        START_PROXY(context, d)
    default:
        return NCCL_SUCCESS;
    }
}

/* How many channels an operation really has is said from 4 on. */
static int start_v3(void *context, void **ret_handle, struct nccl_descr_v3 *d)
{
    *ret_handle = NULL;
    switch (d->type) {
    case NCCL_COLL: {
        const struct op_about about = COLL_ABOUT(d, OF_COMM(d->coll), COLL_TEXTS(d->coll));
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_P2P: {
        const struct op_about about = P2P_ABOUT(d, OF_COMM(d->p2p), TEXTS(d->p2p));
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_KERNEL_CH:
        return give_handle(ret_handle, record_kernel(context, of_pointer(d->parent), 0));
        START_GROUP
        START_PROXY(context, d)
        START_NET(context, d)
    default:
        return NCCL_SUCCESS;
    }
}

static int start_v4(void *context, void **ret_handle, struct nccl_descr_v4 *d)
{
    *ret_handle = NULL;
    switch (d->type) {
    case NCCL_COLL: {
        const struct op_about about =
            COLL_ABOUT(d, COLL_TEXTS(d->coll), .channels = d->coll.n_channels);
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_P2P: {
        const struct op_about about = P2P_ABOUT(d, TEXTS(d->p2p), .channels = d->p2p.n_channels);
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_KERNEL_CH:
        return give_handle(ret_handle,
                           record_kernel(context, of_pointer(d->parent), d->kernel_ch.timer_ns));
        START_GROUP
        START_PROXY(context, d)
        START_NET(context, d)
    default:
        return NCCL_SUCCESS;
    }
}

static int start_v6(void *context, void **ret_handle, struct nccl_descr_v6 *d)
{
    *ret_handle = NULL;
    switch (d->type) {
    case NCCL_COLL: {
        const struct op_about about =
            COLL_ABOUT(d, COLL_TEXTS(d->coll), .channels = d->coll.n_channels);
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_P2P: {
        const struct op_about about = P2P_ABOUT(d, TEXTS(d->p2p), .channels = d->p2p.n_channels);
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_CE_COLL: {
        const struct op_about about = {CE_ABOUT(d)};
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_KERNEL_CH:
        return give_handle(ret_handle,
                           record_kernel(context, of_pointer(d->parent), d->kernel_ch.timer_ns));
        START_PROXY(context, d)
        START_NET(context, d)
    default:
        return NCCL_SUCCESS;
    }
}

static int start_v7(void *context, void **ret_handle, struct nccl_descr_v7 *d)
{
    *ret_handle = NULL;
    switch (d->type) {
    case NCCL_COLL: {
        const struct op_about about =
            COLL_ABOUT(d, COLL_TEXTS(d->coll), .channels = d->coll.n_channels,
                       .symmetric = d->coll.is_symmetric, .user_tag = d->coll.user_tag);
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_P2P: {
        const struct op_about about =
            P2P_ABOUT(d, TEXTS(d->p2p), .channels = d->p2p.n_channels, .user_tag = d->p2p.user_tag);
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_CE_COLL: {
        const struct op_about about = {CE_ABOUT(d), .user_tag = d->ce_coll.user_tag};
        return give_handle(ret_handle, record_op(context, &about));
    }
    case NCCL_KERNEL_CH:
        return give_handle(ret_handle,
                           record_kernel(context, of_pointer(d->parent), d->kernel_ch.timer_ns));
        START_PROXY(context, d)
        START_NET(context, d)
    default:
        return NCCL_SUCCESS;
    }
}

/* ---- init() of each ---- */

#define INIT_V1(number)                                                   \
    static int init_v##number(NCCL_INIT_V1)                               \
    {                                                                     \
        const struct comm_about about = {                                 \
            .n_nodes = -1, .n_ranks = -1, .rank = -1, .version = number}; \
        return begin_comm(ret_context, ret_mask, &about);                 \
    }
#define INIT_V4(number, arguments)                           \
    static int init_v##number(arguments)                     \
    {                                                        \
        const struct comm_about about = {.name = name,       \
                                         .hash = hash,       \
                                         .n_nodes = n_nodes, \
                                         .n_ranks = n_ranks, \
                                         .rank = rank,       \
                                         .version = number}; \
        (void)log;                                           \
        return begin_comm(ret_context, ret_mask, &about);    \
    }

INIT_V1(1)
INIT_V1(2)
INIT_V1(3)
INIT_V4(4, NCCL_INIT_V4)
INIT_V4(5, NCCL_INIT_V5)
INIT_V4(6, NCCL_INIT_V5)
INIT_V4(7, NCCL_INIT_V5)

/* ---- the symbols ---- */

#define EXPORTED(number, start, state)                                           \
    extern PROBING_EXPORT struct nccl_profiler_v##number ncclProfiler_v##number; \
    struct nccl_profiler_v##number ncclProfiler_v##number = {                    \
        .name = "probing",                                                       \
        .init = init_v##number,                                                  \
        .start_event = start,                                                    \
        .stop_event = stop_event,                                                \
        .record_event_state = state,                                             \
        .finalize = finalize_comm,                                               \
    }

EXPORTED(1, start_v1, state_v1);
EXPORTED(2, start_v2, state_v1);
EXPORTED(3, start_v3, state_v1);
EXPORTED(4, start_v4, state_v4);
EXPORTED(5, start_v6, state_v4);
EXPORTED(6, start_v6, state_v4);
EXPORTED(7, start_v7, state_v4);
