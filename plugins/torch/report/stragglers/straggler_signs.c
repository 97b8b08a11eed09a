/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_signs.c - what else was different on a rank: signs of
 * its host and its process, and backwards whose own time torch has measured.
 *
 * One thread.  Tables that are not there leave signs unknown, which is no sign.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "stragglers.h"

#define BACKWARDS_MAX 4096
#define LATER_NS INT64_C(10000000000) /* a look is at most so much later than what it is of */
#define LOOKS_NS (3 * LATER_NS)
#define MINUTE_NS (6 * LATER_NS)

struct question { /* one row for each rank: its name, then `n` signs from `first` on */
    enum judge_sign first;
    uint32_t n;
    bool none_is_zero; /* who has no row where others have some had none of it */
    const char *sql;   /* %.3f twice: from when until when */
};

#define IN_TIME "ts >= to_timestamp(%.3f) and ts < to_timestamp(%.3f)"

#define WAITED(resource_name)                                                         \
    "sum(case when resource = '" resource_name "' then delta_ns end) * 1.0 / nullif(" \
    "sum(case when resource = '" resource_name "' then wall_ns end), 0)"

#define CPU_BEFORE                                                                        \
    "sum(delta_invol_ctxt) * 1e9 / nullif(sum(wall_ns), 0), sum(delta_total_ns) * 1.0 / " \
    "nullif(sum(wall_ns), 0), sum(delta_majflt) * 1e9 / nullif(sum(wall_ns), 0)"
#define CPU_TABLE \
    " from global.cpu.utilization where scope = 'process' and " IN_TIME " group by _addr"

static const struct question questions[] = {
    {SIGN_CPU_THROTTLED, 1, false,
     "select _addr, sum(delta_throttled_ns) * 1.0 / nullif(sum(wall_ns), 0) from "
     "global.cgroup.utilization where " IN_TIME " group by _addr"},
    {SIGN_CPU_TAKEN, 6, false,
     "select _addr, " CPU_BEFORE ", sum(delta_runq_wait_ns) * 1.0 / nullif(sum(wall_ns), 0), "
     "max_by(nice, ts) * 1.0, max_by(cpus_allowed, ts) * 1.0" CPU_TABLE},
    {SIGN_STEAL, 3, false,
     "select _addr, sum(cpu_steal_pct * wall_ns) / 100 / nullif(sum(case when cpu_steal_pct is not "
     "null then wall_ns end), 0), sum(delta_swap_in_bytes) * 1e9 / nullif(sum(wall_ns), 0), "
     "sum(delta_tcp_retrans_segs) * 1.0 / nullif(sum(delta_tcp_out_segs), 0) from "
     "global.host.utilization where " IN_TIME " group by _addr"},
    {SIGN_CPU_WAIT, 3, false,
     "select _addr, " WAITED("cpu") ", " WAITED("memory") ", " WAITED(
         "io") " from "
               "global.system.pressure where scope = 'machine' and kind = 'some' and " IN_TIME
               " group by _addr"},
    {SIGN_DISK_READ, 1, false,
     "select _addr, sum(delta_read_bytes) * 1e9 / nullif(sum(wall_ns), 0) from "
     "global.io.utilization where " IN_TIME " group by _addr"},
    {SIGN_STOPPED, 1, false,
     "select _addr, sum(delta_stopped_ns) * 1.0 / nullif(sum(wall_ns), 0) from "
     "global.cpu.utilization where scope = 'process' and " IN_TIME " group by _addr"},
    {SIGN_GC, 1, true,
     "select _addr, sum(duration_ns) * 1.0 from global.python.gc where " IN_TIME " group by _addr"},
    {SIGN_NETWORK_BAD, 1, false,
     "select _addr, sum(coalesce(delta_rx_errors, 0) + coalesce(delta_tx_errors, 0) + "
     "coalesce(delta_rx_dropped, 0) + coalesce(delta_tx_dropped, 0)) * 1e9 / "
     "nullif(max(wall_ns) * count(*) / count(distinct interface), 0) from "
     "global.net.utilization where interface <> 'lo' and " IN_TIME " group by _addr"}};

/* The question for cores that do not have the newer columns. */
static const struct question of_older = {SIGN_CPU_TAKEN, 3, false,
                                         "select _addr, " CPU_BEFORE CPU_TABLE};

struct answers {
    struct straggler_job *j;
    const struct question *of;
    double per; /* what is divided by */
    uint32_t rows;
};

uint32_t straggler_judged_named(struct straggler_job *j, const char *name)
{
    const struct straggler_rank *r = straggler_rank_named(j, name);
    for (uint32_t i = 0; r != NULL && r->judged && i < j->n_judged; i++)
        if (&j->ranks[j->index[i]] == r)
            return i;
    return UINT32_MAX;
}

static int take_signs(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct answers *a = arg;
    uint32_t at = n == 1 + a->of->n ? straggler_judged_named(a->j, cell_text(&c[0])) : UINT32_MAX;
    for (uint32_t i = 0; at != UINT32_MAX && i < a->of->n; i++)
        a->j->signs[(size_t)at * N_SIGNS + a->of->first + i] = cell_number(&c[1 + i]) / a->per;
    a->rows += at != UINT32_MAX;
    return 0;
}

/* Signs are of the newest steps, not of the time in which the program began.  If the rank that cost
 * most was late in an episode, they are of that, and of some looks at least; if none was late, of
 * the last minute, so that a new sign stands out. */
static void find_time(struct straggler_job *j, const struct judge_finding *most)
{
    double first_sec = j->steps[0].whole > 0 ? (double)j->steps[0].whole : 0;
    int64_t first_ns = j->ends_ns[0] - (int64_t)(1e9 * first_sec);
    int64_t last_ns = j->ends_ns[j->n_numbers - 1];
    bool episode = most != NULL && most->kind == LATE_ALWAYS;
    j->signs_from_ns = first_ns > j->begin_ns ? first_ns : j->begin_ns;
    j->signs_to_ns = episode && !most->to_end ? j->ends_ns[most->last] : last_ns;
    if (most == NULL && j->signs_from_ns < last_ns - MINUTE_NS)
        j->signs_from_ns = last_ns - MINUTE_NS;
    if (episode && !most->from_start && j->ends_ns[most->first] > j->signs_from_ns)
        j->signs_from_ns = j->ends_ns[most->first];
    if (j->signs_from_ns > j->signs_to_ns - LOOKS_NS)
        j->signs_from_ns = j->signs_to_ns - LOOKS_NS;
}

static int ask_sign(struct straggler_job *j, const struct question *q)
{
    char sql[800];
    struct answers a = {.j = j, .of = q, .per = 1};
    if (q->first == SIGN_GC)
        a.per = (double)(j->signs_to_ns - j->signs_from_ns);
    (void)snprintf(sql, sizeof(sql), q->sql, (double)j->signs_from_ns / 1e9,
                   (double)(j->signs_to_ns + LATER_NS) / 1e9);
    int rc = j->o->api->ask(j->o->api, sql, take_signs, &a);
    for (uint32_t i = 0; rc >= 0 && q->none_is_zero && a.rows > 0 && i < j->n_judged; i++) {
        double *sign = &j->signs[(size_t)i * N_SIGNS + q->first];
        *sign = isnan(*sign) ? 0 : *sign;
    }
    j->any_sign = j->any_sign || a.rows > 0;
    if (rc < 0 && rc != -ECANCELED && q->first == of_older.first && q->n > of_older.n)
        return ask_sign(j, &of_older);
    return rc == -ECANCELED ? rc : 0; /* else that table is not there */
}

struct of_host {
    const char *host;
    uint32_t judged;
};

static int compare_hosts(const void *one, const void *two)
{
    const struct of_host *a = one, *b = two;
    return strcmp(a->host, b->host);
}

/* Ranks of one host have its signs alike.  false: no memory. */
static bool level_hosts(struct straggler_job *j)
{
    struct of_host *all = calloc(j->n_judged, sizeof(*all));
    uint32_t *ranks = calloc(j->n_judged, sizeof(*ranks)), n = 0;
    bool there = all != NULL && ranks != NULL;
    for (uint32_t i = 0; there && i < j->n_judged; i++)
        all[i] = (struct of_host){.host = j->ranks[j->index[i]].host, .judged = i};
    if (there)
        qsort(all, j->n_judged, sizeof(*all), compare_hosts);
    for (uint32_t i = 0; there && i < j->n_judged; i++) {
        ranks[n++] = all[i].judged;
        if (i + 1 < j->n_judged && strcmp(all[i].host, all[i + 1].host) == 0)
            continue;
        judge_level_signs(j->signs, ranks, n);
        n = 0;
    }
    free(all);
    free(ranks);
    return there;
}

/* ---- backwards ---- */

struct backward {
    uint32_t judged;
    int64_t iteration;
    float own, wait;
};

struct backwards {
    struct straggler_job *j;
    struct backward *list;
    uint32_t n;
};

static int take_backward(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct backwards *b = arg;
    uint32_t at = n == 4 ? straggler_judged_named(b->j, cell_text(&c[0])) : UINT32_MAX;
    double own = n == 4 ? cell_number(&c[2]) : (double)NAN;
    if (at == UINT32_MAX || isnan(own) || cell_int(&c[1]) == INT64_MIN)
        return 0;
    struct backward *more = realloc(b->list, (b->n + 1u) * sizeof(*more));
    if (more == NULL)
        return 0; /* these only show more */
    b->list = more;
    b->list[b->n++] = (struct backward){.judged = at,
                                        .iteration = cell_int(&c[1]),
                                        .own = (float)own,
                                        .wait = (float)fmax(0, cell_number(&c[3]))};
    return 0;
}

static int compare_backwards(const void *one, const void *two)
{
    const struct backward *a = one, *b = two;
    return a->iteration < b->iteration ? -1 : a->iteration > b->iteration;
}

/* All models of a rank count their own iterations, and the ranks' models the same ones. */
static void fill_backwards(struct straggler_job *j, struct backwards *b)
{
    uint32_t n = 0;
    if (b->n > 0)
        qsort(b->list, b->n, sizeof(*b->list), compare_backwards);
    for (uint32_t i = 0; i < b->n; i++)
        n += i == 0 || b->list[i].iteration != b->list[i - 1].iteration;
    if (n == 0 || n > BACKWARDS_MAX)
        return;
    size_t cells = (size_t)n * j->n_judged;
    j->backwards = calloc(cells, sizeof(*j->backwards));
    j->waits = calloc(cells, sizeof(*j->waits));
    if (j->backwards == NULL || j->waits == NULL)
        return;
    for (size_t i = 0; i < cells; i++)
        j->backwards[i] = j->waits[i] = NAN;
    j->n_backwards = n;
    n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        n += i > 0 && b->list[i].iteration != b->list[i - 1].iteration;
        size_t at = (size_t)b->list[i].judged * j->n_backwards + n;
        j->backwards[at] = b->list[i].own;
        j->waits[at] = b->list[i].wait;
    }
}

int straggler_read_backwards(struct straggler_job *j)
{
    char sql[400];
    struct backwards b = {.j = j};
    (void)snprintf(sql, sizeof(sql),
                   "select _addr, iteration, backward_sec, comm_sec - coalesce(overlap_sec, 0) "
                   "from global.python.ddp_timing where ts >= to_timestamp(%.3f)",
                   (double)j->begin_ns / 1e9);
    int rc = j->blind ? j->o->api->ask(j->o->api, sql, take_backward, &b) : 0;
    if (rc >= 0)
        fill_backwards(j, &b);
    free(b.list);
    return rc == -ECANCELED ? rc : 0;
}

/* ---- stages ---- */

static int take_stage(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    uint32_t *ranks = arg;
    *ranks += n == 2 && cell_int(&c[1]) > 0;
    return 0;
}

int straggler_read_stages(struct straggler_job *j)
{
    char sql[400];
    uint32_t ranks = 0;
    (void)snprintf(sql, sizeof(sql),
                   "select _addr, count(*) from global.python.comm_collective where op in ('send', "
                   "'recv', 'recv_anysource', 'isend', 'irecv', 'batch_p2p_ops') and ts >= "
                   "to_timestamp(%.3f) group by _addr",
                   (double)j->begin_ns / 1e9);
    int rc = j->o->api->ask(j->o->api, sql, take_stage, &ranks);
    j->stages = 2 * ranks > j->n_judged;
    return rc == -ECANCELED ? rc : 0;
}

int straggler_read_signs(struct straggler_job *j, const struct judge_finding *most)
{
    int rc = 0;
    if (j->n_numbers > 0)
        find_time(j, most);
    for (size_t i = 0; rc == 0 && j->n_numbers > 0 && i < sizeof(questions) / sizeof(questions[0]);
         i++)
        rc = ask_sign(j, &questions[i]);
    if (rc == 0 && !level_hosts(j))
        rc = report_fail(j->o->api, -ENOMEM, "no memory for %u ranks", j->n_judged);
    return rc;
}
