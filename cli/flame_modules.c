/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/flame_modules.c - calls of torch's modules as a profile: each module's own time, on the way
 * of calls that led to it.
 *
 * One thread.  Own is what its parts do not have: of the time, or of the memory that a call leaves
 * allocated.  A forward is inside of the one that began before it and ends after it.  Backwards
 * have no such order of begins, as a module and its last part begin at the same node of the graph;
 * but all that goes on inside of one ends before it, and after it has begun.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/flame.h"
#include "core/base/err.h"

#define DEPTH_MAX 256

struct node { /* one way of calls */
    const char *name;
    int64_t own, count;              /* own: ns, or bytes */
    uint32_t parent, child, sibling; /* 0: none; [0] is the root */
};

struct open_call {
    uint32_t node;
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
    bool backward; /* rows come by their ends, the last first; else by their begins */
    char stage[64];
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

/* tid, local_step, stage, end_ns, duration_ns, module, value, steps; by thread, stage and step */
static int call_row(void *self, const struct json *const *c, struct buf *out)
{
    struct modules *m = self;
    (void)out;
    const char *stage = answer_text(c[2]);
    const char *module = c[5]->type == JSON_STRING ? c[5]->text : "(unknown)";
    int64_t end_ns = answer_int(c[3]), duration_ns = answer_int(c[4]), value = answer_int(c[6]);
    m->steps = answer_int(c[7]);
    if (m->tid != answer_int(c[0]) || m->step != answer_int(c[1]) || strcmp(m->stage, stage) != 0)
        m->depth = 0;
    m->tid = answer_int(c[0]);
    m->step = answer_int(c[1]);
    (void)snprintf(m->stage, sizeof m->stage, "%s", stage);
    while (m->depth > 0 && !is_inside(m, &m->open[m->depth - 1], end_ns))
        m->depth--;
    const char *kind = strncmp(stage, "post ", 5) == 0 ? stage + 5 : stage;
    uint32_t parent = m->depth > 0 ? m->open[m->depth - 1].node : child_of(m, 0, kind);
    uint32_t node = parent ? child_of(m, parent, module) : 0;
    if (node == 0)
        return err_set(-ENOMEM, "no memory for the modules");
    m->nodes[node].own += value;
    m->nodes[node].count++;
    if (m->depth > 0)
        m->nodes[parent].own -= value;
    if (m->depth < DEPTH_MAX)
        m->open[m->depth++] = (struct open_call){node, end_ns - duration_ns, end_ns};
    return 0;
}

static int add_way(struct flame *f, const struct node *nodes, uint32_t last)
{
    int64_t id = f->n_stacks;
    int r = flame_add_stack(f, id);
    for (uint32_t at = last; at != 0 && r == 0; at = nodes[at].parent) {
        const struct flame_frame frame = {.func = nodes[at].name, .file = "", .module = ""};
        r = flame_add_frame(f, &frame);
    }
    const struct flame_sample s = {
        .thread_name = "", .value = nodes[last].own, .count = nodes[last].count};
    return r < 0 ? r : flame_add_sample(f, id, &s);
}

static int add_ways(const struct modules *m)
{
    int r = 0;
    for (uint32_t i = 1; i < m->n && r == 0; i++)
        if (m->nodes[i].own > 0) /* else its parts took all of it, but for the clock's grain */
            r = add_way(m->f, m->nodes, i);
    return r;
}

static int read_calls(struct modules *m, const struct target *t, const char *where,
                      const char *which, const char *order)
{
    struct export_writer w = {.row = call_row, .self = m};
    bool memory = strcmp(m->f->mode, "memory") == 0; /* of a step, as a call's is free after it */
    const char *there = memory ? "allocated_delta" : "duration";
    char sql[1400];
    (void)snprintf(
        sql, sizeof sql,
        "select tid, local_step, stage, extract(epoch from ts - (select min(ts) from "
        "python.torch_trace)) * 1000000000, duration * 1000000000, module, %s, "
        "(select count(distinct local_step) from python.torch_trace where "
        "%s is not null%s) from "
        "python.torch_trace where duration is not null and %s is not null and stage %s%s "
        "order by tid, stage, local_step, %s",
        memory ? "allocated_delta * 1048576" : "duration * 1000000000", there, where, there, which,
        where, order);
    m->depth = 0;
    return answer_rows(t, sql, &w);
}

int flame_read_modules(struct flame *f, const struct target *t, const char *where)
{
    struct modules m = {.f = f, .room = 256, .n = 1};
    m.nodes = calloc(m.room, sizeof(*m.nodes));
    if (m.nodes == NULL)
        return err_set(-ENOMEM, "no memory for the modules");
    int r = read_calls(&m, t, where, "<> 'post backward'", "seq");
    m.backward = true;
    if (r == 0)
        r = read_calls(&m, t, where, "= 'post backward'", "ts desc");
    for (uint32_t i = 1; i < m.n && strcmp(f->mode, "memory") == 0 && m.steps > 0; i++)
        m.nodes[i].own /= m.steps;
    if (r == 0)
        r = add_ways(&m);
    free(m.nodes);
    return r;
}
