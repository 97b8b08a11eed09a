/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/tables.h - the tables of schema nccl, and their rows.
 *
 * Names and columns are those that the field's queries use (the Rust project probing's
 * nccl.coll_perf, proxy_ops, inflight_ops, net_qp, profiler_counters), with more behind them.
 * Rows by the writer's thread; the computed tables by any worker.
 */
#ifndef NCCL_TABLES_H
#define NCCL_TABLES_H

#include <probing/plugin.h>

#include "write/inflight.h"

struct tables {
    const struct probing_host *host;
    struct probing_table *coll_perf, *proxy_ops, *net_qp, *counters, *inflight_log;
};

/* A communicator's, for rows: ids of texts in append(). */
struct comm_ids {
    uint64_t serial, hash; /* what they are of */
    uint64_t hash_id, name_id;
};

/* All of them; self of the computed ones' scan() is that of the plugin's init(). */
int tables_make(struct tables *t, const struct probing_host *h);

/* Each: 0, or what append() gives. */
int row_of_op(struct tables *t, const struct comm *c, const struct comm_ids *ids,
              const struct op_slot *op);
int row_of_proxy(struct tables *t, const struct comm *c, const struct comm_ids *ids,
                 const struct proxy_slot *p);
int row_of_net(struct tables *t, const struct net_slot *n);
int row_of_counters(struct tables *t, const struct comm *c, const struct comm_ids *ids,
                    uint64_t now, uint64_t live);
int row_of_inflight(struct tables *t, const struct comm *c, const struct comm_ids *ids,
                    const struct inflight *f, uint64_t now);

/* Bytes of one element: "ncclFloat32"; 0: not known. */
uint32_t datatype_bytes(const char *name);

/* plugin.c: the recorder whose events the plugin shows. */
struct recorder *plugin_recorder(void *self);
const struct probing_host *plugin_host(void *self);

#endif
