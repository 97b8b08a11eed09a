/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/parts.h - a statement over all members while it is planned and answered.
 *
 * distribute.c (the calls), schema.c (what columns the tables of all have), scope.c (what names
 * mean), plan_parts.c (which parts there are), colocate.c (joins that each member can do alone),
 * split.c with split_aggregate.c and split_limit.c (a select whose groups are aggregated by
 * members), pull.c (all else), answers.c (what comes back), merge.c (of many one), merge_at_relay.c
 * (the same by others), final_select.c (the last statement, explain).  Private to them; one thread.
 */
#ifndef CORE_SQL_DISTRIBUTE_PARTS_H
#define CORE_SQL_DISTRIBUTE_PARTS_H

#include "core/sql/bind/bind.h"
#include "core/sql/distribute/answer_store.h"
#include "core/sql/distribute/distribute.h"
#include "core/sql/distribute/syntax_tree.h"
#include "core/sql/distribute/unparse.h"
#include "core/sql/exec/agg.h"
#include "core/sql/value/timestamp_parts.h"

#define GLOBAL_SCHEMA "global"
#define WAY_MEMBER "__member" /* whose a row is, in what is passed on: the first column */

struct global_member {
    const char *name;
    struct sql_value tags[SQL_TAGS];
    bool asked, failed; /* in any part, or for columns */
    const char *why;    /* it failed; may be NULL */
};

struct member_schema { /* of one table at one member */
    enum { SCHEMA_UNKNOWN, SCHEMA_HERE, SCHEMA_NONE, SCHEMA_GONE } state;
    const struct sql_column *columns;
    uint32_t n;
    const char *why; /* NONE, GONE */
};

struct global_table {
    const char *schema, *name; /* schema NULL: global.NAME */
    const char *source;        /* "schema"."name" */
    const char *title;         /* for sentences; NULL: the source */
    const char *probe;
    struct member_schema *members;  /* [n_members], once they are known */
    struct sql_column *columns;     /* of all: tags, then what any has */
    uint32_t n;                     /* tags included */
    const struct global_join *join; /* it is made of others by each member: colocate.c; or NULL */
    struct global_table *next;
};

struct part_answer {
    enum { ANSWER_NOT_ASKED, ANSWER_AWAITED, ANSWER_COMING, ANSWER_WHOLE, ANSWER_FAILED } state;
    const char *statement; /* NULL: not asked */
    uint64_t hash;         /* of it, where it is not that of most */
    const char *why;       /* NOT_ASKED, FAILED; NULL: pruned by its tags */
    uint64_t elapsed_ns, rows, bytes;
    bool *is_null; /* [columns] of type NULL there: all its values are */
};

struct intervals {           /* with months, which come as text: a row's, read */
    struct sql_value *cells; /* [columns]; NULL: there are none */
    char (*packed)[INTERVAL_BYTES];
};

struct answer_check { /* what a column of an answer must be beside its type */
    enum { CHECK_NOTHING, CHECK_COUNT, CHECK_STATE } what;
    enum agg_op op; /* STATE */
    enum sql_type of;
};

struct part {
    struct global_table *table;
    const char *name;           /* of its answers */
    const char *before, *after; /* what a member runs, around the table */
    const char *condition;      /* over the tags; NULL: all */
    const char *merge;          /* of many answers one; NULL: they are rows */
    bool merge_tags;            /* but the tags of each are needed, too */
    bool in_order;              /* which member said it first counts */
    bool on_the_way;            /* others may pass answers of many on as one (merge_at_relay.c), */
    const char *way;            /* made by this; NULL: as they are */
    uint32_t way_tags;          /* of members, that it needs; bits by enum sql_tag */
    uint64_t loose;             /* bytes of the answers that are whole, merged or not */
    uint64_t merged;            /* of them, when they were merged last */
    bool *uses;                 /* [table->n] columns that the statement hangs on */
    struct sql_column *columns; /* of an answer, without tags */
    uint32_t n_columns;
    struct answer_check *checks; /* [n_columns] */
    struct intervals intervals;
    struct held_table *held;
    struct part_answer *answers; /* [n_members] */
    struct part *next;
};

#define NAMED_MAX 20 /* members in a sentence */
struct global_note {
    const char *text, *who[NAMED_MAX], *last;
    uint32_t n;
    struct global_note *next;
};

struct sql_global {
    struct tree_memory mem;
    struct sql_global_options o;
    const char *text;
    size_t size;
    struct statement st;
    enum { ABOUT_NOTHING, ABOUT_DESCRIBE, ABOUT_SUMMARIZE } about;
    const char *like;    /* of describe; may be NULL */
    const char *checked; /* the text over `schemas`: `global.` left out */
    int64_t now_utc;
    struct global_table *tables;
    uint32_t n_tables, n_joins; /* n_tables: of the statement, without those that joins make */
    struct global_member *members;
    uint32_t n_members, members_room;
    struct part *parts;
    uint32_t n_parts;
    struct held schemas; /* the tables of all without rows: to check, and for types */
    struct held answers;
    const char *last;   /* statement */
    const char **names; /* of columns, that it has anywhere */
    uint32_t n_names;
    bool names_failed;
    uint64_t bytes; /* of all answers */
    bool has_quantiles, too_large, planned;
    struct global_note *first_note;
    struct buf notes;
};

int global_no_memory(void);
/* Do these tags (bits by enum sql_tag) say which member it is: known of all, and no two alike? */
bool global_tags_identify(const struct sql_global *g, uint32_t tags);
char *global_text(struct sql_global *g, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Something to say; who: the member's name that it is about (equal sentences come once, with the
 * names behind them), NULL: of none. */
void global_note(struct sql_global *g, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- schema.c ---- */

/* The table that a from stands for; NULL: it is none of all. */
struct global_table *global_table_of(const struct sql_global *g, const struct from *f);
int global_find_tables(struct sql_global *g); /* in the statement */
int global_unite(struct sql_global *g);       /* columns of all, and tables without rows */
/* Give the source of the member's rows, for a part: its table, or a select that makes up for
 * columns it has not or has as another type.  NULL: it cannot be, *ret_why says why. */
const char *global_source(struct sql_global *g, const struct part *p, uint32_t member,
                          const char **ret_why);

/* ---- describe_global.c ---- */

/* Is it describe, summarize or show tables of what is `global`? */
bool global_is_about(const struct statement *st);
/* Before the tables are looked for: a select stands for what is about tables.  -EINVAL: that cannot
 * be asked of all. */
int global_about(struct sql_global *g);
/* Once the columns are known: of summarize the select.  1: nobody is to be asked anything more. */
int global_about_columns(struct sql_global *g);

/* ---- scope.c ---- */

enum { /* what an expression hangs on */
       USES_COLUMN = 1,
       USES_TAG = 2,
       USES_OTHER = 4, /* a name of something else: of the query around */
       USES_SELECT = 8,
       USES_AGG = 16,
       USES_WINDOW = 32,
       USES_STAR = 64
};

/* One table of all in a select, and the names that may stand for its columns. */
struct scope_of {
    struct sql_global *g;
    const struct select *select;
    const struct from *from;
    struct global_table *table;
    bool alone;      /* there is no other table in from */
    bool no_aliases; /* where: those of the list do not count */
};
/* Which column of the table a name is, -1: none of it. */
int scope_column(const struct scope_of *s, const struct node *n);
/* The expression that a name is the alias of; NULL: of none. */
const struct node *scope_alias(const struct scope_of *s, const struct node *n);
/* Give the expression that an order by means: by number, by a column of the list; NULL: it cannot
 * be said here. */
const struct node *scope_order_node(const struct scope_of *s, const struct node *n);
uint32_t scope_uses(const struct scope_of *s, const struct node *n);
/* The columns below n are needed of the members. */
void scope_mark(const struct scope_of *s, const struct node *n, bool *uses);
/* A copy for members: aliases replaced by what they stand for. */
struct node *scope_spelled_out(const struct scope_of *s, const struct node *n);
/* The conditions of a where, one by one: how many; those behind the last one of the room are not
 * among them. */
uint32_t scope_conjuncts(struct node *where, struct node **ret, uint32_t max);
#define CONJUNCTS_MAX 64

/* ---- plan_parts.c ---- */

/* The select's table is now the answers of this part, or of an old one that asks the same.  table,
 * before, after, condition, merge, way, uses and checks are set; p is not kept. */
int global_add_part(struct sql_global *g, const struct part *p, struct from *f);
/* The columns of a select over tables without rows. */
int global_columns_of(struct sql_global *g, const char *text, struct sql_column **ret,
                      uint32_t *ret_n);
/* A tree as text in the statement's memory, columns without their tables; NULL: no memory. */
const char *global_unparsed(struct sql_global *g, const struct node *n);
/* Conditions on tags, put behind those in b. */
void global_add_condition(struct sql_global *g, struct buf *b, const struct node *n);

/* ---- colocate.c ---- */

/* A from that joins tables of all within each member becomes one such table. */
int global_colocate(struct sql_global *g, struct select *s);
/* As global_source(), of a table that a join makes. */
const char *global_join_source(struct sql_global *g, const struct part *p, uint32_t member,
                               const char **ret_why);

/* ---- merge.c ---- */

/* An answer more is whole: if they have become many they are made one. */
void global_merge_some(struct sql_global *g, struct part *p);

/* ---- split.c, pull.c ---- */

/* 1: the select now reads the answers of a new part; 0: it cannot be split. */
int global_split(struct sql_global *g, struct select *s);
/* The names that the statement has once its selects are split. */
int global_collect_names(struct sql_global *g);
/* f, a table of all in s, now is the answers of a part. */
int global_pull(struct sql_global *g, struct select *s, struct from *f);

#endif
