/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_json.c - values out of JSON texts: json_get(text, 'key', 0 ...), paths, -> and
 * ->>.
 *
 * The query's thread only.  What is not JSON, or not there, is NULL.  A string comes out without
 * its quotes (but not of ->, which gives JSON again), everything else as it is written in JSON.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/text.h"

#define TREE_BYTES ((size_t)64 << 20) /* of one text's tree */

static void write_json(struct buf *b, const struct json *j)
{
    bool object = j->type == JSON_OBJECT;
    switch (j->type) {
    case JSON_NULL:
        (void)buf_adds(b, "null");
        return;
    case JSON_BOOL:
        (void)buf_adds(b, j->boolean ? "true" : "false");
        return;
    case JSON_NUMBER:
        (void)buf_adds(b, j->text);
        return;
    case JSON_STRING:
        (void)json_add_text(b, j->text, j->size);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    (void)buf_addc(b, object ? '{' : '[');
    for (const struct json *m = j->first; m; m = m->next) {
        if (m != j->first)
            (void)buf_addc(b, ',');
        if (object) {
            (void)json_add_text(b, m->key, strlen(m->key));
            (void)buf_addc(b, ':');
        }
        write_json(b, m); /* json_parse() bounds the depth */
    }
    (void)buf_addc(b, object ? '}' : ']');
}

/* As text, in memory of the arena; data NULL: JSON's null. */
static int to_text(struct arena *mem, const struct json *j, bool quoted, struct text *ret)
{
    if (j->type == JSON_NULL && !quoted) {
        *ret = (struct text){NULL, 0};
        return 0;
    }
    struct buf b;
    buf_init(&b, TREE_BYTES);
    if (j->type == JSON_STRING && !quoted)
        (void)buf_add(&b, j->text, j->size);
    else
        write_json(&b, j);
    char *copy = b.failed ? NULL : arena_text(mem, buf_text(&b), b.size);
    *ret = (struct text){copy, (uint32_t)b.size};
    buf_done(&b);
    return copy ? 0 : err_set(-ENOMEM, "no memory for a JSON value");
}

int sql_json_text(struct query *q, const struct json *j, bool quoted, struct text *ret)
{
    return to_text(&q->mem, j, quoted, ret);
}

/* texts_count: texts may count from the end, as steps of PostgreSQL's paths do. */
static const struct json *find_member(const struct json *j, const struct vec *key, uint32_t row,
                                      bool texts_count)
{
    int64_t at = -1;
    bool counts = key->type == SQL_INT;
    if (j->type == JSON_OBJECT && key->type == SQL_TEXT) {
        for (const struct json *m = j->first; m; m = m->next)
            if (strlen(m->key) == key->t[row].size &&
                memcmp(m->key, key->t[row].data, key->t[row].size) == 0)
                return m;
        return NULL;
    }
    if (j->type != JSON_ARRAY)
        return NULL;
    if (key->type == SQL_INT)
        at = key->i[row];
    else if (key->t[row].size < 20) {
        char digits[20] = "";
        memcpy(digits, key->t[row].data, key->t[row].size);
        if (parse_i64(digits, &at) < 0)
            err_clear();
        else
            counts = texts_count;
    }
    if (at < 0 && counts) /* from the end, as in PostgreSQL */
        at += (int64_t)j->size;
    const struct json *m = at < 0 ? NULL : j->first;
    for (; m && at > 0; at--)
        m = m->next;
    return m;
}

/* A step of a path, .key, ."key" or [3]; *path moves behind it.  NULL: there is none here. */
static const struct json *path_step(const struct json *j, struct text *path, bool *ret_bad)
{
    const char *p = path->data, *end = p + path->size;
    bool index = *p == '[', quoted = !index && end - p > 1 && p[1] == '"';
    const char *from = p + 1 + quoted, *to = from;
    while (to < end && (index ? *to != ']' : quoted ? *to != '"' : *to != '.' && *to != '['))
        to++;
    struct text key = {from, (uint32_t)(to - from)};
    struct vec v = {.type = SQL_TEXT, .t = &key};
    *ret_bad = (*p != '.' && !index) || to == from || ((index || quoted) && to == end);
    path->data = to + (index || quoted);
    path->size = *ret_bad ? 0 : (uint32_t)(end - path->data);
    return *ret_bad || index != (j->type == JSON_ARRAY) ? NULL : find_member(j, &v, 0, false);
}

/* Find what '$.a.b[0]' means; NULL: nothing. */
static const struct json *by_path(const struct json *j, struct text path, bool *ret_bad)
{
    path.data++; /* $ */
    path.size--;
    while (path.size && j && !*ret_bad)
        j = path_step(j, &path, ret_bad);
    return j;
}

/* json_extract(text, path): -> by a path; json_extract_string(text, path): ->> by one. */
KERNEL(json_path)
{
    const char *name = st->expr->func->name;
    bool steps = strncmp(name, "json_extract_path", 17) == 0; /* PostgreSQL's: a key each */
    bool paths = !steps && strncmp(name, "json_extract", 12) == 0;
    bool quoted = strcmp(name, "->") == 0 || (paths && !name[12]) || (steps && !name[17]);
    struct arena tree;
    int rc = 0;
    arena_init(&tree, TREE_BYTES);
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct json *j = NULL;
        struct text t = st->args[0]->t[i], value = {NULL, 0};
        rc = json_parse(&tree, t.data, t.size, &j);
        const struct json *at = rc < 0 ? NULL : j;
        for (uint32_t a = 1; a < st->n_args && at; a++) {
            const struct vec *key = st->args[a];
            bool path =
                     paths && key->type == SQL_TEXT && key->t[i].size && key->t[i].data[0] == '$',
                 bad = false;
            at = path ? by_path(at, key->t[i], &bad) : find_member(at, key, i, steps);
            if (bad)
                rc = sql_run_error(r, st, -EINVAL, "a JSON path looks like $.key[0].\"other key\"");
        }
        if (rc == -EINVAL && j)
            break;
        if (rc == -EINVAL) {
            err_clear();
            rc = 0;
        }
        if (rc == 0 && at)
            rc = to_text(r->scratch, at, quoted, &value);
        st->dst->t[i] = value;
        if (!value.data)
            sql_set_null(st->dst, i);
        if (tree.used_bytes > 1 << 20 || k + 1 == n) {
            arena_done(&tree);
            arena_init(&tree, TREE_BYTES);
        }
        if (rc == 0 && k % 256 == 255)
            rc = sql_check(r->q);
    }
    arena_done(&tree);
    return rc;
}

/* Trees of rows that were read do not heap up, and the query's limits are looked at. */
static int after_row(struct run *r, struct arena *tree, uint32_t k, int rc)
{
    if (tree->used_bytes > 1 << 20) {
        arena_done(tree);
        arena_init(tree, TREE_BYTES);
    }
    return rc == 0 && k % 256 == 255 ? sql_check(r->q) : rc;
}

/* text::json, text::jsonb: the text, if it is JSON. */
KERNEL(json_cast)
{
    bool forgiving = st->expr->func->name[0] == 't';
    struct arena tree;
    int rc = 0;
    arena_init(&tree, TREE_BYTES);
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct json *j = NULL;
        rc = json_parse(&tree, st->a[0]->t[i].data, st->a[0]->t[i].size, &j);
        st->dst->t[i] = st->a[0]->t[i];
        if (rc == -EINVAL && forgiving) {
            err_clear();
            sql_set_null(st->dst, i);
            rc = 0;
        } else if (rc == -EINVAL) {
            rc = sql_run_error(r, st, -EINVAL, "the text is not JSON");
        }
        rc = after_row(r, &tree, k, rc);
    }
    arena_done(&tree);
    return rc;
}

/* json_array_length(text): of what is no array NULL; json_typeof(text) */
KERNEL(json_about)
{
    static const char *const types[] = {"null", "boolean", "number", "string", "array", "object"};
    bool length = st->expr->func->result == 'i';
    struct arena tree;
    int rc = 0;
    arena_init(&tree, TREE_BYTES);
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct json *j = NULL;
        rc = json_parse(&tree, st->a[0]->t[i].data, st->a[0]->t[i].size, &j);
        if (rc < 0 || (length && j->type != JSON_ARRAY))
            sql_set_null(st->dst, i);
        else if (length)
            st->dst->i[i] = (int64_t)j->size;
        else
            st->dst->t[i] = (struct text){types[j->type], (uint32_t)strlen(types[j->type])};
        if (rc == -EINVAL) {
            err_clear();
            rc = 0;
        }
        rc = after_row(r, &tree, k, rc);
    }
    arena_done(&tree);
    return rc;
}

const struct func sql_json_funcs[] = {{"->", "tt", 't', 0, json_path},
                                      {"->", "ti", 't', 0, json_path},
                                      {"->>", "tt", 't', 0, json_path},
                                      {"->>", "ti", 't', 0, json_path},
                                      {"json_get", "ti", 't', 0, json_path},
                                      {"json_get", "tt*", 't', 0, json_path},
                                      {"json", "t", 't', 0, json_cast},
                                      {"try_json", "t", 't', 0, json_cast},
                                      {"json_extract_path", "tt*", 't', 0, json_path},
                                      {"json_extract_path_text", "tt*", 't', 0, json_path},
                                      {"json_extract", "tt", 't', 0, json_path},
                                      {"json_extract_string", "tt*", 't', 0, json_path},
                                      {"json_array_length", "t", 'i', 0, json_about},
                                      {"json_typeof", "t", 't', 0, json_about},
                                      {NULL, NULL, 0, 0, NULL}};
