/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/computed.h - tables that are made when a query asks: what is under way,
 * communicators, and how it stands with NCCL.
 */
#ifndef NCCL_COMPUTED_H
#define NCCL_COMPUTED_H

#include <probing/plugin.h>

#include "write/inflight.h"

extern const struct probing_table_desc inflight_now_table, communicators_table, state_table;

#define INFLIGHT_COLUMNS                                                                        \
    PROBING_I64_COLUMN("id", PROBING_PLAIN, "number of the event in this process"),             \
        PROBING_I64_COLUMN("rank", PROBING_PLAIN, "this process's rank in the communicator"),   \
        PROBING_STR_COLUMN("comm_hash", "the communicator's id, as NCCL's log shows it"),       \
        PROBING_STR_COLUMN("comm_name", "the communicator's name; NULL: it has none"),          \
        PROBING_STR_COLUMN("coll_func", "AllReduce, AllGather, ... Send, Recv"),                \
        PROBING_I64_COLUMN("seq", PROBING_PLAIN, "as in nccl.coll_perf"),                       \
        PROBING_STR_COLUMN("kind", "coll, p2p, ce, or proxy_op: its part on one channel"),      \
        PROBING_I64_COLUMN("channel_id", PROBING_PLAIN, "of a proxy_op; else NULL"),            \
        PROBING_I64_COLUMN("peer", PROBING_PLAIN, "the other rank of p2p and proxy_op"),        \
        PROBING_I64_COLUMN("is_send", PROBING_PLAIN, "of a proxy_op; else NULL"),               \
        PROBING_COLUMN("started", PROBING_TIME, PROBING_PLAIN, "when it began"),                \
        PROBING_I64_COLUMN("age_ns", PROBING_NS, "time since then, at ts"),                     \
        PROBING_STR_COLUMN(                                                                     \
            "state", "enqueuing, enqueued (the GPU has not begun it), running, ending; of a "   \
                     "proxy_op what its oldest transfer waits for, as in nccl.proxy_ops"),      \
        PROBING_I64_COLUMN("state_ns", PROBING_NS, "time that nothing of it has moved, at ts"), \
        PROBING_I64_COLUMN("culprit_rank", PROBING_PLAIN,                                       \
                           "of a proxy_op: the rank that it waits for; NULL: not known, or none")
#define N_INFLIGHT 15

struct inflight_texts { /* as append() has them, or emit() */
    union probing_cell hash, name, func, kind, state;
};

const char *inflight_kind(const struct inflight *f);
void inflight_cells(const struct comm *c, const struct inflight *f,
                    const struct inflight_texts *texts, uint64_t now,
                    union probing_cell ret[N_INFLIGHT]);

/* "0x1f2e3d4c"; "": not known.  ret: 24 bytes. */
void hash_text(uint64_t hash, char *ret);

#endif
