/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/unparse_test.c - every statement of the golden files, written back and asked
 * again: the same columns and rows.
 *
 * A test's own thread.
 */
#include "core/sql/distribute/unparse.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "tests/test.h"

#define DIRECTORY "core/sql/golden"

static struct sql *engine;
static uint32_t tried;

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* Columns and rows as JSON, without the time it took. */
static int ask(const char *text, size_t size, struct buf *ret)
{
    struct sql_writer *w;
    struct sql_report report;
    int rc = sql_writer_new(SQL_FORMAT_JSON, 0, add_bytes, ret, &w);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(w);
    rc = sql_run(engine, text, size, NULL, &sink, &report);
    report.elapsed_ns = 0;
    if (rc == 0)
        rc = sql_writer_finish(w, &report);
    sql_writer_free(w);
    return rc;
}

/* false: it is no select. */
static bool write_back(const char *text, size_t size, struct buf *ret)
{
    struct arena a;
    struct statement st;
    arena_init(&a, 0);
    buf_init(ret, SQL_TEXT_BYTES);
    bool is_select = sql_parse(&a, text, size, &st) == 0 && st.kind == STATEMENT_SELECT;
    if (is_select) {
        struct unparser u = {.out = ret, .text = text, .size = size};
        unparse_select(&u, st.select);
        CHECK(!ret->failed);
    }
    arena_done(&a);
    return is_select;
}

static void check_statement(const char *text, size_t size)
{
    struct buf before, after, once, twice;
    buf_init(&before, 1 << 22);
    buf_init(&after, 1 << 22);
    bool fine = ask(text, size, &before) == 0;
    if (fine && write_back(text, size, &once)) {
        tried++;
        if (!CHECK_INT(ask(buf_text(&once), once.size, &after), 0))
            printf("# %.*s\n# %s\n# %s\n", (int)size, text, buf_text(&once), err_text());
        else if (!strstr(text, "now()") && strcmp(buf_text(&before), buf_text(&after)) != 0) {
            printf("# %.*s\n# %s\n", (int)size, text, buf_text(&once));
            CHECK_STR(buf_text(&after), buf_text(&before));
        }
        CHECK(write_back(buf_text(&once), once.size, &twice));
        if (strcmp(buf_text(&once), buf_text(&twice)) != 0)
            CHECK_STR(buf_text(&twice), buf_text(&once));
        buf_done(&once);
        buf_done(&twice);
    }
    buf_done(&before);
    buf_done(&after);
}

static void check_file(const char *name)
{
    char path[512];
    struct buf text;
    (void)snprintf(path, sizeof(path), "%s/%s", DIRECTORY, name);
    buf_init(&text, 1 << 22);
    CHECK(file_read(AT_FDCWD, path, &text) >= 0);
    for (const char *block = buf_text(&text); *block;) {
        const char *end = strstr(block, "\n\n"), *line = strstr(block, "\n----");
        size_t size = end ? (size_t)(end - block) : strlen(block);
        const char *stop = line && line < block + size ? line : block + size, *from = block;
        while (from < stop && strncmp(from, "--", 2) == 0 && strchr(from, '\n'))
            from = strchr(from, '\n') + 1;
        if (from < stop)
            check_statement(from, (size_t)(stop - from));
        block += end ? size + 2 : size;
    }
    buf_done(&text);
}

TEST(golden_statements_are_the_same_written_back)
{
    DIR *d = opendir(DIRECTORY);
    const struct dirent *e;
    while (d && (e = readdir(d)))
        if (strlen(e->d_name) > 4 && strcmp(e->d_name + strlen(e->d_name) - 4, ".sql") == 0)
            check_file(e->d_name);
    CHECK(tried > 250);
    if (d)
        (void)closedir(d);
}

static const char *back(const char *text)
{
    static char answer[2048];
    struct buf b;
    answer[0] = '\0';
    if (write_back(text, strlen(text), &b))
        (void)snprintf(answer, sizeof(answer), "%s", buf_text(&b));
    buf_done(&b);
    return answer;
}

TEST(what_golden_files_lack)
{
    CHECK_STR(back("select a\"b\" from \"T t\".x"), "select a as \"b\" from \"T t\".\"x\"");
    CHECK_STR(back("select 'it''s', \"say \"\"x\"\"\", -1, -0.50, 1e300"),
              "select 'it''s' as \"'it''s'\", \"say \"\"x\"\"\", (-1) as \"-1\", (-0.50) as "
              "\"-0.50\", 1.0000000000000001e+300 as \"1e300\"");
    CHECK_STR(back("with a as (select 1), b as (with c as (select 2) select * from c, a) "
                   "select * from b"),
              "with \"a\" as (select 1 as \"1\"), \"b\" as (with \"c\" as (select 2 as \"2\") "
              "select * from \"c\" cross join \"a\") select * from \"b\"");
    CHECK_STR(
        back("select sum(x) over w from t window w as (order by y), v as (w rows 1 preceding)"),
        "select sum(x) over \"w\" as \"sum(x) over w\" from \"t\" window \"w\" as ( order by "
        "y nulls last), \"v\" as (\"w\" rows between 1 preceding and current row)");
}

int main(void)
{
    struct tables *tables;
    if (tables_new(&tables) || sql_new(tables, NULL, &engine)) {
        printf("# %s\n", err_text());
        return 1;
    }
    RUN(golden_statements_are_the_same_written_back);
    RUN(what_golden_files_lack);
    sql_free(engine);
    tables_free(tables);
    return test_end();
}
