/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/report_leaks.c - `probing memory --leaks`: what grows and is not freed.
 *
 * One thread.  The rows of samples and of their ends are added up in the target by stack and by the
 * period in which they lie; leak_find.c judges them here.
 */
#include <errno.h>

#include "leak_find.h"
#include "report.h"

#define SNAPSHOTS 2 /* in the time: with fewer it has just begun, or is too short for any answer */
#define CALLERS 6u
#define SHARES 3u
#define HARDLY 4 /* the program has grown by less than such a part of what is told */

struct span {
    double from, begun, end; /* seconds since 1970: of the time, of its past, of both */
    double period;           /* seconds */
    double asked;            /* from when it was asked for */
    uint32_t past;           /* periods */
};

struct alive { /* of a leak */
    double bytes, count, age_ns;
};

struct leaks {
    const struct memory_args *w;
    struct leak_find *find;
    struct span span;
    struct alive alive[LEAKS + 1]; /* by leak.number */
    struct leak found[LEAKS];
    uint32_t n;
};

/* ---- the time ---- */

struct numbers {
    double value[4];
};

static int take_numbers(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct numbers *to = arg;
    for (uint32_t i = 0; i < 4 && i < n; i++)
        to->value[i] = cell_number(&cells[i]);
    return 0;
}

static struct numbers unknown(void)
{
    return (struct numbers){{(double)NAN, (double)NAN, (double)NAN, (double)NAN}};
}

/* Since when rows say all: sampling began, or what is older has been taken away. */
#define FIRST_ROW "(select min(ts) from memory.samples)"
#define FIRST_KEPT                                                                               \
    "(select max(extract(epoch from first_ts)) from probing.tables where schema = 'memory' and " \
    "name in ('samples', 'frees') and expired > 0)"

static int check_snapshots(const struct leaks *l)
{
    char sql[200];
    struct numbers found = {{0}};
    (void)snprintf(sql, sizeof(sql),
                   "select count(distinct snapshot_id) from memory.snapshots where ts > "
                   "to_timestamp(%.6f) and ts <= to_timestamp(%.6f)",
                   l->span.from, l->span.end);
    int rc = l->w->api->ask(l->w->api, sql, take_numbers, &found);
    if (rc < 0 || found.value[0] >= SNAPSHOTS)
        return rc;
    return report_fail(l->w->api, -ENODATA,
                       "growth is told of a time with two snapshots of what is alive, and in this "
                       "time there %s; one comes each memory.snapshot_interval (60s), and with "
                       "probing memory --mark NAME",
                       found.value[0] == 1 ? "is only one" : "is none");
}

static int read_span(struct leaks *l)
{
    const struct memory_args *w = l->w;
    char sql[1400], end[SINCE_BYTES];
    bool lives = w->api->target == PROBING_TARGET_LIVE;
    struct numbers found = unknown();
    report_since(w, lives ? UINT64_C(1000000000) : 0, end, sizeof(end));
    (void)snprintf(
        sql, sizeof(sql), "select extract(epoch from %s), extract(epoch from %s), %s", end,
        lives ? "coalesce((select since from memory.sampling), " FIRST_ROW ")" : FIRST_ROW,
        FIRST_KEPT);
    int rc = w->api->ask(w->api, sql, take_numbers, &found);
    if (rc == -ENOENT || rc == -EINVAL)
        return w->api->no_plugin(w->api);
    if (rc < 0)
        return rc;
    double end_sec = found.value[0], begun = found.value[1], kept = found.value[2];
    if (!is_number(begun) || !is_number(end_sec))
        return report_fail(w->api, -ENODATA, "no allocation has been sampled");
    begun = is_number(kept) && kept > begun ? kept : begun;
    double from = end_sec - (double)w->window_ns / 1e9;
    l->span = (struct span){.asked = from, .end = end_sec, .from = from > begun ? from : begun};
    rc = check_snapshots(l);
    if (rc < 0)
        return rc;
    l->span.period = (end_sec - l->span.from) / LEAK_PERIODS;
    double past = (l->span.from - begun) / l->span.period;
    l->span.past = past < LEAK_PAST ? (uint32_t)past : LEAK_PAST;
    l->span.begun = l->span.from - l->span.past * l->span.period;
    return 0;
}

/* ---- rows ---- */

static int fail_memory(const struct memory_args *w)
{
    return report_fail(w->api, -ENOMEM, "no memory for what was sampled");
}

static int take_samples(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct leaks *l = arg;
    if (n < 9)
        return 0;
    int64_t id = cells[0].type == PROBING_I64 ? cells[0].value.i : 0;
    const struct leak_samples s = {.stack_id = id,
                                   .born = (uint32_t)cell_number(&cells[1]),
                                   .ended = (uint32_t)cell_number(&cells[2]),
                                   .bytes = cell_number(&cells[3]),
                                   .variance = cell_number(&cells[4]),
                                   .count = cell_number(&cells[5])};
    int rc = leak_find_add(l->find, &s);
    if (rc == 0)
        rc = leak_find_origin(l->find, id, id ? cell_text(&cells[6]) : "[stack not recorded]",
                              cell_text(&cells[7]), cell_number(&cells[8]));
    return rc < 0 ? fail_memory(l->w) : 0;
}

#define SAMPLED                                              \
    "bytes, count * (count - 1) * size * size as variance, " \
    "coalesce(function_name, native_function, '?') as function_name, file, lineno"
#define PERIOD(sec) "least(greatest(ceil((" sec " - %.6f) / %.9f), "
#define IN_TIME "ts > to_timestamp(%.6f) and ts <= to_timestamp(%.6f)"

static int read_samples(struct leaks *l)
{
    char sql[2400];
    const struct span *s = &l->span;
    uint32_t last = s->past + LEAK_PERIODS;
    (void)snprintf(
        sql, sizeof(sql),
        "select stack_id, born, ended, sum(bytes), sum(variance), count(*), "
        "max(function_name), "
        "max(file), max(lineno) from (select stack_id, " PERIOD(
            "extract(epoch from ts)") "1), %u) "
                                      "as born, 0 as ended, " SAMPLED
                                      " from memory.samples where " IN_TIME
                                      " union all select stack_id, " PERIOD(
                                          "extract(epoch from ts) - lifetime_ns / "
                                          "1e9") "0), %u), " PERIOD("extract(epoch "
                                                                    "from ts)") "1), "
                                                                                "%u),"
                                                                                " " SAMPLED " fro"
                                                                                "m "
                                                                                "memo"
                                                                                "ry."
                                                                                "free"
                                                                                "s "
                                                                                "wher"
                                                                                "e"
                                                                                " " IN_TIME ") a "
                                                                                "grou"
                                                                                "p "
                                                                                "by "
                                                                                "stac"
                                                                                "k_"
                                                                                "id, "
                                                                                "born"
                                                                                ", "
                                                                                "ende"
                                                                                "d",
        s->begun, s->period, last, s->begun, s->end, s->begun, s->period, last, s->begun, s->period,
        last, s->begun, s->end);
    return l->w->api->ask(l->w->api, sql, take_samples, l);
}

/* Of Python's frames by their files, of native ones by the library. */
#define IS_LIBRARY                                                                             \
    "case when frame_type = 'python' then coalesce(file, '<') ~ "                              \
    "'(site|dist)-packages/|/lib/python[0-9.]+/|^<' else func like '[%%' or coalesce(module, " \
    "'') ~ '^$|^(/usr)?/lib|/bin/python[0-9.]*$|libpython|(site|dist)-packages/|/lib/python|"  \
    "/plugins/(python|torch)\\.so$' end"

static int take_frame(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct leaks *l = arg;
    if (n < 6 || cells[0].type != PROBING_I64)
        return 0;
    const struct leak_frame frame = {.function = cell_text(&cells[1]),
                                     .file = cell_text(&cells[2]),
                                     .line = cell_number(&cells[3]),
                                     .own = cell_number(&cells[4]) == 0};
    int rc = leak_find_frame(l->find, cells[0].value.i, (uint32_t)cell_number(&cells[5]), &frame);
    return rc < 0 ? fail_memory(l->w) : 0;
}

/* A stack may be stored more than once. */
static int read_frames(struct leaks *l)
{
    char sql[1600];
    (void)snprintf(
        sql, sizeof(sql),
        "select stack_id, func, coalesce(case when frame_type = 'python' then file else module "
        "end, ''), min(lineno), max(case when " IS_LIBRARY " then 1 else 0 end), min(depth) from "
        "memory.stacks where stack_id in (select stack_id from memory.samples where " IN_TIME
        " union select stack_id from memory.frees where " IN_TIME ") group by 1, 2, 3",
        l->span.from, l->span.end, l->span.from, l->span.end);
    return l->w->api->ask(l->w->api, sql, take_frame, l);
}

static int take_alive(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct leaks *l = arg;
    if (n < 4)
        return 0;
    struct alive *to =
        &l->alive[leak_find_of(l->find, cells[0].type == PROBING_I64 ? cells[0].value.i : 0)];
    double age = cell_number(&cells[3]);
    to->bytes += cell_number(&cells[1]);
    to->count += cell_number(&cells[2]);
    to->age_ns = age > to->age_ns ? age : to->age_ns;
    return 0;
}

static int find(struct leaks *l)
{
    int rc = read_samples(l);
    if (rc == 0)
        rc = read_frames(l);
    if (rc < 0)
        return rc;
    rc = leak_find_run(l->find, l->found);
    if (rc < 0)
        return fail_memory(l->w);
    l->n = (uint32_t)rc;
    if (l->n == 0)
        return 0;
    return l->w->api->ask(
        l->w->api,
        "select stack_id, sum(bytes), sum(count), max(age_ns) from memory.live group by 1",
        take_alive, l);
}

/* ---- words ---- */

struct words {
    char text[1200];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add_words(struct words *to, const char *format,
                                                            ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(to->text + to->n, sizeof(to->text) - to->n, format, args);
    va_end(args);
    if (n > 0)
        to->n = to->n + (size_t)n < sizeof(to->text) ? to->n + (size_t)n : sizeof(to->text) - 1;
}

static void add_place(struct words *to, const struct leak_frame *frame)
{
    const char *slash = strrchr(frame->file, '/');
    add_words(to, "%.80s", frame->function);
    if (*frame->file)
        add_words(to, " %.60s", slash ? slash + 1 : frame->file);
    if (*frame->file && is_number(frame->line))
        add_words(to, ":%.0f", frame->line);
}

/* By which functions of the program most of it came: "..." is what libraries have between, and
 * where it came by several. */
static void show_callers(const struct leaks *l, const struct leak *leak)
{
    struct words text = {.n = 0};
    uint32_t n = 0;
    bool passed = false;
    for (uint32_t i = 0; i < leak->n_frames && n < CALLERS; i++) {
        const struct leak_frame *frame = &leak->frames[i];
        if (!frame->own || !frame->is_shared) {
            passed = true;
            continue;
        }
        add_words(&text, "%s%s", n++ ? " < " : "", passed ? "... < " : "");
        add_place(&text, frame);
        passed = false;
    }
    if (n > 0)
        l->w->api->print_wrapped(l->w->api, "      ", text.text, text.n);
}

static uint32_t growing(const struct leak *leak)
{
    uint32_t n = 0;
    while (n < leak->n_stacks && leak->stacks[n].bytes > 0)
        n++;
    return n;
}

static void show_shares(const struct leaks *l, const struct leak *leak)
{
    struct words text = {.n = 0};
    uint32_t n = growing(leak);
    add_words(&text, "by stack: ");
    for (uint32_t i = 0; i < n && i < SHARES; i++) {
        const struct leak_stack *x = &leak->stacks[i];
        add_words(&text, "%s%.0f %% ", i ? ", " : "", 100 * x->bytes / leak->at.bytes);
        if (x->apart.function) {
            add_place(&text, &x->apart);
            add_words(&text, " ");
        }
        add_words(&text, "(stack_id %lld)", (long long)x->stack_id);
    }
    if (n > SHARES)
        add_words(&text, ", and %u stacks more", n - SHARES);
    l->w->api->print_wrapped(l->w->api, "      ", text.text, text.n);
}

static void show_leak(const struct leaks *l, const struct leak *leak)
{
    const struct alive *alive = &l->alive[leak->number];
    struct words name = {.n = 0}, text = {.n = 0};
    char size[32];
    add_words(&name, "%s%s", leak->is_below ? "below " : "", leak->at.function);
    const char *slash = strrchr(leak->at.file, '/');
    if (*leak->at.file)
        add_words(&name, "  %s", slash ? slash + 1 : leak->at.file);
    if (*leak->at.file && is_number(leak->at.line))
        add_words(&name, ":%.0f", leak->at.line);
    report_place(l->w, name.text, leak->at.bytes, sqrt(leak->growth.variance));
    report_mb(alive->bytes, size);
    add_words(&text, "%s alive in %.0f pieces, the oldest for %.0f s; ", size, alive->count,
              alive->age_ns / 1e9);
    if (leak->n_stacks == 1)
        add_words(&text, "stack_id %lld", (long long)leak->stacks[0].stack_id);
    else
        add_words(&text, "on %u stacks, of which %u have grown", leak->n_stacks, growing(leak));
    l->w->api->print_wrapped(l->w->api, "      ", text.text, text.n);
    show_callers(l, leak);
    if (leak->n_stacks > 1)
        show_shares(l, leak);
}

/* What comes in the place of what was there before sampling began seems to grow. */
static void show_doubt(const struct leaks *l)
{
    char sql[600];
    struct words text = {.n = 0};
    struct numbers kept = unknown();
    double told = 0;
    for (uint32_t i = 0; i < l->n; i++)
        told += l->found[i].at.bytes;
    (void)snprintf(
        sql, sizeof(sql),
        "select b.program_bytes - a.program_bytes from (select * from memory.usage where "
        "ts >= to_timestamp(%.6f) order by ts limit 1) a cross join (select * from "
        "memory.usage order by ts desc limit 1) b",
        l->span.from);
    if (l->w->api->ask(l->w->api, sql, take_numbers, &kept) < 0 || !(kept.value[0] < told / HARDLY))
        return;
    char size[32];
    report_mb(kept.value[0] > 0 ? kept.value[0] : 0, size);
    add_words(&text,
              "but what the program keeps has grown by %s in this time: this may fill what the "
              "allocator held, or take the place of what was there before sampling began",
              size);
    l->w->api->print_wrapped(l->w->api, "", text.text, text.n);
}

static void show_nothing(const struct leaks *l)
{
    struct words text = {.n = 0};
    struct numbers mean = unknown();
    char size[32];
    add_words(&text,
              "nothing grows and stays: in %.0f s no stack, and no group of stacks, has grown all "
              "the time by more than chance explains (%u were judged)",
              l->span.end - l->span.from, leak_find_questions(l->find));
    if (l->w->api->target == PROBING_TARGET_LIVE &&
        l->w->api->ask(l->w->api, "select sample_bytes from memory.sampling", take_numbers,
                       &mean) == 0 &&
        is_number(mean.value[0])) {
        report_mb(leak_find_fewest(l->find) * mean.value[0], size);
        add_words(&text, "; less than some %s would not have been told", size);
    }
    l->w->api->print_wrapped(l->w->api, "", text.text, text.n);
}

static void show(const struct leaks *l)
{
    struct words text = {.n = 0};
    if (l->n)
        report_printf(l->w->api, "grows and is not freed (estimate +- its error)\n\n");
    for (uint32_t i = 0; i < l->n; i++)
        show_leak(l, &l->found[i]);
    if (l->n == 0) {
        show_nothing(l);
        return;
    }
    report_printf(l->w->api, "\n");
    show_doubt(l);
    add_words(&text,
              "in %.0f s%s, of %u stacks and groups that were judged; a stack: select * from "
              "memory.stacks where stack_id = ...; all in a picture: flamegraph memory_leaked",
              l->span.end - l->span.from,
              l->span.from > l->span.asked + 1 ? " (there are no rows of before)" : "",
              leak_find_questions(l->find));
    l->w->api->print_wrapped(l->w->api, "", text.text, text.n);
}

int leaks_show(const struct memory_args *w)
{
    struct leaks l = {.w = w};
    int rc = read_span(&l);
    if (rc < 0)
        return rc;
    l.find = leak_find_new(l.span.past);
    rc = l.find ? find(&l) : fail_memory(w);
    if (rc == 0)
        show(&l);
    leak_find_free(l.find);
    return rc;
}
