/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/watchdog.c - an operation of a process group that waits for a rank which never
 * comes.
 *
 * Threads: [worker], once a second; it asks for the GIL only when nothing has moved for so long.
 * It tells what this rank knows: which operation, since when, and what torch's flight recorder
 * holds.  `probing torch` asks all ranks, and so finds the one that has not come.
 */
#include "dist/collective.h"
#include "python/pyobject.h"
#include "steps/step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAUSE_NS (10 * PROBING_NS_PER_S) /* nothing waits: a program may just have nothing to do */
#define TEXT_BYTES 300u

enum {
    COL_OP = N_COORDINATES,
    COL_GROUP_NAME,
    COL_GROUP_RANK,
    COL_GROUP_SIZE,
    COL_RANKS,
    COL_GROUP_SEQ,
    COL_WAIT_SEC,
    COL_WAITER,
    COL_SNAPSHOT,
    COL_RECORDS,
    N_STUCK
};

static const struct probing_column columns[N_STUCK] = {
    COORDINATE_COLUMNS,
    PROBING_STR_COLUMN("op", "as in python.comm_collective or in torch's flight recorder"),
    PROBING_STR_COLUMN("group_name", "name of the group, as torch calls it"),
    PROBING_I64_COLUMN("group_rank", PROBING_PLAIN,
                       "rank of this process in the group; NULL: not known"),
    PROBING_I64_COLUMN("group_size", PROBING_COUNT, "number of processes in the group"),
    PROBING_STR_COLUMN("participate_ranks", "its ranks in the whole job"),
    PROBING_I64_COLUMN("seq", PROBING_PLAIN,
                       "number of the operation, as in the table that has `op`"),
    PROBING_F64_COLUMN("wait_sec", PROBING_SECONDS, "how long it had waited"),
    PROBING_I64_COLUMN("waiter", PROBING_PLAIN, "thread that waits; NULL: a thread of torch"),
    PROBING_I64_COLUMN("snapshot", PROBING_PLAIN,
                       "number under which python.torch_flight_snapshot has its records"),
    PROBING_I64_COLUMN("records", PROBING_COUNT, "number of these records"),
};

const struct probing_table_desc stuck_table = PROBING_TABLE(
    "python.comm_stuck", columns,
    "operations of process groups that have waited for longer than torch.comm_timeout");

static struct {
    uint64_t told_ns;  /* what moved last when it was told: it is told once */
    uint64_t pause_ns; /* until then it looks no more */
    int64_t snapshots;
} state; /* the one timer's own */

struct question {
    uint64_t before_ns;
    struct comm_wait wait; /* the one that has waited longest, since then or earlier */
    bool any;
    struct comm_wait all[COMM_WAITS_MAX];
};

static int find_longest_wait(void *arg)
{
    struct question *q = arg;
    uint32_t n = comm_waits(q->all);
    for (uint32_t i = 0; i < n; i++) {
        const struct comm_wait *w = &q->all[i];
        if (!w->waits_ns || w->waits_ns > q->before_ns ||
            (q->any && q->wait.waits_ns <= w->waits_ns))
            continue;
        q->wait = *w;
        q->any = true;
    }
    return 0;
}

static void report_stuck(const struct comm_wait *w, double wait_sec, int64_t records,
                         uint64_t now_ns)
{
    const struct probing_host *h = torch_state.host;
    char text[TEXT_BYTES];
    union probing_cell row[N_STUCK] = {[COL_OP] = {.u = object_intern(w->op)},
                                       [COL_GROUP_NAME] = {.u = object_intern(w->about.group)},
                                       [COL_GROUP_RANK] = {.i = w->about.rank},
                                       [COL_GROUP_SIZE] = {.i = w->about.size},
                                       [COL_RANKS] = {.u = w->about.ranks},
                                       [COL_GROUP_SEQ] = {.i = w->about.seq},
                                       [COL_WAIT_SEC] = {.f = wait_sec},
                                       [COL_WAITER] = {.i = w->tid},
                                       [COL_SNAPSHOT] = {.i = state.snapshots},
                                       [COL_RECORDS] = {.i = records}};
    coordinates_of(w->step, row);
    (void)h->append(dist.stuck, now_ns, row, N_STUCK, NULL, 0);
    (void)snprintf(text, sizeof(text),
                   "torch: %s of group %s has waited for %.0f s; `probing torch` shows the ranks "
                   "that have not joined",
                   w->op, w->about.group[0] ? w->about.group : "without a name", wait_sec);
    h->log(h, PROBING_WARN, text);
}

static uint64_t utc_now(void)
{
    return probing_clock_ns(CLOCK_REALTIME);
}

/* The operation to tell of, with its age in seconds; 0: there is none.  room: its texts may lie
 * there. */
static double find_stuck(struct question *q, uint64_t now_ns, uint64_t limit_ns,
                         struct recorder_record *room)
{
    const uint64_t utc_ns = utc_now();
    q->before_ns = now_ns - limit_ns;
    if (object_lookup(find_longest_wait, q) != 0)
        return 0;
    if (q->any)
        return probing_seconds(now_ns - q->wait.waits_ns);
    (void)recorder_keep(/* snapshot= */ 0, room);
    if (!room->created_ns || utc_ns <= room->created_ns + limit_ns)
        return 0;
    q->wait = (struct comm_wait){.op = room->op,
                                 .about = {.rank = PROBING_NULL_I64,
                                           .size = PROBING_NULL_I64,
                                           .seq = room->seq,
                                           .ranks = PROBING_NULL_ID},
                                 .step = (int64_t)__atomic_load_n(&steps.step, __ATOMIC_RELAXED),
                                 .tid = PROBING_NULL_I64};
    memcpy(q->wait.about.group, room->group, sizeof(q->wait.about.group));
    return probing_seconds(utc_ns - room->created_ns);
}

void stuck_inspect(void *self, uint64_t now_ns)
{
    const uint64_t limit_ns =
        atomic_load_explicit(&dist.timeout_s, memory_order_relaxed) * PROBING_NS_PER_S;
    const uint64_t moved_ns = comm_moved_ns();
    struct recorder_record room, unused;
    (void)self;
    if (!torch_on() || !limit_ns || !moved_ns || moved_ns == state.told_ns ||
        now_ns < moved_ns + limit_ns || now_ns < state.pause_ns)
        return;
    struct question *q = calloc(1, sizeof(*q));
    double wait_sec = q ? find_stuck(q, now_ns, limit_ns, &room) : 0;
    state.pause_ns = now_ns + PAUSE_NS;
    if (wait_sec > 0) {
        state.told_ns = moved_ns;
        state.snapshots++;
        report_stuck(&q->wait, wait_sec, recorder_keep(state.snapshots, &unused), now_ns);
    }
    free(q);
}
