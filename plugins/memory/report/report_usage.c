/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/report_usage.c - what the process's memory is made of, in words and bars.
 *
 * One thread.  The living measure it when they are asked (memory.parts); of the dead their last row
 * tells (memory.usage).
 */
#include <errno.h>
#include <stdlib.h>

#include "report.h"

#define BAR_MOST 40u   /* columns */
#define BESIDE_BAR 38u /* columns left of it, and its margin */

static const struct {
    enum part part;
    const char *name;  /* of the row in memory.parts, and in JSON with _bytes behind it */
    const char *words; /* as it is shown; NULL: it is not */
    bool always;       /* shown where it is not known, with the reason; and where it is 0 */
} parts[] = {{PART_RSS, "rss", "resident", true},
             {PART_PSS, "pss", "  its share (PSS)", false},
             {PART_PEAK, "peak_rss", "  at its peak", false},
             {PART_ANON, "anon", "heaps, stacks, data", true},
             {PART_HEAP_USED, "heap_used", "  heap in use", true},
             {PART_HEAP_HELD, "heap_held", "  held by the allocator", false},
             {PART_FILE, "file", "files mapped", true},
             {PART_SHMEM, "shmem", "shared memory", false},
             {PART_OWN, "probing", "probing's own part", true},
             {PART_SWAP, "swap", "swapped out", false},
             {PART_LIMIT, "limit", NULL, false},
             {PART_LIMIT_USED, "limit_used", NULL, false},
             {PART_MACHINE, "machine", NULL, false},
             {PART_AVAILABLE, "machine_available", NULL, false}};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

/* ---- what is asked ---- */

static int take_part(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct usage_report *r = arg;
    for (size_t i = 0; i < N_PARTS && n >= 3; i++) {
        if (strcmp(cell_text(&cells[0]), parts[i].name) != 0)
            continue;
        r->part[parts[i].part] = cell_number(&cells[1]);
        (void)snprintf(r->note[parts[i].part], REPORT_NOTE_BYTES, "%s", cell_text(&cells[2]));
    }
    return 0;
}

static int take_last(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    static const enum part order[] = {PART_RSS,   PART_PSS,        PART_PEAK,     PART_ANON,
                                      PART_FILE,  PART_SHMEM,      PART_SWAP,     PART_OWN,
                                      PART_LIMIT, PART_LIMIT_USED, PART_AVAILABLE};
    enum { ORDER = sizeof(order) / sizeof(order[0]) };
    struct usage_report *r = arg;
    if (n < ORDER + 6)
        return 0;
    for (uint32_t i = 0; i < ORDER; i++)
        if (!is_number(r->part[order[i]]))
            r->part[order[i]] = cell_number(&cells[i]);
    (void)snprintf(r->limit_of, sizeof(r->limit_of), "%s", cell_text(&cells[ORDER]));
    r->pressure = cell_number(&cells[ORDER + 1]);
    r->oom_kills = cell_number(&cells[ORDER + 2]);
    (void)snprintf(r->cgroup, sizeof(r->cgroup), "%s", cell_text(&cells[ORDER + 3]));
    r->last_sec = cell_number(&cells[ORDER + 4]);
    (void)snprintf(r->boot_id, sizeof(r->boot_id), "%s", cell_text(&cells[ORDER + 5]));
    return 0;
}

static int take_growth(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct usage_report *r = arg;
    if (n < 4)
        return 0;
    r->grown = cell_number(&cells[0]);
    r->own_grown = cell_number(&cells[1]);
    r->seconds = cell_number(&cells[2]);
    r->first_sec = cell_number(&cells[3]);
    return 0;
}

static int read_growth(const struct memory_args *w, struct usage_report *r)
{
    char sql[900], since[SINCE_BYTES];
    report_since(w, w->window_ns, since, sizeof(since));
    (void)snprintf(sql, sizeof(sql),
                   "select b.program_bytes - a.program_bytes, b.probing_bytes - a.probing_bytes, "
                   "extract(epoch from "
                   "b.ts - a.ts), (select extract(epoch from min(ts)) from memory.usage) from "
                   "(select * from memory.usage where ts >= %s order by ts limit 1) a cross join "
                   "(select * from memory.usage order by ts desc limit 1) b",
                   since);
    return w->api->ask(w->api, sql, take_growth, r);
}

static double number_behind(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    char *end;
    double value = at ? strtod(at + strlen(key), &end) : 0;
    return at && end != at + strlen(key) ? value : (double)NAN;
}

/* The command `heap` answers {"allocator":"glibc","used_bytes":1,...} */
static int read_heap(const struct memory_args *w, struct usage_report *r)
{
    static const char *const words[] = {"heap"};
    struct memory_answer h;
    int rc = report_call(w, 1, words, &h);
    if (rc != 0)
        return rc;
    r->part[PART_HEAP_USED] = number_behind(h.text, "\"used_bytes\":");
    r->part[PART_HEAP_HELD] = number_behind(h.text, "\"held_bytes\":");
    (void)snprintf(r->note[PART_HEAP_USED], REPORT_NOTE_BYTES, "it took %.1f ms to ask",
                   number_behind(h.text, "\"took_ns\":") / 1e6);
    return 0;
}

/* Without the plugin, the core's own table knows most of it. */
static int read_process(const struct memory_args *w, struct usage_report *r)
{
    static const char sql[] =
        "select part, bytes, null as note from process.memory cross join lateral (values ('rss', "
        "rss_bytes), ('peak_rss', peak_rss_bytes), ('anon', anon_bytes), ('file', file_bytes), "
        "('shmem', shmem_bytes), ('swap', swap_bytes), ('machine', system_total_bytes), "
        "('machine_available', system_available_bytes), ('limit', system_total_bytes), "
        "('limit_used', system_total_bytes - system_available_bytes)) v(part, bytes)";
    int rc = w->api->ask(w->api, sql, take_part, r);
    (void)snprintf(r->limit_of, sizeof(r->limit_of), "machine");
    r->without_plugin = true;
    return rc == -ENOENT || rc == -EINVAL ? w->api->no_plugin(w->api) : rc;
}

int usage_read(const struct memory_args *w, struct usage_report *r)
{
    *r = (struct usage_report){.grown = (double)NAN,
                               .own_grown = (double)NAN,
                               .seconds = (double)NAN,
                               .first_sec = (double)NAN,
                               .last_sec = (double)NAN,
                               .oom_kills = (double)NAN,
                               .pressure = (double)NAN};
    for (int i = 0; i < PARTS; i++)
        r->part[i] = (double)NAN;
    int rc = 0;
    if (w->api->target == PROBING_TARGET_LIVE)
        rc = w->api->ask(w->api, "select part, bytes, note from memory.parts", take_part, r);
    if (rc == 0)
        rc = w->api->ask(
            w->api,
            "select rss_bytes, pss_bytes, peak_rss_bytes, anon_bytes, file_bytes, "
            "shmem_bytes, swap_bytes, probing_bytes, limit_bytes, limit_used_bytes, "
            "available_bytes, limit_of, pressure_pct, oom_kills, cgroup, "
            "extract(epoch from ts), boot_id from memory.usage order by ts desc limit 1",
            take_last, r);
    if (rc == -ENOENT || rc == -EINVAL)
        return w->api->target == PROBING_TARGET_LIVE ? read_process(w, r)
                                                     : w->api->no_plugin(w->api);
    if (rc == 0)
        rc = read_growth(w, r);
    if (rc == 0 && w->heap && w->api->target == PROBING_TARGET_LIVE)
        rc = read_heap(w, r);
    if (rc == 0 && !is_number(r->part[PART_RSS]))
        rc = report_fail(w->api, -ENODATA, "%s has no row in memory.usage: it ended too soon",
                         w->api->target_text);
    return rc;
}

/* ---- how it is shown ---- */

static void show_head(const struct memory_args *w, const struct usage_report *r)
{
    char text[768], rss[32], limit[32], used[32];
    const double *p = r->part;
    const char *of = r->note[PART_LIMIT][0] ? r->note[PART_LIMIT] : r->limit_of;
    report_mb(p[PART_RSS], rss);
    report_mb(p[PART_LIMIT], limit);
    report_mb(p[PART_LIMIT_USED], used);
    if (!is_number(p[PART_LIMIT]) || p[PART_LIMIT] <= 0)
        (void)snprintf(text, sizeof(text), "%s resident; no limit is known", rss);
    else if (strcmp(of, "machine") == 0)
        (void)snprintf(text, sizeof(text),
                       "%s resident; no limit but the machine's memory, of which %.0f %% are in "
                       "use (%s of %s, by all processes)",
                       rss, 100 * p[PART_LIMIT_USED] / p[PART_LIMIT], used, limit);
    else
        (void)snprintf(text, sizeof(text),
                       "%s resident; %.0f %% of the limit are used: %s of %s (%s)", rss,
                       100 * p[PART_LIMIT_USED] / p[PART_LIMIT], used, limit, of);
    w->api->print_wrapped(w->api, "", text, strlen(text));
    report_printf(w->api, "\n");
}

static uint32_t bar_width(const struct memory_args *w)
{
    uint32_t columns = w->api->width(w->api);
    columns = columns ? columns : 80;
    columns = columns > BESIDE_BAR ? columns - BESIDE_BAR : 0;
    return columns < BAR_MOST ? columns : BAR_MOST;
}

void report_bar(const struct memory_args *w, const char *words, double bytes, double whole)
{
    char size[32], bar[BAR_MOST + 1] = "";
    uint32_t n = 0, most = bar_width(w);
    report_mb(bytes, size);
    if (is_number(bytes) && whole > 0)
        n = (uint32_t)(bytes / whole * most + 0.5);
    n = n > most ? most : n;
    memset(bar, '#', n);
    bar[n] = '\0';
    report_printf(w->api, "  %-24s %10s%s%s\n", words, size, n ? "  " : "", bar);
}

static void show_growth(const struct memory_args *w, const struct usage_report *r)
{
    char text[256], grown[32], own[32];
    if (!is_number(r->grown) || !(r->seconds >= 1))
        return;
    double theirs = r->grown;
    report_mb(theirs < 0 ? -theirs : theirs, grown);
    report_mb(r->own_grown, own);
    (void)snprintf(text, sizeof(text),
                   "in the last %.0f s what the program keeps has %s by %s (%+.1f MB a minute)%s%s",
                   r->seconds, theirs < 0 ? "shrunk" : "grown", grown,
                   theirs / MB / r->seconds * 60,
                   is_number(r->own_grown) ? "; probing's own part, by itself: " : "",
                   is_number(r->own_grown) ? own : "");
    report_printf(w->api, "\n");
    w->api->print_wrapped(w->api, "", text, strlen(text));
}

static int take_device(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    const struct memory_args *w = arg;
    char used[32], held[32], name[64];
    if (n < 3 || !is_number(cell_number(&cells[1])))
        return 0;
    report_mb(cell_number(&cells[1]), used);
    report_mb(cell_number(&cells[2]), held);
    (void)snprintf(name, sizeof(name), "torch on %.16s", cell_text(&cells[0]));
    report_printf(w->api, "  %-24s %10s  of %s that it holds\n", name, used, held);
    return 0;
}

static int take_gpu(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    const struct memory_args *w = arg;
    char used[32], total[32], name[64];
    if (n < 3 || !is_number(cell_number(&cells[1])))
        return 0;
    report_mb(cell_number(&cells[1]), used);
    report_mb(cell_number(&cells[2]), total);
    (void)snprintf(name, sizeof(name), "GPU %.0f", cell_number(&cells[0]));
    report_printf(w->api, "  %-24s %10s  of %s, by all processes\n", name, used, total);
    return 0;
}

/* Other plugins' tables: where they are not there is nothing to tell. */
static void show_devices(const struct memory_args *w)
{
    (void)w->api->ask(w->api,
                      "select device, allocated * 1048576, cached * 1048576 from (select *, "
                      "row_number() over (partition by device order by ts desc) as newest from "
                      "python.torch_trace where allocated is not null and ts > (select max(ts) "
                      "from python.torch_trace) - interval '60 seconds') t where newest = 1 "
                      "order by device limit 16",
                      take_device, (void *)(uintptr_t)w);
    (void)w->api->ask(w->api,
                      "select device_id, used_bytes, total_bytes from gpu.utilization where ts = "
                      "(select max(ts) from gpu.utilization) order by device_id limit 16",
                      take_gpu, (void *)(uintptr_t)w);
}

void usage_show(const struct memory_args *w, const struct usage_report *r)
{
    double whole = r->part[PART_RSS];
    show_head(w, r);
    for (size_t i = 0; i < N_PARTS; i++) {
        double bytes = r->part[parts[i].part];
        whole = bytes > whole && parts[i].words ? bytes : whole;
    }
    for (size_t i = 0; i < N_PARTS; i++) {
        double bytes = r->part[parts[i].part];
        const char *note = r->note[parts[i].part];
        bool shown = r->without_plugin ? bytes > 0 : parts[i].always || bytes > 0;
        if (!parts[i].words || !shown || (!is_number(bytes) && !*note))
            continue;
        report_bar(w, parts[i].words, bytes, whole);
        if (!is_number(bytes) && *note)
            w->api->print_wrapped(w->api, "      ", note, strlen(note));
    }
    show_devices(w);
    torch_show(w);
    show_growth(w, r);
    if (r->without_plugin) {
        char text[160];
        (void)snprintf(
            text, sizeof(text),
            "what grows, and where it was allocated: probing -t %.40s plugin load memory",
            w->api->target_text);
        report_printf(w->api, "\n");
        w->api->print_wrapped(w->api, "", text, strlen(text));
    }
}

void usage_show_json(const struct usage_report *r, struct report_json *j)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        char key[64];
        (void)snprintf(key, sizeof(key), "%s_bytes", parts[i].name);
        json_number(j, key, r->part[parts[i].part]);
    }
    json_text(j, "limit_of", r->note[PART_LIMIT][0] ? r->note[PART_LIMIT] : r->limit_of);
    json_number(j, "oom_kills", r->oom_kills);
    json_number(j, "pressure_pct", r->pressure);
    json_key(j, "growth");
    json_open(j, '{');
    json_number(j, "seconds", r->seconds);
    json_number(j, "program_bytes", r->grown);
    json_number(j, "probing_bytes", r->own_grown);
    json_close(j, '}');
}
