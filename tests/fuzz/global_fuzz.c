/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/global_fuzz.c - what a member sends for a statement over all ranks, of any values: it
 * is refused, or merged with the answer of an honest one; states of aggregates among them.
 *
 * An input is: the statement's number, then cells, each its type and its bytes (see take_cell()).
 */
#include <string.h>

#include "core/base/err.h"
#include "core/sql/distribute/answer_store.h"
#include "core/sql/distribute/distribute.h"
#include "tests/fuzz/fuzz.h"

#define COLUMNS_MAX 64

static const char *const statements[] = {
    ("select k, count(*), sum(x), avg(x), stddev(x), corr(x, y), sum(i), min(g), first(i), "
     "arg_max(g, x), count(distinct g), approx_quantile(x, 0.5), avg(i) from global.s.t group by k "
     "order by 1"),
    ("select sum(x), avg(i), quantile_sketch(y, 0.9), covar_pop(x, y), regr_slope(x, y) from "
     "global.s.t"),
    "select k, g, x from global.s.t order by x limit 3",
    "select a.k, b.g from global.s.t a join global.s.t b on a._rank = b._rank and a.k = b.k",
    "select k, g, grouping(k), avg(x), count(*) from global.s.t group by rollup (k, g)",
    "select median(x), mode(g), histogram(i) from global.s.t"};
#define STATEMENTS (sizeof(statements) / sizeof(statements[0]))

static const struct sql_column columns[] = {{"k", SQL_INT, 0, ""},
                                            {"i", SQL_INT, 0, ""},
                                            {"x", SQL_DOUBLE, 0, ""},
                                            {"y", SQL_DOUBLE, 0, ""},
                                            {"g", SQL_TEXT, 0, ""}};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

static struct held honest;
static struct arena mem;

static void begin(void)
{
    static const char *const texts[] = {"one", "two", "it's"};
    const struct held_table like = {
        .schema = "s", .name = "t", .columns = columns, .n_columns = COLUMNS, .n_parts = 1};
    struct held_table *t;
    if (honest.engine)
        return;
    arena_init(&mem, 0);
    fuzz_must(held_init(&honest) == 0 && held_add(&honest, &mem, &like, &t) == 0);
    for (int i = 0; i < 9; i++) {
        const char *text = texts[i % 3];
        const struct sql_value v[COLUMNS] = {
            {.type = SQL_INT, .integer = i % 3},
            {.type = i == 4 ? SQL_NULL : SQL_INT, .integer = i * 1000},
            {.type = SQL_DOUBLE, .number = i * 0.1},
            {.type = SQL_DOUBLE, .number = i * i - 0.5},
            {.type = SQL_TEXT, .text = {text, (uint32_t)strlen(text)}}};
        fuzz_must(held_row(t, 0, v) == 0);
    }
}

/* ---- the honest member ---- */

struct way { /* of an answer */
    struct sql_global *g;
    uint32_t part, n;
    struct buf *cells; /* of the input that would say the same; may be NULL */
};

static int pass_columns(void *arg, const struct sql_column *list, uint32_t n)
{
    struct way *w = arg;
    w->n = n;
    return w->g ? sql_global_columns(w->g, w->part, 1, list, n) : 0;
}

static void add_cell(struct buf *b, const struct sql_value *v)
{
    (void)buf_addc(b, (char)v->type);
    if (v->type == SQL_TEXT || v->type == SQL_BLOB) {
        uint16_t size = (uint16_t)v->text.size;
        (void)buf_add(b, &size, sizeof(size));
        (void)buf_add(b, v->text.data, size);
    } else if (v->type != SQL_NULL) {
        (void)buf_add(b, v->type == SQL_DOUBLE ? (const void *)&v->number : &v->integer, 8);
    }
}

static int pass_rows(void *arg, const struct sql_rows *rows)
{
    struct way *w = arg;
    struct sql_value cells[COLUMNS_MAX];
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++) {
        for (uint32_t c = 0; c < w->n; c++) {
            sql_rows_value(rows, i, c, &cells[c]);
            if (w->cells)
                add_cell(w->cells, &cells[c]);
        }
        rc = w->g ? sql_global_row(w->g, w->part, 1, cells) : 0;
    }
    return rc;
}

static int run(const char *text, struct way *w)
{
    const struct sql_sink sink = {.arg = w, .columns = pass_columns, .rows = pass_rows};
    return sql_run(honest.engine, text, strlen(text), NULL, &sink, NULL);
}

/* ---- a statement ---- */

static struct sql_global *prepare(uint32_t which)
{
    const struct sql_global_options o = {.max_bytes = 1 << 20};
    struct sql_value tags[SQL_TAGS] = {{.type = SQL_NULL}};
    struct sql_global *g;
    fuzz_must(sql_global_new(statements[which], strlen(statements[which]), &o, &g) == 0);
    for (uint32_t m = 0; m < 2; m++) {
        tags[SQL_TAG_RANK] = (struct sql_value){.type = SQL_INT, .integer = m};
        fuzz_must(sql_global_member(g, m ? "rank 1" : "rank 0", tags) == 0);
    }
    for (uint32_t t = 0; t < sql_global_tables(g); t++)
        for (uint32_t m = 0; m < 2; m++)
            fuzz_must(sql_global_schema(g, t, m, columns, COLUMNS) == 0);
    fuzz_must(sql_global_plan(g) == 0);
    return g;
}

static size_t take_cell(const uint8_t *data, size_t size, struct sql_value *ret)
{
    size_t used = 1;
    *ret = (struct sql_value){.type = (enum sql_type)(data[0] % (SQL_CALENDAR + 1))};
    if (ret->type == SQL_TEXT || ret->type == SQL_BLOB || ret->type == SQL_CALENDAR) {
        uint16_t n = 0;
        if (size < 3)
            return 0;
        memcpy(&n, data + 1, 2);
        ret->text.size = n < size - 3 ? n : (uint32_t)(size - 3);
        ret->text.data = (const char *)data + 3;
        return 3 + ret->text.size;
    }
    if (ret->type == SQL_NULL)
        return used;
    if (size < 9)
        return 0;
    if (ret->type == SQL_BOOL)
        ret->boolean = data[1] & 1;
    else if (ret->type == SQL_DOUBLE)
        memcpy(&ret->number, data + 1, 8);
    else
        memcpy(&ret->integer, data + 1, 8);
    return 9;
}

static int keep_column(void *arg, const struct sql_column *list, uint32_t n)
{
    struct sql_column *ret = arg;
    fuzz_must(n <= COLUMNS_MAX);
    for (uint32_t c = 0; c < n; c++) {
        ret[c] = list[c];
        ret[c].name = arena_text(&mem, list[c].name, strlen(list[c].name));
    }
    ret[n].name = NULL;
    return 0;
}

/* Member 0 says what the input says. */
static void lie(struct sql_global *g, uint32_t part, const uint8_t *data, size_t size)
{
    struct sql_column list[COLUMNS_MAX + 1];
    struct sql_value cells[COLUMNS_MAX];
    const struct sql_sink sink = {.arg = list, .columns = keep_column};
    const char *text = sql_global_statement(g, part, 0);
    uint32_t n = 0, at = 0;
    size_t used = 1;
    fuzz_must(sql_run(honest.engine, text, strlen(text), NULL, &sink, NULL) == 0);
    while (list[n].name)
        n++;
    int rc = sql_global_columns(g, part, 0, list, n);
    while (rc == 0 && size > 0 && used > 0) {
        used = take_cell(data, size, &cells[at]);
        data += used;
        size -= used;
        if (used > 0 && ++at == n) {
            rc = sql_global_row(g, part, 0, cells);
            at = 0;
        }
    }
    if (rc < 0)
        sql_global_failed(g, part, 0, err_text());
    else
        sql_global_answered(g, part, 0, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    if (size < 1)
        return 0;
    struct sql_global *g = prepare(data[0] % STATEMENTS);
    for (uint32_t p = 0; p < sql_global_parts(g); p++) {
        struct way w = {.g = g, .part = p};
        lie(g, p, data + 1, size - 1);
        fuzz_must(run(sql_global_statement(g, p, 1), &w) == 0);
        sql_global_answered(g, p, 1, 1);
    }
    struct way answer = {.g = NULL};
    const struct sql_sink sink = {.arg = &answer, .columns = pass_columns, .rows = pass_rows};
    int rc = sql_global_run(g, &sink, NULL);
    fuzz_must(rc == 0 || err_text()[0] != '\0');
    fuzz_must(sql_global_asked(g) == 2 && sql_global_answers(g) >= 1);
    fuzz_must((sql_global_answers(g) == 2) == (sql_global_why(g, 0) == NULL));
    fuzz_must(sql_global_why(g, 1) == NULL);
    sql_global_free(g);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    struct buf cells;
    begin();
    buf_init(&cells, max - 1);
    struct sql_global *g = prepare(0);
    struct way w = {.cells = &cells};
    fuzz_must(run(sql_global_statement(g, 0, 0), &w) == 0 && !cells.failed);
    sql_global_free(g);
    data[0] = 0;
    memcpy(data + 1, cells.data, cells.size);
    size_t size = 1 + cells.size;
    buf_done(&cells);
    return size;
}
