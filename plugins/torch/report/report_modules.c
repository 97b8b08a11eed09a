/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report_modules.c - for `torch`: the slowest modules, each by its own time.
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

#include "report.h"

#define DEPTH_MAX 256
#define ROOT_SHARE 0.02 /* of all forwards */
#define RECOMPUTED "recomputed forward"

enum { TOP, FORWARD, BACKWARD, N_TOPS }; /* the first ways */

struct node { /* one way of calls */
    char *name;
    int64_t own_ns, count;
    uint32_t parent, child, sibling; /* 0: none; [0] is the root */
    bool again;                      /* no module: what a checkpoint computes again is in it */
};

struct open_call {
    uint32_t node;
    bool recomputed;
    int64_t begin_ns, end_ns;
};

struct sum {
    const char *root, *name; /* of nodes */
    int64_t own_ns[2], calls;
};

struct modules {
    const struct probing_report_api *api;
    struct node *nodes;
    uint32_t n, room;
    struct open_call open[DEPTH_MAX];
    uint32_t depth, top; /* top: where the calls that come now belong */
    int64_t tid, step, steps;
    struct sum *sums;
    uint32_t n_sums;
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
    char *copy = strdup(name);
    if (copy == NULL)
        return 0;
    m->nodes[m->n] = (struct node){.name = copy,
                                   .parent = parent,
                                   .sibling = m->nodes[parent].child,
                                   .again = strcmp(name, RECOMPUTED) == 0};
    m->nodes[parent].child = m->n;
    return m->n++;
}

static bool is_inside(const struct modules *m, const struct open_call *outer, int64_t end_ns)
{
    return m->top == BACKWARD ? outer->begin_ns < end_ns : outer->end_ns >= end_ns;
}

/* The node around a call: the call that it is in, or the first way.  0: no memory. */
static uint32_t parent_of(struct modules *m, bool recomputed)
{
    const struct open_call *outer = m->depth > 0 ? &m->open[m->depth - 1] : NULL;
    uint32_t parent = outer != NULL ? outer->node : m->top;
    bool first = recomputed && (outer == NULL || !outer->recomputed);
    return first ? child_of(m, parent, RECOMPUTED) : parent;
}

static int64_t int_of(const struct probing_report_cell *c)
{
    return c->type != 0 ? cell_int(c) : 0;
}

/* tid, local_step, stage, end_ns, duration_ns, module, steps; by thread, stage and step.  Another
 * thread may end a step in the middle of a forward. */
static int take_call(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct modules *m = arg;
    if (n < 7)
        return 0;
    bool recomputed = strcmp(cell_text(&c[2]), RECOMPUTED) == 0;
    const char *module = c[5].type == PROBING_STR ? cell_text(&c[5]) : "(unknown)";
    int64_t end_ns = int_of(&c[3]), duration_ns = int_of(&c[4]);
    m->steps = int_of(&c[6]);
    if (m->tid != int_of(&c[0]) || (m->top == BACKWARD && m->step != int_of(&c[1])))
        m->depth = 0;
    m->tid = int_of(&c[0]);
    m->step = int_of(&c[1]);
    while (m->depth > 0 && !is_inside(m, &m->open[m->depth - 1], end_ns))
        m->depth--;
    uint32_t parent = parent_of(m, recomputed);
    uint32_t node = parent ? child_of(m, parent, module) : 0;
    if (node == 0)
        return report_fail(m->api, -ENOMEM, "no memory for the modules");
    m->nodes[node].own_ns += duration_ns;
    m->nodes[node].count++;
    if (m->depth > 0)
        m->nodes[m->open[m->depth - 1].node].own_ns -= duration_ns;
    if (m->depth < DEPTH_MAX)
        m->open[m->depth++] = (struct open_call){node, recomputed, end_ns - duration_ns, end_ns};
    return 0;
}

/* Not of a step that was under way when the plugin came, or is now, nor where retention has taken
 * rows of calls.  If no step has ended all calls are taken. */
static void tell_whole(char *ret, size_t size, const char *where)
{
    (void)snprintf(ret, size,
                   "(local_step in (select steps from python.torch_step_timing where sampled = 1 "
                   "and (steps > (select min(local_step) from python.torch_trace) or "
                   "steps = (select min(steps) from python.torch_step_timing where sampled = 1))) "
                   "or not exists (select 1 from python.torch_step_timing))%s",
                   where);
}

static int read_calls(struct modules *m, uint32_t top, const char *where)
{
    char whole[1000], sql[3000];
    tell_whole(whole, sizeof(whole), where);
    (void)snprintf(sql, sizeof(sql),
                   "select tid, local_step, stage, extract(epoch from ts - (select min(ts) from "
                   "python.torch_trace)) * 1000000000, duration * 1000000000, module, "
                   "(select count(distinct local_step) from python.torch_trace where %s and "
                   "duration is not null and stage in ('post forward', 'post backward')) from "
                   "python.torch_trace where %s and duration is not null and %s",
                   whole, whole,
                   top == FORWARD ? "stage = 'post forward' order by tid, stage, local_step, seq"
                                  : "stage in ('post backward', '" RECOMPUTED "') order by tid, "
                                    "local_step, ts desc, duration desc, seq desc");
    m->depth = 0;
    m->top = top;
    return m->api->ask(m->api, sql, take_call, m);
}

static int read_all(struct modules *m, const char *where)
{
    m->room = 256;
    m->nodes = calloc(m->room, sizeof(*m->nodes));
    if (m->nodes == NULL)
        return report_fail(m->api, -ENOMEM, "no memory for the modules");
    m->n = 1;
    if (child_of(m, TOP, "forward") != FORWARD || child_of(m, TOP, "backward") != BACKWARD)
        return report_fail(m->api, -ENOMEM, "no memory for the modules");
    int rc = read_calls(m, FORWARD, where);
    return rc < 0 ? rc : read_calls(m, BACKWARD, where);
}

/* ---- the slowest ---- */

static struct sum *sum_of(struct modules *m, const char *root, const char *name)
{
    for (uint32_t i = 0; i < m->n_sums; i++)
        if (strcmp(m->sums[i].root, root) == 0 && strcmp(m->sums[i].name, name) == 0)
            return &m->sums[i];
    m->sums[m->n_sums] = (struct sum){.root = root, .name = name}; /* no more than nodes */
    return &m->sums[m->n_sums++];
}

/* The model whose forward calls a module; itself where none does or several do. */
static const char *root_of(const struct modules *m, const char *name)
{
    const char *root = NULL;
    for (uint32_t i = 0; i < m->n_sums; i++)
        if (strcmp(m->sums[i].name, name) == 0) {
            if (root != NULL)
                return name;
            root = m->sums[i].root;
        }
    return root != NULL ? root : name;
}

static void sum_below(struct modules *m, uint32_t node, const char *root, bool backward)
{
    for (uint32_t at = m->nodes[node].child; at; at = m->nodes[at].sibling) {
        const char *in = root != NULL ? root
                         : backward   ? root_of(m, m->nodes[at].name)
                                      : m->nodes[at].name;
        if (m->nodes[at].again) {
            sum_below(m, at, root, backward);
            continue;
        }
        struct sum *sum = sum_of(m, in, m->nodes[at].name);
        sum->own_ns[backward] += m->nodes[at].own_ns;
        sum->calls += backward ? 0 : m->nodes[at].count;
        sum_below(m, at, in, backward);
    }
}

/* Models, without what only seems to be one as the call around it has no row (it has not ended). */
static uint32_t count_roots(const struct modules *m)
{
    int64_t all = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_sums; i++)
        all += m->sums[i].own_ns[0];
    for (uint32_t i = 0; i < m->n_sums; i++) {
        int64_t own = 0;
        for (uint32_t k = 0; k < m->n_sums && strcmp(m->sums[i].root, m->sums[i].name) == 0; k++)
            own += strcmp(m->sums[k].root, m->sums[i].root) == 0 ? m->sums[k].own_ns[0] : 0;
        n += (double)own > ROOT_SHARE * (double)all;
    }
    return n;
}

static int compare_sums(const void *a, const void *b)
{
    const struct sum *x = a, *y = b;
    int64_t left = x->own_ns[0] + x->own_ns[1], right = y->own_ns[0] + y->own_ns[1];
    return left > right ? -1 : left < right;
}

static int keep_slowest(const struct modules *m, struct torch_report *r)
{
    for (uint32_t i = 0; i < m->n_sums && i < TORCH_MODULES; i++) {
        const struct sum *s = &m->sums[i];
        struct slow_module *to = &r->modules[r->n_modules++];
        *to = (struct slow_module){.root = strdup(s->root),
                                   .name = strdup(s->name),
                                   .own_ns = {s->own_ns[0], s->own_ns[1]},
                                   .calls = s->calls};
        if (to->root == NULL || to->name == NULL)
            return report_fail(m->api, -ENOMEM, "no memory for the modules");
    }
    r->n_roots = count_roots(m);
    r->module_steps = m->steps > 0 ? m->steps : 1;
    return 0;
}

static int sum_up(struct modules *m, struct torch_report *r)
{
    m->sums = calloc(m->n, sizeof(*m->sums));
    if (m->sums == NULL)
        return report_fail(m->api, -ENOMEM, "no memory for the modules");
    for (int backward = 0; backward < 2; backward++)
        sum_below(m, backward ? BACKWARD : FORWARD, NULL, backward);
    qsort(m->sums, m->n_sums, sizeof(*m->sums), compare_sums);
    return keep_slowest(m, r);
}

int slow_modules_read(struct torch_report *r, const char *where)
{
    struct modules m = {.api = r->api};
    int rc = read_all(&m, where);
    if (rc == 0)
        rc = sum_up(&m, r);
    for (uint32_t i = 1; i < m.n; i++)
        free(m.nodes[i].name);
    free(m.nodes);
    free(m.sums);
    return rc;
}

void slow_modules_free(struct torch_report *r)
{
    for (uint32_t i = 0; i < r->n_modules; i++) {
        free(r->modules[i].root);
        free(r->modules[i].name);
    }
    r->n_modules = 0;
}
