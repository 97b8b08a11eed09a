/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/growth.c - what has grown in a time, for `probing memory` and its --leaks:
 * both tell what one judge has judged.
 *
 * One thread.  The rows of samples and of their ends are added up in the target by stack and by the
 * period in which they lie; leak_find.c judges them here.
 */
#include "growth.h"

#include <errno.h>

#define SNAPSHOTS 2 /* in the time: with fewer it has just begun, or is too short for any answer */
#define COUNTS 2u   /* of the kernel at either end of the time */
#define ROUNDED_SEC 3e-7 /* a time as a double is no nearer to the truth */

/* ---- the time ---- */

/* Since when rows say all: sampling began, or what is older has been taken away. */
#define FIRST_ROW "(select min(ts) from memory.samples)"
#define FIRST_KEPT                                                                               \
    "(select max(extract(epoch from first_ts)) from probing.tables where schema = 'memory' and " \
    "name in ('samples', 'frees') and expired > 0)"

static int check_snapshots(const struct growth *g)
{
    char sql[200];
    struct numbers found = {{0}};
    (void)snprintf(sql, sizeof(sql),
                   "select count(distinct snapshot_id) from memory.snapshots where ts > "
                   "to_timestamp(%.6f) and ts <= to_timestamp(%.6f)",
                   g->span.from, g->span.end);
    int rc = g->w->api->ask(g->w->api, sql, take_numbers, &found);
    if (rc < 0 || found.value[0] >= SNAPSHOTS)
        return rc;
    return report_fail(g->w->api, -ENODATA,
                       "growth is told of a time with two snapshots of what is alive, and in this "
                       "time there %s; one comes each memory.snapshot_interval (60s), and with "
                       "probing memory --mark NAME",
                       found.value[0] == 1 ? "is only one" : "is none");
}

/* A living process is read up to a second ago: later samples may not be written down yet. */
static int read_span(struct growth *g)
{
    const struct memory_args *w = g->w;
    char sql[1800], end[SINCE_BYTES];
    bool lives = w->api->target == PROBING_TARGET_LIVE;
    struct numbers found = numbers_unknown();
    report_since(w, lives ? UINT64_C(1000000000) : 0, end, sizeof(end));
    (void)snprintf(
        sql, sizeof(sql),
        "select extract(epoch from %s), extract(epoch from %s), %s, (select extract(epoch from "
        "heard_ts) from memory.ended where ts < heard_ts)",
        end, lives ? "coalesce((select since from memory.sampling), " FIRST_ROW ")" : FIRST_ROW,
        FIRST_KEPT);
    int rc = w->api->ask(w->api, sql, take_numbers, &found);
    if (rc == -ENOENT || rc == -EINVAL)
        return w->api->no_plugin(w->api);
    if (rc < 0)
        return rc;
    double end_sec = found.value[0] + ROUNDED_SEC, begun = found.value[1], kept = found.value[2];
    if (!is_number(begun) || !is_number(end_sec))
        return report_fail(w->api, -ENODATA, "no allocation has been sampled");
    begun = is_number(kept) && kept > begun ? kept : begun;
    double from = end_sec - (double)w->window_ns / 1e9;
    g->span = (struct span){.asked = from,
                            .end = end_sec,
                            .from = from > begun ? from : begun,
                            .heard = found.value[3]};
    g->span.period = (end_sec - g->span.from) / LEAK_PERIODS;
    double past = (g->span.from - begun) / g->span.period;
    g->span.past = past < LEAK_PAST ? (uint32_t)past : LEAK_PAST;
    g->span.begun = g->span.from - g->span.past * g->span.period;
    return 0;
}

/* The sum over all snapshots, but at most the distance of one sample. */
static int read_unsampled(struct growth *g)
{
    char sql[700];
    struct numbers found = numbers_unknown();
    bool lives = g->w->api->target == PROBING_TARGET_LIVE;
    (void)snprintf(sql, sizeof(sql),
                   "select least(sum(u), max(most)) from (select unsampled_bytes as u, "
                   "sample_bytes_max as most from (select distinct snapshot_id, ts, "
                   "unsampled_bytes, sample_bytes_max from memory.snapshots) s where ts > "
                   "to_timestamp(%.7f)%s) a",
                   g->span.from,
                   lives ? " union all select unsampled_since_bytes, sample_bytes_max from "
                           "memory.sampling"
                         : "");
    int rc = g->w->api->ask(g->w->api, sql, take_numbers, &found);
    g->unsampled = is_number(found.value[0]) ? found.value[0] : 0;
    return rc;
}

/* ---- rows ---- */

static int fail_memory(const struct memory_args *w)
{
    return report_fail(w->api, -ENOMEM, "no memory for what was sampled");
}

static int take_samples(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct growth *g = arg;
    if (n < 10)
        return 0;
    int64_t id = cells[0].type == PROBING_I64 ? cells[0].value.i : 0;
    const struct leak_samples s = {.stack_id = id,
                                   .born = (uint32_t)cell_number(&cells[1]),
                                   .ended = (uint32_t)cell_number(&cells[2]),
                                   .bytes = cell_number(&cells[3]),
                                   .variance = cell_number(&cells[4]),
                                   .count = cell_number(&cells[5]),
                                   .largest = cell_number(&cells[6])};
    int rc = leak_find_add(g->find, &s);
    if (rc == 0)
        rc = leak_find_origin(g->find, id, id ? cell_text(&cells[7]) : "[stack not recorded]",
                              cell_text(&cells[8]), cell_number(&cells[9]));
    return rc < 0 ? fail_memory(g->w) : 0;
}

#define VARIANCE "count * (count - 1) * size * size"
#define SAMPLED                               \
    "bytes, size, " VARIANCE " as variance, " \
    "coalesce(function_name, native_function, '?') as function_name, file, lineno"
#define IN_TIME "ts > to_timestamp(%.7f) and ts <= to_timestamp(%.7f)"
#define UNTIL "sum(bytes) filter (where ts <= to_timestamp(%.7f))"
#define PERIODS                                                                                   \
    "select stack_id, least(greatest(ceil((born - %.7f) / %.9f), least), %u) as born, case when " \
    "ended then least(greatest(ceil((sec - %.7f) / %.9f), 1), %u) else 0 end as ended, bytes, "   \
    "variance, size, function_name, file, lineno from (select stack_id, extract(epoch from ts) "  \
    "as sec, extract(epoch from ts) as born, 1 as least, false as ended, " SAMPLED                \
    " from memory.samples where " IN_TIME " union all select stack_id, extract(epoch from ts), "  \
    "extract(epoch from ts) - lifetime_ns / 1e9, 0, true, " SAMPLED                               \
    " from memory.frees where " IN_TIME ") a"

static int read_samples(struct growth *g)
{
    char sql[2400];
    const struct span *s = &g->span;
    uint32_t last = s->past + LEAK_PERIODS;
    (void)snprintf(sql, sizeof(sql),
                   "select stack_id, born, ended, sum(bytes), sum(variance), count(*), max(size), "
                   "max(function_name), max(file), max(lineno) from (" PERIODS
                   ") p group by stack_id, born, ended",
                   s->begun, s->period, last, s->begun, s->period, last, s->begun, s->end, s->begun,
                   s->end);
    return g->w->api->ask(g->w->api, sql, take_samples, g);
}

/* Python's frames are judged by their files, native ones by their library. */
#define IS_LIBRARY                                                                             \
    "case when frame_type = 'python' then coalesce(file, '<') ~ "                              \
    "'(site|dist)-packages/|/lib/python[0-9.]+/|^<' else func like '[%%' or coalesce(module, " \
    "'') ~ '^$|^(/usr)?/lib|/bin/python[0-9.]*$|libpython|(site|dist)-packages/|/lib/python|"  \
    "/plugins/(python|torch)\\.so$' end"

static int take_frame(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct growth *g = arg;
    if (n < 6 || cells[0].type != PROBING_I64)
        return 0;
    const struct leak_frame frame = {.function = cell_text(&cells[1]),
                                     .file = cell_text(&cells[2]),
                                     .line = cell_number(&cells[3]),
                                     .own = cell_number(&cells[4]) == 0};
    int rc = leak_find_frame(g->find, cells[0].value.i, (uint32_t)cell_number(&cells[5]), &frame);
    return rc < 0 ? fail_memory(g->w) : 0;
}

/* A stack may be stored more than once. */
static int read_frames(struct growth *g)
{
    char sql[1600];
    (void)snprintf(
        sql, sizeof(sql),
        "select stack_id, func, coalesce(case when frame_type = 'python' then file else module "
        "end, ''), min(lineno), max(case when " IS_LIBRARY " then 1 else 0 end), min(depth) from "
        "memory.stacks where stack_id in (select stack_id from memory.samples where " IN_TIME
        " union select stack_id from memory.frees where " IN_TIME ") group by 1, 2, 3",
        g->span.from, g->span.end, g->span.from, g->span.end);
    return g->w->api->ask(g->w->api, sql, take_frame, g);
}

/* ---- how it compares with what the kernel counts ---- */

struct counts { /* of the kernel, and what the stacks of samples had more than at `from` */
    double at[2 * COUNTS], bytes[2 * COUNTS], stacks[2 * COUNTS];
    bool is_last[2 * COUNTS];
    uint32_t n;
    double variance;
};

static int take_count(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct counts *c = arg;
    if (n < 3 || c->n == 2 * COUNTS)
        return 0;
    c->at[c->n] = cell_number(&cells[0]);
    c->bytes[c->n] = cell_number(&cells[1]);
    c->is_last[c->n++] = cell_number(&cells[2]) > 0;
    return 0;
}

static int take_stacks(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct counts *c = arg;
    for (uint32_t i = 0; i < c->n && i < n; i++)
        c->stacks[i] = is_number(cell_number(&cells[i])) ? cell_number(&cells[i]) : 0;
    c->variance = n > 2 * COUNTS ? cell_number(&cells[2 * COUNTS]) : 0;
    return 0;
}

/* The first counts in the time, and the last ones. */
static int read_counts(const struct growth *g, struct counts *ret)
{
    char sql[600];
    *ret = (struct counts){.n = 0};
    (void)snprintf(
        sql, sizeof(sql),
        "select * from (select extract(epoch from ts), program_bytes, 0 from "
        "memory.usage where " IN_TIME " order by ts limit %u) a union all select * from "
        "(select extract(epoch from ts), program_bytes, 1 from memory.usage where " IN_TIME
        " order by ts desc limit %u) b",
        g->span.from, g->span.end, COUNTS, g->span.from, g->span.end, COUNTS);
    return g->w->api->ask(g->w->api, sql, take_count, ret);
}

static int read_stacks(const struct growth *g, struct counts *c)
{
    char sql[1400];
    (void)snprintf(
        sql, sizeof(sql),
        "select " UNTIL ", " UNTIL ", " UNTIL ", " UNTIL ", sum(variance) from (select ts, case "
        "when stack_id is not null then bytes end as bytes, " VARIANCE " as variance from "
        "memory.samples where " IN_TIME " union all select ts, case when stack_id is not null "
        "then -bytes end, case when extract(epoch from ts) - lifetime_ns / 1e9 > %.7f then -1 "
        "else 1 end * " VARIANCE " from memory.frees where " IN_TIME ") a",
        c->at[0], c->at[1], c->at[2], c->at[3], g->span.from, g->span.end, g->span.from,
        g->span.from, g->span.end);
    return g->w->api->ask(g->w->api, sql, take_stacks, c);
}

/* The stacks are added up at the moments of the kernel's counts.  While a block is being filled or
 * given back, the two differ by a part of it: the counts that leave the least without a stack are
 * taken. */
static int read_kept(struct growth *g)
{
    struct counts c;
    double least = INFINITY;
    int rc = read_counts(g, &c);
    if (rc == 0 && c.n)
        rc = read_stacks(g, &c);
    g->variance = c.variance;
    g->kept = g->stacks = (double)NAN;
    for (uint32_t i = 0; i < c.n * c.n; i++) {
        uint32_t a = i / c.n, b = i % c.n;
        double kept = c.bytes[b] - c.bytes[a], stacks = c.stacks[b] - c.stacks[a];
        if (c.is_last[a] || !c.is_last[b] || c.at[b] <= c.at[a] || !(kept - stacks < least))
            continue;
        least = kept - stacks;
        g->kept = kept;
        g->stacks = stacks;
    }
    return rc;
}

/* ---- all of it ---- */

static int take_alive(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct growth *g = arg;
    if (n < 4)
        return 0;
    struct alive *to =
        &g->alive[leak_find_of(g->find, cells[0].type == PROBING_I64 ? cells[0].value.i : 0)];
    double age = cell_number(&cells[3]);
    to->bytes += cell_number(&cells[1]);
    to->count += cell_number(&cells[2]);
    to->age_ns = age > to->age_ns ? age : to->age_ns;
    return 0;
}

static int read_time(const struct memory_args *w, struct growth *g)
{
    *g = (struct growth){.w = w};
    int rc = read_span(g);
    return rc < 0 ? rc : read_unsampled(g);
}

static int read_rows(struct growth *g)
{
    g->find = leak_find_new(g->span.past);
    return g->find ? read_samples(g) : fail_memory(g->w);
}

static int tell_others(struct growth *g, bool leaks_too)
{
    int rc = leak_find_grown(g->find, leaks_too, g->others);
    if (rc < 0)
        return fail_memory(g->w);
    for (int i = 0; i < rc; i++) { /* nothing that thinned samples may have made up */
        struct leak_other *x = &g->others[i];
        if (x->at.bytes > 2 * growth_error(g, x->variance))
            g->others[g->n_others++] = *x;
    }
    return 0;
}

int growth_most(const struct memory_args *w, struct growth *g)
{
    int rc = read_time(w, g);
    if (rc == 0)
        rc = read_rows(g);
    return rc < 0 ? rc : tell_others(g, /* leaks_too= */ true);
}

int growth_leaks(const struct memory_args *w, struct growth *g)
{
    int rc = read_time(w, g);
    if (rc == 0)
        rc = check_snapshots(g);
    if (rc == 0)
        rc = read_kept(g);
    if (rc == 0)
        rc = read_rows(g);
    if (rc == 0)
        rc = read_frames(g);
    if (rc < 0)
        return rc;
    rc = leak_find_run(g->find, g->found);
    if (rc < 0)
        return fail_memory(w);
    g->n = (uint32_t)rc;
    rc = tell_others(g, /* leaks_too= */ false);
    if (rc < 0 || g->n == 0)
        return rc;
    return w->api->ask(
        w->api, "select stack_id, sum(bytes), sum(count), max(age_ns) from memory.live group by 1",
        take_alive, g);
}

void growth_done(struct growth *g)
{
    leak_find_free(g->find);
    g->find = NULL;
}

double growth_error(const struct growth *g, double variance)
{
    return sqrt((variance > 0 ? variance : 0) + g->unsampled * g->unsampled);
}

/* ---- one function of it ---- */

static void place_of(const struct leak_frame *at, char *ret, size_t size)
{
    const char *slash = strrchr(at->file, '/');
    ret[0] = '\0';
    if (*at->file)
        (void)snprintf(ret, size, "%.100s", slash ? slash + 1 : at->file);
    size_t n = strlen(ret);
    if (*at->file && is_number(at->line))
        (void)snprintf(ret + n, size - n, ":%.0f", at->line);
}

void growth_show_other(const struct growth *g, const struct leak_other *x)
{
    char place[REPORT_NAME_BYTES], text[2 * REPORT_NAME_BYTES];
    place_of(&x->at, place, sizeof(place));
    (void)snprintf(text, sizeof(text), "%.150s%s%s", x->at.function, *place ? "  " : "", place);
    report_place(g->w, text, x->at.bytes, growth_error(g, x->variance));
}

void growth_json_others(const struct growth *g, struct report_json *j, const char *const *reasons)
{
    json_open(j, '[');
    for (uint32_t i = 0; i < g->n_others; i++) {
        const struct leak_other *x = &g->others[i];
        char place[REPORT_NAME_BYTES];
        place_of(&x->at, place, sizeof(place));
        json_item(j);
        json_text(j, "function_name", x->at.function);
        json_text(j, "place", place);
        json_number(j, "grown_bytes", x->at.bytes);
        json_number(j, "grown_bytes_error", growth_error(g, x->variance));
        json_number(j, "stacks", x->n_stacks);
        if (reasons)
            json_text(j, "why_no_leak", reasons[x->why]);
        json_close(j, '}');
    }
    json_close(j, ']');
}
