/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/report_stacks.c - where memory was allocated: what is alive, what grows,
 * what was alive at the peak, and what came between two marks.
 *
 * One thread.  All of it are estimates from samples; each comes with its standard error.
 */
#include <errno.h>
#include <math.h>

#include "growth.h"

#define SHOWN 5u
#define SHOWN_ALONE 12u  /* where nothing else is shown */
#define GROWN_LEAST 1e6  /* bytes */
#define MUCH_THINNER 4   /* samples that are so many times as far apart as asked are told of */
#define HIDDEN 3         /* distances: 1 of 20 times none of so many bytes is a sample */
#define MORE_AT_PEAK 1.2 /* times what was alive, and it is told */
#define PLACE_WIDTH 46u  /* columns of a place, where the terminal has 80 */
#define BESIDE_PLACE 34u
#define FIGURE_ERRORS 2 /* of its own errors that a figure has to be, to be one */

struct place { /* a row */
    char name[REPORT_NAME_BYTES], where[REPORT_NAME_BYTES];
    double bytes, error, grown, older, count, age_ns, stack_id;
};

struct places {
    const struct memory_args *w;
    void *arg; /* of each() */
    void (*each)(struct places *p, const struct place *one);
    uint32_t n;
};

/* Columns of every question here, in this order; `grown` may be null. */
#define PLACE_COLUMNS \
    "coalesce(function_name, native_function, '?'), file, lineno, bytes, bytes_error, "
#define PLACE_TAIL "count, age_ns, stack_id"

static int take_place(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct places *p = arg;
    struct place one = {.bytes = 0};
    if (n < 10)
        return 0;
    (void)snprintf(one.name, sizeof(one.name), "%s", cell_text(&cells[0]));
    const char *file = cell_text(&cells[1]), *slash = strrchr(file, '/');
    if (*file)
        (void)snprintf(one.where, sizeof(one.where), "%.100s:%.0f", slash ? slash + 1 : file,
                       cell_number(&cells[2]));
    one.bytes = cell_number(&cells[3]);
    one.error = cell_number(&cells[4]);
    one.grown = cell_number(&cells[5]);
    one.older = cell_number(&cells[6]);
    one.count = cell_number(&cells[7]);
    one.age_ns = cell_number(&cells[8]);
    one.stack_id = cell_number(&cells[9]);
    p->each(p, &one);
    p->n++;
    return 0;
}

static int ask_places(const struct memory_args *w, const char *sql,
                      void (*each)(struct places *, const struct place *), void *arg,
                      uint32_t *ret_n)
{
    struct places p = {.w = w, .arg = arg, .each = each};
    int rc = w->api->ask(w->api, sql, take_place, &p);
    if (ret_n)
        *ret_n = p.n;
    return rc;
}

/* ---- lines ---- */

static uint32_t place_width(const struct memory_args *w)
{
    uint32_t columns = w->api->width(w->api);
    columns = columns ? columns : 80;
    return columns > BESIDE_PLACE + 12 ? columns - BESIDE_PLACE : 12;
}

void report_place(const struct memory_args *w, const char *text, double bytes, double error_bytes)
{
    char shown[8 * REPORT_NAME_BYTES], size[32], error[32];
    (void)w->api->fit(w->api, text, strlen(text), place_width(w),
                      PROBING_FIT_MIDDLE | PROBING_FIT_FILL, shown, sizeof(shown));
    report_mb(bytes, size);
    report_mb(error_bytes, error);
    if (fabs(bytes) >= FIGURE_ERRORS * error_bytes) {
        report_printf(w->api, "  %s %10s +- %s\n", shown, size, error);
        return;
    }
    report_mb(fabs(bytes) + FIGURE_ERRORS * error_bytes, size); /* 19 of 20 times */
    report_printf(w->api, "  %s below %s\n", shown, size);
}

static void show_place(const struct memory_args *w, const struct place *one, double bytes)
{
    char text[REPORT_NAME_BYTES * 2 + 4];
    (void)snprintf(text, sizeof(text), "%s%s%s", one->name, one->where[0] ? "  " : "", one->where);
    report_place(w, text, bytes, one->error);
}

static void show_alive(struct places *p, const struct place *one)
{
    if (p->n == 0)
        report_printf(p->w->api, "\nalive%s, of what was sampled (estimate +- its error)\n",
                      (const char *)p->arg);
    show_place(p->w, one, one->bytes);
}

/* By the judge of --leaks, so that the two never tell of different growth. */
static void show_grown(const struct memory_args *w)
{
    struct growth g;
    if (growth_most(w, &g) == 0 && g.n_others) {
        report_printf(w->api, "\ngrown the most in the last %.0f s\n", g.span.end - g.span.from);
        for (uint32_t i = 0; i < g.n_others; i++)
            growth_show_other(&g, &g.others[i]);
    }
    growth_done(&g);
}

/* ---- what the report shows of it ---- */

struct sampling {
    double seconds, percent, lost; /* since it began; of one core; samples */
    double asked, now, most;       /* mean bytes between samples: asked for, now, at most so far */
    char unseen[REPORT_NOTE_BYTES];
};

static int take_sampling(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct sampling *s = arg;
    if (n < 7)
        return 0;
    s->seconds = cell_number(&cells[0]);
    s->percent = 100 * cell_number(&cells[1]) / 1e9 / s->seconds;
    s->lost = cell_number(&cells[2]);
    (void)snprintf(s->unseen, sizeof(s->unseen), "%s", cell_text(&cells[3]));
    s->asked = cell_number(&cells[4]);
    s->now = cell_number(&cells[5]);
    s->most = cell_number(&cells[6]);
    return 0;
}

static void read_sampling(const struct memory_args *w, struct sampling *ret)
{
    *ret = (struct sampling){.seconds = (double)NAN};
    (void)w->api->ask(
        w->api,
        "select extract(epoch from now() - since), program_cpu_ns + probing_cpu_ns, lost, "
        "not_seen, sample_bytes_setting, sample_bytes, sample_bytes_max "
        "from memory.sampling",
        take_sampling, ret);
}

static void print_line(const struct memory_args *w, const char *text)
{
    w->api->print_wrapped(w->api, "", text, strlen(text));
}

/* Say how much can hide when samples have thinned out: of so many bytes, one is a sample 19 times
 * in 20. */
static void show_thinned(const struct memory_args *w, const struct sampling *s)
{
    char text[400], most[32], asked[32], hidden[32];
    if (!(s->most >= MUCH_THINNER * s->asked))
        return;
    report_mb(s->most, most);
    report_mb(s->asked, asked);
    report_mb(HIDDEN * s->most, hidden);
    (void)snprintf(text, sizeof(text),
                   "so much was allocated at times that samples were %s from each other, not %s "
                   "(memory.sample_bytes)%s: of what was allocated then, up to some %s of a stack "
                   "may be in no sample",
                   most, asked, s->now >= MUCH_THINNER * s->asked ? ", and they still are" : "",
                   hidden);
    print_line(w, text);
}

/* Show what sampling costs and does not see; only a living process says. */
static void show_sampling(const struct memory_args *w)
{
    char text[600];
    struct sampling s;
    read_sampling(w, &s);
    if (!is_number(s.seconds))
        return;
    (void)snprintf(text, sizeof(text),
                   "sampling costs %.3f %% of a core, on average of the %.0f s since it began%s",
                   s.percent, s.seconds, s.lost > 0 ? "; samples were lost: memory.sampling" : "");
    print_line(w, text);
    show_thinned(w, &s);
    if (*s.unseen) {
        (void)snprintf(text, sizeof(text), "not seen: %s", s.unseen);
        print_line(w, text);
    }
}

/* The error of rows together: what samples that thinned out have missed is in each, and may have
 * been missed once. */
#define ROWS_ERROR                                                                \
    "sqrt(greatest(0, sum(bytes_error::double * bytes_error) - (count(*) - 1) * " \
    "coalesce(max(unsampled_bytes::double * unsampled_bytes), 0)))"

static const char *live_rows(const struct memory_args *w)
{
    return w->api->target == PROBING_TARGET_LIVE
               ? "memory.live left join memory.sampling on true"
               : "(select *, 0 as unsampled_bytes from memory.live) l";
}

/* Memory that was allocated before sampling began is in no stack. */
static void show_unknown(const struct memory_args *w, const struct usage_report *r)
{
    char text[400], alive[32], error[32], heap[32], rest[32];
    struct numbers sampled = numbers_unknown();
    char sql[500];
    (void)snprintf(sql, sizeof(sql),
                   "select sum(bytes), " ROWS_ERROR
                   ", sum(bytes) filter (where domain = 'malloc') from %s",
                   live_rows(w));
    if (w->api->ask(w->api, sql, take_numbers, &sampled) < 0)
        return;
    double seen = is_number(sampled.value[2]) ? sampled.value[2] : 0,
           unseen = r->part[PART_HEAP_USED] - seen;
    report_mb(is_number(sampled.value[0]) ? sampled.value[0] : 0, alive);
    report_mb(is_number(sampled.value[1]) ? sampled.value[1] : 0, error);
    report_mb(r->part[PART_HEAP_USED], heap);
    report_mb(unseen > 0 ? unseen : 0, rest);
    int n =
        snprintf(text, sizeof(text), "stacks are known of %s +- %s that are alive", alive, error);
    if (n > 0 && (size_t)n < sizeof(text) && unseen > GROWN_LEAST)
        (void)snprintf(text + n, sizeof(text) - (size_t)n,
                       "; of the heap's %s some %s were allocated before sampling began, or where "
                       "it does not see",
                       heap, rest);
    report_printf(w->api, "\n");
    print_line(w, text);
}

/* " 1.2 s before its end, ..." where a process that has ended freed most of it then; else "". */
static void tell_before_end(const struct memory_args *w, char *ret, size_t size)
{
    struct numbers ago = numbers_unknown();
    ret[0] = '\0';
    if (w->api->target == PROBING_TARGET_DEAD &&
        w->api->ask(w->api,
                    "select extract(epoch from heard_ts - ts) from memory.ended where ts < "
                    "heard_ts",
                    take_numbers, &ago) == 0 &&
        is_number(ago.value[0]))
        (void)snprintf(ret, size, " %.1f s before it was last heard of, when it had freed most",
                       ago.value[0]);
}

/* Say so if a process that has ended once had much more than at its end. */
static void show_more_at_peak(const struct memory_args *w)
{
    struct numbers n = numbers_unknown();
    char text[160], peak[32];
    if (w->api->ask(
            w->api,
            "select max(total_bytes), (select sum(bytes) from memory.live) from memory.peak",
            take_numbers, &n) < 0 ||
        !(n.value[0] > MORE_AT_PEAK * (is_number(n.value[1]) ? n.value[1] : 0)))
        return;
    report_mb(n.value[0], peak);
    (void)snprintf(text, sizeof(text),
                   "at its peak %s were alive: memory --peak, flamegraph memory_peak", peak);
    print_line(w, text);
}

void stacks_show(const struct memory_args *w, const struct usage_report *r)
{
    char sql[600];
    if (r->without_plugin)
        return;
    (void)snprintf(sql, sizeof(sql),
                   "select coalesce(function_name, native_function, '?'), file, lineno, "
                   "sum(bytes), " ROWS_ERROR
                   ", null, sum(bytes_1m), sum(count), max(age_ns), null from %s group by 1, 2, 3 "
                   "order by 4 desc limit %u",
                   live_rows(w), SHOWN);
    uint32_t n = 0;
    char before_end[120];
    tell_before_end(w, before_end, sizeof(before_end));
    (void)ask_places(w, sql, show_alive, before_end, &n);
    if (n > 0)
        show_grown(w);
    show_unknown(w, r);
    if (w->api->target == PROBING_TARGET_LIVE)
        show_sampling(w);
    else
        show_more_at_peak(w);
}

/* ---- JSON ---- */

static void json_begin_place(struct places *p, const struct place *one, struct report_json *j)
{
    *j = (struct report_json){.api = p->w->api, .begun = p->n > 0};
    json_item(j);
    json_text(j, "function_name", one->name);
    json_text(j, "place", one->where);
    json_key(j, "stack_id");
    report_printf(j->api, is_number(one->stack_id) ? "%.0f" : "null", one->stack_id);
    json_number(j, "bytes", one->bytes);
    json_number(j, "bytes_error", one->error);
    json_number(j, "count", one->count);
}

static void json_place(struct places *p, const struct place *one)
{
    struct report_json j;
    json_begin_place(p, one, &j);
    json_number(&j, "older_than_1m_bytes", one->older);
    json_close(&j, '}');
}

static void json_grown(const struct memory_args *w, struct report_json *j)
{
    struct growth g;
    if (growth_most(w, &g) == 0)
        growth_json_others(&g, j, /* reasons= */ NULL);
    else
        report_printf(w->api, "[]");
    growth_done(&g);
}

void stacks_show_json(const struct memory_args *w, struct report_json *j)
{
    char sql[600];
    (void)snprintf(sql, sizeof(sql),
                   "select " PLACE_COLUMNS "null, bytes_1m, " PLACE_TAIL
                   " from memory.live order by bytes desc limit %u",
                   SHOWN_ALONE);
    json_list(j, "alive");
    (void)ask_places(w, sql, json_place, NULL, NULL);
    json_close(j, ']');
    json_key(j, "grown");
    json_grown(w, j);
    struct sampling s;
    read_sampling(w, &s);
    if (w->api->target != PROBING_TARGET_LIVE || !is_number(s.seconds))
        return;
    json_key(j, "sampling");
    json_open(j, '{');
    json_number(j, "sample_bytes", s.now);
    json_number(j, "sample_bytes_asked", s.asked);
    json_number(j, "sample_bytes_max", s.most);
    json_close(j, '}');
}

/* ---- peak and marks ---- */

static void show_peak(struct places *p, const struct place *one)
{
    char total[32];
    report_mb(one->older, total); /* total_bytes */
    if (p->n == 0)
        report_printf(p->w->api, "alive when the most was: %s (estimate +- its error)\n\n", total);
    show_place(p->w, one, one->bytes);
}

static void json_peak(struct places *p, const struct place *one)
{
    struct report_json j = {.api = p->w->api};
    if (p->n == 0) {
        json_open(&j, '{');
        json_number(&j, "ts_sec", one->grown);
        json_number(&j, "total_bytes", one->older);
        json_list(&j, "alive");
    }
    json_begin_place(p, one, &j);
    json_close(&j, '}');
}

int peak_show(const struct memory_args *w)
{
    char sql[600];
    uint32_t n = 0;
    (void)snprintf(sql, sizeof(sql),
                   "select " PLACE_COLUMNS "extract(epoch from ts), total_bytes, " PLACE_TAIL
                   " from memory.peak order by bytes desc limit %u",
                   SHOWN_ALONE);
    if (w->json)
        w->api->exact(w->api);
    int rc = ask_places(w, sql, w->json ? json_peak : show_peak, NULL, &n);
    if (rc == -ENOENT || rc == -EINVAL)
        return w->api->no_plugin(w->api);
    if (rc == 0 && n == 0)
        return report_fail(w->api, -ENODATA,
                           "nothing has been alive since plugin memory was loaded");
    if (rc == 0 && w->json)
        report_printf(w->api, "]}\n");
    return rc;
}

/* Bytes of a stack in one snapshot. */
#define AT_SNAPSHOT                                                                  \
    "(select stack_id as id, sum(bytes) as was, max(bytes_error) as was_error from " \
    "memory.snapshots where snapshot_id = %.0f group by stack_id)"

static void show_difference(struct places *p, const struct place *one)
{
    show_place(p->w, one, one->grown);
}

/* A mark's name is a text of the user's: ' is doubled. */
static int quote_mark(const struct memory_args *w, const char *name, char *ret, size_t size)
{
    size_t n = 0;
    for (; *name && n + 3 < size; name++) {
        if (*name == '\'')
            ret[n++] = '\'';
        ret[n++] = *name;
    }
    ret[n] = '\0';
    return *name ? report_fail(w->api, -EINVAL, "a mark's name has at most 100 bytes") : 0;
}

static int find_mark(const struct memory_args *w, const char *name, double *ret_id)
{
    char sql[500], quoted[210];
    struct numbers found = numbers_unknown();
    int rc = quote_mark(w, name, quoted, sizeof(quoted));
    if (rc < 0)
        return rc;
    (void)snprintf(sql, sizeof(sql),
                   "select max(snapshot_id) from memory.snapshots where kind = 'mark' and name = "
                   "'%s'",
                   quoted);
    rc = w->api->ask(w->api, sql, take_numbers, &found);
    if (rc == -ENOENT || rc == -EINVAL)
        return w->api->no_plugin(w->api);
    if (rc == 0 && !is_number(found.value[0]) && strncmp(name, "memory.", 7) == 0)
        return report_fail(w->api, -ENODATA,
                           "there is no mark '%s': no such event has come (select * from "
                           "memory.events)",
                           name);
    if (rc == 0 && !is_number(found.value[0]))
        return report_fail(w->api, -ENODATA, "there is no mark '%s'; probing memory --mark %s",
                           name, name);
    *ret_id = found.value[0];
    return rc;
}

static void json_difference(struct places *p, const struct place *one)
{
    struct report_json j;
    json_begin_place(p, one, &j);
    json_number(&j, "grown_bytes", one->grown);
    json_close(&j, '}');
}

static int json_diff(const struct memory_args *w, const char *sql)
{
    struct report_json j = {.api = w->api};
    w->api->exact(w->api);
    json_open(&j, '{');
    json_text(&j, "from", w->diff[0]);
    json_text(&j, "to", w->diff[1]);
    json_list(&j, "grown");
    int rc = ask_places(w, sql, json_difference, NULL, NULL);
    report_printf(w->api, "]}\n");
    return rc;
}

int diff_show(const struct memory_args *w)
{
    char sql[2000];
    double id[2] = {0, 0};
    uint32_t n = 0;
    int rc = find_mark(w, w->diff[0], &id[0]);
    if (rc == 0)
        rc = find_mark(w, w->diff[1], &id[1]);
    if (rc < 0)
        return rc;
    (void)snprintf(
        sql, sizeof(sql),
        "select " PLACE_COLUMNS "grown, 0, " PLACE_TAIL
        " from (select b.*, bytes - coalesce(a.was, 0) as grown from (select * from "
        "memory.snapshots where snapshot_id = %.0f) b left join " AT_SNAPSHOT
        " a on b.stack_id = a.id union all select s.*, -bytes as grown from (select * "
        "from memory.snapshots where snapshot_id = %.0f) s where stack_id not in "
        "(select stack_id from memory.snapshots where snapshot_id = %.0f)) d where grown "
        "<> 0 order by abs(grown) desc limit %u",
        id[1], id[0], id[0], id[1], SHOWN_ALONE);
    if (w->json)
        return json_diff(w, sql);
    report_printf(w->api, "from %s to %s (estimate +- its error)\n\n", w->diff[0], w->diff[1]);
    rc = ask_places(w, sql, show_difference, NULL, &n);
    if (rc == 0 && n == 0)
        report_printf(w->api, "  no stack has more or less alive\n");
    return rc;
}
