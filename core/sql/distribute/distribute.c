/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/distribute.c - a statement over many members: its life, who they are, notes.
 *
 * One thread.
 */
#include "core/sql/distribute/parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"

#define MEMBERS_MAX 100000 /* more are a mistake */
#define NOTES_BYTES (1 << 20)

const char *const sql_tag_names[SQL_TAGS] = {
    "_host",          "_addr", "_rank", "_node_rank", "_local_rank", "_role", "_clock_offset_ns",
    "_clock_error_ns"};
const enum sql_type sql_tag_types[SQL_TAGS] = {SQL_TEXT, SQL_TEXT, SQL_INT, SQL_INT,
                                               SQL_INT,  SQL_TEXT, SQL_INT, SQL_INT};
const char *const sql_tag_docs[SQL_TAGS] = {
    "machine that it runs on",
    "what -t takes for that one process",
    "rank in its job, by its environment; NULL: not known",
    "rank of its node",
    "rank on its node",
    "torchrun's ROLE_NAME",
    "its clock minus the asker's, taken off its times; NULL: not known; not part of *",
    "how far times of just now may be from the asker's clock still; clocks drift; not part of *"};

int global_no_memory(void)
{
    return err_set(-ENOMEM, "no memory for a statement over all ranks");
}

char *global_text(struct sql_global *g, const char *format, ...)
{
    struct buf b;
    va_list args;
    buf_init(&b, (size_t)2 * SQL_TEXT_BYTES);
    va_start(args, format);
    (void)buf_vaddf(&b, format, args);
    va_end(args);
    char *copy = b.failed ? NULL : arena_text(&g->mem.arena, buf_text(&b), b.size);
    buf_done(&b);
    g->mem.failed = g->mem.failed || !copy;
    return copy;
}

void global_note(struct sql_global *g, const char *who, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    struct global_note **at = &g->first_note, *n;
    while (*at && strcmp((*at)->text, text) != 0)
        at = &(*at)->next;
    n = *at ? *at : arena_zalloc(&g->mem.arena, 1, sizeof(*n));
    const char *copy = n && !*at ? arena_text(&g->mem.arena, text, strlen(text)) : NULL;
    if (!n || (!*at && !copy))
        return; /* of all that may be lost, this may */
    if (!*at)
        n->text = copy;
    *at = n;
    if (!who || n->last == who)
        return;
    if (n->n < NAMED_MAX)
        n->who[n->n] = who;
    n->last = who;
    n->n++;
}

const char *sql_global_notes(struct sql_global *g)
{
    buf_reset(&g->notes);
    for (const struct global_note *n = g->first_note; n; n = n->next) {
        (void)buf_adds(&g->notes, n->text);
        for (uint32_t i = 0; i < n->n && i < NAMED_MAX; i++)
            (void)buf_addf(&g->notes, "%s%s", i ? ", " : ": ", n->who[i]);
        if (n->n > NAMED_MAX)
            (void)buf_addf(&g->notes, " and %u more", n->n - NAMED_MAX);
        (void)buf_addc(&g->notes, '\n');
    }
    return buf_text(&g->notes);
}

/* ---- the statement ---- */

struct search {
    const struct sql_global *g;
    bool found;
};

static void look_for_table(void *arg, struct from *f)
{
    struct search *s = arg;
    const char *last = f->names[2] ? f->names[2] : f->names[1];
    s->found = s->found || (f->kind == FROM_TABLE && last && strcmp(last, GLOBAL_SCHEMA) == 0);
}

bool sql_is_global(const char *text, size_t size)
{
    struct arena mem;
    struct statement st;
    struct search s = {.found = false};
    arena_init(&mem, 0);
    if (sql_parse(&mem, text, size, &st) == 0) {
        s.found = global_is_about(&st);
        if (st.select)
            tree_walk_select(&(struct tree_visit){.arg = &s, .from = look_for_table}, st.select);
    }
    arena_done(&mem);
    return s.found;
}

void sql_global_free(struct sql_global *g)
{
    if (!g)
        return;
    held_done(&g->schemas);
    held_done(&g->answers);
    buf_done(&g->notes);
    arena_done(&g->mem.arena);
    free(g);
}

int sql_global_new(const char *text, size_t size, const struct sql_global_options *o,
                   struct sql_global **ret)
{
    struct sql_global *g = calloc(1, sizeof(*g));
    if (!g)
        return global_no_memory();
    arena_init(&g->mem.arena, 0);
    buf_init(&g->notes, NOTES_BYTES);
    g->o = *o;
    if (g->o.max_bytes == 0)
        g->o.max_bytes = SQL_GLOBAL_MAX_BYTES;
    g->now_utc = (int64_t)clock_now() + clock_utc_offset();
    g->text = arena_text(&g->mem.arena, text, size);
    g->size = size;
    int rc = g->text ? sql_parse(&g->mem.arena, g->text, size, &g->st) : global_no_memory();
    if (rc == 0)
        rc = global_about(g);
    if (rc == 0)
        rc = global_find_tables(g);
    if (rc == 0)
        rc = held_init(&g->schemas);
    if (rc == 0)
        rc = held_init(&g->answers);
    if (rc < 0)
        sql_global_free(g);
    else
        *ret = g;
    return rc;
}

/* ---- members ---- */

static int copy_value(struct sql_global *g, const struct sql_value *v, struct sql_value *ret)
{
    *ret = *v;
    if (v->type != SQL_TEXT)
        return 0;
    ret->text.data = arena_text(&g->mem.arena, v->text.data, v->text.size);
    return ret->text.data ? 0 : global_no_memory();
}

int sql_global_member(struct sql_global *g, const char *name, const struct sql_value tags[SQL_TAGS])
{
    if (g->n_members == MEMBERS_MAX)
        return err_set(-E2BIG, "more than %d processes", MEMBERS_MAX);
    if (g->n_members == g->members_room) {
        uint32_t room = g->members_room ? 2 * g->members_room : 16;
        struct global_member *more = arena_zalloc(&g->mem.arena, room, sizeof(*more));
        if (!more)
            return global_no_memory();
        if (g->n_members)
            memcpy(more, g->members, g->n_members * sizeof(*more));
        g->members = more;
        g->members_room = room;
    }
    struct global_member *m = &g->members[g->n_members];
    m->name = arena_text(&g->mem.arena, name, strlen(name));
    int rc = m->name ? 0 : global_no_memory();
    for (int t = 0; t < SQL_TAGS && rc == 0; t++)
        rc = copy_value(g, &tags[t], &m->tags[t]);
    if (rc == 0)
        g->n_members++;
    return rc;
}

struct identity {
    const struct sql_value *tags;
    uint32_t which;
};

static int compare_tag(const struct sql_value *a, const struct sql_value *b)
{
    if (a->type == SQL_INT)
        return a->integer < b->integer ? -1 : a->integer > b->integer;
    uint32_t least = a->text.size < b->text.size ? a->text.size : b->text.size;
    int order = memcmp(a->text.data, b->text.data, least);
    return order ? order : (a->text.size > b->text.size) - (a->text.size < b->text.size);
}

static int compare_identities(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;
    int order = 0;
    for (uint32_t t = 0; t < SQL_TAGS && order == 0; t++)
        if (x->which & (1u << t))
            order = compare_tag(&x->tags[t], &y->tags[t]);
    return order;
}

bool global_tags_identify(const struct sql_global *g, uint32_t tags)
{
    struct identity *list = calloc(g->n_members, sizeof(*list));
    bool unique = list != NULL && tags != 0;
    for (uint32_t m = 0; m < g->n_members && unique; m++) {
        list[m] = (struct identity){g->members[m].tags, tags};
        for (uint32_t t = 0; t < SQL_TAGS; t++)
            unique = unique && (!(tags & (1u << t)) || list[m].tags[t].type != SQL_NULL);
    }
    if (unique)
        qsort(list, g->n_members, sizeof(*list), compare_identities);
    for (uint32_t m = 1; m < g->n_members && unique; m++)
        unique = compare_identities(&list[m - 1], &list[m]) != 0;
    free(list);
    return unique;
}

static uint32_t count_members(const struct sql_global *g, bool whole)
{
    uint32_t n = 0;
    for (uint32_t m = 0; m < g->n_members; m++)
        n += g->members[m].asked && !(whole && g->members[m].failed);
    return n;
}

uint32_t sql_global_asked(const struct sql_global *g)
{
    return count_members(g, false);
}

uint32_t sql_global_answers(const struct sql_global *g)
{
    return count_members(g, true);
}

const char *sql_global_why(const struct sql_global *g, uint32_t member)
{
    if (member >= g->n_members || !g->members[member].failed)
        return NULL;
    return g->members[member].why ? g->members[member].why : "it did not answer";
}

bool sql_global_only_explains(const struct sql_global *g)
{
    return g->st.explain && !g->st.analyze;
}

bool sql_global_can_sketch(const struct sql_global *g)
{
    return g->too_large && g->has_quantiles && !g->o.sketch;
}
