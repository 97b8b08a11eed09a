/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/stack_tree.c - stacks of many ranks, merged from their outermost frame on.
 *
 * A node is a place below the places above it.  What a thread does at the end of its stack is a
 * node, too: so ranks that stand at one place and do different things are told apart.
 */
#include "cli/hang/stack_tree.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/rank_ranges.h"
#include "sdk/lib/arena.h"

#define RANGES_SHOWN 12 /* of a branch's ranks: a line is to be read */

struct node {
    const char *func, *where;
    int64_t *ranks; /* rising, each once */
    size_t n, room;
    size_t order; /* in which it came */
    struct node *first, *next;
};

struct stack_tree {
    struct arena arena;
    struct node root;
    size_t nodes;
};

struct stack_tree *stack_tree_new(void)
{
    struct stack_tree *t = calloc(1, sizeof(*t));

    if (t != NULL)
        arena_init(&t->arena, STACK_TREE_BYTES);
    return t;
}

void stack_tree_free(struct stack_tree *t)
{
    if (t == NULL)
        return;
    arena_done(&t->arena);
    free(t);
}

/* ---- adding ---- */

static struct node *child_of(struct stack_tree *t, struct node *above, const char *func,
                             const char *where)
{
    struct node **at = &above->first;

    for (; *at != NULL; at = &(*at)->next)
        if (strcmp((*at)->func, func) == 0 && strcmp((*at)->where, where) == 0)
            return *at;
    struct node *made = arena_zalloc(&t->arena, 1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->func = arena_text(&t->arena, func, strlen(func));
    made->where = arena_text(&t->arena, where, strlen(where));
    if (made->func == NULL || made->where == NULL)
        return NULL;
    made->order = t->nodes++;
    *at = made;
    return made;
}

static int count_rank(struct stack_tree *t, struct node *n, int64_t rank)
{
    if (n->n > 0 && n->ranks[n->n - 1] == rank)
        return 0; /* another thread of it */
    if (n->n == n->room) {
        size_t room = n->room == 0 ? 4 : 2 * n->room;
        int64_t *more = arena_zalloc(&t->arena, room, sizeof(*more));
        if (more == NULL)
            return -ENOMEM;
        if (n->n > 0)
            memcpy(more, n->ranks, n->n * sizeof(*more));
        n->ranks = more;
        n->room = room;
    }
    n->ranks[n->n++] = rank;
    return 0;
}

int stack_tree_add(struct stack_tree *t, int64_t rank, const struct tree_frame *frames, size_t n,
                   const char *state)
{
    struct node *at = &t->root;
    int rc = count_rank(t, at, rank);

    if (n > STACK_TREE_FRAMES)
        return -E2BIG;
    for (size_t i = 0; i <= n && rc == 0; i++) {
        at = i < n ? child_of(t, at, frames[i].func, frames[i].where) : child_of(t, at, "", state);
        rc = at == NULL ? -ENOMEM : count_rank(t, at, rank);
    }
    return rc;
}

/* ---- printing ---- */

struct printing {
    const char *indent, *one, *many;
    struct buf *ret;
};

static void begin_line(const struct printing *p, unsigned depth)
{
    (void)buf_addf(p->ret, "%s%*s", p->indent, (int)(2 * depth), "");
}

static void print_place(const struct printing *p, const struct node *n, unsigned depth)
{
    if (n->func[0] == '\0' && n->where[0] == '\0')
        return;
    begin_line(p, depth);
    if (n->func[0] == '\0')
        (void)buf_addf(p->ret, "(%s)\n", n->where);
    else if (n->where[0] == '\0')
        (void)buf_addf(p->ret, "%s\n", n->func);
    else
        (void)buf_addf(p->ret, "%s  %s\n", n->func, n->where);
}

static void print_ranks(const struct printing *p, const struct node *n, unsigned depth)
{
    begin_line(p, depth);
    (void)buf_addf(p->ret, "%zu %s: ", n->n, n->n == 1 ? p->one : p->many);
    rank_ranges(n->ranks, n->n, RANGES_SHOWN, p->ret);
    (void)buf_adds(p->ret, "\n");
}

/* Most ranks first, then by the first of them. */
static bool comes_before(const struct node *a, const struct node *b)
{
    if (a->n != b->n)
        return a->n > b->n;
    return a->ranks[0] != b->ranks[0] ? a->ranks[0] < b->ranks[0] : a->order < b->order;
}

static const struct node *next_child(const struct node *above, const struct node *last)
{
    const struct node *best = NULL;

    for (const struct node *c = above->first; c != NULL; c = c->next)
        if ((last == NULL || comes_before(last, c)) && (best == NULL || comes_before(c, best)))
            best = c;
    return best;
}

static void print_node(const struct printing *p, const struct node *n, unsigned depth)
{
    /* Along the chain that all share; stacks are bounded, so is this recursion by its branches. */
    while (n->first != NULL && n->first->next == NULL) {
        n = n->first;
        print_place(p, n, depth);
    }
    for (const struct node *c = next_child(n, NULL); c != NULL; c = next_child(n, c)) {
        print_ranks(p, c, depth + 1);
        print_place(p, c, depth + 2);
        print_node(p, c, depth + 2);
    }
}

void stack_tree_print(const struct stack_tree *t, const char *indent, const char *one,
                      const char *many, struct buf *ret)
{
    const struct printing p = {.indent = indent, .one = one, .many = many, .ret = ret};

    if (t->root.n == 0)
        return;
    print_ranks(&p, &t->root, 0);
    print_node(&p, &t->root, 1);
}
