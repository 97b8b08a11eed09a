/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch/flame_modules.c - calls of torch's modules: the slowest of them, by their own time.
 *
 * One thread.  Own is what its parts do not have.  A forward is inside of the one that began before
 * it and ends after it.  Backwards have no such order of begins, as a module and its last part
 * begin at the same node of the graph; but all that goes on inside of one ends before it, and after
 * it has begun.  So does a forward that a checkpoint computes again: it stands in the backward that
 * wanted it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/flame.h"
#include "cli/target/query_client.h"
#include "core/base/err.h"

#define DEPTH_MAX 256
#define ROOT_SHARE 0.02 /* of all forwards */
#define RECOMPUTED "recomputed forward"

struct node { /* one way of calls */
    const char *name;
    int64_t own, count;              /* own: ns, or bytes */
    uint32_t parent, child, sibling; /* 0: none; [0] is the root */
};

struct open_call {
    uint32_t node;
    bool recomputed;
    int64_t begin_ns, end_ns;
};

struct modules {
    struct flame *f;
    struct node *nodes;
    uint32_t n, room;
    struct open_call open[DEPTH_MAX];
    uint32_t depth;
    int64_t tid, step;
    int64_t steps;
    char whole[1000]; /* condition: calls of steps all of which is there */
    bool backward;    /* rows come by their ends, the last first; else by their begins */
    const char *kind;
};

static uint32_t child_of(struct modules *m, uint32_t parent, const char *name)
{
    for (uint32_t i = m->nodes[parent].child; i; i = m->nodes[i].sibling)
        if (strcmp(m->nodes[i].name, name) == 0)
            return i;
    if (m->n == m->room) {
        struct node *more = realloc(m->nodes, 2 * (size_t)m->room * sizeof(*more));
        if (more == NULL)
            return 0;
        m->nodes = more;
        m->room *= 2;
    }
    char *copy = arena_zalloc(&m->f->arena, strlen(name) + 1, 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, name, strlen(name));
    m->nodes[m->n] =
        (struct node){.name = copy, .parent = parent, .sibling = m->nodes[parent].child};
    m->nodes[parent].child = m->n;
    return m->n++;
}

static bool is_inside(const struct modules *m, const struct open_call *outer, int64_t end_ns)
{
    return m->backward ? outer->begin_ns < end_ns : outer->end_ns >= end_ns;
}

/* What a stage is called in the picture: as in `torch`. */
static const char *kind_of(const char *stage)
{
    if (strcmp(stage, "post backward") == 0 || strcmp(stage, RECOMPUTED) == 0)
        return "backward";
    return strcmp(stage, "post forward") == 0 ? "forward"
           : strcmp(stage, "post data") == 0  ? "waiting for data"
                                              : "optimizer"; /* or a step that was skipped */
}

/* The node around a call: the call that it is in, or its kind.  0: no memory. */
static uint32_t parent_of(struct modules *m, bool recomputed)
{
    const struct open_call *outer = m->depth > 0 ? &m->open[m->depth - 1] : NULL;
    uint32_t parent = outer != NULL ? outer->node : child_of(m, 0, m->kind);
    bool first = recomputed && (outer == NULL || !outer->recomputed);
    return parent != 0 && first ? child_of(m, parent, RECOMPUTED) : parent;
}

/* tid, local_step, stage, end_ns, duration_ns, module, value, steps; by thread, stage and step.
 * Another thread may end a step in the middle of a forward. */
static int call_row(void *self, const struct json *const *c, struct buf *out)
{
    struct modules *m = self;
    (void)out;
    const char *kind = kind_of(answer_text(c[2]));
    bool recomputed = strcmp(answer_text(c[2]), RECOMPUTED) == 0;
    const char *module = c[5]->type == JSON_STRING ? c[5]->text : "(unknown)";
    int64_t end_ns = answer_int(c[3]), duration_ns = answer_int(c[4]), value = answer_int(c[6]);
    m->steps = answer_int(c[7]);
    if (m->tid != answer_int(c[0]) || m->kind != kind ||
        (m->backward && m->step != answer_int(c[1])))
        m->depth = 0;
    m->tid = answer_int(c[0]);
    m->step = answer_int(c[1]);
    m->kind = kind;
    while (m->depth > 0 && !is_inside(m, &m->open[m->depth - 1], end_ns))
        m->depth--;
    uint32_t parent = parent_of(m, recomputed);
    uint32_t node = parent ? child_of(m, parent, module) : 0;
    if (node == 0)
        return err_set(-ENOMEM, "no memory for the modules");
    m->nodes[node].own += value;
    m->nodes[node].count++;
    if (m->depth > 0)
        m->nodes[m->open[m->depth - 1].node].own -= value;
    if (m->depth < DEPTH_MAX)
        m->open[m->depth++] = (struct open_call){node, recomputed, end_ns - duration_ns, end_ns};
    return 0;
}

/* Not of a step that was under way when the plugin came, or is now, nor of the oldest one within
 * `since`, nor where retention has taken rows of calls.  Where no step has ended all calls are
 * taken. */
static void tell_whole(struct modules *m, const char *where, const char *since)
{
    (void)snprintf(m->whole, sizeof m->whole,
                   "(local_step in (select steps from python.torch_step_timing where sampled = 1 "
                   "and (steps > (select min(local_step) from python.torch_trace where true%s) or "
                   "steps = (select min(steps) from python.torch_step_timing where sampled = 1))) "
                   "or not exists (select 1 from python.torch_step_timing))%s",
                   since, where);
}

static int read_calls(struct modules *m, const struct target *t, const char *which,
                      const char *order)
{
    struct export_writer w = {.row = call_row, .self = m};
    char sql[3000];
    (void)snprintf(sql, sizeof sql,
                   "select tid, local_step, stage, extract(epoch from ts - (select min(ts) from "
                   "python.torch_trace)) * 1000000000, duration * 1000000000, module, duration * "
                   "1000000000, (select count(distinct local_step) from python.torch_trace where "
                   "%s and duration is not null and stage in ('post forward', 'post backward')) "
                   "from python.torch_trace where %s and duration is not null and stage %s order "
                   "by tid, %s",
                   m->whole, m->whole, which, order);
    m->depth = 0;
    return answer_rows(t, sql, &w);
}

/* since: what `where` says of the time, as a step may begin before it; else "" */
static int read_all(struct modules *m, const struct target *t, const char *where, const char *since)
{
    static const char backward[] = "in ('post backward', '" RECOMPUTED "')";
    char forward[sizeof backward + 4];
    (void)snprintf(forward, sizeof forward, "not %s", backward);
    m->room = 256;
    m->n = 1;
    m->nodes = calloc(m->room, sizeof(*m->nodes));
    if (m->nodes == NULL)
        return err_set(-ENOMEM, "no memory for the modules");
    tell_whole(m, where, since);
    int r = read_calls(m, t, forward, "stage, local_step, seq");
    m->backward = true;
    return r < 0 ? r : read_calls(m, t, backward, "local_step, ts desc, duration desc, seq desc");
}

/* ---- the slowest ---- */

struct sums {
    struct flame_module *all;
    uint32_t n, room;
};

static struct flame_module *sum_of(struct sums *s, const char *root, const char *name)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->all[i].root, root) == 0 && strcmp(s->all[i].name, name) == 0)
            return &s->all[i];
    if (s->n == s->room)
        return NULL; /* no more than there are nodes */
    s->all[s->n] = (struct flame_module){.root = root, .name = name};
    return &s->all[s->n++];
}

/* The model whose forward calls a module; itself where none does or several do. */
static const char *root_of(const struct sums *s, const char *name)
{
    const char *root = NULL;
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->all[i].name, name) == 0) {
            if (root != NULL)
                return name;
            root = s->all[i].root;
        }
    return root != NULL ? root : name;
}

static void sum_below(const struct modules *m, struct sums *s, uint32_t node, const char *root,
                      bool backward)
{
    for (uint32_t at = m->nodes[node].child; at; at = m->nodes[at].sibling) {
        const char *in = root != NULL ? root
                         : backward   ? root_of(s, m->nodes[at].name)
                                      : m->nodes[at].name;
        if (strcmp(m->nodes[at].name, RECOMPUTED) == 0) {
            sum_below(m, s, at, root, backward); /* no module, only what it is */
            continue;
        }
        struct flame_module *sum = sum_of(s, in, m->nodes[at].name);
        if (sum != NULL) {
            sum->own_ns[backward] += m->nodes[at].own;
            sum->calls += backward ? 0 : m->nodes[at].count;
        }
        sum_below(m, s, at, in, backward);
    }
}

/* Models, without what only seems to be one as the call around it has no row (it has not ended). */
static uint32_t count_roots(const struct sums *s)
{
    int64_t all = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        all += s->all[i].own_ns[0];
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t own = 0;
        for (uint32_t k = 0; k < s->n && strcmp(s->all[i].root, s->all[i].name) == 0; k++)
            own += strcmp(s->all[k].root, s->all[i].root) == 0 ? s->all[k].own_ns[0] : 0;
        n += (double)own > ROOT_SHARE * (double)all;
    }
    return n;
}

static int compare(const void *a, const void *b)
{
    const struct flame_module *x = a, *y = b;
    int64_t left = x->own_ns[0] + x->own_ns[1], right = y->own_ns[0] + y->own_ns[1];
    return left > right ? -1 : left < right;
}

int flame_sum_modules(struct flame *f, const struct target *t, const char *where,
                      struct flame_module *ret, uint32_t max, uint32_t *ret_roots,
                      int64_t *ret_steps)
{
    struct modules m = {.f = f};
    struct sums s = {.n = 0};
    int r = read_all(&m, t, where, "");
    s.room = m.n;
    s.all = r == 0 ? calloc(m.n, sizeof(*s.all)) : NULL;
    for (int backward = 0; backward < 2 && s.all; backward++)
        for (uint32_t i = m.nodes[0].child; i; i = m.nodes[i].sibling)
            if (strcmp(m.nodes[i].name, backward ? "backward" : "forward") == 0)
                sum_below(&m, &s, i, NULL, backward);
    if (r == 0 && s.all == NULL)
        r = err_set(-ENOMEM, "no memory for the modules");
    if (r == 0) {
        qsort(s.all, s.n, sizeof(*s.all), compare);
        r = (int)(s.n < max ? s.n : max);
        memcpy(ret, s.all, (size_t)r * sizeof(*ret));
        *ret_roots = count_roots(&s);
        *ret_steps = m.steps > 0 ? m.steps : 1;
    }
    free(s.all);
    free(m.nodes);
    return r;
}
