/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/sql_fuzz_test.c - statements nobody would write: none may crash, hang or eat memory.
 *
 * Every line of corpus/sql.txt is run as it is, then mutated: bytes changed, pieces cut, doubled
 * and exchanged between lines.  Others are made from a grammar, so that most of them mean
 * something; some of those are mutated too.  A statement that was found to break something becomes
 * a line of the corpus.  PROBING_FUZZ_RUNS=n asks for more, PROBING_FUZZ_SEED=n for others.  Best
 * run under asan.
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

#define RUNS 10000 /* of each kind */
#define DEPTH 7    /* of what the grammar makes */
#define LINES_MAX 512
#define TEXT_BYTES 4096

static struct sql *engine;
static char *lines[LINES_MAX];
static uint32_t n_lines;
static uint64_t seed = 1;
static int last_code; /* what the last statement gave */

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
    last_code = rc;
    /* A sentence under another code would be told as a bare errno's. */
    bool said = rc == 0 || (err_text()[0] != '\0' && strcmp(err_why(rc), err_text()) == 0);
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
                                         " rollup (",
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

/* ---- statements from a grammar: <name> is one of the forms of a rule, the first ends it ---- */

#define FORMS_MAX 32 /* of one rule */
static const struct rule {
    const char *name;
    const char *forms[FORMS_MAX];
} rules[] = {
    {"select",
     {"select <expr> from torch_trace limit 3",
      "select <items> from <from> <where> <group> <tail>",
      "select distinct <items> from <from> <where> <tail>",
      "select <items> from <from> <where>",
      "<select> <set> <select>",
      "with w as (<select>) select * from w <tail>",
      "with w(p) as (select <expr>) select p, <expr> from w, torch_trace",
      "values (<expr>, <lit>), (<lit>, <lit>)",
      "with recursive r(n) as (select <int> union select (n * 7 + 1) % <int> from r) <select>",
      ("with recursive r(n, x) as (select 1, <lit> union all select n + 1, <expr> from r, "
       "torch_trace t where n < <int>) select * from r <tail>"),
      "with recursive r(n) as (<select> union <select>) select * from r",
      "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5 and <of_r>) "
      "<select>",
      "with recursive r(n) as (select <int> union select r.n + 1 from r, lateral (select q.n as m "
      "from r q where <of_r>) l where r.n < 4) select r.n, l.* from r, lateral (<select>) l",
      "select local_step, (with recursive r(n) as (select t.local_step union all select n + 1 from "
      "r where n < t.local_step + 2 and <of_r>) select max(n) from r) from torch_trace t <where>",
      "select distinct on (<expr>, <col>) <items> from <from> <where> <tail>",
      "select <items> from <from> window w as (<window>) <tail>",
      "select <agg>, <agg> from <from> <where>",
      "select <expr> as k, <agg> from <from> group by 1 having <bool> <tail>",
      "select * exclude (ts, module) from torch_trace <where> <tail>",
      "from <from> <where> <tail>",
      "from <from> select <items> <where> <group> <tail>"}},
    {"of_r", /* within its second part */
     {"true", "exists (select 1 from r q where q.n = r.n)", "r.n in (select n from r)",
      "(select max(q.n) from r q where q.n <= r.n and <of_r>) > <int>", "<bool>",
      "exists (select <agg> from r q, lateral (select r.n as m from r) l where l.m = q.n)",
      "exists (with recursive s(m) as (select n from r union select m + 1 from s where m < 4 and "
      "exists (select 1 from r q where q.n = s.m and <of_r>)) select 1 from s where s.m = r.n)"}},
    {"set", {"union all", "union", "intersect", "except", "intersect all", "except all"}},
    {"items",
     {"*", "<expr>", "<expr> as x, <expr>", "<agg>", "<win>, <expr>", "module, <agg>",
      "t.*, <expr>", "<expr>, <win>, <win>", "* replace (<expr> as module)",
      "<expr> as x, x, <agg> as y, y", "<win> as x, x + 1"}},
    {"from",
     {"torch_trace t", "torch_trace", "(<select>) t", "torch_trace t <join> torch_trace u <on>",
      "torch_trace t, generate_series(1, <int>) g", "torch_trace t, lateral (<select>) l",
      "generate_series(<lit>, <int>) g",
      ("torch_trace t left join lateral (select <expr> as p, <agg> from torch_trace i <where>) l "
       "on "
       "true"),
      "torch_trace t, generate_series(t.local_step, <int>) g",
      "torch_trace t join lateral (select <expr> as local_step, t.module where <bool>) u <on>",
      "(values (1, 'a'), (2, null)) t(local_step, module)",
      "torch_trace t <join> (<select>) u using (module)", "memory_usage t",
      "torch_trace t asof join torch_trace u on t.module = u.module and t.ts >= u.ts",
      "torch_trace t natural join torch_trace u", "r",
      "json_each('{\"a\": [1, 2], \"b\": null}') t",
      "unnest(array[<expr>, <lit>]) with ordinality as t(local_step, module)"}},
    {"join", {"join", "left join", "right join", "full join", "inner join"}},
    {"on",
     {"on t.module = u.module", "on t.local_step = u.local_step and <bool>", "on <bool>",
      "using (module, stage)", "on t.duration < u.duration"}},
    {"where", {"", "where <bool>", "where <bool> and <bool>", "where local_step > <int>"}},
    {"group",
     {"", "group by 1", "group by module, stage", "group by <expr>", "group by all", "group by ()",
      "group by rollup (<expr>, <col>)", "group by cube (1, <col>, <expr>)",
      "group by grouping sets ((<col>, <expr>), <col>, ())",
      "group by <col>, rollup (<col>), grouping sets (rollup (<expr>), cube (<col>), (1))"}},
    {"tail",
     {"", "order by 1", "order by <expr> desc nulls last limit <int>", "limit <int>",
      "order by (1, 2) limit <int> offset <int>", "limit <int> offset <int>", "order by all",
      "order by all desc limit <int>", "order by 1 fetch first row only",
      "order by <expr> fetch first <int> rows with ties"}},
    {"expr",
     {"<col>", "<lit>", "(<expr> <op> <expr>)", "<fn>",
      "case when <bool> then <expr> else <expr> end", "case <expr> when <lit> then <expr> end",
      "coalesce(<expr>, <expr>)", "<bool>", "cast(<expr> as <type>)", "<expr>::<type>",
      "(select <agg> from torch_trace i where i.module = t.module)",
      "(select <expr> from torch_trace limit 1)", "- <expr>", "nullif(<expr>, <lit>)",
      "try_cast(<expr> as <type>)", "(<expr> || <expr>)"}},
    {"bool",
     {"true",
      "<expr> <cmp> <expr>",
      "<expr> <cmp> <lit>",
      "<col> is null",
      "<expr> is not null",
      "<bool> and <bool>",
      "<bool> or <bool>",
      "not <bool>",
      "<col> in (<lit>, <lit>, <lit>)",
      "<col> between <lit> and <lit>",
      "<expr> between symmetric <expr> and <lit>",
      "module like '<pat>'",
      "module ~ '<re>'",
      "exists (select 1 from torch_trace i where i.local_step = t.local_step and <bool>)",
      "<col> in (select <col> from torch_trace)",
      "(<col>, <col>) in (select local_step, allocated from torch_trace)",
      "(<expr>, <expr>) < (<lit>, <lit>)",
      "<expr> is distinct from <expr>",
      "module not ilike '<pat>'",
      "module like '<pat>' escape 'e'",
      "<col> = any (select <col> from torch_trace)",
      "<expr> <cmp> any (array[<expr>, <lit>])",
      "<expr> <cmp> all ('{<int>, \"a b\", null}')",
      "<expr> <> all (select <expr> from torch_trace)",
      "(<expr>, <expr>) is not null",
      "module similar to '<pat>'",
      "module not like all (array['<pat>', '<pat>'])",
      "module like any (select <col> from torch_trace)",
      "<expr> = any (string_to_array(module, '<pat>'))"}},
    {"col",
     {"local_step", "module", "stage", "duration", "ts", "allocated", "t.module", "step",
      "timestamp"}},
    {"lit",
     {"1", "'a'", "null", "0.5", "-3", "true", "9223372036854775807", "''", "interval '5 min'",
      "interval '1 month'", "interval '-170000000 years'", "date '2024-02-29'", "'1 month'",
      "module::interval", "timestamp '2024-05-01 10:00'", "1e308", "now()", "'\xe6\x97\xa5'"}},
    {"int", {"3", "0", "1", "7", "40", "1000000"}},
    {"type",
     {"bigint", "double", "text", "boolean", "timestamp", "interval", "blob", "date",
      "numeric(9, 2)"}},
    {"op", {"+", "-", "*", "/", "%", "^", "->>", "||", "&", "|", "#", "<<", ">>"}},
    {"cmp", {"=", "<>", "<", "<=", ">", ">="}},
    {"pat", {"%e%", "enc_der", "%", "", "_%_", "a\\%", "%%%x"}},
    {"re",
     {"^enc", "(e|n)+c", "[a-f]{2,3}$", "\\w+", "(a*)*b", ".*(o).*", "(", "[^x]+?", "a{1,99}"}},
    {"fn",
     {"length(<expr>)",
      "upper(<col>)",
      "round(<expr>, 2)",
      "abs(<expr>)",
      "date_trunc('hour', ts)",
      "time_bucket(interval '5 sec', ts)",
      "substr(module, <int>, <int>)",
      "greatest(<expr>, <expr>)",
      "extract(hour from ts)",
      "regexp_replace(module, '<re>', '\\1', 'g')",
      "substring(module from <int> for <int>)",
      "trim(both 'e' from module)",
      "replace(module, 'e', <lit>)",
      "lpad(module, <int>, 'xy')",
      "json_get(module, 'a')",
      "split_part(module, 'o', <int>)",
      "concat(<expr>, <expr>)",
      "strpos(module, 'c')",
      "repeat(module, <int>)",
      "sqrt(<expr>)",
      "regexp_match(module, '<re>')",
      "to_timestamp(<int>)",
      "typeof(<expr>)",
      "to_char(ts, '<chars>')",
      "<newer>"}},
    {"newer",
     {"date_diff('month', ts, <expr>)",
      "date_diff('hour', ts, now())",
      "epoch_ms(ts)",
      "if(<bool>, <expr>, <expr>)",
      "json_extract(module, '$.a[0].\"b\"')",
      "format_bytes(<expr>)",
      "json_extract_string('{\"a\": [1, {\"b\": null}]}', '$<pat>')",
      "pg_size_pretty(allocated)",
      "chr(<int>)",
      "ascii(module)",
      "json_array_length('[1, 2]')",
      "split_part(module, 'e', -<int>)",
      "current_date",
      "json_typeof(module)",
      "<expr>::smallint",
      "module #>> '{a,0}'",
      "div(<expr>, <expr>)",
      "age(<expr>, ts)",
      "extract(month from <expr>)",
      "ts + <int> * interval '1 month'",
      "interval (<expr>) days"}},
    {"chars",
     {"YYYY-MM-DD HH24:MI:SS.US", "FMDay, FMMonth DDD", "\"T\" IYYY-IW-ID", "J", "TZ OF am Q",
      "\\\"FM"}},
    {"agg",
     {"count(*)",
      "sum(<expr>)",
      "avg(<col>)",
      "min(<expr>)",
      "max(<col>)",
      "count(distinct <expr>)",
      "string_agg(module, ',' order by <col>)",
      "median(<expr>)",
      "stddev(<expr>)",
      "arg_max(<col>, <col>)",
      "percentile_cont(0.9) within group (order by <expr>)",
      "first(<col>)",
      "last(<expr> order by <col>)",
      "bool_or(<bool>)",
      "count(*) filter (where <bool>)",
      "histogram(duration, <int>)",
      "sum(distinct allocated)",
      "mode(<expr>)",
      "corr(<expr>, duration)",
      "regr_slope(duration, <col>)",
      "regr_r2(duration, <col>)",
      "bit_xor(allocated)",
      "count(distinct (<col>, <expr>))",
      "string_agg(distinct <col>, '-' order by <col>)",
      "covar_samp(allocated, <expr>)",
      "mode() within group (order by <col> desc)",
      "count_if(<bool>)",
      "quantile_disc(<expr>, 0.3)",
      "grouping(<col>)"}},
    {"win",
     {"row_number() over ()", "<agg> over (<window>)", "lag(<expr>) over (<window>)",
      "rank() over (order by <expr>)", "first_value(<col>) over (<window>)",
      "ntile(<int>) over (<window>)", "nth_value(<col>, <int>) over (<window>)",
      "sum(allocated) over w", "lead(<col>, <int>, <lit>) over (<window>)"}},
    {"window",
     {"", "order by <col>", "partition by module order by ts",
      "partition by <expr> order by <col> <frame>", "order by local_step <frame>",
      "order by ts range between interval '3 sec' preceding and current row"}},
    {"frame",
     {"", "rows 2 preceding", "rows between 1 preceding and 3 following exclude current row",
      "range between <int> preceding and <int> following",
      "groups between <int> preceding and current row exclude ties",
      "range between current row and unbounded following",
      "rows between <int> following and unbounded following"}}};

static void expand(struct buf *b, const char *form, int depth)
{
    while (*form) {
        const char *end = *form == '<' ? strchr(form, '>') : NULL;
        const struct rule *r = rules;
        size_t n = end ? (size_t)(end - form - 1) : 0;
        while (n && r < rules + sizeof(rules) / sizeof(*rules) &&
               (strlen(r->name) != n || memcmp(r->name, form + 1, n) != 0))
            r++;
        if (!n || r == rules + sizeof(rules) / sizeof(*rules)) {
            (void)buf_addc(b, *form++);
            continue;
        }
        uint32_t forms = 0;
        while (forms < FORMS_MAX && r->forms[forms])
            forms++;
        expand(b, r->forms[depth > 0 ? below(forms) : 0], depth - 1);
        form = end + 1;
    }
}

static uint64_t runs_wanted(void)
{
    uint64_t runs = RUNS;
    const char *more = getenv("PROBING_FUZZ_RUNS"), *start = getenv("PROBING_FUZZ_SEED");
    if (more)
        (void)parse_u64(more, &runs);
    if (start)
        (void)parse_u64(start, &seed);
    return runs;
}

TEST(sentences_run)
{
    uint64_t good = 0, runs = runs_wanted();
    struct buf b;
    buf_init(&b, 1 << 20);
    for (uint64_t i = 0; i < runs; i++) {
        buf_reset(&b);
        expand(&b, "<select>", DEPTH);
        size_t size = b.size < TEXT_BYTES ? b.size : TEXT_BYTES;
        static char text[TEXT_BYTES + 1];
        memcpy(text, buf_text(&b), size);
        if (below(4) == 0)
            size = mutate(text, size);
        if (!CHECK(run(text, size)))
            break;
        good += last_code == 0;
    }
    CHECK(good > runs / 20); /* the grammar must not have become nonsense */
    buf_done(&b);
}

TEST(corpus_runs)
{
    for (uint32_t i = 0; i < n_lines; i++)
        CHECK(run(lines[i], strlen(lines[i])));
}

TEST(mutants_run)
{
    static char text[TEXT_BYTES + 1];
    uint64_t runs = runs_wanted();
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
    RUN(sentences_run);
    sql_free(engine);
    tables_free(tables);
    buf_done(&corpus);
    return test_end();
}
