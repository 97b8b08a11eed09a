/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/computed.c - tables that are made when a query asks.
 *
 * Workers, several at once.  The list of communicators is copied under the recorder's mutex; slots
 * are read without any.
 */
#include "write/computed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "callbacks/attach.h"
#include "probing_sdk.h"
#include "write/tables.h"

void hash_text(uint64_t hash, char *ret)
{
    ret[0] = '\0';
    if (hash)
        (void)snprintf(ret, 24, "0x%llx", (unsigned long long)hash);
}

const char *inflight_kind(const struct inflight *f)
{
    if (f->event == EVENT_PROXY)
        return "proxy_op";
    return f->kind == OP_P2P ? "p2p" : f->kind == OP_CE ? "ce" : "coll";
}

static int64_t ns_since(uint64_t then, uint64_t now)
{
    return now > then ? (int64_t)(now - then) : 0;
}

static union probing_cell cell_or_null(int64_t value, bool is)
{
    return probing_i64(is ? value : PROBING_NULL_I64);
}

void inflight_cells(const struct comm *c, const struct inflight *f,
                    const struct inflight_texts *texts, uint64_t now,
                    union probing_cell ret[N_INFLIGHT])
{
    bool proxy = f->event == EVENT_PROXY, paired = proxy || f->kind == OP_P2P;
    int64_t rank = f->rank >= 0 ? f->rank : atomic_load_explicit(&c->rank, memory_order_relaxed);
    int64_t culprit = inflight_culprit(f);
    const union probing_cell cells[N_INFLIGHT] = {
        probing_i64((int64_t)f->id),
        cell_or_null(rank, rank >= 0),
        texts->hash,
        texts->name,
        texts->func,
        cell_or_null((int64_t)f->seq, f->has_seq),
        texts->kind,
        cell_or_null(f->channel, proxy),
        cell_or_null(f->peer, paired && f->peer >= 0),
        cell_or_null(f->is_send, proxy),
        probing_i64((int64_t)f->start_ns),
        probing_i64(ns_since(f->start_ns, now)),
        texts->state,
        probing_i64(ns_since(f->waits_ns, now)),
        cell_or_null(culprit, culprit >= 0),
    };
    memcpy(ret, cells, sizeof(cells));
}

/* ---- communicators ---- */

struct comm_copy {
    struct comm *comm;
    char name[COMM_NAME_BYTES], hash[24];
    uint64_t born_ns;
    uint32_t version;
};

/* Copy the open communicators; the caller frees them.  0, or -ENOMEM. */
static int copy_comms(struct recorder *r, struct comm_copy **ret, uint32_t *ret_n)
{
    int rc = 0;
    (void)pthread_mutex_lock(&r->mutex);
    *ret_n = 0;
    *ret = calloc(r->n_comms + 1, sizeof(**ret));
    if (!*ret)
        rc = -ENOMEM;
    for (uint32_t i = 0; i < COMMS_MAX && rc == 0; i++) {
        struct comm *c = atomic_load_explicit(&r->comms[i], memory_order_relaxed);
        if (!c || atomic_load_explicit(&c->state, memory_order_relaxed) != COMM_OPEN ||
            *ret_n >= r->n_comms)
            continue;
        struct comm_copy *to = &(*ret)[(*ret_n)++];
        *to = (struct comm_copy){.comm = c, .born_ns = c->born_ns, .version = c->version};
        memcpy(to->name, c->name, sizeof(to->name));
        hash_text(atomic_load_explicit(&c->hash, memory_order_relaxed), to->hash);
    }
    (void)pthread_mutex_unlock(&r->mutex);
    return rc;
}

static union probing_cell text_cell(const char *t)
{
    return probing_str(t && t[0] ? t : NULL);
}

/* Calls emit() for each that is open. */
static int each_comm(void *self, struct probing_rows *out,
                     int (*emit)(const struct probing_host *h, const struct comm_copy *c,
                                 struct probing_rows *out))
{
    const struct probing_host *h = plugin_host(self);
    struct comm_copy *comms;
    uint32_t n;
    if (copy_comms(plugin_recorder(self), &comms, &n) < 0)
        return h->fail(h, -ENOMEM, "no memory for the list of communicators");
    int rc = 0;
    for (uint32_t i = 0; i < n && rc >= 0; i++)
        rc = emit(h, &comms[i], out);
    free(comms);
    return probing_scanned(rc);
}

static const struct probing_column comm_columns[] = {
    PROBING_STR_COLUMN("comm_hash", "the communicator's id, as NCCL's log shows it"),
    PROBING_STR_COLUMN("comm_name", "its name; NULL: it has none"),
    PROBING_I64_COLUMN("rank", PROBING_PLAIN, "this process's rank in it; NULL: not known yet"),
    PROBING_I64_COLUMN("n_ranks", PROBING_COUNT, "its ranks; NULL: not said (NCCL before 2.27)"),
    PROBING_I64_COLUMN("n_nodes", PROBING_COUNT, "its machines; NULL: not said"),
    PROBING_I64_COLUMN("interface", PROBING_PLAIN, "version of NCCL's profiler interface"),
    PROBING_COLUMN("began", PROBING_TIME, PROBING_PLAIN, "when it was made"),
    PROBING_I64_COLUMN("ops", PROBING_COUNT, "operations that were seen of it"),
    PROBING_I64_COLUMN("pool_exhausted", PROBING_COUNT, "events dropped: no room"),
};

static union probing_cell counter_of(const struct comm *c, enum counter which)
{
    return probing_i64((int64_t)atomic_load_explicit(&c->counters[which], memory_order_relaxed));
}

static union probing_cell of_comm(const _Atomic int32_t *value)
{
    int32_t v = atomic_load_explicit(value, memory_order_relaxed);
    return cell_or_null(v, v >= 0);
}

static int emit_comm(const struct probing_host *h, const struct comm_copy *copy,
                     struct probing_rows *out)
{
    const struct comm *c = copy->comm;
    const union probing_cell cells[] = {
        text_cell(copy->hash),
        text_cell(copy->name),
        of_comm(&c->rank),
        of_comm(&c->n_ranks),
        of_comm(&c->n_nodes),
        probing_i64(copy->version),
        probing_i64((int64_t)copy->born_ns),
        counter_of(c, COUNT_OPS),
        counter_of(c, COUNT_NO_ROOM),
    };
    return h->emit(out, cells, PROBING_LENGTH(cells));
}

static int scan_comms(void *self, struct probing_rows *out)
{
    return each_comm(self, out, emit_comm);
}

const struct probing_table_desc communicators_table = PROBING_COMPUTED_TABLE(
    "communicators", comm_columns, scan_comms, "communicators of NCCL that this process has now");

/* ---- what is under way ---- */

static const struct probing_column now_columns[] = {INFLIGHT_COLUMNS};
_Static_assert(PROBING_LENGTH(now_columns) == N_INFLIGHT, "a cell for each");

static int emit_pool(const struct probing_host *h, const struct comm_copy *c, struct pool *p,
                     bool (*look)(struct pool *p, uint32_t number, struct inflight *ret),
                     struct probing_rows *out)
{
    uint32_t fresh = atomic_load_explicit(&p->fresh, memory_order_acquire);
    int rc = 0;
    for (uint32_t i = 0; i < fresh && rc >= 0; i++) {
        struct inflight f;
        if (!look(p, i, &f))
            continue;
        const struct inflight_texts texts = {.hash = text_cell(c->hash),
                                             .name = text_cell(c->name),
                                             .func = text_cell(f.func),
                                             .kind = text_cell(inflight_kind(&f)),
                                             .state = text_cell(inflight_state_name(f.state))};
        union probing_cell cells[N_INFLIGHT];
        inflight_cells(c->comm, &f, &texts, h->now(), cells);
        rc = h->emit(out, cells, N_INFLIGHT);
    }
    return rc;
}

static int emit_inflight(const struct probing_host *h, const struct comm_copy *c,
                         struct probing_rows *out)
{
    struct pools *p = atomic_load_explicit(&c->comm->pools, memory_order_acquire);
    int rc = p ? emit_pool(h, c, &p->op, inflight_op, out) : 0;
    return p && rc >= 0 ? emit_pool(h, c, &p->proxy, inflight_proxy, out) : rc;
}

static int scan_inflight(void *self, struct probing_rows *out)
{
    return each_comm(self, out, emit_inflight);
}

const struct probing_table_desc inflight_now_table =
    PROBING_COMPUTED_TABLE("inflight_now", now_columns, scan_inflight,
                           "operations and proxy operations that have begun and not ended");

/* ---- how it stands ---- */

static const struct probing_column state_columns[] = {
    PROBING_STR_COLUMN("state", "active, waiting, late or refused"),
    PROBING_STR_COLUMN("reason", "why, and what to do"),
    PROBING_I64_COLUMN("communicators", PROBING_COUNT, "that there are now"),
    PROBING_I64_COLUMN("refused", PROBING_COUNT, "communicators for which there was no room"),
};

static int scan_state(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    struct recorder *r = plugin_recorder(self);
    char why[512];
    enum nccl_state state = nccl_look(r, why, sizeof(why));
    (void)pthread_mutex_lock(&r->mutex);
    uint32_t n = r->n_comms;
    (void)pthread_mutex_unlock(&r->mutex);
    const union probing_cell cells[] = {
        text_cell(nccl_state_name(state)),
        text_cell(why),
        probing_i64(n),
        probing_i64((int64_t)atomic_load_explicit(&r->refused, memory_order_relaxed)),
    };
    return probing_scanned(h->emit(out, cells, PROBING_LENGTH(cells)));
}

const struct probing_table_desc state_table = PROBING_COMPUTED_TABLE(
    "profiler_state", state_columns, scan_state, "whether NCCL calls this plugin, and why not");
