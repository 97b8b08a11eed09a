/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_json_build.c - JSON texts made of values: to_json, json_build_array,
 * json_build_object.
 *
 * The query's thread only.  bind_json.c makes JSON of each argument first, so that a builder only
 * joins what it is given.  Blanks stand where PostgreSQL has them.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/text.h"

#define MADE_BYTES ((size_t)64 << 20) /* of one text */

static size_t write_plain(const struct vec *v, uint32_t i, char out[64])
{
    if (v->type == SQL_INT)
        return (size_t)snprintf(out, 64, "%lld", (long long)v->i[i]);
    if (v->type == SQL_BOOL)
        return (size_t)snprintf(out, 64, "%s", v->i[i] ? "true" : "false");
    char text[64];
    if (v->type == SQL_DOUBLE && isfinite(v->d[i]))
        return sql_write_double(v->d[i], out);
    if (v->type == SQL_DOUBLE) { /* no number of JSON's: a text, as in answers */
        (void)sql_write_double(v->d[i], text);
    } else {
        (void)sql_format_exactly(v->i[i], text);
        text[10] = 'T';
    }
    return (size_t)snprintf(out, 64, "\"%.60s\"", text);
}

static int put_copy(struct run *r, struct step *st, uint32_t i, const char *data, size_t size)
{
    char *copy = sql_scratch(r, size);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, data, size);
    st->dst->t[i] = (struct text){copy, (uint32_t)size};
    return 0;
}

KERNEL(to_json)
{
    const struct vec *v = st->a[0];
    struct buf b;
    int rc = 0;
    buf_init(&b, MADE_BYTES);
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        char out[64];
        if (v->type != SQL_TEXT) {
            size_t size = write_plain(v, i, out);
            rc = put_copy(r, st, i, out, size);
            continue;
        }
        buf_reset(&b);
        if (json_add_text(&b, v->t[i].data, v->t[i].size) < 0)
            rc = err_set(-ENOMEM, "the text is too long for the memory of the query");
        else
            rc = put_copy(r, st, i, buf_text(&b), b.size);
    }
    buf_done(&b);
    return rc;
}

static bool is_null(const struct vec *v, uint32_t i)
{
    return v->type == SQL_NULL || (v->has_null && v->null[i]);
}

static size_t put_part(char *to, const char *data, size_t size)
{
    if (to)
        memcpy(to, data, size);
    return size;
}

/* The bytes of the array or object of a row; `to` NULL: they are only counted. */
static size_t join_parts(const struct step *st, uint32_t i, bool object, char *to)
{
    size_t n = put_part(to, object ? "{" : "[", 1);
    for (uint32_t a = 0; a < st->n_args; a++) {
        const struct vec *v = st->args[a];
        if (a)
            n += object && a % 2 ? put_part(to ? to + n : NULL, " : ", 3)
                                 : put_part(to ? to + n : NULL, ", ", 2);
        n += is_null(v, i) ? put_part(to ? to + n : NULL, "null", 4)
                           : put_part(to ? to + n : NULL, v->t[i].data, v->t[i].size);
    }
    return n + put_part(to ? to + n : NULL, object ? "}" : "]", 1);
}

KERNEL(json_build)
{
    bool object = strstr(st->expr->func->name, "object") != NULL;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        for (uint32_t a = 0; object && a < st->n_args; a += 2)
            if (is_null(st->args[a], i))
                return sql_run_error(r, st, -EINVAL, "the key of an object is NULL");
        size_t size = join_parts(st, i, object, NULL);
        char *out = size < MADE_BYTES ? sql_scratch(r, size) : NULL;
        if (!out)
            return err_set(-ENOMEM, "the text is too long for the memory of the query");
        (void)join_parts(st, i, object, out);
        st->dst->t[i] = (struct text){out, (uint32_t)size};
    }
    return 0;
}

const struct func sql_json_build_funcs[] = {
    {"to_json", "t", 't', 0, to_json},
    {"to_json", "i", 't', 0, to_json},
    {"to_json", "d", 't', 0, to_json},
    {"to_json", "b", 't', 0, to_json},
    {"to_json", "s", 't', 0, to_json},
    {"json_build_array", "", 't', 0, json_build},
    {"json_build_array", "t*", 't', FUNC_NULLS, json_build},
    {"json_build_object", "", 't', 0, json_build},
    {"json_build_object", "t*", 't', FUNC_NULLS, json_build},
    {NULL, NULL, 0, 0, NULL}};
