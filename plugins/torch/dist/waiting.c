/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/waiting.c - the table torch.waiting: operations of process groups that have
 * not ended, and the making of groups.
 *
 * Threads: [worker], which asks for the GIL.
 */
#include "dist/collective.h"
#include "python/pyobject.h"
#include "steps/step.h"

#include <time.h>

#define RECORDED_NS PROBING_NS_PER_S /* younger ones may have ended without torch's knowing */

static const struct probing_column columns[] = {
    PROBING_STR_COLUMN("op", "as in python.comm_collective; or init_process_group, new_group ..."),
    PROBING_STR_COLUMN("group_name", "name of the group, as torch calls it"),
    PROBING_I64_COLUMN("rank", PROBING_PLAIN, "rank of this process in the whole job"),
    PROBING_I64_COLUMN("src_rank", PROBING_PLAIN, "as in python.comm_collective"),
    PROBING_I64_COLUMN("dst_rank", PROBING_PLAIN, "as in python.comm_collective"),
    PROBING_I64_COLUMN("tag", PROBING_PLAIN, "tag of a send or recv; else NULL"),
    PROBING_I64_COLUMN("seq", PROBING_PLAIN, "number of the operation in its group, from 1"),
    PROBING_I64_COLUMN("local_step", PROBING_PLAIN, "local_step in which it was started"),
    PROBING_COLUMN("started_at", PROBING_TIME, PROBING_PLAIN,
                   "when it was started; for the making of a group, when it was first seen"),
    PROBING_I64_COLUMN("tid", PROBING_PLAIN, "thread that waits; else the one that started it"),
    PROBING_F64_COLUMN(
        "wait_sec", PROBING_SECONDS,
        "how long it has waited so far, or has been making a group; NULL: no Python code waits "
        "for it"),
};

struct listing {
    uint32_t n, n_joins;
    struct comm_wait all[COMM_WAITS_MAX];
    struct comm_join joins[COMM_JOINS_MAX];
};

static int list_waits(void *arg)
{
    struct listing *l = arg;
    l->n = comm_waits(l->all);
    l->n_joins = comm_joins(l->joins);
    return 0;
}

static int emit_join(struct probing_rows *out, const struct comm_join *j)
{
    union probing_cell none = {.i = PROBING_NULL_I64};
    union probing_cell cells[] = {{.s = j->op},
                                  {.s = NULL},
                                  none,
                                  none,
                                  none,
                                  none,
                                  none,
                                  {.i = (int64_t)__atomic_load_n(&steps.step, __ATOMIC_RELAXED)},
                                  {.i = (int64_t)j->seen_ns},
                                  {.i = j->tid},
                                  {.f = probing_seconds(torch_state.now() - j->seen_ns)}};
    return torch_state.host->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
}

/* Emit what C++ started and nobody waits for in Python, as torch's flight recorder has it. */
static int emit_recorded(struct probing_rows *out, uint64_t now_ns)
{
    struct recorder_record r;
    (void)recorder_keep(/* snapshot= */ 0, &r);
    uint64_t utc_ns = probing_clock_ns(CLOCK_REALTIME);
    if (!r.created_ns || utc_ns < r.created_ns + RECORDED_NS)
        return 0;
    uint64_t age_ns = utc_ns - r.created_ns;
    union probing_cell none = {.i = PROBING_NULL_I64};
    union probing_cell cells[] = {{.s = r.op},
                                  {.s = r.group[0] ? r.group : NULL},
                                  none,
                                  none,
                                  none,
                                  none,
                                  {.i = r.seq},
                                  none,
                                  {.i = (int64_t)(now_ns - age_ns)},
                                  none,
                                  {.f = probing_seconds(age_ns)}};
    return torch_state.host->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
}

static int emit_found(struct probing_rows *out, const void *found)
{
    const struct probing_host *h = torch_state.host;
    const struct listing *l = found;
    int rc = 0;
    for (uint32_t i = 0; i < l->n && rc == 0; i++) {
        const struct comm_wait *w = &l->all[i];
        union probing_cell waits = {.u = PROBING_NULL_F64};
        if (w->waits_ns)
            waits.f = probing_seconds(torch_state.now() - w->waits_ns);
        union probing_cell cells[] = {{.s = w->op},
                                      {.s = w->about.group[0] ? w->about.group : NULL},
                                      {.i = w->about.job_rank},
                                      {.i = w->about.src},
                                      {.i = w->about.dst},
                                      {.i = w->about.tag},
                                      {.i = w->about.seq},
                                      {.i = w->step},
                                      {.i = (int64_t)w->begin_ns},
                                      {.i = w->tid},
                                      waits};
        rc = h->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
    }
    for (uint32_t i = 0; i < l->n_joins && rc == 0; i++)
        rc = emit_join(out, &l->joins[i]);
    if (rc == 0 && l->n == 0 && torch_on())
        rc = emit_recorded(out, torch_state.now());
    return rc;
}

static int scan_waits(void *self, struct probing_rows *out)
{
    (void)self;
    return object_scan(out, sizeof(struct listing), list_waits, emit_found);
}

const struct probing_table_desc waiting_table = PROBING_COMPUTED_TABLE(
    "waiting", columns, scan_waits,
    "operations of process groups that were started and whose end has not been waited for; else "
    "the oldest that C++ started, by torch's flight recorder");
