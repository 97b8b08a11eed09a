/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/pressure.c - system.pressure: how long tasks wait for processors, memory and I/O,
 * on the machine and in the process's cgroup (PSI, Linux 4.20).
 *
 * The sampler's worker only.
 */
#include "internal.h"
#include "lib/proc/lines.h"

#define LOOK_TICKS 10

enum { SCOPE, RESOURCE, KIND, AVG10, AVG60, AVG300, TOTAL, WALL, DELTA, PCT, N_COLUMNS };

static const struct probing_column columns[N_COLUMNS] = {
    [SCOPE] = PROBING_STR_COLUMN("scope", "machine, or cgroup: the one that the process is in"),
    [RESOURCE] = PROBING_STR_COLUMN("resource", "cpu, memory, io or irq"),
    [KIND] = PROBING_STR_COLUMN("kind", "some: of the time that a task waited; full: that all did"),
    [AVG10] = PROBING_F64_COLUMN("avg10_pct", PROBING_PERCENT, "of the last 10 s"),
    [AVG60] = PROBING_F64_COLUMN("avg60_pct", PROBING_PERCENT, "of the last 60 s"),
    [AVG300] = PROBING_F64_COLUMN("avg300_pct", PROBING_PERCENT, "of the last 300 s"),
    [TOTAL] = PROBING_I64_COLUMN("total_ns", PROBING_NS, "waited since the machine started"),
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "the time that this row covers"),
    [DELTA] = PROBING_I64_COLUMN("delta_ns", PROBING_NS, "waited, of that"),
    [PCT] = PROBING_F64_COLUMN("wait_pct", PROBING_PERCENT, "waited, of that"),
};

static const struct probing_table_desc table =
    PROBING_TABLE("system.pressure", columns,
                  "pressure stall information: how long tasks wait for processors, memory and I/O");

static const char *const resources[PRESSURE_RESOURCES] = {"cpu", "memory", "io", "irq"};

int pressure_init(struct pressure *p, const struct probing_host *h)
{
    *p = (struct pressure){.host = h};
    memset(p->total_ns, 0xff, sizeof(p->total_ns)); /* UNKNOWN */
    return h->table(h, &table, &p->table);
}

/* "some avg10=0.00 avg60=1.25 avg300=0.10 total=12345" */
bool pressure_parse(const char *line, struct pressure_line *ret)
{
    static const char *const keys[] = {" avg10=", " avg60=", " avg300=", " total="};
    double numbers[4];
    ret->full = strncmp(line, "full ", 5) == 0;
    if (!ret->full && strncmp(line, "some ", 5) != 0)
        return false;
    for (uint32_t i = 0; i < 4; i++) {
        const char *at = strstr(line, keys[i]);
        uint64_t whole = 0, part = 0, scale = 1;
        if (!at)
            return false;
        /* The number by hand: strtod() takes the decimal point of the program's locale. */
        for (at += strlen(keys[i]); *at >= '0' && *at <= '9'; at++)
            whole = whole * 10 + (uint64_t)(*at - '0');
        for (at += *at == '.'; *at >= '0' && *at <= '9' && scale < 10000; at++, scale *= 10)
            part = part * 10 + (uint64_t)(*at - '0');
        numbers[i] = (double)whole + (double)part / (double)scale;
        if (i == 3)
            ret->total_ns = whole * PROBING_NS_PER_US;
    }
    memcpy(ret->averages, numbers, sizeof(ret->averages));
    return true;
}

static void add_row(struct pressure *p, bool cgroup, uint32_t resource,
                    const struct pressure_line *line, uint64_t now)
{
    union probing_cell cells[N_COLUMNS];
    uint64_t *before = &p->total_ns[cgroup][resource][line->full];
    uint64_t wall = p->row_ns ? now - p->row_ns : UNKNOWN;
    bool known = *before != UNKNOWN && line->total_ns >= *before && wall != UNKNOWN;
    cells[SCOPE].u = probing_intern_text(p->host, cgroup ? "cgroup" : "machine");
    cells[RESOURCE].u = probing_intern_text(p->host, resources[resource]);
    cells[KIND].u = probing_intern_text(p->host, line->full ? "full" : "some");
    for (uint32_t i = 0; i < 3; i++)
        cells[AVG10 + i] = probing_f64(line->averages[i]);
    cells[TOTAL] = count_cell(line->total_ns);
    cells[WALL] = count_cell(known ? wall : UNKNOWN);
    cells[DELTA] = delta_cell(*before, line->total_ns);
    cells[PCT] = percent_cell(known ? line->total_ns - *before : UNKNOWN, wall);
    *before = line->total_ns;
    (void)p->host->append(p->table, now, cells, N_COLUMNS, NULL, 0);
}

static int look_at_file(struct pressure *p, bool cgroup, uint32_t resource, const char *path,
                        uint64_t now)
{
    char room[256];
    struct proc_lines l;
    struct pressure_line line;
    size_t n;
    int r = proc_lines_open(&l, path, room, sizeof(room));
    for (char *text; (text = proc_lines_next(&l, &n)) != NULL;)
        if (pressure_parse(text, &line))
            add_row(p, cgroup, resource, &line, now);
    r = r < 0 ? r : l.error;
    proc_lines_close(&l);
    return r;
}

void pressure_look(struct pressure *p, const char *cgroup, uint64_t now, uint64_t interval_ns)
{
    char path[PROC_CGROUP_BYTES + 32];
    uint64_t begun = own_cpu_ns();
    if (!p->host->wanted(p->table) || !pace_is_due(&p->pace, now))
        return;
    if (strcmp(cgroup, p->cgroup) != 0) {
        (void)snprintf(p->cgroup, sizeof(p->cgroup), "%s", cgroup);
        memset(p->total_ns[true], 0xff, sizeof(p->total_ns[true])); /* UNKNOWN */
    }
    for (uint32_t i = 0; i < PRESSURE_RESOURCES; i++) {
        (void)snprintf(path, sizeof(path), "/proc/pressure/%s", resources[i]);
        int r = look_at_file(p, false, i, path, now);
        if (i == 0)
            atomic_store_explicit(&p->error, r, memory_order_relaxed);
        if (!cgroup[0])
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s.pressure", cgroup, resources[i]);
        (void)look_at_file(p, true, i, path, now);
    }
    p->row_ns = now;
    pace_took(&p->pace, now, own_cpu_ns() - begun, LOOK_TICKS, interval_ns, PACE_SMALL);
}
