/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/report/nccl_hang.c - `probing -t job:NAME nccl_hang`: the collectives, sends and
 * receives that the ranks of a job stand in, who has not come, and who waits for whom.
 *
 * One thread.  All of it comes from the ranks' tables, of the living and the dead.  NCCL numbers
 * the ranks of each communicator.  Shown is a rank's number in the job, where a row tells it.
 */
#include "nccl_hang.h"

#include <errno.h>
#include <stdlib.h>

#include "report_sdk.h"

#define RANKS_MAX 16384u /* of all communicators together */
#define SHOWN 10         /* collectives, and lines of each */
#define TEXT_BYTES 72
#define TARGET_BYTES 512 /* a folder's path, of a rank that has ended */
#define WHO_BYTES (TARGET_BYTES + 80)
#define NAME_BYTES 64

struct stand { /* a rank in a collective, or where it was last */
    char comm[TEXT_BYTES], name[TEXT_BYTES], func[TEXT_BYTES], target[TARGET_BYTES];
    int64_t rank, seq, job_rank, n_ranks, peer; /* INT64_MIN: not known; peer: of a Send or Recv */
    double age_ns;                              /* of what has ended: 0 */
};

struct stands {
    struct stand *all; /* RANKS_MAX of them, mapped as they are used */
    uint32_t n;
    bool cut;
};

struct hang {
    const struct probing_report_api *api;
    struct report_json json; /* `as_json` */
    bool as_json;
    struct stands now, pairs, last; /* collectives and others in flight; what has ended */
    const char *comm;               /* of the call whose waits are shown */
    uint32_t lines;
};

static void copy_text(char *ret, size_t room, const struct probing_report_cell *c)
{
    (void)snprintf(ret, room, "%s", cell_text(c));
}

static int take_stand(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct stands *to = arg;
    if (n < 10)
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
                        .n_ranks = cell_int(&c[8]),
                        .peer = cell_int(&c[9])};
    copy_text(s->comm, sizeof(s->comm), &c[0]);
    copy_text(s->name, sizeof(s->name), &c[1]);
    copy_text(s->func, sizeof(s->func), &c[2]);
    copy_text(s->target, sizeof(s->target), &c[7]);
    return 0;
}

#define IN_FLIGHT(kind, peer)                                                                    \
    "select comm_hash, coalesce(comm_name, comm_hash), coll_func, rank, seq, age_ns, _rank, "    \
    "_addr, null::bigint, " peer " from global.nccl.inflight_ops where kind = '" kind "' order " \
    "by age_ns desc"
static const char ended[] =
    "select comm_hash, max(coalesce(comm_name, comm_hash)), coll_func, rank, max(seq), 0.0, "
    "max(_rank), _addr, max(n_ranks), null::bigint from global.nccl.coll_perf group by "
    "comm_hash, coll_func, rank, _addr order by rank";

static bool is_same_call(const struct stand *a, const struct stand *b)
{
    return a->seq == b->seq && strcmp(a->comm, b->comm) == 0 && strcmp(a->func, b->func) == 0;
}

static bool is_same_rank(const struct stand *a, const struct stand *b)
{
    return a->rank == b->rank && strcmp(a->comm, b->comm) == 0;
}

static const char *whose_rank(const struct stand *s, char ret[WHO_BYTES])
{
    if (s->job_rank == INT64_MIN)
        (void)snprintf(ret, WHO_BYTES, "rank %lld of the communicator (-t %s)", (long long)s->rank,
                       s->target);
    else if (s->job_rank == s->rank)
        (void)snprintf(ret, WHO_BYTES, "rank %lld (-t %s)", (long long)s->rank, s->target);
    else
        (void)snprintf(ret, WHO_BYTES, "rank %lld (%lld of the communicator, -t %s)",
                       (long long)s->job_rank, (long long)s->rank, s->target);
    return ret;
}

static int64_t job_rank_in(const struct stands *all, const char *comm, int64_t rank)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->all[i].rank == rank && strcmp(all->all[i].comm, comm) == 0)
            return all->all[i].job_rank;
    return INT64_MIN;
}

/* The number in the job of a communicator's rank; INT64_MIN: no row tells it. */
static int64_t job_rank_of(const struct hang *h, const char *comm, int64_t rank)
{
    const struct stands *const all[] = {&h->now, &h->pairs, &h->last};
    int64_t found = INT64_MIN;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && found == INT64_MIN; i++)
        found = job_rank_in(all[i], comm, rank);
    return found;
}

/* "rank 2", or "rank 0 of the communicator" */
static const char *name_of(const struct hang *h, const char *comm, int64_t rank,
                           char ret[NAME_BYTES])
{
    int64_t job_rank = job_rank_of(h, comm, rank);
    (void)snprintf(ret, NAME_BYTES, "rank %lld%s",
                   (long long)(job_rank != INT64_MIN ? job_rank : rank),
                   job_rank != INT64_MIN ? "" : " of the communicator");
    return ret;
}

static void json_int(struct hang *h, const char *key, int64_t value)
{
    json_number(&h->json, key, value == INT64_MIN ? (double)NAN : (double)value);
}

/* In an object of its own. */
static void json_rank(struct hang *h, const struct stand *s)
{
    json_item(&h->json);
    json_int(h, "rank", s->rank);
    json_int(h, "job_rank", s->job_rank);
    json_text(&h->json, "target", s->target);
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
    bool has_ended = newest != INT64_MIN && newest >= call->seq;
    if (h->as_json) {
        json_rank(h, rank);
        json_text(&h->json, "state", has_ended ? "ended" : "not called");
        json_int(h, "last_seq", newest);
        json_close(&h->json, '}');
    } else if (h->lines++ >= SHOWN) {
        return;
    } else if (has_ended) {
        report_printf(h->api, "  %s has ended it\n", whose_rank(rank, who));
    } else if (newest != INT64_MIN) {
        report_printf(h->api, "  %s has not called it: its last %s was %lld\n",
                      whose_rank(rank, who), call->func, (long long)newest);
    } else {
        report_printf(h->api, "  %s has not called it, and no %s before\n", whose_rank(rank, who),
                      call->func);
    }
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
    char rank[NAME_BYTES], culprit[NAME_BYTES];
    if (n < 4)
        return 0;
    if (h->as_json) {
        json_item(&h->json);
        json_int(h, "rank", cell_int(&c[0]));
        json_int(h, "job_rank", job_rank_of(h, h->comm, cell_int(&c[0])));
        json_int(h, "waits_for", cell_int(&c[1]));
        json_int(h, "waits_for_job_rank", job_rank_of(h, h->comm, cell_int(&c[1])));
        json_text(&h->json, "state", cell_text(&c[2]));
        json_number(&h->json, "state_ns", cell_number(&c[3]));
        json_close(&h->json, '}');
    } else if (h->lines++ < SHOWN) {
        report_printf(h->api, "  %s waits for %s on the network: %s for %.1f s\n",
                      name_of(h, h->comm, cell_int(&c[0]), rank),
                      name_of(h, h->comm, cell_int(&c[1]), culprit), cell_text(&c[2]),
                      cell_number(&c[3]) / 1e9);
    }
    return 0;
}

/* which: what else is true of those proxy operations. */
static int tell_waits(struct hang *h, const struct stand *call, const char *which)
{
    char sql[800];
    int rc = 0;
    if (h->as_json)
        json_list(&h->json, "waits");
    h->lines = 0;
    h->comm = call->comm;
    /* A hash and a function's name are NCCL's, cleaned of what is not printable. */
    (void)snprintf(sql, sizeof(sql),
                   "select rank, culprit_rank, state, max(state_ns) from global.nccl.inflight_ops "
                   "where kind = 'proxy_op' and comm_hash = '%s' and coll_func = '%s' and %s and "
                   "culprit_rank <> rank group by 1, 2, 3 order by 4 desc, 1",
                   call->comm, call->func, which);
    if (!strpbrk(call->comm, "'\\") && !strpbrk(call->func, "'\\"))
        rc = h->api->ask(h->api, sql, show_wait, h);
    if (h->as_json)
        json_close(&h->json, ']');
    else if (h->lines > SHOWN)
        report_printf(h->api, "  and %u more waits\n", h->lines - SHOWN);
    return rc;
}

/* ---- a collective ---- */

/* Give the communicator's size, as those say who have ended something; INT64_MIN: none does. */
static int64_t ranks_of(const struct hang *h, const struct stand *call)
{
    int64_t n_ranks = INT64_MIN;
    for (uint32_t i = 0; i < h->last.n; i++)
        if (strcmp(h->last.all[i].comm, call->comm) == 0 && h->last.all[i].n_ranks > n_ranks)
            n_ranks = h->last.all[i].n_ranks;
    return n_ranks;
}

static void json_call(struct hang *h, const struct stand *call)
{
    json_item(&h->json);
    json_text(&h->json, "coll_func", call->func);
    json_int(h, "seq", call->seq);
    json_text(&h->json, "comm_hash", call->comm);
    json_text(&h->json, "comm_name", call->name);
    json_number(&h->json, "age_ns", call->age_ns);
}

static void say_call(struct hang *h, const struct stand *call, uint32_t in, int64_t n_ranks)
{
    report_printf(h->api, "%s %lld of %s: ", call->func, (long long)call->seq, call->name);
    if (n_ranks > 0)
        report_printf(h->api, "%u of %lld ranks are in it", in, (long long)n_ranks);
    else
        report_printf(h->api, "%u rank%s in it", in, in == 1 ? " is" : "s are");
    report_printf(h->api, ", the first for %.1f s\n", call->age_ns / 1e9);
}

/* Gives how many ranks are in it. */
static uint32_t tell_present(struct hang *h, const struct stand *call)
{
    uint32_t in = 0;
    for (uint32_t i = 0; i < h->now.n; i++) {
        const struct stand *s = &h->now.all[i];
        if (!is_same_call(s, call))
            continue;
        in++;
        if (!h->as_json)
            continue;
        json_rank(h, s);
        json_number(&h->json, "age_ns", s->age_ns);
        json_close(&h->json, '}');
    }
    return in;
}

static int json_collective(struct hang *h, const struct stand *call, const char *which)
{
    int64_t n_ranks = ranks_of(h, call);
    json_call(h, call);
    json_int(h, "n_ranks", n_ranks);
    json_list(&h->json, "in");
    int64_t unknown = n_ranks - tell_present(h, call);
    json_close(&h->json, ']');
    json_list(&h->json, "absent");
    unknown -= tell_absent(h, call);
    json_close(&h->json, ']');
    json_int(h, "unknown", n_ranks <= 0 ? INT64_MIN : unknown > 0 ? unknown : 0);
    int rc = tell_waits(h, call, which);
    json_close(&h->json, '}');
    return rc;
}

static int tell_call(struct hang *h, const struct stand *call)
{
    char which[64];
    int64_t n_ranks = ranks_of(h, call);
    (void)snprintf(which, sizeof(which), "seq = %lld", (long long)call->seq);
    if (h->as_json)
        return json_collective(h, call, which);
    uint32_t in = tell_present(h, call);
    say_call(h, call, in, n_ranks);
    h->lines = 0;
    int64_t unknown = n_ranks - (int64_t)in - tell_absent(h, call);
    if (h->lines > SHOWN)
        report_printf(h->api, "  and %u more\n", h->lines - SHOWN);
    if (n_ranks > 0 && unknown > 0)
        report_printf(h->api, "  of %lld rank%s nothing is known here\n", (long long)unknown,
                      unknown == 1 ? "" : "s");
    return tell_waits(h, call, which);
}

/* ---- a send or a receive ---- */

static bool is_its_other_end(const struct stand *a, const struct stand *b)
{
    return a->peer == b->rank && b->peer == a->rank && strcmp(a->comm, b->comm) == 0 &&
           strcmp(a->func, b->func) != 0;
}

/* A row of the other rank; NULL: none was seen. */
static const struct stand *peer_in(const struct stands *all, const struct stand *pair)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->all[i].rank == pair->peer && strcmp(all->all[i].comm, pair->comm) == 0)
            return &all->all[i];
    return NULL;
}

static const struct stand *peer_of(const struct hang *h, const struct stand *pair)
{
    const struct stand *peer = peer_in(&h->pairs, pair);
    if (!peer)
        peer = peer_in(&h->now, pair);
    return peer ? peer : peer_in(&h->last, pair);
}

static const char *state_of_peer(const struct hang *h, const struct stand *pair)
{
    for (uint32_t i = 0; i < h->pairs.n; i++)
        if (is_its_other_end(pair, &h->pairs.all[i]))
            return "in it";
    return peer_of(h, pair) ? "not in it" : "unknown";
}

static void say_pair(struct hang *h, const struct stand *pair)
{
    char who[WHO_BYTES], other[NAME_BYTES];
    bool sends = strcmp(pair->func, "Send") == 0;
    const char *its = sends ? "Recv" : "Send", *state = state_of_peer(h, pair);
    const struct stand *peer = peer_of(h, pair);
    (void)name_of(h, pair->comm, pair->peer, other);
    report_printf(h->api, "%s of %s %s %s, under way for %.1f s: %s\n", pair->func, pair->name,
                  sends ? "to" : "from", other, pair->age_ns / 1e9, whose_rank(pair, who));
    if (!peer)
        report_printf(h->api, "  of %s nothing is known here\n", other);
    else if (strcmp(state, "in it") == 0)
        report_printf(h->api, "  %s is in its %s\n", whose_rank(peer, who), its);
    else
        report_printf(h->api, "  %s is in no %s with it\n", whose_rank(peer, who), its);
}

static void json_pair(struct hang *h, const struct stand *pair)
{
    const struct stand *peer = peer_of(h, pair);
    json_call(h, pair);
    json_int(h, "rank", pair->rank);
    json_int(h, "job_rank", pair->job_rank);
    json_text(&h->json, "target", pair->target);
    json_int(h, "peer", pair->peer);
    json_int(h, "peer_job_rank", job_rank_of(h, pair->comm, pair->peer));
    json_text(&h->json, "peer_state", state_of_peer(h, pair));
    json_text(&h->json, "peer_target", peer ? peer->target : "");
}

static int tell_pair(struct hang *h, const struct stand *pair)
{
    char which[96];
    (h->as_json ? json_pair : say_pair)(h, pair);
    (void)snprintf(which, sizeof(which), "rank = %lld and peer = %lld", (long long)pair->rank,
                   (long long)pair->peer);
    int rc = tell_waits(h, pair, which);
    if (h->as_json)
        json_close(&h->json, '}');
    return rc;
}

/* ---- all of them ---- */

/* One of several ranks in a collective, or one of a pair: told with the older one. */
static bool is_told(const struct stands *all, uint32_t at, bool pairs)
{
    for (uint32_t i = 0; i < at; i++)
        if ((pairs ? is_its_other_end : is_same_call)(&all->all[i], &all->all[at]))
            return true;
    return false;
}

/* One after the other, for people up to a screenful.  what: of those that are too many. */
static int tell_list(struct hang *h, bool pairs, const char *key, const char *what)
{
    const struct stands *all = pairs ? &h->pairs : &h->now;
    uint32_t shown = 0, more = 0;
    int rc = 0;
    if (h->as_json)
        json_list(&h->json, key);
    for (uint32_t i = 0; i < all->n && rc == 0; i++) {
        if (is_told(all, i, pairs))
            continue;
        if (shown == SHOWN && !h->as_json) {
            more++;
            continue;
        }
        shown++;
        rc = (pairs ? tell_pair : tell_call)(h, &all->all[i]);
    }
    if (h->as_json)
        json_close(&h->json, ']');
    else if (more > 0)
        report_printf(h->api, "and %u more %s\n", more, what);
    return rc;
}

static int report_hang(struct hang *h)
{
    bool none = h->now.n == 0 && h->pairs.n == 0, cut = h->now.cut || h->pairs.cut || h->last.cut;
    if (h->as_json)
        json_open(&h->json, '{');
    int rc = tell_list(h, /* pairs= */ false, "collectives", "collectives");
    if (rc == 0)
        rc = tell_list(h, /* pairs= */ true, "p2p", "sends and receives");
    if (h->as_json)
        report_printf(h->api, ",\"seen\":%s,\"whole\":%s}\n",
                      none && h->last.n == 0 ? "false" : "true", cut ? "false" : "true");
    else if (none && h->last.n == 0)
        report_printf(h->api, "no operation of NCCL was seen on these ranks: `nccl` of one of them "
                              "says why, and `cluster hang` looks at all that wait\n");
    else if (none)
        report_printf(h->api, "no collective, send or receive of NCCL is in flight\n");
    if (cut)
        h->api->say(h->api, "there are more ranks than this report has room for: it is not whole");
    return rc;
}

static int take_word(void *arg, const char *option, const char *value)
{
    struct hang *h = arg;
    if (option == NULL)
        return report_fail(h->api, -EINVAL, "nccl_hang takes no argument '%s'", value);
    h->as_json = true;
    return 0;
}

static int read_all(struct hang *h)
{
    const struct probing_report_api *a = h->api;
    int rc = a->ask(a, IN_FLIGHT("coll", "null::bigint"), take_stand, &h->now);
    if (rc == 0)
        rc = a->ask(a, IN_FLIGHT("p2p", "peer"), take_stand, &h->pairs);
    return rc == 0 ? a->ask(a, ended, take_stand, &h->last) : rc;
}

int nccl_hang_run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct hang h = {.api = a, .json = {.api = a}};
    struct stands *const all[] = {&h.now, &h.pairs, &h.last};
    int rc = a->parse(a, argc, argv, take_word, &h);
    if (rc < 0)
        return rc;
    if (a->target == PROBING_TARGET_BARE)
        return a->no_plugin(a);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && rc == 0; i++) {
        all[i]->all = calloc(RANKS_MAX, sizeof(struct stand));
        rc = all[i]->all ? 0 : report_fail(a, -ENOMEM, "no memory");
    }
    if (rc == 0)
        rc = read_all(&h);
    if (rc == -ENOENT || rc == -EINVAL) /* none of them has the table */
        rc = a->no_plugin(a);
    if (rc == 0 && h.as_json)
        a->exact(a);
    if (rc == 0)
        rc = report_hang(&h);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]->all);
    return rc;
}
