/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/sqlite_test.c - thousands of generated queries, answered by us and by SQLite, compared.
 *
 * SQLite is loaded when it is there (else the test says that it is skipped).  Where the two differ
 * by design the generator (sqlite_queries_test.h) keeps away: division by zero (ours: an error; so
 * divisors are nullif), integer overflow (ours: an error; so numbers are small), casts of doubles
 * to integers (ours rounds), comparing numbers with texts (ours: an error), NULLs in order by
 * (always said), LIKE (SQLite's is told to mind the case).  PROBING_FUZZ_RUNS=n asks for more
 * queries, PROBING_FUZZ_SEED=n for others.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/sql.h"
#include "core/sql/sqlite_queries_test.h"
#include "sdk/lib/buf.h"
#include "tests/test.h"

#ifdef __SANITIZE_THREAD__
#define QUERIES 500 /* one thread: there is little for the thread sanitizer to see */
#else
#define QUERIES 10000
#endif
#define LINES_MAX 4096

/* The few functions of SQLite's C interface that are used (sqlite.org/c3ref). */
static struct {
    int (*open)(const char *, void **);
    int (*close)(void *);
    int (*exec)(void *, const char *, void *, void *, char **);
    int (*prepare)(void *, const char *, int, void **, const char **);
    int (*step)(void *);
    int (*finalize)(void *);
    int (*count)(void *);
    int (*type)(void *, int);
    int64_t (*integer)(void *, int);
    double (*number)(void *, int);
    const unsigned char *(*text)(void *, int);
    const char *(*message)(void *);
} lite;

static void *db;
static uint64_t rows_compared;
static struct sql *engine;
static int scan(void *self, struct probing_rows *out)
{
    (void)self;
    for (int i = 0; i < ROWS; i++) {
        const struct cells *d = &data[i];
        union probing_cell c[6] = {{.i = d->null[0] ? PROBING_NULL_I64 : d->a},
                                   {.i = d->null[1] ? PROBING_NULL_I64 : d->b},
                                   {.f = d->c},
                                   {.s = d->null[3] ? NULL : d->s},
                                   {.s = d->null[4] ? NULL : d->u},
                                   {.i = d->h}};
        if (d->null[2])
            c[2].u = PROBING_NULL_F64;
        int rc = out->row(out, c, 6);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool fill_sqlite(void)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_adds(
        &b, "pragma case_sensitive_like = on;"
            "create table t(a integer, b integer, c real, s text, u text, h integer);begin;");
    for (int i = 0; i < ROWS; i++) {
        const struct cells *d = &data[i];
        (void)buf_adds(&b, "insert into t values(");
        (void)(d->null[0] ? buf_adds(&b, "null") : buf_addf(&b, "%d", (int)d->a));
        (void)(d->null[1] ? buf_adds(&b, ",null") : buf_addf(&b, ",%d", (int)d->b));
        (void)(d->null[2] ? buf_adds(&b, ",null") : buf_addf(&b, ",%.2f", d->c));
        (void)(d->null[3] ? buf_adds(&b, ",null") : buf_addf(&b, ",'%s'", d->s));
        (void)(d->null[4] ? buf_adds(&b, ",null") : buf_addf(&b, ",'%s'", d->u));
        (void)buf_addf(&b, ",%lld);", (long long)d->h);
    }
    (void)buf_adds(&b, "commit;");
    bool good = lite.exec(db, buf_text(&b), NULL, NULL, NULL) == 0;
    buf_done(&b);
    return good;
}

/* ---- answers, as sorted lines ---- */

struct lines {
    char *line[LINES_MAX];
    uint32_t n, columns;
    struct buf now;
};

static void add_number(struct buf *b, double v)
{
    (void)buf_addf(b, "%.12g|", v + 0.0);
}

static void end_line(struct lines *l)
{
    if (l->n < LINES_MAX)
        l->line[l->n++] = strdup(buf_text(&l->now));
    buf_reset(&l->now);
}

static int take_rows(void *arg, const struct sql_rows *rows)
{
    struct lines *l = arg;
    for (uint32_t r = 0; r < sql_rows_count(rows); r++) {
        for (uint32_t c = 0; c < l->columns; c++) {
            struct sql_value v;
            sql_rows_value(rows, r, c, &v);
            if (v.type == SQL_NULL)
                (void)buf_adds(&l->now, "null|");
            else if (v.type == SQL_TEXT)
                (void)buf_addf(&l->now, "'%.*s'|", (int)v.text.size, v.text.data);
            else if (v.type == SQL_DOUBLE)
                add_number(&l->now, v.number);
            else
                add_number(&l->now, v.type == SQL_BOOL ? v.boolean : (double)v.integer);
        }
        end_line(l);
    }
    return 0;
}

static int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct lines *l = arg;
    (void)columns;
    l->columns = n;
    buf_init(&l->now, 65536);
    return 0;
}

static int by_text(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

static void drop(struct lines *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        free(l->line[i]);
    buf_done(&l->now);
}

static bool ask_sqlite(const char *text, struct lines *l)
{
    void *st = NULL;
    buf_init(&l->now, 65536);
    if (lite.prepare(db, text, -1, &st, NULL) != 0)
        return false;
    int rc;
    while ((rc = lite.step(st)) == 100) { /* SQLITE_ROW */
        for (int c = 0; c < lite.count(st); c++) {
            int type = lite.type(st, c); /* 1 integer, 2 float, 3 text, 5 null */
            if (type == 5)
                (void)buf_adds(&l->now, "null|");
            else if (type == 3)
                (void)buf_addf(&l->now, "'%s'|", lite.text(st, c));
            else
                add_number(&l->now, type == 1 ? (double)lite.integer(st, c) : lite.number(st, c));
        }
        end_line(l);
    }
    lite.finalize(st);
    return rc == 101; /* SQLITE_DONE */
}

static bool compare(const char *text)
{
    struct lines ours = {.n = 0}, theirs = {.n = 0};
    struct sql_sink sink = {.arg = &ours, .columns = take_columns, .rows = take_rows};
    int rc = sql_run(engine, text, strlen(text), NULL, &sink, NULL);
    bool good = ask_sqlite(text, &theirs);
    bool same = good == (rc == 0);
    if (!same)
        printf("# %s\n#   ours: %s, SQLite: %s\n", text, rc ? err_text() : "fine",
               good ? "fine" : lite.message(db));
    if (rc == 0 && good) {
        qsort(ours.line, ours.n, sizeof(char *), by_text);
        qsort(theirs.line, theirs.n, sizeof(char *), by_text);
        same = ours.n == theirs.n;
        uint32_t at = 0;
        while (at < ours.n && at < theirs.n && strcmp(ours.line[at], theirs.line[at]) == 0)
            at++;
        same = same && at == ours.n;
        rows_compared += at;
        if (!same)
            printf("# %s\n#   %u and %u rows; row %u is %s, SQLite has %s\n", text, ours.n,
                   theirs.n, at, at < ours.n ? ours.line[at] : "missing",
                   at < theirs.n ? theirs.line[at] : "none");
    }
    drop(&ours);
    drop(&theirs);
    return same;
}

TEST(same_answers_as_sqlite)
{
    uint64_t runs = QUERIES;
    const char *more = getenv("PROBING_FUZZ_RUNS"), *start = getenv("PROBING_FUZZ_SEED");
    if (more && parse_u64(more, &runs) < 0)
        runs = QUERIES;
    if (start)
        (void)parse_u64(start, &seed);
    uint32_t different = 0;
    struct buf b;
    buf_init(&b, 1 << 16);
    for (uint64_t i = 0; i < runs && different < 10; i++) {
        buf_reset(&b);
        gen_query(&b);
        different += !compare(buf_text(&b));
    }
    buf_done(&b);
    CHECK_INT(different, 0);
    CHECK(rows_compared > 20 * runs); /* the generator must not have become toothless */
}

static bool load_sqlite(void)
{
    void *l = dlopen("libsqlite3.so.0", RTLD_NOW);
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"sqlite3_open", &lite.open},
                   {"sqlite3_close", &lite.close},
                   {"sqlite3_exec", &lite.exec},
                   {"sqlite3_prepare_v2", &lite.prepare},
                   {"sqlite3_step", &lite.step},
                   {"sqlite3_finalize", &lite.finalize},
                   {"sqlite3_column_count", &lite.count},
                   {"sqlite3_column_type", &lite.type},
                   {"sqlite3_column_int64", &lite.integer},
                   {"sqlite3_column_double", &lite.number},
                   {"sqlite3_column_text", &lite.text},
                   {"sqlite3_errmsg", &lite.message}};
    for (size_t i = 0; l && i < sizeof(symbols) / sizeof(*symbols); i++) {
        void *f = dlsym(l, symbols[i].name);
        if (!f)
            return false;
        memcpy(symbols[i].to, &f, sizeof(f));
    }
    return l && lite.open(":memory:", &db) == 0;
}

int main(void)
{
    static const struct probing_column columns[] = {
        {.name = "a", .type = PROBING_I64}, {.name = "b", .type = PROBING_I64},
        {.name = "c", .type = PROBING_F64}, {.name = "s", .type = PROBING_STR},
        {.name = "u", .type = PROBING_STR}, {.name = "h", .type = PROBING_I64}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(*columns),
                                                   .name = "test.t",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 6,
                                                   .scan = scan};
    struct tables *tables;
    struct table *t;
    if (!load_sqlite())
        return test_skip("no libsqlite3.so.0 here to compare with (apt install libsqlite3-0)");
    make_data();
    if (tables_new(&tables) || tables_add(tables, "test", &desc, NULL, &t) ||
        sql_new(tables, NULL, &engine) || !fill_sqlite()) {
        printf("# %s %s\n", err_text(), lite.message(db));
        return 1;
    }
    RUN(same_answers_as_sqlite);
    lite.close(db);
    sql_free(engine);
    tables_free(tables);
    return test_end();
}
