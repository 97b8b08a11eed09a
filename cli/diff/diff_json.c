/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/diff/diff_json.c - what `cluster diff --json` prints, and what it has printed on another
 * machine.
 *
 * One thread.  What comes from another machine may be anything: it is checked and bounded, and
 * counts for ranks of the host that was asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/diff/diff.h"
#include "core/base/err.h"
#include "sdk/lib/json.h"

#define TREE_BYTES ((size_t)1 << 30)

static const char *const is_names[] = {
    [FACT_DIFFERS] = "differs", [FACT_SAME] = "same", [FACT_OWN] = "own", [FACT_HIDDEN] = "hidden"};

struct writing {
    const struct cluster_options *o;
    struct diff_found *found;
    struct buf *b;
    int64_t *room;
    uint32_t shown, counts[4];
};

static void add_json_text(struct buf *b, const char *text)
{
    if (text[0] != '\0')
        (void)json_add_text(b, text, strlen(text));
    else
        (void)buf_adds(b, "null");
}

static void add_number(struct buf *b, int64_t n)
{
    if (n == MEMBER_UNKNOWN)
        (void)buf_adds(b, "null");
    else
        (void)buf_addf(b, "%" PRId64, n);
}

static void write_value(struct writing *w, const struct fact_group *g, size_t at, size_t *ret_next,
                        const char *sep)
{
    size_t n = diff_ranks_of(w->found, g, at, w->room, ret_next);

    (void)buf_addf(w->b, "%s{\"value\": ", sep);
    if (at != SIZE_MAX) {
        const char *value = w->found->facts[at].value;
        (void)json_add_text(w->b, value, strlen(value));
    } else {
        (void)buf_adds(w->b, "null");
    }
    (void)buf_adds(w->b, ", \"ranks\": [");
    for (size_t i = 0; i < n; i++)
        (void)buf_addf(w->b, "%s%" PRId64, i > 0 ? "," : "", w->room[i]);
    (void)buf_adds(w->b, "]}");
}

static int write_group(void *arg, const struct fact_group *g)
{
    struct writing *w = arg;
    const struct fact *first = &w->found->facts[g->first];
    size_t next = g->first;

    w->counts[g->is]++;
    if (g->is != FACT_DIFFERS && !w->o->all)
        return 0;
    (void)buf_addf(w->b, "%s\n {\"kind\": ", w->shown++ > 0 ? "," : "");
    (void)json_add_text(w->b, first->kind, strlen(first->kind));
    (void)buf_adds(w->b, ", \"name\": ");
    (void)json_add_text(w->b, first->name, strlen(first->name));
    (void)buf_addf(w->b, ", \"is\": \"%s\", \"values\": [", is_names[g->is]);
    while (next < g->first + g->n)
        write_value(w, g, next, &next, next == g->first ? "" : ", ");
    if (g->some_lack_it)
        write_value(w, g, SIZE_MAX, &next, ", ");
    (void)buf_adds(w->b, "]}");
    return w->b->failed;
}

static void write_ranks(const struct ranks *ranks, struct buf *b)
{
    const struct rank *list = ranks->list;

    for (uint32_t i = 0; i < ranks->n; i++) {
        (void)buf_adds(b, i > 0 ? ", {\"host\": " : "{\"host\": ");
        add_json_text(b, list[i].host);
        (void)buf_adds(b, ", \"rank\": ");
        add_number(b, list[i].rank);
        (void)buf_adds(b, ", \"pid\": ");
        add_number(b, list[i].pid);
        (void)buf_adds(b, ", \"why\": ");
        add_json_text(b, list[i].why);
        (void)buf_addc(b, '}');
    }
}

int diff_write(const struct cluster_options *o, struct diff_found *f, struct buf *b)
{
    struct writing w = {
        .o = o, .found = f, .b = b, .room = calloc(f->ranks.n + 1, sizeof(int64_t))};
    int rc = w.room == NULL ? -ENOMEM : 0;

    (void)buf_adds(b, "{\"job\": ");
    add_json_text(b, f->job.job);
    (void)buf_adds(b, ", \"meets\": ");
    add_json_text(b, f->job.master);
    (void)buf_adds(b, ", \"world_size\": ");
    add_number(b, f->job.world_size);
    (void)buf_adds(b, ", \"ranks\": [");
    write_ranks(&f->ranks, b);
    (void)buf_adds(b, "], ");
    ranks_write_hosts(&f->hosts, b);
    (void)buf_adds(b, ", \"facts\": [");
    if (rc == 0)
        rc = diff_groups(f, write_group, &w);
    (void)buf_adds(b, "]");
    for (int i = 0; i < 4; i++)
        (void)buf_addf(b, ", \"%s\": %u", is_names[i], w.counts[i]);
    (void)buf_adds(b, "}\n");
    free(w.room);
    rc = rc == 0 ? b->failed : rc;
    return rc < 0 ? err_set(rc, "no memory for the answer") : 0;
}

/* ---- in ---- */

/* job: what the host claims for all of its ranks. */
static int read_rank(const struct json *o, const char *host, const struct rank *job,
                     struct diff_found *f)
{
    struct rank *r = o->type == JSON_OBJECT ? ranks_add(&f->ranks) : NULL;

    if (r == NULL)
        return o->type == JSON_OBJECT ? -ENOMEM : -EBADMSG;
    (void)rank_read(o, r);
    r->rank = r->rank != MEMBER_UNKNOWN ? r->rank : r->pid; /* by one without all would go by
                                                             * their processes */
    memcpy(r->job, job->job, sizeof(r->job));
    memcpy(r->master, job->master, sizeof(r->master));
    r->world_size = job->world_size;
    r->far = true;
    (void)snprintf(r->host, sizeof(r->host), "%s", host);
    return 0;
}

/* Ranks there are numbers: of those of this host. */
static bool find_rank(const struct diff_found *f, uint32_t from, int64_t number, uint32_t *ret)
{
    for (uint32_t i = from; i < f->ranks.n; i++)
        if (f->ranks.list[i].rank == number ||
            (f->ranks.list[i].rank == MEMBER_UNKNOWN && f->ranks.list[i].pid == number)) {
            *ret = i;
            return true;
        }
    return false;
}

static int read_value(const struct json *v, uint32_t from, const char *kind, const char *name,
                      struct diff_found *f)
{
    const struct json *value = v->type == JSON_OBJECT ? json_get(v, "value") : NULL;
    const struct json *ranks = v->type == JSON_OBJECT ? json_get(v, "ranks") : NULL;
    uint32_t rank;
    int rc = 0;

    if (value == NULL || ranks == NULL || ranks->type != JSON_ARRAY)
        return -EBADMSG;
    for (const struct json *r = ranks->first; r != NULL && rc == 0; r = r->next)
        if (value->type == JSON_STRING && r->type == JSON_NUMBER && r->is_integer &&
            find_rank(f, from, r->integer, &rank))
            rc = diff_add(f, rank, kind, name, value->text, value->size);
    return rc;
}

static int read_fact(const struct json *o, uint32_t from, struct diff_found *f)
{
    const struct json *values = o->type == JSON_OBJECT ? json_get(o, "values") : NULL;
    const char *kind = json_text(o, "kind", ""), *name = json_text(o, "name", "");
    int rc = values != NULL && values->type == JSON_ARRAY && kind[0] != '\0' ? 0 : -EBADMSG;

    if (strcmp(kind, "machine") == 0 && strcmp(name, DIFF_CLOCK) == 0)
        return 0; /* that is not for it to say */
    for (const struct json *v = rc == 0 ? values->first : NULL; v != NULL && rc == 0; v = v->next)
        rc = read_value(v, from, kind, name, f);
    return rc;
}

int diff_read(const char *text, size_t size, const char *host, struct diff_found *f)
{
    uint32_t from = f->ranks.n;
    uint32_t facts_before = f->n_facts;
    struct json_error bad;
    struct json *o = NULL;
    struct rank job;
    struct arena a;

    arena_init(&a, TREE_BYTES);
    int rc = json_read(&a, text, size, &o, &bad) == 0 && o->type == JSON_OBJECT ? 0 : -EBADMSG;
    const struct json *ranks = rc == 0 ? json_get(o, "ranks") : NULL;
    const struct json *facts = rc == 0 ? json_get(o, "facts") : NULL;
    if (ranks == NULL || ranks->type != JSON_ARRAY || facts == NULL || facts->type != JSON_ARRAY)
        rc = -EBADMSG;
    if (rc == 0)
        (void)rank_read(o, &job);
    for (const struct json *r = rc == 0 ? ranks->first : NULL; rc == 0 && r != NULL; r = r->next)
        rc = f->ranks.n - from < MEMBERS_MAX ? read_rank(r, host, &job, f) : -EBADMSG;
    for (const struct json *r = rc == 0 ? facts->first : NULL; rc == 0 && r != NULL; r = r->next)
        rc = read_fact(r, from, f);
    if (rc < 0) {
        f->ranks.n = from;
        f->n_facts = facts_before;
    }
    arena_done(&a);
    return rc == -EBADMSG ? err_set(rc, "its answer is not one of probing") : rc;
}
