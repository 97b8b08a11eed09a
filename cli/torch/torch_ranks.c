/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch/torch_ranks.c - for `torch`: which rank of a job has not come to what the others wait
 * for.
 *
 * One thread.  A rank knows only what it waits for itself.  So all processes of this machine that
 * have the torch plugin and met at the same store are asked how many operations of each group they
 * have begun: who has begun fewer than one that waits has not come.  Ranks elsewhere are not asked,
 * and that is said.
 */
#include "cli/torch/torch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/target/query_client.h"
#include "core/base/json.h"
#include "core/datadir/datadir.h"

#define RANKS_MAX 512   /* groups of all processes */
#define WAITS_SEC "2.0" /* shorter waits are everyday life */
#define TEXT_BYTES 128
#define SLOW_SHARE 0.1 /* of a step, that one rank waits longer than another one */

struct rank { /* one process in one group */
    pid_t pid;
    int64_t number, size, seq; /* INT64_MIN: not known */
    double wait_sec;           /* 0: it does not wait */
    double spent_sec;          /* a step of its process, on average, waiting for others; NAN: */
    double step_sec;           /* not known */
    char group[TEXT_BYTES], job[TEXT_BYTES], op[TEXT_BYTES];
};

struct job {
    struct rank ranks[RANKS_MAX];
    uint32_t n;
    pid_t asked; /* whose rows come now */
    uint32_t n_before;
};

static int64_t number_of(const struct json *c)
{
    return c->type == JSON_NUMBER && c->is_integer ? c->integer : INT64_MIN;
}

static void text_of(const struct json *c, char *ret)
{
    (void)snprintf(ret, TEXT_BYTES, "%s", c->type == JSON_STRING ? c->text : "");
}

static int take_rank(void *self, const struct json *const *c, struct buf *out)
{
    struct job *j = self;
    (void)out;
    if (j->n == RANKS_MAX)
        return 0;
    struct rank *r = &j->ranks[j->n++];
    *r = (struct rank){.pid = j->asked,
                       .number = number_of(c[1]),
                       .size = number_of(c[2]),
                       .seq = number_of(c[3]),
                       .spent_sec = (double)NAN,
                       .step_sec = (double)NAN};
    text_of(c[0], r->group);
    text_of(c[4], r->job);
    text_of(c[5], r->op);
    if (c[6]->type == JSON_NUMBER)
        r->wait_sec = c[6]->is_integer ? (double)c[6]->integer : c[6]->number;
    return 0;
}

static double seconds_of(const struct json *c)
{
    return c->type != JSON_NUMBER ? (double)NAN : c->is_integer ? (double)c->integer : c->number;
}

static int take_share(void *self, const struct json *const *c, struct buf *out)
{
    struct job *j = self;
    (void)out;
    for (uint32_t i = j->n_before; i < j->n; i++) {
        j->ranks[i].spent_sec = seconds_of(c[0]);
        j->ranks[i].step_sec = seconds_of(c[1]);
    }
    return 0;
}

/* What is left of DDP's all_reduces when its gradients are computed, and what Python waits for. */
static void ask_share(struct job *j, const struct target *t)
{
    struct export_writer w = {.row = take_share, .self = j};
    (void)answer_rows(
        t,
        "select case when count(*) > 0 then coalesce(avg(comm_sec), 0) + coalesce("
        "(select avg(comm_sec - coalesce(overlap_sec, 0)) from (select comm_sec, "
        "overlap_sec from python.ddp_timing order by ts desc limit 10) d), 0) end, "
        "avg(step_duration_sec) from (select coalesce(comm_sec, 0) as comm_sec, "
        "step_duration_sec from python.torch_step_timing order by ts desc limit 100) s",
        &w);
}

/* A process that does not answer is as one that is not here. */
static void ask(struct job *j, const struct target *t)
{
    struct export_writer w = {.row = take_rank, .self = j};
    j->asked = t->pid;
    j->n_before = j->n;
    (void)answer_rows(t,
                      "select g.group_name, g.group_rank, g.group_size, g.seq, g.job, "
                      "w.op, w.wait_sec from torch.groups g left join (select group_name, "
                      "arg_max(op, wait_sec) as op, max(wait_sec) as wait_sec from torch.waiting "
                      "where wait_sec > " WAITS_SEC " group by group_name) w "
                      "on w.group_name = g.group_name where g.group_size > 1",
                      &w);
    if (j->n > j->n_before)
        ask_share(j, t);
}

struct search {
    struct job *job;
    pid_t self;
};

static int ask_other(void *arg, const struct datadir *d)
{
    struct search *s = arg;
    struct target t;
    char text[16];
    pid_t pid;
    if (!directory_alive(d, &pid) || pid == s->self || directory_is_over(d->path))
        return 0;
    for (uint32_t i = 0; i < s->job->n; i++)
        if (s->job->ranks[i].pid == pid)
            return 0; /* an older directory of it */
    (void)snprintf(text, sizeof text, "%d", (int)pid);
    if (target_resolve(text, &t) == 0 && t.kind == TARGET_LIVE && answer_plugin_runs(&t, "torch"))
        ask(s->job, &t);
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

/* Who is behind; gives how many of the group were heard of. */
static int64_t tell_behind(const struct job *j, const struct rank *waiter, struct buf *lines,
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
        (void)buf_addf(lines,
                       "  rank %lld has not come: it is %lld operation%s behind (pid %d)\n"
                       "  where: probing -t %d backtrace\n",
                       (long long)r->number, (long long)(waiter->seq - r->seq),
                       waiter->seq - r->seq == 1 ? "" : "s", (int)r->pid, (int)r->pid);
    }
    return heard;
}

static void tell_group(const struct job *j, const struct rank *waiter, struct buf *lines)
{
    bool behind = false;
    (void)buf_addf(lines, "rank %lld has waited for %.1f s in %s of group %s\n",
                   (long long)waiter->number, waiter->wait_sec, waiter->op, waiter->group);
    int64_t heard = tell_behind(j, waiter, lines, &behind);
    if (heard < waiter->size)
        (void)buf_addf(lines,
                       "  %lld of %lld ranks could not be asked: elsewhere, ended, or without "
                       "plugin torch\n",
                       (long long)(waiter->size - heard), (long long)waiter->size);
    else if (!behind)
        (void)buf_addf(lines, "  all %lld ranks have come to it, as far as torch counts\n",
                       (long long)waiter->size);
}

/* Who waits least for the others is whom they wait for. */
static void tell_slowest(const struct job *j, const struct rank *own, struct buf *lines)
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
    (void)buf_addf(lines,
                   "rank %lld is the slowest%s: rank %lld waits %.1f ms a step for others, it "
                   "%.1f ms (pid %d)\n",
                   (long long)slowest->number,
                   heard < own->size ? " of those that could be asked" : "",
                   (long long)longest->number, longest->spent_sec * 1e3, slowest->spent_sec * 1e3,
                   (int)slowest->pid);
    (void)buf_addf(lines, "  where: probing -t %d flamegraph --mode wall\n", (int)slowest->pid);
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

void torch_read_waits(const struct target *t, struct buf *lines, struct buf *suspicions)
{
    static struct job job; /* too large for a stack */
    struct search s = {.job = &job, .self = t->pid};
    job.n = 0;
    ask(&job, t);
    uint32_t own = job.n;
    if (own > 0 && t->pid != 0)
        (void)directory_each(ask_other, &s);
    for (uint32_t i = 0; i < own; i++) {
        const struct rank *waiter = waiter_of(&job, &job.ranks[i]);
        if (waiter != NULL)
            tell_group(&job, waiter, lines);
    }
    if (own > 0 && job.ranks[0].spent_sec >= 0)
        tell_slowest(&job, largest_of(&job, own), suspicions);
    torch_read_joins(t, /* others= */ own == 0, lines);
}
