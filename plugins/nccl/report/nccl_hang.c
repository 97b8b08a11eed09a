/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/report/nccl_hang.c - `probing -t job:NAME nccl_hang`: the collectives that the ranks
 * of a job stand in, who has not come, and who waits for whom.
 *
 * One thread.  All of it comes from the ranks' tables, of the living and the dead.  A rank is told
 * by its number in the communicator; what -t takes for it, and its number in the job, stand behind.
 */
#include "nccl_hang.h"

#include <errno.h>
#include <stdlib.h>

#include "report_sdk.h"

#define RANKS_MAX 16384u /* of all communicators together */
#define SHOWN 10         /* collectives, and lines of each */
#define TEXT_BYTES 72
#define TARGET_BYTES 512 /* a folder's path, of a rank that has ended */
#define WHO_BYTES (TARGET_BYTES + 64)

struct stand { /* a rank in a collective, or where it was last */
    char comm[TEXT_BYTES], name[TEXT_BYTES], func[TEXT_BYTES], target[TARGET_BYTES];
    int64_t rank, seq, job_rank, n_ranks; /* INT64_MIN: not known */
    double age_ns;                        /* of what has ended: 0 */
};

struct stands {
    struct stand *all; /* RANKS_MAX of them, mapped as they are used */
    uint32_t n;
    bool cut;
};

struct hang {
    const struct probing_report_api *api;
    struct stands now, last;
    const struct stand *shown; /* the collective whose waits are shown */
    uint32_t lines;
};

static void put(char *ret, size_t room, const struct probing_report_cell *c)
{
    (void)snprintf(ret, room, "%s", cell_text(c));
}

static int take_stand(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct stands *to = arg;
    if (n < 9)
        return 0;
    if (to->n == RANKS_MAX) {
        to->cut = true;
        return 0;
    }
    struct stand *s = &to->all[to->n++];
    *s = (struct stand){.rank = cell_int(&c[3]),
                        .seq = cell_int(&c[4]),
                        .age_ns = cell_number(&c[5]),
                        .job_rank = cell_int(&c[6]),
                        .n_ranks = cell_int(&c[8])};
    put(s->comm, sizeof(s->comm), &c[0]);
    put(s->name, sizeof(s->name), &c[1]);
    put(s->func, sizeof(s->func), &c[2]);
    put(s->target, sizeof(s->target), &c[7]);
    return 0;
}

static const char in_flight[] =
    "select comm_hash, coalesce(comm_name, comm_hash), coll_func, rank, seq, age_ns, _rank, _addr, "
    "null::bigint from global.nccl.inflight_ops where kind = 'coll' order by age_ns desc";
static const char ended[] =
    "select comm_hash, max(coalesce(comm_name, comm_hash)), coll_func, rank, max(seq), 0.0, "
    "max(_rank), _addr, max(n_ranks) from global.nccl.coll_perf where is_p2p = 0 group by "
    "comm_hash, coll_func, rank, _addr order by rank";

static bool is_same_call(const struct stand *a, const struct stand *b)
{
    return a->seq == b->seq && strcmp(a->comm, b->comm) == 0 && strcmp(a->func, b->func) == 0;
}

static bool is_same_rank(const struct stand *a, const struct stand *b)
{
    return a->rank == b->rank && strcmp(a->comm, b->comm) == 0;
}

static const char *whose(const struct stand *s, char ret[WHO_BYTES])
{
    if (s->job_rank != INT64_MIN)
        (void)snprintf(ret, WHO_BYTES, "rank %lld (rank %lld of the job, -t %s)",
                       (long long)s->rank, (long long)s->job_rank, s->target);
    else
        (void)snprintf(ret, WHO_BYTES, "rank %lld (-t %s)", (long long)s->rank, s->target);
    return ret;
}

/* ---- who has not come ---- */

static bool stands_in(const struct hang *h, const struct stand *call, const struct stand *rank)
{
    for (uint32_t i = 0; i < h->now.n; i++)
        if (is_same_call(&h->now.all[i], call) && is_same_rank(&h->now.all[i], rank))
            return true;
    return false;
}

/* Is there an earlier row of the same rank?  A rank has one for each function. */
static bool is_seen(const struct hang *h, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (is_same_rank(&h->last.all[i], &h->last.all[at]))
            return true;
    return false;
}

/* Its newest of the function; INT64_MIN: none. */
static int64_t newest_of(const struct hang *h, const struct stand *rank, const char *func)
{
    int64_t newest = INT64_MIN;
    for (uint32_t i = 0; i < h->last.n; i++)
        if (is_same_rank(&h->last.all[i], rank) && strcmp(h->last.all[i].func, func) == 0 &&
            h->last.all[i].seq > newest)
            newest = h->last.all[i].seq;
    return newest;
}

static void tell_rank(struct hang *h, const struct stand *call, const struct stand *rank)
{
    char who[WHO_BYTES];
    int64_t newest = newest_of(h, rank, call->func);
    if (h->lines++ >= SHOWN)
        return;
    if (newest != INT64_MIN && newest >= call->seq)
        report_printf(h->api, "  %s has ended it\n", whose(rank, who));
    else if (newest != INT64_MIN)
        report_printf(h->api, "  %s has not called it: its last %s was %lld\n", whose(rank, who),
                      call->func, (long long)newest);
    else
        report_printf(h->api, "  %s has not called it, and no %s before\n", whose(rank, who),
                      call->func);
}

/* Gives how many ranks of the communicator were seen that are not in the collective. */
static uint32_t tell_absent(struct hang *h, const struct stand *call)
{
    uint32_t absent = 0;
    for (uint32_t i = 0; i < h->last.n; i++) {
        const struct stand *rank = &h->last.all[i];
        if (strcmp(rank->comm, call->comm) != 0 || is_seen(h, i) || stands_in(h, call, rank))
            continue;
        absent++;
        tell_rank(h, call, rank);
    }
    return absent;
}

/* ---- who waits for whom ---- */

static int show_wait(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct hang *h = arg;
    if (n < 4 || h->lines++ >= SHOWN)
        return 0;
    report_printf(h->api, "  rank %lld waits for rank %lld on the network: %s for %.1f s\n",
                  (long long)cell_int(&c[0]), (long long)cell_int(&c[1]), cell_text(&c[2]),
                  cell_number(&c[3]) / 1e9);
    return 0;
}

static int tell_waits(struct hang *h, const struct stand *call)
{
    char sql[800];
    /* A hash and a function's name are NCCL's, cleaned of what is not printable. */
    if (strpbrk(call->comm, "'\\") || strpbrk(call->func, "'\\"))
        return 0;
    (void)snprintf(sql, sizeof(sql),
                   "select rank, culprit_rank, state, max(state_ns) from global.nccl.inflight_ops "
                   "where kind = 'proxy_op' and comm_hash = '%s' and coll_func = '%s' and seq = "
                   "%lld and culprit_rank <> rank group by 1, 2, 3 order by 4 desc, 1",
                   call->comm, call->func, (long long)call->seq);
    h->lines = 0;
    int rc = h->api->ask(h->api, sql, show_wait, h);
    if (h->lines > SHOWN)
        report_printf(h->api, "  and %u more waits\n", h->lines - SHOWN);
    return rc;
}

/* ---- a collective ---- */

static int tell_call(struct hang *h, const struct stand *call)
{
    uint32_t in = 0;
    int64_t n_ranks = INT64_MIN;
    for (uint32_t i = 0; i < h->now.n; i++)
        in += is_same_call(&h->now.all[i], call);
    for (uint32_t i = 0; i < h->last.n; i++)
        if (strcmp(h->last.all[i].comm, call->comm) == 0 && h->last.all[i].n_ranks > n_ranks)
            n_ranks = h->last.all[i].n_ranks;
    report_printf(h->api, "%s %lld of %s: ", call->func, (long long)call->seq, call->name);
    if (n_ranks > 0)
        report_printf(h->api, "%u of %lld ranks are in it", in, (long long)n_ranks);
    else
        report_printf(h->api, "%u rank%s in it", in, in == 1 ? " is" : "s are");
    report_printf(h->api, ", the first for %.1f s\n", call->age_ns / 1e9);
    h->lines = 0;
    uint32_t absent = tell_absent(h, call);
    if (h->lines > SHOWN)
        report_printf(h->api, "  and %u more\n", h->lines - SHOWN);
    int64_t unknown = n_ranks - (int64_t)in - absent;
    if (n_ranks > 0 && unknown > 0)
        report_printf(h->api, "  of %lld rank%s nothing is known here\n", (long long)unknown,
                      unknown == 1 ? "" : "s");
    return tell_waits(h, call);
}

static int tell(struct hang *h)
{
    uint32_t shown = 0, more = 0;
    int rc = 0;
    for (uint32_t i = 0; i < h->now.n && rc == 0; i++) {
        uint32_t before = 0;
        while (before < i && !is_same_call(&h->now.all[before], &h->now.all[i]))
            before++;
        if (before < i)
            continue;
        if (shown == SHOWN)
            more++;
        else if (shown++ < SHOWN)
            rc = tell_call(h, &h->now.all[i]);
    }
    if (more > 0)
        report_printf(h->api, "and %u more collectives\n", more);
    if (h->now.n == 0 && h->last.n == 0)
        report_printf(h->api,
                      "no collective of NCCL was seen on these ranks: `nccl` of one of them "
                      "says why, and `cluster hang` looks at all that wait\n");
    else if (h->now.n == 0)
        report_printf(h->api, "no collective of NCCL is in flight\n");
    if (h->now.cut || h->last.cut)
        h->api->say(h->api, "there are more ranks than this report has room for: it is not whole");
    return rc;
}

static int take_word(void *arg, const char *option, const char *value)
{
    (void)option;
    return report_fail(arg, -EINVAL, "nccl_hang takes no argument '%s'", value ? value : "");
}

int nccl_hang_run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct hang h = {.api = a};
    int rc = a->parse(a, argc, argv, take_word, (void *)a);
    if (rc < 0)
        return rc;
    if (a->target == PROBING_TARGET_BARE)
        return a->no_plugin(a);
    h.now.all = calloc(RANKS_MAX, sizeof(*h.now.all));
    h.last.all = calloc(RANKS_MAX, sizeof(*h.last.all));
    rc = !h.now.all || !h.last.all ? report_fail(a, -ENOMEM, "no memory") : 0;
    if (rc == 0)
        rc = a->ask(a, in_flight, take_stand, &h.now);
    if (rc == 0)
        rc = a->ask(a, ended, take_stand, &h.last);
    if (rc == -ENOENT || rc == -EINVAL) /* none of them has the table */
        rc = a->no_plugin(a);
    if (rc == 0)
        rc = tell(&h);
    free(h.now.all);
    free(h.last.all);
    return rc;
}
