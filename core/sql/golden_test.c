/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/golden_test.c - statements with their answers in files: golden/NAME.sql.
 *
 * A file is blocks with a blank line between them: the statement, `----`, the answer as CSV without
 * its header line.  Lines that begin with `--` above a statement say what it shows and which other
 * engine gave the same answer (golden/check.py asks them).  PROBING_GOLDEN=write puts our answers
 * into the files, for somebody to read and judge; a statement as argument is run and shown; `-` as
 * argument answers standard input line by line, for tests/sql/test_postgres.py: see answer_lines().
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "sdk/lib/json.h"
#include "tests/test.h"

#define DIRECTORY "core/sql/golden"

#define COLUMNS_MAX 32

static struct sql *engine;
static struct store *store;  /* of answer_lines() */
static struct table *stored; /* the last */
static struct arena names;

static int add_bytes(void *arg, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i] != '\r')
            (void)buf_addc(arg, data[i]);
    return 0;
}

/* The answer's lines without the header, or "error: ...". */
static void ask(const char *text, size_t size, struct buf *ret)
{
    struct sql_writer *w;
    struct sql_report report;
    struct buf out;
    buf_init(&out, 1 << 22);
    if (sql_writer_new(SQL_FORMAT_CSV, 0, add_bytes, &out, &w) < 0)
        return;
    struct sql_sink sink = sql_writer_sink(w);
    if (sql_run(engine, text, size, NULL, &sink, &report) < 0) {
        (void)buf_addf(ret, "error: %s\n", err_text());
    } else {
        const char *line = strchr(buf_text(&out), '\n');
        for (line = line ? line + 1 : ""; *line;) { /* a lone NULL would be an empty line */
            size_t n = strcspn(line, "\n");
            (void)buf_addf(ret, "%.*s\n", (int)(n ? n : 6), n ? line : "(null)");
            line += n + (line[n] != '\0');
        }
    }
    sql_writer_free(w);
    buf_done(&out);
}

static void run_block(const char *file, const char *block, size_t size, struct buf *written)
{
    const char *statement = block, *end = block + size;
    const char *line = memmem(block, size, "\n----\n", 6);
    while (statement < end && strncmp(statement, "--", 2) == 0 && strchr(statement, '\n'))
        statement = strchr(statement, '\n') + 1;
    size_t n = (size_t)((line ? line : end) - statement);
    (void)buf_add(written, block, (size_t)((line ? line : end) - block));
    if (statement >= (line ? line : end) || strspn(statement, "\n") >= n)
        return; /* a comment alone */
    struct buf answer, expected;
    buf_init(&answer, 1 << 22);
    buf_init(&expected, 1 << 22);
    ask(statement, n, &answer);
    if (line)
        (void)buf_add(&expected, line + 6, (size_t)(end - line - 6));
    if (expected.size && expected.data[expected.size - 1] != '\n')
        (void)buf_addc(&expected, '\n');
    (void)buf_addf(written, "\n----\n%s", buf_text(&answer));
    if (!getenv("PROBING_GOLDEN") && strcmp(buf_text(&answer), buf_text(&expected)) != 0) {
        printf("# %s: %.*s\n", file, (int)n, statement);
        CHECK_STR(buf_text(&answer), buf_text(&expected));
    }
    buf_done(&answer);
    buf_done(&expected);
}

static bool run_file(const char *name)
{
    char path[512];
    if (strcmp(name, "time_zones.sql") == 0 && access("/usr/share/zoneinfo/Europe/Berlin", R_OK))
        return true; /* none of them here */
    struct buf text, written;
    (void)snprintf(path, sizeof(path), "%s/%s", DIRECTORY, name);
    buf_init(&text, 1 << 22);
    buf_init(&written, 1 << 22);
    int rc = file_read(AT_FDCWD, path, &text);
    const char *block = rc < 0 ? "" : buf_text(&text);
    while (*block) {
        const char *end = strstr(block, "\n\n");
        size_t size = end ? (size_t)(end + 1 - block) : strlen(block);
        run_block(name, block, size, &written);
        block += end ? size + 1 : size;
        if (*block)
            (void)buf_addc(&written, '\n');
    }
    if (getenv("PROBING_GOLDEN")) {
        FILE *f = fopen(path, "w");
        if (f) {
            (void)fwrite(written.data, 1, written.size, f);
            (void)fclose(f);
        }
    }
    buf_done(&text);
    buf_done(&written);
    return rc >= 0;
}

/* Whole numbers, doubles and texts as a plugin would store them. */
static int add_table(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct probing_column *c = arena_zalloc(&names, n, sizeof(*c));
    struct probing_table_desc *desc = arena_zalloc(&names, 1, sizeof(*desc));
    if (!c || !desc)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        c[i] = (struct probing_column){
            .name = arena_text(&names, columns[i].name, strlen(columns[i].name)),
            .type = columns[i].type == SQL_TEXT     ? PROBING_STR
                    : columns[i].type == SQL_DOUBLE ? PROBING_F64
                                                    : PROBING_I64};
    *desc = (struct probing_table_desc){.size = sizeof(*desc),
                                        .column_size = sizeof(*c),
                                        .name = arg,
                                        .doc = "",
                                        .columns = c,
                                        .n_columns = n};
    return store_table_add(store, "golden", desc, NULL, &stored);
}

static int to_cell(const struct sql_value *v, uint32_t type, union probing_cell *ret)
{
    bool null = v->type == SQL_NULL;
    if (type == PROBING_STR && !null)
        return intern(store_interns(store), v->text.data, v->text.size, &ret->u);
    if (type == PROBING_STR)
        ret->u = 0;
    else if (type == PROBING_F64 && null)
        ret->u = PROBING_NULL_F64;
    else if (type == PROBING_F64)
        ret->f = v->number;
    else
        ret->i = null ? PROBING_NULL_I64 : v->integer;
    return 0;
}

/* Some of them drained, the others still in the ring. */
static int add_rows(void *arg, const struct sql_rows *rows)
{
    int rc = 0;
    (void)arg;
    for (uint32_t r = 0; r < sql_rows_count(rows) && rc >= 0; r++) {
        union probing_cell cells[COLUMNS_MAX];
        struct sql_value v;
        for (uint32_t c = 0; c < stored->n_cells && rc >= 0; c++) {
            sql_rows_value(rows, r, c, &v);
            rc = to_cell(&v, stored->columns[c + 2].type, &cells[c]);
        }
        rc = rc < 0 ? rc : ring_append(stored, clock_now(), cells, stored->n_cells, NULL, 0);
        if (rc == 0 && r == sql_rows_count(rows) / 2)
            rc = store_drain(store);
    }
    return rc < 0 ? rc : 0;
}

/* `table NAME SELECT` stores the rows of a select, `view NAME SELECT` keeps the select itself. */
static bool take_definition(char *line)
{
    bool table = strncmp(line, "table ", 6) == 0;
    char *name = line + (table ? 6 : 5), *text = strchr(name, ' ');
    if ((!table && strncmp(line, "view ", 5) != 0) || !text)
        return false;
    *text++ = '\0';
    char *copy = arena_text(&names, name, strlen(name));
    const struct sql_sink sink = {.arg = copy, .columns = add_table, .rows = add_rows};
    int rc = table ? sql_run(engine, text, strlen(text), NULL, &sink, NULL)
                   : sql_add_view(engine, name, text, "");
    CHECK_INT(rc, 0);
    return true;
}

/* A line of JSON for each line of standard input, a statement: the answer, or its error. */
static int answer_lines(void)
{
    static const struct sql_options limits = {.timeout_ns = 20 * NS_PER_S}; /* as PostgreSQL's */
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    while ((size = getline(&line, &room, stdin)) > 0) {
        struct sql_writer *w;
        struct sql_report report;
        struct buf out;
        line[size - 1] = '\0';
        if (take_definition(line))
            continue;
        buf_init(&out, 1 << 26);
        if (sql_writer_new(SQL_FORMAT_JSON, 0, add_bytes, &out, &w) < 0)
            return 1;
        struct sql_sink sink = sql_writer_sink(w);
        int rc = sql_run(engine, line, (size_t)size - 1, &limits, &sink, &report);
        if (rc == 0)
            rc = sql_writer_finish(w, &report);
        if (rc < 0) {
            out.size = 0;
            (void)buf_adds(&out, "{\"error\":");
            (void)json_add_text(&out, err_text(), strlen(err_text()));
            (void)buf_adds(&out, "}\n");
        }
        (void)fwrite(out.data, 1, out.size, stdout);
        (void)fflush(stdout);
        sql_writer_free(w);
        buf_done(&out);
    }
    free(line);
    return 0;
}

TEST(answers_are_as_written)
{
    DIR *d = opendir(DIRECTORY);
    const struct dirent *e;
    uint32_t n = 0;
    while (d && (e = readdir(d)))
        if (strlen(e->d_name) > 4 && strcmp(e->d_name + strlen(e->d_name) - 4, ".sql") == 0)
            n += CHECK(run_file(e->d_name));
    CHECK(n >= 5);
    if (d)
        (void)closedir(d);
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/probing-golden-XXXXXX";
    bool lines = argc > 1 && strcmp(argv[1], "-") == 0;
    struct store_options o = {.directory = directory, .max_bytes = 64u << 20};
    struct tables *tables;
    int rc = tables_new(&tables);
    arena_init(&names, 1 << 20);
    if (lines && (!mkdtemp(directory) || rc < 0 || store_create(&o, tables, &store) < 0))
        return 1;
    if (rc < 0 || sql_new(tables, store, &engine) < 0) {
        printf("# %s\n", err_text());
        return 1;
    }
    if (lines) {
        rc = answer_lines();
    } else if (argc > 1) {
        struct buf answer;
        buf_init(&answer, 1 << 22);
        ask(argv[1], strlen(argv[1]), &answer);
        printf("%s", buf_text(&answer));
        buf_done(&answer);
    } else {
        RUN(answers_are_as_written);
        rc = test_end();
    }
    sql_free(engine);
    if (lines) {
        store_free(store);
        (void)file_remove_dir(directory);
    }
    tables_free(tables);
    arena_done(&names);
    return rc;
}
