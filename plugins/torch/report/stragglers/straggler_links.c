/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_links.c - what lies between the machines of a job, out
 * of the ranks' TCP connections (net.peers of plugin system).
 *
 * One thread.  A rank is known by the addresses that its own connections have at their near end: so
 * whoever has such an address at the far end talks to it.  Other peers of ranks (a store, a disk
 * far away, us) have no rank's address.  Ranks that share an address are on one machine, and what
 * stays on it is no link.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/array.h"
#include "stragglers.h"

#define ADDRESS_BYTES 48
#define ROWS_MAX 500000u
#define LATELY_NS \
    INT64_C(35000000000) /* some looks: load swells a round trip, and not all of them */
#define LATER_NS INT64_C(10000000000)

struct row {
    uint32_t judged;
    char local[ADDRESS_BYTES], peer[ADDRESS_BYTES];
    double now_sec, shortest_sec, again, sent;
};

struct address {
    const char *text; /* of a row */
    uint32_t judged;  /* the first one that has it */
    bool shared;      /* by ranks of machines of different names: it says nothing */
};

struct rows {
    struct straggler_job *j;
    struct row *all;
    uint32_t n, room;
    struct address *addresses; /* by text */
    uint32_t n_addresses;
    uint32_t *parents; /* [n_judged] to the first rank of a machine */
};

static double cell_seconds(const struct probing_report_cell *c)
{
    double ns = cell_number(c);
    return ns > 0 && ns < 1e13 ? ns / 1e9 : (double)NAN;
}

static double cell_positive(const struct probing_report_cell *c)
{
    double n = cell_number(c);
    return n > 0 && n < 1e15 ? n : 0;
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static int take_link(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct rows *rows = arg;
    uint32_t judged = n == 7 ? straggler_judged_named(rows->j, cell_text(&c[0])) : UINT32_MAX;
    if (judged == UINT32_MAX || cell_text(&c[1])[0] == '\0' || is_loopback(cell_text(&c[1])))
        return 0;
    struct row *more = array_grow(rows->all, rows->n, &rows->room, sizeof(*more), ROWS_MAX);
    if (more == NULL)
        return 0; /* these only show more */
    rows->all = more;
    struct row *row = &rows->all[rows->n++];
    *row = (struct row){.judged = judged,
                        .now_sec = cell_seconds(&c[3]),
                        .shortest_sec = cell_seconds(&c[4]),
                        .again = cell_positive(&c[5]),
                        .sent = cell_positive(&c[6])};
    (void)snprintf(row->local, sizeof(row->local), "%s", cell_text(&c[1]));
    (void)snprintf(row->peer, sizeof(row->peer), "%s", cell_text(&c[2]));
    return 0;
}

/* ---- whose address is whose ---- */

static int compare_addresses(const void *one, const void *two)
{
    const struct address *a = one, *b = two;
    int by = strcmp(a->text, b->text);
    return by ? by : a->judged < b->judged ? -1 : a->judged > b->judged;
}

static uint32_t first_of(const struct rows *rows, uint32_t judged)
{
    while (rows->parents[judged] != judged)
        judged = rows->parents[judged];
    return judged;
}

static void put_together(struct rows *rows, uint32_t one, uint32_t two)
{
    uint32_t a = first_of(rows, one), b = first_of(rows, two);
    rows->parents[a > b ? a : b] = a < b ? a : b;
}

/* Give the index of a text, or the one that it would have. */
static uint32_t place_of(const struct rows *rows, const char *text)
{
    uint32_t from = 0, to = rows->n_addresses;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (strcmp(rows->addresses[middle].text, text) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static const char *host_of(const struct straggler_job *j, uint32_t judged)
{
    return j->ranks[j->index[judged]].host;
}

static void find_machines(struct rows *rows)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rows->n; i++)
        rows->addresses[i] =
            (struct address){.text = rows->all[i].local, .judged = rows->all[i].judged};
    qsort(rows->addresses, rows->n, sizeof(*rows->addresses), compare_addresses);
    for (uint32_t i = 0; i < rows->n; i++) {
        struct address *last = kept > 0 ? &rows->addresses[kept - 1] : NULL;
        const struct address at = rows->addresses[i];
        if (last == NULL || strcmp(last->text, at.text) != 0)
            rows->addresses[kept++] = at;
        else
            last->shared = last->shared ||
                           strcmp(host_of(rows->j, last->judged), host_of(rows->j, at.judged)) != 0;
    }
    rows->n_addresses = kept;
    for (uint32_t i = 0; i < rows->n; i++) {
        const struct address *own = &rows->addresses[place_of(rows, rows->all[i].local)];
        if (!own->shared)
            put_together(rows, own->judged, rows->all[i].judged);
    }
}

static uint32_t owner_of(const struct rows *rows, const char *text)
{
    uint32_t at = place_of(rows, text);
    bool there = at < rows->n_addresses && !rows->addresses[at].shared &&
                 strcmp(rows->addresses[at].text, text) == 0;
    return there ? rows->addresses[at].judged : UINT32_MAX;
}

/* ---- links ---- */

static int compare_links(const void *one, const void *two)
{
    const struct judge_link *a = one, *b = two;
    if (a->a != b->a)
        return a->a < b->a ? -1 : 1;
    return a->b < b->b ? -1 : a->b > b->b;
}

/* Both ends know a link, and several ranks of a machine may: the best time, the worst loss. */
static void add_up(struct judge_link *link, const struct judge_link *other)
{
    link->now_sec = fmin(link->now_sec, other->now_sec);
    link->shortest_sec = fmin(link->shortest_sec, other->shortest_sec);
    if (other->again * link->sent > link->again * other->sent ||
        (other->again == 0 && link->again == 0 && other->sent > link->sent)) {
        link->again = other->again;
        link->sent = other->sent;
    }
}

static void fill_links(struct straggler_job *j, const struct rows *rows)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < j->n_judged; i++)
        j->nodes[i] = first_of(rows, i) == i ? j->n_nodes++ : j->nodes[first_of(rows, i)];
    for (uint32_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->all[i];
        uint32_t owner = owner_of(rows, row->peer), own = j->nodes[row->judged];
        if (owner == UINT32_MAX || j->nodes[owner] == own)
            continue;
        uint32_t other = j->nodes[owner];
        j->links[n++] = (struct judge_link){.a = own < other ? own : other,
                                            .b = own < other ? other : own,
                                            .now_sec = row->now_sec,
                                            .shortest_sec = row->shortest_sec,
                                            .again = row->again,
                                            .sent = row->sent};
    }
    if (n > 0)
        qsort(j->links, n, sizeof(*j->links), compare_links);
    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && compare_links(&j->links[kept - 1], &j->links[i]) == 0)
            add_up(&j->links[kept - 1], &j->links[i]);
        else
            j->links[kept++] = j->links[i];
    }
    j->n_links = kept;
}

int straggler_read_links(struct straggler_job *j)
{
    char sql[600];
    struct rows rows = {.j = j};
    (void)snprintf(sql, sizeof(sql),
                   "select _addr, local_address, peer_address, min(rtt_ns), min(min_rtt_ns), "
                   "sum(delta_retrans_segs), sum(delta_tx_segs) from global.net.peers where "
                   "delta_tx_bytes > 0 and peer_address is not null and ts >= to_timestamp(%.3f) "
                   "and ts < to_timestamp(%.3f) group by _addr, local_address, peer_address",
                   (double)(j->signs_to_ns - LATELY_NS) / 1e9,
                   (double)(j->signs_to_ns + LATER_NS) / 1e9);
    int rc = j->n_numbers > 0 ? j->o->api->ask(j->o->api, sql, take_link, &rows) : 0;
    if (rc >= 0 && rows.n > 0) {
        rows.addresses = calloc(rows.n, sizeof(*rows.addresses));
        rows.parents = calloc(j->n_judged, sizeof(*rows.parents));
        j->links = calloc(rows.n, sizeof(*j->links));
        j->nodes = calloc(j->n_judged, sizeof(*j->nodes));
        for (uint32_t i = 0; rows.parents != NULL && i < j->n_judged; i++)
            rows.parents[i] = i;
        if (rows.addresses != NULL && rows.parents != NULL && j->links != NULL &&
            j->nodes != NULL) {
            find_machines(&rows);
            fill_links(j, &rows);
        }
    }
    free(rows.all);
    free(rows.addresses);
    free(rows.parents);
    return rc == -ECANCELED ? rc : 0; /* else that table is not there */
}
