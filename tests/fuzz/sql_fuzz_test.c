/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/sql_fuzz_test.c - statements nobody would write: none may crash, hang or eat memory.
 *
 * Every line of corpus/sql.txt is run as it is, then mutated: bytes changed, pieces cut, doubled
 * and exchanged between lines.  A statement that was found to break something becomes a line of
 * the corpus.  PROBING_FUZZ_RUNS=n asks for more, PROBING_FUZZ_SEED=n for others.  Best run under
 * asan.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/sql/sql.h"
#include "tests/test.h"

#include <fcntl.h>

#define RUNS 4000
#define LINES_MAX 512
#define TEXT_BYTES 4096

static struct sql *engine;
static char *lines[LINES_MAX];
static uint32_t n_lines;
static uint64_t seed = 1;

static uint32_t below(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

static int scan(void *self, struct probing_rows *out)
{
    static const char *const modules[] = {"encoder", "h\xc3\xa9\x64", "", NULL};
    (void)self;
    for (int i = 0; i < 50; i++) {
        union probing_cell c[6] = {{.i = i / 10},
                                   {.s = modules[i % 4]},
                                   {.s = modules[i % 3]},
                                   {.f = 0.25 * i},
                                   {.i = (int64_t)i * 1000000000},
                                   {.i = i % 10 == 9 ? PROBING_NULL_I64 : INT64_MAX - i}};
        int rc = out->row(out, c, 6);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int drop_bytes(void *arg, const char *data, size_t size)
{
    (void)arg;
    (void)data;
    (void)size;
    return 0;
}

/* Run one; true when it ended in a way that it may. */
static bool run(const char *text, size_t size)
{
    struct sql_options o = {
        .timeout_ns = 50 * NS_PER_MS, .memory_bytes = 32u << 20, .max_rows = 5000};
    struct sql_writer *w;
    struct sql_report report;
    const struct table *table;
    uint64_t begin = clock_monotonic();
    if (sql_writer_new((enum sql_format)below(4), below(100), drop_bytes, NULL, &w) < 0)
        return false;
    struct sql_sink sink = sql_writer_sink(w);
    int rc = sql_run(engine, text, size, &o, &sink, &report);
    bool said = rc == 0 || err_text()[0] != '\0';
    if (rc == 0)
        (void)sql_writer_finish(w, &report);
    sql_writer_free(w);
    (void)sql_followable(engine, text, size, &table);
    bool quick = clock_monotonic() - begin < 3 * NS_PER_S; /* limits hold, other load allowed for */
    if (!said || !quick)
        printf("# %s: %.*s\n", said ? "slow" : "no reason given", (int)size, text);
    return said && quick;
}

static size_t mutate(char *text, size_t size)
{
    static const char *const pieces[] = {"(",
                                         ")",
                                         "'",
                                         "\"",
                                         "--",
                                         "/*",
                                         " and ",
                                         " not ",
                                         " null ",
                                         "select ",
                                         " from ",
                                         "case ",
                                         "*",
                                         ",",
                                         ".",
                                         "::int ",
                                         "9223372036854775807",
                                         "1e308",
                                         " group by ",
                                         " over ("};
    uint32_t at = below((uint32_t)size + 1), n = below(12) + 1;
    const char *other = lines[below(n_lines)];
    switch (below(6)) {
    case 0:
        if (at < size)
            text[at] = (char)below(256);
        return size;
    case 1: /* cut a piece */
        n = n > size - at ? (uint32_t)(size - at) : n;
        memmove(text + at, text + at + n, size - at - n);
        return size - n;
    case 2: /* double a piece */
        n = n > size - at ? (uint32_t)(size - at) : n;
        break;
    case 3: { /* go on as another line does */
        uint32_t from = below((uint32_t)strlen(other) + 1);
        size_t rest = strlen(other) - from;
        rest = rest > TEXT_BYTES - at ? TEXT_BYTES - at : rest;
        memcpy(text + at, other + from, rest);
        return at + rest;
    }
    default: { /* put in a word that means something */
        const char *piece = pieces[below(sizeof(pieces) / sizeof(*pieces))];
        n = (uint32_t)strlen(piece);
        if (size + n > TEXT_BYTES)
            return size;
        memmove(text + at + n, text + at, size - at);
        memcpy(text + at, piece, n);
        return size + n;
    }
    }
    if (size + n > TEXT_BYTES)
        return size;
    memmove(text + at + n, text + at, size - at);
    return size + n;
}

TEST(corpus_runs)
{
    for (uint32_t i = 0; i < n_lines; i++)
        CHECK(run(lines[i], strlen(lines[i])));
}

TEST(mutants_run)
{
    static char text[TEXT_BYTES + 1];
    uint64_t runs = RUNS;
    const char *more = getenv("PROBING_FUZZ_RUNS"), *start = getenv("PROBING_FUZZ_SEED");
    if (more)
        (void)parse_u64(more, &runs);
    if (start)
        (void)parse_u64(start, &seed);
    for (uint64_t i = 0; i < runs; i++) {
        const char *line = lines[below(n_lines)];
        size_t size = strlen(line) > TEXT_BYTES ? TEXT_BYTES : strlen(line);
        memcpy(text, line, size);
        for (uint32_t k = below(4) + 1; k > 0; k--)
            size = mutate(text, size);
        if (!CHECK(run(text, size)))
            return;
    }
}

static bool read_corpus(struct buf *b)
{
    buf_init(b, 1 << 20);
    if (file_read(AT_FDCWD, "tests/fuzz/corpus/sql.txt", b) < 0)
        return false;
    for (char *line = b->data; line && *line && n_lines < LINES_MAX;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        if (*line)
            lines[n_lines++] = line;
        line = end ? end + 1 : NULL;
    }
    return n_lines > 0;
}

int main(void)
{
    static const struct probing_column columns[] = {
        {.name = "local_step", .type = PROBING_I64}, {.name = "module", .type = PROBING_STR},
        {.name = "stage", .type = PROBING_STR},      {.name = "duration", .type = PROBING_F64},
        {.name = "ts", .type = PROBING_TIME},        {.name = "allocated", .type = PROBING_I64}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(*columns),
                                                   .name = "python.torch_trace",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 6,
                                                   .scan = scan};
    struct tables *tables;
    struct table *t;
    struct buf corpus;
    if (!read_corpus(&corpus) || tables_new(&tables) ||
        tables_add(tables, "python", &desc, NULL, &t) || sql_new(tables, NULL, &engine) ||
        sql_add_view(engine, "memory_usage",
                     "select ts as timestamp, allocated as memory_mb from python.torch_trace",
                     "")) {
        printf("# %s (run from the checkout's root)\n", err_text());
        return 1;
    }
    RUN(corpus_runs);
    RUN(mutants_run);
    sql_free(engine);
    tables_free(tables);
    buf_done(&corpus);
    return test_end();
}
