/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/syntax_tree.h - walking, comparing and copying parsed statements.
 *
 * Private to core/sql/distribute; one thread.
 */
#ifndef CORE_SQL_DISTRIBUTE_SYNTAX_TREE_H
#define CORE_SQL_DISTRIBUTE_SYNTAX_TREE_H

#include "core/sql/parse/ast.h"

/* Called for what is met, outer before inner; node() says whether to go on below.  Any may be
 * NULL. */
struct tree_visit {
    void *arg;
    bool (*node)(void *arg, const struct node *n);
    void (*select)(void *arg, struct select *s);
    void (*from)(void *arg, struct from *f);
    const struct cte *ctes; /* those that have been walked already */
};
void tree_walk_select(struct tree_visit *v, struct select *s);
void tree_walk_node(struct tree_visit *v, const struct node *n);
void tree_walk_from(struct tree_visit *v, struct from *f);

/* The memory of nodes.  failed: there was none for one of them, so the tree must not be used. */
struct tree_memory {
    struct arena arena;
    bool failed;
};

/* A copy whose nodes are new but for what replace() gives for them; NULL: go on below.  Selects are
 * shared.  NULL: no memory. */
struct tree_copy {
    struct tree_memory *mem;
    struct node *(*replace)(void *arg, const struct node *n);
    void *arg;
    bool failed; /* no memory, or replace() says that it cannot be done */
};
struct node *tree_copy(struct tree_copy *c, const struct node *n);
struct order *tree_copy_order(struct tree_copy *c, const struct order *o, uint32_t n);
struct window_node *tree_copy_window(struct tree_copy *c, const struct window_node *w);

/* The same expression?  Columns by their own name alone. */
bool tree_equal(const struct node *a, const struct node *b);

/* New nodes; NULL: no memory. */
struct node *tree_name(struct tree_memory *mem, const char *name);
struct node *tree_int(struct tree_memory *mem, int64_t value);
struct node *tree_text(struct tree_memory *mem, const char *text);
struct node *tree_cast(struct tree_memory *mem, struct node *x, enum sql_type type);
struct node *tree_call(struct tree_memory *mem, const char *name, struct node *a, struct node *b);
/* a and b; either may be NULL. */
struct node *tree_and(struct tree_memory *mem, struct node *a, struct node *b);

#endif
