/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/live_snapshot.c - live samples added up by stack and domain.
 *
 * The sampler's lock; the program's threads go on meanwhile, and what they change is in or not.
 */
#include "live_snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "estimate.h"
#include "probing_sdk.h"
#include "sample.h"
#include "unsampled.h"

#define OLD_NS (60 * PROBING_NS_PER_S) /* of bytes_1m */
#define VERY_OLD_NS (600 * PROBING_NS_PER_S)

/* ---- order ---- */

static void sift_down(struct keyed *items, uint32_t root, uint32_t n)
{
    for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && items[child + 1].key > items[child].key)
            child++;
        if (items[root].key >= items[child].key)
            return;
        struct keyed other = items[root];
        items[root] = items[child];
        items[child] = other;
    }
}

void keyed_sort(struct keyed *items, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--)
        sift_down(items, i - 1, n);
    for (uint32_t end = n; end > 1; end--) {
        struct keyed largest = items[0];
        items[0] = items[end - 1];
        items[end - 1] = largest;
        sift_down(items, 0, end - 1);
    }
}

/* ---- adding up ---- */

struct adding {
    const struct origins *origins;
    struct snapshot *to;
    uint32_t *row_of; /* origin * MEMORY_DOMAINS + domain -> row + 1 */
    uint32_t *origin_of;
    uint32_t room;
};

static struct live_row *row_for(struct adding *a, uint32_t origin, uint32_t domain)
{
    struct snapshot *s = a->to;
    uint32_t *at = &a->row_of[origin * MEMORY_DOMAINS + domain];
    if (*at)
        return &s->rows[*at - 1];
    if (s->n == a->room) {
        uint32_t room = a->room ? 2 * a->room : 64;
        struct live_row *rows = realloc(s->rows, room * sizeof(*rows));
        s->rows = rows ? rows : s->rows;
        uint32_t *numbers = rows ? realloc(a->origin_of, room * sizeof(*numbers)) : NULL;
        a->origin_of = numbers ? numbers : a->origin_of;
        if (!numbers)
            return NULL;
        a->room = room;
    }
    struct live_row *row = &s->rows[s->n];
    *row = (struct live_row){
        .from = *origin_at(a->origins, origin), .oldest = UINT64_MAX, .stacks = 1};
    row->from.domain = domain;
    a->origin_of[s->n++] = origin;
    *at = s->n;
    return row;
}

static void add_to_row(struct live_row *row, const struct live_seen *e, uint64_t at)
{
    double weight = estimate_weight(e->size, e->mean), bytes = (double)e->size * weight;
    uint64_t age = at > e->ts ? at - e->ts : 0;
    row->samples++;
    row->count += weight;
    row->bytes += bytes;
    row->bytes_variance += estimate_variance(weight) * (double)e->size * (double)e->size;
    row->bytes_1m += age >= OLD_NS ? bytes : 0;
    row->bytes_10m += age >= VERY_OLD_NS ? bytes : 0;
    row->oldest = e->ts < row->oldest ? e->ts : row->oldest;
    row->newest = e->ts > row->newest ? e->ts : row->newest;
}

static int add_all(struct adding *a, struct live_table *live, uint64_t at)
{
    uint32_t known = origins_count(a->origins), room = live_room(live);
    for (uint32_t i = 1; i < room; i++) {
        struct live_seen e;
        if (!live_read(live, i, &e) || e.ts > at || e.domain >= MEMORY_DOMAINS ||
            (e.state == LIVE_ENDED && e.ended <= at))
            continue;
        struct live_row *row = row_for(a, e.origin < known ? e.origin : 0, e.domain);
        if (!row)
            return -ENOMEM;
        add_to_row(row, &e, at);
    }
    return 0;
}

static int put_in_order(struct adding *a)
{
    struct snapshot *s = a->to;
    struct live_row *rows = calloc(s->n + 1, sizeof(*rows));
    struct keyed *order = calloc(s->n + 1, sizeof(*order));
    s->texts = calloc(s->n + 1, sizeof(*s->texts));
    bool made = rows && order && s->texts;
    for (uint32_t i = 0; made && i < s->n; i++)
        order[i] = (struct keyed){.key = (uint64_t)s->rows[i].bytes, .index = i};
    if (made)
        keyed_sort(order, s->n);
    for (uint32_t i = 0; made && i < s->n; i++) {
        uint32_t from = order[s->n - 1 - i].index;
        rows[i] = s->rows[from];
        s->texts[i] = origin_texts(a->origins, a->origin_of[from]);
        s->bytes += rows[i].bytes;
        s->count += rows[i].count;
        s->bytes_variance += rows[i].bytes_variance;
    }
    free(order);
    if (!made) {
        free(rows);
        return -ENOMEM;
    }
    free(s->rows);
    s->rows = rows;
    return 0;
}

/* Each may have some that is in no sample, where those have thinned out; all together no more. */
static void add_unsampled(struct snapshot *s)
{
    double bytes = unsampled_bytes(), variance = bytes * bytes;
    for (uint32_t i = 0; i < s->n; i++)
        s->rows[i].bytes_variance += variance;
    s->bytes_variance += variance;
}

int snapshot_take(struct live_table *live, const struct origins *origins, uint64_t at,
                  struct snapshot *ret)
{
    struct snapshot s = {.at = at};
    struct adding a = {.origins = origins, .to = &s};
    a.row_of = calloc((size_t)origins_count(origins) * MEMORY_DOMAINS, sizeof(*a.row_of));
    int rc = a.row_of ? add_all(&a, live, at) : -ENOMEM;
    if (rc == 0)
        rc = put_in_order(&a);
    if (rc == 0)
        add_unsampled(&s);
    free(a.row_of);
    free(a.origin_of);
    if (rc < 0)
        snapshot_done(&s);
    else
        *ret = s;
    return rc;
}

int snapshot_copy(const struct snapshot *s, struct snapshot *ret)
{
    struct snapshot copy = *s;
    copy.rows = calloc(s->n + 1, sizeof(*copy.rows));
    copy.texts = calloc(s->n + 1, sizeof(*copy.texts));
    if (!copy.rows || !copy.texts) {
        snapshot_done(&copy);
        return -ENOMEM;
    }
    if (s->n) {
        memcpy(copy.rows, s->rows, s->n * sizeof(*copy.rows));
        memcpy(copy.texts, s->texts, s->n * sizeof(*copy.texts));
    }
    *ret = copy;
    return 0;
}

void snapshot_done(struct snapshot *s)
{
    free(s->rows);
    free(s->texts);
    *s = (struct snapshot){.at = 0};
}

/* ---- storing ---- */

static void add_row(struct live_row *all, const struct live_row *row)
{
    all->samples += row->samples;
    all->stacks += row->stacks;
    all->count += row->count;
    all->bytes += row->bytes;
    all->bytes_variance += row->bytes_variance;
    all->bytes_1m += row->bytes_1m;
    all->bytes_10m += row->bytes_10m;
    all->oldest = row->oldest < all->oldest ? row->oldest : all->oldest;
    all->newest = row->newest > all->newest ? row->newest : all->newest;
}

void snapshot_store(const struct snapshot *s, const struct sample_tables *tables,
                    const struct snapshot_about *about)
{
    struct snapshot_about whole = *about;
    whole.ts = s->at;
    whole.total = s->bytes;
    struct live_row rest = {.from = {.domain = MEMORY_DOMAINS}, .oldest = s->at};
    int rc = 0;
    for (uint32_t i = 0; i < s->n && rc == 0; i++)
        if (i < SNAPSHOT_STACKS)
            rc = sample_tables_snapshot(tables, &whole, &s->rows[i]);
        else
            add_row(&rest, &s->rows[i]);
    if (rc == 0 && (rest.stacks || s->n == 0)) { /* that nothing is alive is said, too */
        rest.newest = rest.stacks ? rest.newest : s->at;
        (void)sample_tables_snapshot(tables, &whole, &rest);
    }
}
