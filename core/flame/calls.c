/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/calls.c - a profile of folded stacks, or of calls that are put into each other: each
 * one's own share, on the way of calls that led to it.
 *
 * One thread.  Own is what its parts do not have.  Calls come by their begins, or by their ends,
 * the last first: either way a call is inside of the nearest one before it that ends no earlier,
 * and (where durations are known) that had begun when it ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/flame/flame.h"

#define DEPTH_MAX 256
#define NODES_MAX (1u << 24)

struct node { /* one way of calls */
    const char *name;
    double own;
    int64_t count;
    uint32_t parent, child, sibling; /* 0: none; [0] is the root */
};

struct open_call {
    uint32_t node;
    const char *via; /* NULL: none */
    int64_t begin_ns, end_ns;
};

struct flame_calls {
    struct flame *f;
    struct node *nodes;
    uint32_t n, room;
    struct open_call open[DEPTH_MAX];
    uint32_t depth;
    const char *track;
    bool resting; /* of a whole, `left` is still nobody's */
    double left;
};

int flame_calls_new(struct flame *f, struct flame_calls **ret)
{
    struct flame_calls *c = calloc(1, sizeof(*c));
    if (c != NULL) {
        *c = (struct flame_calls){.f = f, .n = 1, .room = 256, .track = ""};
        c->nodes = calloc(c->room, sizeof(*c->nodes));
    }
    if (c == NULL || c->nodes == NULL) {
        free(c);
        return err_set(-ENOMEM, "no memory for a profile");
    }
    *ret = c;
    return 0;
}

void flame_calls_free(struct flame_calls *c)
{
    if (c == NULL)
        return;
    free(c->nodes);
    free(c);
}

/* 0: no memory. */
static uint32_t child_of(struct flame_calls *c, uint32_t parent, const char *name, size_t size)
{
    for (uint32_t i = c->nodes[parent].child; i; i = c->nodes[i].sibling)
        if (strncmp(c->nodes[i].name, name, size) == 0 && c->nodes[i].name[size] == '\0')
            return i;
    if (c->n == c->room) {
        struct node *more =
            c->room < NODES_MAX ? realloc(c->nodes, 2 * (size_t)c->room * sizeof(*more)) : NULL;
        if (more == NULL)
            return 0;
        c->nodes = more;
        c->room *= 2;
    }
    char *copy = arena_text(&c->f->arena, name, size);
    if (copy == NULL)
        return 0;
    c->nodes[c->n] =
        (struct node){.name = copy, .parent = parent, .sibling = c->nodes[parent].child};
    c->nodes[parent].child = c->n;
    return c->n++;
}

/* The node of frames with ';' between, the outermost first. */
static uint32_t way_of(struct flame_calls *c, const char *stack, size_t size)
{
    uint32_t node = 0;
    for (size_t at = 0; at <= size;) {
        const char *cut = memchr(stack + at, ';', size - at);
        size_t n = cut != NULL ? (size_t)(cut - stack) - at : size - at;
        node = child_of(c, node, stack + at, n);
        if (node == 0)
            return 0;
        at += n + 1;
    }
    return node;
}

static bool is_inside(const struct open_call *outer, int64_t end_ns)
{
    return outer->end_ns >= end_ns && outer->begin_ns < end_ns;
}

static const char *keep_text(struct flame_calls *c, const char *text)
{
    char *copy = arena_text(&c->f->arena, text, strlen(text));
    return copy != NULL ? copy : "";
}

/* The node around a call: the call that it is in, or what its stack begins with. */
static uint32_t parent_of(struct flame_calls *c, const struct flame_call *call, const char *last,
                          bool *ret_failed)
{
    const struct open_call *outer = c->depth > 0 ? &c->open[c->depth - 1] : NULL;
    uint32_t parent = outer != NULL ? outer->node : 0;
    bool prefix = outer == NULL && last > call->stack;
    if (prefix)
        parent = way_of(c, call->stack, (size_t)(last - call->stack) - 1);
    *ret_failed = prefix && parent == 0;
    bool first = call->via != NULL &&
                 (outer == NULL || outer->via == NULL || strcmp(outer->via, call->via) != 0);
    if (!first || *ret_failed)
        return parent;
    parent = child_of(c, parent, call->via, strlen(call->via));
    *ret_failed = parent == 0;
    return parent;
}

int flame_calls_add(struct flame_calls *c, const struct flame_call *call)
{
    if (call->track == NULL) { /* folded already */
        uint32_t node = way_of(c, call->stack, strlen(call->stack));
        if (node == 0)
            return err_set(-ENOMEM, "no memory for a profile");
        c->nodes[node].own += call->value;
        c->nodes[node].count++;
        return 0;
    }
    if (strcmp(c->track, call->track) != 0) {
        c->depth = 0;
        c->track = keep_text(c, call->track);
    }
    while (c->depth > 0 && !is_inside(&c->open[c->depth - 1], call->end_ns))
        c->depth--;
    const char *cut = strrchr(call->stack, ';'), *last = cut != NULL ? cut + 1 : call->stack;
    bool failed;
    uint32_t parent = parent_of(c, call, last, &failed);
    uint32_t node = failed ? 0 : child_of(c, parent, last, strlen(last));
    if (node == 0)
        return err_set(-ENOMEM, "no memory for a profile");
    c->nodes[node].own += call->value;
    c->nodes[node].count++;
    if (c->depth > 0)
        c->nodes[c->open[c->depth - 1].node].own -= call->value;
    if (c->depth < DEPTH_MAX)
        c->open[c->depth++] = (struct open_call){
            node, call->via != NULL ? keep_text(c, call->via) : NULL,
            call->duration_ns < 0 ? INT64_MIN : call->end_ns - call->duration_ns, call->end_ns};
    return 0;
}

bool flame_calls_any(const struct flame_calls *c)
{
    return c->n > 1;
}

/* A way of calls with all that goes on inside. */
static double whole_of(const struct flame_calls *c, uint32_t node)
{
    double sum = c->nodes[node].own;
    for (uint32_t at = c->nodes[node].child; at; at = c->nodes[at].sibling)
        sum += whole_of(c, at);
    return sum;
}

int flame_calls_rest(struct flame_calls *c, const char *frame, double value, double whole)
{
    if (!c->resting)
        c->left = whole - whole_of(c, 0);
    c->resting = true;
    if (!(c->left > 0) || c->n == 1)
        return 0;
    uint32_t node = child_of(c, 0, frame, strlen(frame));
    if (node == 0)
        return err_set(-ENOMEM, "no memory for a profile");
    for (uint32_t at = c->nodes[node].child; at; at = c->nodes[at].sibling)
        value -= whole_of(c, at);
    value = value > c->left ? c->left : value;
    if (value > 0) {
        c->nodes[node].own += value;
        c->nodes[node].count++;
        c->left -= value;
    }
    return 0;
}

static int add_way(const struct flame_calls *c, uint32_t last)
{
    struct flame *f = c->f;
    int64_t id = f->n_stacks;
    int rc = flame_add_stack(f, id);
    for (uint32_t at = last; at != 0 && rc == 0; at = c->nodes[at].parent) {
        const struct flame_frame frame = {.func = c->nodes[at].name, .file = "", .module = ""};
        rc = flame_add_frame(f, &frame);
    }
    const struct flame_sample s = {.thread_name = "",
                                   .value = (int64_t)(c->nodes[last].own + 0.5),
                                   .count = c->nodes[last].count};
    return rc < 0 ? rc : flame_add_sample(f, id, &s);
}

int flame_calls_end(struct flame_calls *c)
{
    int rc = 0;
    for (uint32_t i = 1; i < c->n && rc == 0; i++)
        if (c->nodes[i].own >= 0.5) /* else its parts took all of it, but for the clock's grain */
            rc = add_way(c, i);
    return rc < 0 ? rc : flame_join(c->f);
}
