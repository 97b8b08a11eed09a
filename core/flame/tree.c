/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/tree.c - samples added up from the root: a node for each way to a function.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/flame/flame.h"

static uint32_t node_new(struct flame_tree *t, uint32_t label, uint32_t depth)
{
    if (t->n == t->room) {
        uint32_t room = t->room ? t->room * 2 : 1024;
        struct flame_node *more = realloc(t->nodes, room * sizeof(*more));
        if (more == NULL)
            return 0;
        t->nodes = more;
        t->room = room;
    }
    t->nodes[t->n] = (struct flame_node){.label = label, .depth = depth};
    return t->n++;
}

/* The child of `parent` with this label; one that was found comes first the next time. */
static uint32_t child_of(struct flame_tree *t, uint32_t parent, uint32_t label)
{
    uint32_t before = 0;
    for (uint32_t i = t->nodes[parent].child; i; before = i, i = t->nodes[i].sibling) {
        if (t->nodes[i].label != label)
            continue;
        if (before) {
            t->nodes[before].sibling = t->nodes[i].sibling;
            t->nodes[i].sibling = t->nodes[parent].child;
            t->nodes[parent].child = i;
        }
        return i;
    }
    uint32_t made = node_new(t, label, t->nodes[parent].depth + 1);
    if (made) {
        t->nodes[made].parent = parent;
        t->nodes[made].sibling = t->nodes[parent].child;
        t->nodes[parent].child = made;
    }
    return made;
}

static void add_sample(struct flame_node *n, const struct flame_sample *s, bool before)
{
    if (before) {
        n->before += s->value;
        return;
    }
    n->value += s->value;
    n->count += s->count;
}

static uint32_t thread_label(struct flame *into, const struct flame_sample *s)
{
    char text[200];
    (void)snprintf(text, sizeof(text), "%s (thread %lld)", s->thread_name, (long long)s->thread);
    return flame_label(into, text);
}

/* Labels of `from` are numbers of another profile's when it is not `into`. */
static int add_profile(struct flame_tree *t, struct flame *into, const struct flame *from,
                       bool before)
{
    for (uint32_t i = 0; i < from->n_samples; i++) {
        const struct flame_sample *s = &from->samples[i];
        const struct flame_stack *stack = &from->stacks[s->stack];
        uint32_t at = 0;
        add_sample(&t->nodes[0], s, before);
        if (into->threads && s->thread_name[0] != '\0') {
            if ((at = child_of(t, at, thread_label(into, s))) == 0)
                return err_set(-ENOMEM, "no memory for the tree");
            add_sample(&t->nodes[at], s, before);
        }
        for (uint32_t k = stack->n; k > 0; k--) {
            uint32_t label = from->frames[from->places[stack->first + k - 1]].label;
            if (into != from)
                label = flame_label(into, from->labels[label]);
            if (label == UINT32_MAX || (at = child_of(t, at, label)) == 0)
                return err_set(-ENOMEM, "no memory for the tree");
            add_sample(&t->nodes[at], s, before);
        }
    }
    return 0;
}

int flame_tree_new(struct flame *f, struct flame_tree *ret)
{
    *ret = (struct flame_tree){.f = f};
    if (!f->joined)
        return err_set(-EINVAL, "the samples have not got their stacks yet");
    (void)node_new(ret, UINT32_MAX, 0);
    if (ret->n == 0)
        return err_set(-ENOMEM, "no memory for the tree");
    int rc = add_profile(ret, f, f, /* before= */ false);
    if (rc < 0)
        flame_tree_done(ret);
    return rc;
}

int flame_tree_before(struct flame_tree *t, struct flame *into, const struct flame *before)
{
    t->difference = true;
    return add_profile(t, into, before, /* before= */ true);
}

void flame_tree_done(struct flame_tree *t)
{
    free(t->nodes);
    t->nodes = NULL;
    t->n = 0;
}

static int64_t node_weight(const struct flame_node *n)
{
    return n->value > n->before ? n->value : n->before;
}

/* Merge sort of one list of siblings. */
static uint32_t sort_siblings(struct flame_tree *t, uint32_t first)
{
    uint32_t a = 0, b = 0, next, head = 0, *at = &head;
    if (first == 0 || t->nodes[first].sibling == 0)
        return first;
    for (bool odd = false; first; first = next, odd = !odd) {
        next = t->nodes[first].sibling;
        t->nodes[first].sibling = odd ? b : a;
        *(odd ? &b : &a) = first;
    }
    a = sort_siblings(t, a);
    b = sort_siblings(t, b);
    while (a || b) {
        bool from_a = b == 0 || (a != 0 && node_weight(&t->nodes[a]) >= node_weight(&t->nodes[b]));
        uint32_t *from = from_a ? &a : &b;
        *at = *from;
        at = &t->nodes[*from].sibling;
        *from = *at;
    }
    *at = 0;
    return head;
}

void flame_tree_sort(struct flame_tree *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        t->nodes[i].child = sort_siblings(t, t->nodes[i].child);
}

uint32_t flame_tree_beside(const struct flame_tree *t, uint32_t at)
{
    while (at && t->nodes[at].sibling == 0)
        at = t->nodes[at].parent;
    return t->nodes[at].sibling;
}

uint32_t flame_tree_next(const struct flame_tree *t, uint32_t at)
{
    return t->nodes[at].child ? t->nodes[at].child : flame_tree_beside(t, at);
}

uint32_t flame_tree_depth(const struct flame_tree *t)
{
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < t->n; i++)
        deepest = t->nodes[i].depth > deepest ? t->nodes[i].depth : deepest;
    return deepest;
}

/* ---- stacks that are whole in part ---- */

#define WAY_MAX 16384
#define BETWEEN_MAX 64u /* native frames between two Python ones */
#define FOUND 4096u     /* answers that are kept */

struct mending {
    struct flame *f;
    struct flame_tree tree; /* of the whole stacks */
    uint32_t *frame_of;     /* by label: a frame that has it */
    struct answer {
        uint32_t from, label, node; /* from: + 1 */
    } found[FOUND];
    uint32_t way[WAY_MAX]; /* the frames of the stack that is mended, outermost first */
};

static bool is_python(const struct mending *m, uint32_t label)
{
    return m->f->frames[m->frame_of[label]].python;
}

static bool is_gap(const struct mending *m, uint32_t label)
{
    const char *func = m->f->frames[m->frame_of[label]].func, *end = strstr(func, FLAME_LEFT_OUT);
    return func[0] == '[' && end && end[sizeof(FLAME_LEFT_OUT) - 1] == '\0';
}

/* The largest node of this label that only native frames lie before; 0: none. */
static uint32_t find_below(const struct mending *m, uint32_t from, uint32_t label, uint32_t between)
{
    const struct flame_node *nodes = m->tree.nodes;
    uint32_t best = 0;
    for (uint32_t i = nodes[from].child; i; i = nodes[i].sibling) {
        uint32_t at =
            nodes[i].label == label ? i
            : between < BETWEEN_MAX && !is_python(m, nodes[i].label) && !is_gap(m, nodes[i].label)
                ? find_below(m, i, label, between + 1)
                : 0;
        if (at && (best == 0 || nodes[at].value > nodes[best].value))
            best = at;
    }
    return best;
}

static uint32_t below_again(struct mending *m, uint32_t from, uint32_t label)
{
    struct answer *a = &m->found[(from * 31 + label) % FOUND];
    if (a->from != from + 1 || a->label != label)
        *a = (struct answer){from + 1, label, find_below(m, from, label, 0)};
    return a->node;
}

/* Add the frames from below `from` to `to`, outermost first; what is there then. */
static uint32_t add_between(struct mending *m, uint32_t from, uint32_t to, uint32_t n)
{
    uint32_t more = m->tree.nodes[to].depth - m->tree.nodes[from].depth;
    for (uint32_t i = more; i > 0; i--, to = m->tree.nodes[to].parent)
        if (n + i <= WAY_MAX)
            m->way[n + i - 1] = m->frame_of[m->tree.nodes[to].label];
    return n + more;
}

static int mend_stack(struct mending *m, struct flame_stack *s)
{
    uint32_t *way = m->way, n = 0, at = 0;
    bool lost = false;
    for (uint32_t k = s->n; k > 0; k--) {
        uint32_t place = m->f->places[s->first + k - 1];
        const struct flame_frame *frame = &m->f->frames[place];
        if (k == s->n && s->n > 1 && strcmp(frame->func, FLAME_BROKEN) == 0)
            continue; /* outermost, it has told what it has to */
        uint32_t next = lost || !frame->python ? 0 : below_again(m, at, frame->label);
        lost = next == 0;
        if (next)
            n = add_between(m, at, next, n);
        else if (n++ < WAY_MAX)
            way[n - 1] = place;
        at = next;
    }
    for (uint32_t i = 0; i < n / 2 && n <= WAY_MAX; i++) {
        uint32_t other = way[i];
        way[i] = way[n - 1 - i];
        way[n - 1 - i] = other;
    }
    return n <= WAY_MAX ? flame_replace(m->f, s, way, n) : 0;
}

static int mend_all(struct mending *m)
{
    struct flame *f = m->f;
    int rc = 0;
    for (uint32_t i = 0; i < f->n_frames; i++)
        m->frame_of[f->frames[i].label] = i;
    (void)node_new(&m->tree, UINT32_MAX, 0);
    for (uint32_t i = 0; i < f->n_samples && m->tree.n > 0; i++) {
        const struct flame_stack *stack = &f->stacks[f->samples[i].stack];
        uint32_t at = 0;
        for (uint32_t k = stack->n; k > 0 && !stack->broken; k--) {
            at = child_of(&m->tree, at, f->frames[f->places[stack->first + k - 1]].label);
            if (at == 0)
                return err_set(-ENOMEM, "no memory for the tree");
            add_sample(&m->tree.nodes[at], &f->samples[i], /* before= */ false);
        }
    }
    for (uint32_t i = 0; i < f->n_stacks && m->tree.n > 0 && rc == 0; i++)
        if (f->stacks[i].broken)
            rc = mend_stack(m, &f->stacks[i]);
    return rc;
}

int flame_mend(struct flame *f)
{
    bool any = false;
    for (uint32_t i = 0; i < f->n_stacks; i++)
        any = any || f->stacks[i].broken;
    if (!any)
        return 0;
    struct mending *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->f = f;
        m->tree.f = f;
        m->frame_of = calloc(f->n_labels, sizeof(*m->frame_of));
    }
    int rc =
        m != NULL && m->frame_of != NULL ? mend_all(m) : err_set(-ENOMEM, "no memory for the tree");
    if (m != NULL) {
        flame_tree_done(&m->tree);
        free(m->frame_of);
    }
    free(m);
    return rc;
}
