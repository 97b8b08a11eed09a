/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report_ranks.c - for `torch`: which rank of a job has not come to
 * what the others wait for.
 *
 * One thread.  A rank knows only what it waits for itself.  So all processes of this machine that
 * have the torch plugin and met at the same store are asked how many operations of each group they
 * have begun: who has begun fewer than one that waits has not come.  Ranks elsewhere are not asked,
 * and that is said.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define RANKS_MAX 512   /* groups of all processes */
#define WAITS_SEC "2.0" /* shorter waits are everyday life */
#define TEXT_BYTES 128
#define SLOW_SHARE 0.1 /* of a step, that one rank waits longer than another one */

struct rank { /* one process in one group */
    int64_t pid;
    int64_t number, size, seq; /* number: in the whole job; INT64_MIN: not known */
    int64_t peer;              /* whom it sends to or receives from; INT64_MIN: it does neither */
    double wait_sec;           /* 0: it does not wait */
    double spent_sec;          /* a step of its process, on average, waiting for others; NAN: */
    double step_sec;           /* not known */
    char group[TEXT_BYTES], job[TEXT_BYTES], op[TEXT_BYTES];
};

struct job {
    const struct probing_report_api *api;
    struct rank ranks[RANKS_MAX];
    uint32_t n;
    int64_t asked; /* whose rows come now */
    uint32_t n_before;
};

static int take_rank(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct job *j = arg;
    if (n < 8 || j->n == RANKS_MAX)
        return 0;
    struct rank *r = &j->ranks[j->n++];
    *r = (struct rank){.pid = j->asked,
                       .number = cell_int(&c[1]),
                       .size = cell_int(&c[2]),
                       .seq = cell_int(&c[3]),
                       .peer = cell_int(&c[7]),
                       .spent_sec = (double)NAN,
                       .step_sec = (double)NAN};
    (void)snprintf(r->group, sizeof(r->group), "%s", cell_text(&c[0]));
    (void)snprintf(r->job, sizeof(r->job), "%s", cell_text(&c[4]));
    (void)snprintf(r->op, sizeof(r->op), "%s", cell_text(&c[5]));
    r->wait_sec = c[6].type != 0 ? cell_number(&c[6]) : 0;
    return 0;
}

static int take_share(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct job *j = arg;
    for (uint32_t i = j->n_before; i < j->n && n == 2; i++) {
        j->ranks[i].spent_sec = cell_number(&c[0]);
        j->ranks[i].step_sec = cell_number(&c[1]);
    }
    return 0;
}

/* The wait in communication; on a GPU, the rest of DDP's all_reduces after its gradients are
 * computed. */
static const char share_sql[] =
    "select case when count(*) > 0 then greatest(coalesce(avg(comm_sec), 0), "
    "(select avg(comm_sec - coalesce(overlap_sec, 0)) from (select comm_sec, "
    "overlap_sec from python.ddp_timing order by ts desc limit 10) d)) end, "
    "avg(step_duration_sec) from (select coalesce(comm_sec, 0) as comm_sec, "
    "step_duration_sec from python.torch_step_timing order by ts desc limit 100) s";

static const char rank_sql[] =
    "select g.group_name, g.rank, g.group_size, g.seq, g.job, "
    "w.op, w.wait_sec, case w.op when 'send' then w.dst_rank when 'recv' then w.src_rank end "
    "from torch.groups g left join (select group_name, arg_max(op, wait_sec) as op, "
    "arg_max(src_rank, wait_sec) as src_rank, arg_max(dst_rank, wait_sec) as dst_rank, "
    "max(wait_sec) as wait_sec from torch.waiting "
    "where wait_sec > " WAITS_SEC " group by group_name) w "
    "on w.group_name = g.group_name where g.group_size > 1";

/* A process that does not answer is as one that is not here.  pid 0: the target. */
static void ask_rank(struct job *j, int64_t pid)
{
    const struct probing_report_api *a = j->api;
    j->asked = pid != 0 ? pid : a->target_pid;
    j->n_before = j->n;
    (void)(pid != 0 ? a->ask_process(a, pid, rank_sql, take_rank, j)
                    : a->ask(a, rank_sql, take_rank, j));
    if (j->n > j->n_before)
        (void)(pid != 0 ? a->ask_process(a, pid, share_sql, take_share, j)
                        : a->ask(a, share_sql, take_share, j));
}

static int take_state(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    bool *runs = arg;
    *runs = n == 1 && strcmp(cell_text(&c[0]), "running") == 0;
    return 0;
}

bool torch_runs_in(const struct probing_report_api *a, int64_t pid)
{
    bool runs = false;
    int rc = a->ask_process(a, pid, "select state from probing.plugins where name = 'torch'",
                            take_state, &runs);
    return rc == 0 && runs;
}

static int ask_other(void *arg, int64_t pid)
{
    struct job *j = arg;
    if (pid != j->api->target_pid && torch_runs_in(j->api, pid))
        ask_rank(j, pid);
    return 0;
}

static bool is_together(const struct rank *a, const struct rank *b)
{
    return a->job[0] != '\0' && strcmp(a->job, b->job) == 0 && strcmp(a->group, b->group) == 0 &&
           a->size == b->size;
}

/* `own` if it waits, else the one that has waited longest in its group, NULL: nobody does. */
static const struct rank *waiter_of(const struct job *j, const struct rank *own)
{
    const struct rank *found = NULL;
    if (own->wait_sec > 0)
        return own;
    for (uint32_t i = 0; i < j->n; i++)
        if (is_together(&j->ranks[i], own) && j->ranks[i].wait_sec > 0 &&
            (found == NULL || j->ranks[i].wait_sec > found->wait_sec))
            found = &j->ranks[i];
    return found;
}

/* Tell which ranks are behind; gives how many of the group were heard of. */
static int64_t tell_behind(const struct job *j, const struct rank *waiter, struct lines *lines,
                           bool *ret_any)
{
    int64_t heard = 1;
    *ret_any = false;
    for (uint32_t i = 0; i < j->n; i++) {
        const struct rank *r = &j->ranks[i];
        if (r == waiter || !is_together(r, waiter))
            continue;
        heard++;
        if (r->seq == INT64_MIN || waiter->seq == INT64_MIN || r->seq >= waiter->seq)
            continue;
        *ret_any = true;
        lines_add(lines,
                  "  rank %lld has not come: it is %lld operation%s behind (pid %d)\n"
                  "  where: probing -t %d backtrace\n",
                  (long long)r->number, (long long)(waiter->seq - r->seq),
                  waiter->seq - r->seq == 1 ? "" : "s", (int)r->pid, (int)r->pid);
    }
    return heard;
}

/* Is the other one in the other half of the transfer? */
static void tell_peer(const struct job *j, const struct rank *waiter, struct lines *lines)
{
    bool sends = strcmp(waiter->op, "send") == 0;
    const struct rank *peer = NULL;
    lines_add(lines, "rank %lld has waited for %.1f s in %s %s rank %lld, of group %s\n",
              (long long)waiter->number, waiter->wait_sec, waiter->op, sends ? "to" : "from",
              (long long)waiter->peer, waiter->group);
    for (uint32_t i = 0; i < j->n && peer == NULL; i++)
        if (is_together(&j->ranks[i], waiter) && j->ranks[i].number == waiter->peer)
            peer = &j->ranks[i];
    if (peer == NULL)
        lines_add(lines,
                  "  rank %lld could not be asked: elsewhere, ended, or without plugin "
                  "torch\n",
                  (long long)waiter->peer);
    else if (peer->wait_sec > 0 && peer->peer == waiter->number &&
             strcmp(peer->op, sends ? "recv" : "send") == 0)
        lines_add(lines, "  rank %lld is in the %s: tags, or the network\n",
                  (long long)peer->number, peer->op);
    else
        lines_add(lines,
                  "  rank %lld is in no %s with it (pid %d)\n"
                  "  where: probing -t %d backtrace\n",
                  (long long)peer->number, sends ? "recv" : "send", (int)peer->pid, (int)peer->pid);
}

static void tell_group(const struct job *j, const struct rank *waiter, struct lines *lines)
{
    bool behind = false;
    if (waiter->peer != INT64_MIN) {
        tell_peer(j, waiter, lines);
        return;
    }
    lines_add(lines, "rank %lld has waited for %.1f s in %s of group %s\n",
              (long long)waiter->number, waiter->wait_sec, waiter->op, waiter->group);
    int64_t heard = tell_behind(j, waiter, lines, &behind);
    if (heard < waiter->size)
        lines_add(lines,
                  "  %lld of %lld ranks could not be asked: elsewhere, ended, or without "
                  "plugin torch\n",
                  (long long)(waiter->size - heard), (long long)waiter->size);
    else if (!behind)
        lines_add(lines, "  all %lld ranks have come to it, as far as torch counts\n",
                  (long long)waiter->size);
}

/* Tell the slowest one: the rank that waits least for the others is the one that they wait for. */
static void tell_slowest(const struct job *j, const struct rank *own, struct lines *lines)
{
    const struct rank *slowest = own, *longest = own;
    int64_t heard = 0;
    for (uint32_t i = 0; i < j->n; i++) {
        const struct rank *r = &j->ranks[i];
        if (!(r->spent_sec >= 0) || (r != own && !is_together(r, own)))
            continue;
        heard++;
        slowest = r->spent_sec < slowest->spent_sec ? r : slowest;
        longest = r->spent_sec > longest->spent_sec ? r : longest;
    }
    if (heard < 2 || !(longest->spent_sec - slowest->spent_sec > SLOW_SHARE * own->step_sec))
        return;
    lines_add(lines,
              "rank %lld is the slowest%s: rank %lld waits %.1f ms a step for others, it "
              "%.1f ms (pid %d)\n",
              (long long)slowest->number, heard < own->size ? " of those that could be asked" : "",
              (long long)longest->number, longest->spent_sec * 1e3, slowest->spent_sec * 1e3,
              (int)slowest->pid);
    lines_add(lines, "  where: probing -t %d flamegraph --mode wall\n", (int)slowest->pid);
}

/* Ours in the group of the most ranks, NULL: it is in none. */
static const struct rank *largest_of(const struct job *j, uint32_t own)
{
    const struct rank *found = NULL;
    for (uint32_t i = 0; i < own; i++)
        if (found == NULL || j->ranks[i].size > found->size)
            found = &j->ranks[i];
    return found;
}

static void tell_job(const struct job *j, uint32_t own, struct lines *lines,
                     struct lines *suspicions)
{
    for (uint32_t i = 0; i < own; i++) {
        const struct rank *waiter = waiter_of(j, &j->ranks[i]);
        if (waiter != NULL)
            tell_group(j, waiter, lines);
    }
    if (own > 0 && j->ranks[0].spent_sec >= 0)
        tell_slowest(j, largest_of(j, own), suspicions);
}

void torch_read_waits(const struct probing_report_api *a, struct lines *lines,
                      struct lines *suspicions)
{
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return; /* the report lacks these lines only */
    job->api = a;
    ask_rank(job, /* pid= */ 0);
    uint32_t own = job->n;
    if (own > 0 && a->target_pid != 0)
        (void)a->processes(a, ask_other, job);
    tell_job(job, own, lines, suspicions);
    free(job);
    torch_read_joins(a, /* others= */ own == 0, lines);
}
