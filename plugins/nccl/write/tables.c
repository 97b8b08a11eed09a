/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/tables.c - the stored tables of schema nccl, and their rows.
 *
 * The writer's thread only.
 */
#include "write/tables.h"

#include <stdio.h>
#include <string.h>

#include "probing_sdk.h"
#include "write/computed.h"

#define RANK_COLUMNS                                                                      \
    PROBING_I64_COLUMN("rank", PROBING_PLAIN, "this process's rank in the communicator"), \
        PROBING_STR_COLUMN("comm_hash", "the communicator's id, as NCCL's log shows it"), \
        PROBING_STR_COLUMN("comm_name", "the communicator's name; NULL: it has none")
#define OP_COLUMNS                                                                        \
    PROBING_STR_COLUMN("coll_func", "AllReduce, AllGather, ... Send, Recv"),              \
        PROBING_I64_COLUMN("seq", PROBING_PLAIN,                                          \
                           "number of the collective among those of its function in the " \
                           "communicator, the same on all ranks; NULL: it has none (Send, Recv)")
#define ID_COLUMN PROBING_I64_COLUMN("id", PROBING_PLAIN, "number of the event in this process")
#define WAIT_COLUMN(name, doc) PROBING_I64_COLUMN(name, PROBING_NS, doc)

static const struct probing_column coll_columns[] = {
    ID_COLUMN,
    RANK_COLUMNS,
    PROBING_I64_COLUMN("n_ranks", PROBING_COUNT, "ranks of the communicator; NULL: not known"),
    OP_COLUMNS,
    PROBING_I64_COLUMN("is_p2p", PROBING_PLAIN, "1: Send or Recv, 0: a collective"),
    PROBING_I64_COLUMN("peer", PROBING_PLAIN, "the other rank of a Send or Recv; else NULL"),
    PROBING_I64_COLUMN("root", PROBING_PLAIN, "of Broadcast, Reduce, Gather, Scatter; else NULL"),
    PROBING_I64_COLUMN("count", PROBING_COUNT, "elements, as the call said"),
    PROBING_I64_COLUMN("msg_size_bytes", PROBING_BYTES, "count times the element's size"),
    PROBING_STR_COLUMN("dtype", "type of the elements: ncclFloat32"),
    PROBING_STR_COLUMN("algo", "RING, TREE, ...; NULL: not known"),
    PROBING_STR_COLUMN("proto", "LL, LL128, SIMPLE; NULL: not known, or symmetric"),
    PROBING_I64_COLUMN("symmetric", PROBING_PLAIN,
                       "1: over symmetric memory, algo is the kernel's variant; 0: not; NULL: not "
                       "said (NCCL before 2.32)"),
    PROBING_I64_COLUMN("user_tag", PROBING_PLAIN,
                       "userProfilerTag of the call's ncclCollConfig_t; NULL: none, or NCCL before "
                       "2.32"),
    PROBING_I64_COLUMN("n_channels", PROBING_COUNT, "channels; NULL: not said (NCCL before 2.27)"),
    PROBING_I64_COLUMN("exec_time_ns", PROBING_NS,
                       "time that it ran, by what timing_source says; NULL: not known"),
    PROBING_I64_COLUMN("enqueue_time_ns", PROBING_NS, "time in which NCCL queued it, on the CPU"),
    PROBING_I64_COLUMN("queued_ns", PROBING_NS,
                       "from the end of that until the first of it ran; NULL: not known"),
    PROBING_STR_COLUMN(
        "timing_source",
        "kernel_gpu: the GPU's clock; kernel_ch: kernels as NCCL's proxy thread saw them; proxy: "
        "its network operations; enqueue: nothing is known of its run; aborted: the communicator "
        "ended first"),
    PROBING_F64_COLUMN("algobw_gbps", PROBING_PLAIN,
                       "algorithm bandwidth, GB/s: msg_size_bytes by exec_time_ns"),
    PROBING_I64_COLUMN("pool_events_dropped", PROBING_COUNT,
                       "events of it for which there was no room: times may be too short"),
};

static const struct probing_column proxy_columns[] = {
    ID_COLUMN,
    RANK_COLUMNS,
    OP_COLUMNS,
    PROBING_I64_COLUMN("channel_id", PROBING_PLAIN, "NCCL's channel"),
    PROBING_I64_COLUMN("peer", PROBING_PLAIN, "the other rank"),
    PROBING_I64_COLUMN("is_send", PROBING_PLAIN, "1: it sends to peer, 0: it receives"),
    PROBING_I64_COLUMN("n_steps", PROBING_COUNT, "transfers that were seen"),
    PROBING_I64_COLUMN("trans_bytes", PROBING_BYTES, "bytes that were transferred"),
    PROBING_I64_COLUMN("duration_ns", PROBING_NS, "from its begin to its end"),
    WAIT_COLUMN("send_gpu_wait_ns", "culprit: this rank's GPU had not produced the data; this and "
                                    "the waits below are sums over transfers, which overlap"),
    WAIT_COLUMN("send_peer_wait_ns",
                "the receiver had not cleared the way (0 with NCCL before 2.27)"),
    WAIT_COLUMN("send_wait_ns", "the network took the data"),
    WAIT_COLUMN("recv_wait_ns", "victim: the data had not come from the peer"),
    WAIT_COLUMN("recv_flush_wait_ns", "the data went to the GPU"),
    WAIT_COLUMN("recv_gpu_wait_ns", "this rank's GPU had not consumed the data"),
    PROBING_I64_COLUMN("culprit_rank", PROBING_PLAIN,
                       "the rank that most of the waits were for; NULL: the network, or none"),
    PROBING_I64_COLUMN("culprit_wait_ns", PROBING_NS, "the waits that were for that rank"),
};

static const struct probing_column net_columns[] = {
    PROBING_I64_COLUMN("rank", PROBING_PLAIN, "this process's rank in the communicator"),
    PROBING_I64_COLUMN("device", PROBING_PLAIN, "number of the device in NCCL"),
    PROBING_I64_COLUMN("qp_num", PROBING_PLAIN, "queue pair"),
    PROBING_I64_COLUMN("wr_id", PROBING_PLAIN, "work request"),
    PROBING_I64_COLUMN("opcode", PROBING_PLAIN, "of ibv_wr_opcode"),
    PROBING_I64_COLUMN("length", PROBING_BYTES, "bytes of it"),
    PROBING_I64_COLUMN("duration_ns", PROBING_NS, "from its posting to its completion"),
};

static const struct probing_column counter_columns[] = {
    RANK_COLUMNS,
    PROBING_I64_COLUMN("interface", PROBING_PLAIN, "version of NCCL's profiler interface"),
    PROBING_I64_COLUMN("ops", PROBING_COUNT,
                       "operations begun; all of them since the "
                       "communicator began"),
    PROBING_I64_COLUMN("proxy_ops", PROBING_COUNT, "proxy operations begun"),
    PROBING_I64_COLUMN("proxy_steps", PROBING_COUNT, "transfers begun"),
    PROBING_I64_COLUMN("kernel_channels", PROBING_COUNT, "kernels' channels begun"),
    PROBING_I64_COLUMN("net_events", PROBING_COUNT, "work requests begun"),
    PROBING_I64_COLUMN("pool_exhausted", PROBING_COUNT, "events dropped: no room"),
    PROBING_I64_COLUMN("stops_missing", PROBING_COUNT, "events that NCCL did not end"),
    PROBING_I64_COLUMN("unknown", PROBING_COUNT, "calls for events that had ended, or never were"),
    PROBING_I64_COLUMN("rows_written", PROBING_COUNT, "rows in tables"),
    PROBING_I64_COLUMN("write_errors", PROBING_COUNT, "rows for which the store had no room"),
    PROBING_I64_COLUMN("live", PROBING_COUNT, "operations and proxy operations under way"),
};

static const struct probing_column inflight_columns[] = {INFLIGHT_COLUMNS};

static const struct probing_table_desc coll_table =
    PROBING_TABLE("coll_perf", coll_columns, "operations of NCCL that have ended");
static const struct probing_table_desc proxy_table = PROBING_TABLE(
    "proxy_ops", proxy_columns, "what NCCL's proxy threads did on the network, and waited for");
static const struct probing_table_desc net_table =
    PROBING_TABLE("net_qp", net_columns, "work requests of NCCL's InfiniBand transport");
static const struct probing_table_desc counters_table =
    PROBING_TABLE("profiler_counters", counter_columns,
                  "how many events came and were lost, by communicator, when it changes");
static const struct probing_table_desc log_table =
    PROBING_TABLE("inflight_log", inflight_columns,
                  "events that were under way for a quarter of a second, and again after 1, 2, 4 "
                  "... s: nccl.inflight_ops reads it where the process is dead");

int tables_make(struct tables *t, const struct probing_host *h)
{
    struct probing_table *made;
    int rc;
    t->host = h;
    if ((rc = h->table(h, &coll_table, &t->coll_perf)) < 0 ||
        (rc = h->table(h, &proxy_table, &t->proxy_ops)) < 0 ||
        (rc = h->table(h, &net_table, &t->net_qp)) < 0 ||
        (rc = h->table(h, &counters_table, &t->counters)) < 0 ||
        (rc = h->table(h, &log_table, &t->inflight_log)) < 0 ||
        (rc = h->table(h, &inflight_now_table, &made)) < 0 ||
        (rc = h->table(h, &communicators_table, &made)) < 0 ||
        (rc = h->table(h, &state_table, &made)) < 0)
        return rc;
    return 0;
}

/* 0, or what append() gives; 0 too where the user has switched the table off. */
static int append_row(const struct tables *t, struct probing_table *to, uint64_t ts,
                      const union probing_cell *cells, uint32_t n)
{
    return t->host->wanted(to) ? t->host->append(to, ts, cells, n, NULL, 0) : 0;
}

/* ---- cells ---- */

static union probing_cell number_or_null(int64_t value, bool known)
{
    return probing_i64(known ? value : PROBING_NULL_I64);
}

static union probing_cell count_cell(uint64_t value)
{
    return number_or_null((int64_t)value, value <= INT64_MAX);
}

static union probing_cell rank_cell(int64_t rank)
{
    return number_or_null(rank, rank >= 0);
}

static union probing_cell text_cell(const struct tables *t, const struct text_field *f)
{
    char text[TEXT_BYTES + 1];
    text_read(f, text);
    return probing_id(text[0] ? probing_intern_text(t->host, text) : PROBING_NULL_ID);
}

/* The event's own rank; the communicator's where that is not known. */
static int64_t rank_of(const struct comm *c, uint64_t said)
{
    int64_t rank = (int64_t)said;
    return rank >= 0 ? rank : atomic_load_explicit(&c->rank, memory_order_relaxed);
}

uint32_t datatype_bytes(const char *name)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } sizes[] = {{"ncclInt8", 1},     {"ncclUint8", 1},      {"ncclInt32", 4},
                 {"ncclUint32", 4},   {"ncclInt64", 8},      {"ncclUint64", 8},
                 {"ncclFloat16", 2},  {"ncclFloat32", 4},    {"ncclFloat64", 8},
                 {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1}};
    for (size_t i = 0; i < PROBING_LENGTH(sizes); i++)
        if (strcmp(name, sizes[i].name) == 0)
            return sizes[i].bytes;
    return 0;
}

/* ---- operations ---- */

struct op_time {
    const char *source;
    uint64_t begin_ns, exec_ns; /* begin: by the host's clock; 0: not known */
    bool known;
};

static struct op_time time_of(const struct op_slot *op)
{
    uint64_t gpu_first = field(&op->gpu_first_ns), gpu_last = field(&op->gpu_last_ns);
    uint64_t kernel_first = field(&op->first_ns[1]), kernel_last = field(&op->last_ns[1]);
    uint64_t proxy_first = field(&op->first_ns[0]), proxy_last = field(&op->last_ns[0]);
    struct op_time t = {.source = "enqueue", .begin_ns = kernel_first ? kernel_first : proxy_first};
    if (field(&op->aborted)) {
        t.source = "aborted";
    } else if (gpu_first && gpu_last >= gpu_first) {
        t = (struct op_time){"kernel_gpu", t.begin_ns, gpu_last - gpu_first, true};
    } else if (kernel_first && kernel_last >= kernel_first) {
        t = (struct op_time){"kernel_ch", t.begin_ns, kernel_last - kernel_first, true};
    } else if (proxy_first && proxy_last >= proxy_first) {
        t = (struct op_time){"proxy", t.begin_ns, proxy_last - proxy_first, true};
    }
    return t;
}

static bool has_root(const char *func)
{
    return strcmp(func, "Broadcast") == 0 || strcmp(func, "Reduce") == 0 ||
           strcmp(func, "Gather") == 0 || strcmp(func, "Scatter") == 0;
}

int row_of_op(struct tables *t, const struct comm *c, const struct comm_ids *ids,
              const struct op_slot *op)
{
    char func[TEXT_BYTES + 1], datatype[TEXT_BYTES + 1];
    text_read(&op->func, func);
    text_read(&op->datatype, datatype);
    const struct op_time time = time_of(op);
    bool p2p = field(&op->kind) == OP_P2P;
    uint64_t count = field(&op->count), bytes = 0, size = datatype_bytes(datatype);
    bool sized = size && !__builtin_mul_overflow(count, size, &bytes) && bytes <= INT64_MAX;
    uint64_t enqueued = field(&op->enqueued_ns), start = field(&op->start_ns);
    int64_t peer = (int64_t)field(&op->peer);
    bool stopped = enqueued >= start && enqueued != 0;
    const union probing_cell cells[] = {
        count_cell(field(&op->id)),
        rank_cell(rank_of(c, field(&op->rank))),
        probing_id(ids->hash_id),
        probing_id(ids->name_id),
        number_or_null(atomic_load_explicit(&c->n_ranks, memory_order_relaxed),
                       atomic_load_explicit(&c->n_ranks, memory_order_relaxed) > 0),
        text_cell(t, &op->func),
        number_or_null((int64_t)field(&op->seq), field(&op->has_seq) != 0),
        probing_i64(p2p),
        number_or_null(peer, p2p && peer >= 0),
        number_or_null(peer, !p2p && peer >= 0 && has_root(func)),
        count_cell(count),
        number_or_null((int64_t)bytes, sized),
        text_cell(t, &op->datatype),
        text_cell(t, &op->algo),
        text_cell(t, &op->proto),
        number_or_null((int64_t)field(&op->symmetric), !p2p && c->version >= 7),
        number_or_null((int64_t)field(&op->user_tag), field(&op->user_tag) != 0),
        number_or_null((int64_t)field(&op->channels), field(&op->channels) != 0),
        number_or_null((int64_t)time.exec_ns, time.known),
        number_or_null((int64_t)(enqueued - start), stopped),
        number_or_null(time.begin_ns > enqueued ? (int64_t)(time.begin_ns - enqueued) : 0,
                       stopped && time.begin_ns != 0),
        probing_id(probing_intern_text(t->host, time.source)),
        sized && time.known && time.exec_ns ? probing_f64((double)bytes / (double)time.exec_ns)
                                            : probing_null(PROBING_F64),
        count_cell(field(&op->lost)),
    };
    _Static_assert(PROBING_LENGTH(cells) == PROBING_LENGTH(coll_columns), "a cell for each");
    return append_row(t, t->coll_perf, field(&op->moved_ns), cells, PROBING_LENGTH(cells));
}

/* ---- proxies ---- */

/* Give the rank that most of the waits were for. */
static int64_t culprit_of(const uint64_t waits[WAITS], int64_t rank, int64_t peer, uint64_t *ret_ns)
{
    uint64_t own = waits[WAIT_SEND_GPU] + waits[WAIT_RECV_GPU];
    uint64_t other = waits[WAIT_SEND_PEER] + waits[WAIT_RECV];
    uint64_t network = waits[WAIT_SEND] + waits[WAIT_RECV_FLUSH];
    *ret_ns = own >= other ? own : other;
    if (*ret_ns == 0 || network > *ret_ns)
        return -1;
    return own >= other ? rank : peer;
}

int row_of_proxy(struct tables *t, const struct comm *c, const struct comm_ids *ids,
                 const struct proxy_slot *p)
{
    uint64_t waits[WAITS], culprit_ns;
    for (uint32_t i = 0; i < WAITS; i++)
        waits[i] = field(&p->waits_ns[i]);
    int64_t rank = rank_of(c, field(&p->rank)), peer = (int64_t)field(&p->peer);
    int64_t culprit = culprit_of(waits, rank, peer, &culprit_ns);
    const union probing_cell cells[] = {
        count_cell(field(&p->id)),
        rank_cell(rank),
        probing_id(ids->hash_id),
        probing_id(ids->name_id),
        text_cell(t, &p->func),
        number_or_null((int64_t)field(&p->seq), field(&p->has_seq) != 0),
        count_cell(field(&p->channel)),
        rank_cell(peer),
        count_cell(field(&p->is_send)),
        count_cell(field(&p->steps)),
        count_cell(field(&p->bytes)),
        count_cell(field(&p->end_ns) - field(&p->start_ns)),
        count_cell(waits[WAIT_SEND_GPU]),
        count_cell(waits[WAIT_SEND_PEER]),
        count_cell(waits[WAIT_SEND]),
        count_cell(waits[WAIT_RECV]),
        count_cell(waits[WAIT_RECV_FLUSH]),
        count_cell(waits[WAIT_RECV_GPU]),
        rank_cell(culprit),
        number_or_null((int64_t)culprit_ns, culprit >= 0),
    };
    _Static_assert(PROBING_LENGTH(cells) == PROBING_LENGTH(proxy_columns), "a cell for each");
    return append_row(t, t->proxy_ops, field(&p->end_ns), cells, PROBING_LENGTH(cells));
}

/* ---- the rest ---- */

int row_of_net(struct tables *t, const struct net_slot *n)
{
    const union probing_cell cells[] = {
        rank_cell((int64_t)field(&n->rank)),
        count_cell(field(&n->device)),
        count_cell(field(&n->qp_num)),
        probing_i64((int64_t)field(&n->wr_id)),
        count_cell(field(&n->opcode)),
        count_cell(field(&n->length)),
        count_cell(field(&n->end_ns) - field(&n->start_ns)),
    };
    _Static_assert(PROBING_LENGTH(cells) == PROBING_LENGTH(net_columns), "a cell for each");
    return append_row(t, t->net_qp, field(&n->end_ns), cells, PROBING_LENGTH(cells));
}

int row_of_counters(struct tables *t, const struct comm *c, const struct comm_ids *ids,
                    uint64_t now, uint64_t live)
{
    union probing_cell cells[PROBING_LENGTH(counter_columns)] = {
        rank_cell(atomic_load_explicit(&c->rank, memory_order_relaxed)),
        probing_id(ids->hash_id),
        probing_id(ids->name_id),
        probing_i64(c->version),
    };
    _Static_assert(PROBING_LENGTH(cells) == 4 + COUNTERS + 1, "a cell for each");
    for (uint32_t i = 0; i < COUNTERS; i++)
        cells[4 + i] = count_cell(atomic_load_explicit(&c->counters[i], memory_order_relaxed));
    cells[4 + COUNTERS] = count_cell(live);
    return append_row(t, t->counters, now, cells, PROBING_LENGTH(cells));
}

int row_of_inflight(struct tables *t, const struct comm *c, const struct comm_ids *ids,
                    const struct inflight *f, uint64_t now)
{
    union probing_cell cells[N_INFLIGHT];
    const struct inflight_texts texts = {
        .hash = probing_id(ids->hash_id),
        .name = probing_id(ids->name_id),
        .func = probing_id(f->func[0] ? probing_intern_text(t->host, f->func) : PROBING_NULL_ID),
        .kind = probing_id(probing_intern_text(t->host, inflight_kind(f))),
        .state = probing_id(probing_intern_text(t->host, inflight_state_name(f->state)))};
    inflight_cells(c, f, &texts, now, cells);
    return append_row(t, t->inflight_log, now, cells, PROBING_LENGTH(cells));
}
