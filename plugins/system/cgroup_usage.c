/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/cgroup_usage.c - cgroup.utilization: what the process's cgroup may use and uses,
 * and how long it was throttled.
 *
 * The sampler's worker only.  A group's limits are those of its parents, too: the least counts, and
 * what stops a parent stops the group.
 */
#include "internal.h"
#include "lib/hash.h"
#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"

#define LOOK_TICKS 10
#define MOUNTS_TICKS 60              /* between looks whether groups are mounted elsewhere now */
#define NO_LIMIT (UINT64_C(1) << 60) /* bytes: version 1 writes a number near 2^63 for none */

enum {
    VERSION,
    PATH,
    WALL,
    CPU_LIMIT,
    CPU_PCT,
    PERIODS,
    THROTTLED,
    THROTTLED_NS,
    MEMORY,
    MEMORY_LIMIT,
    MEMORY_HIGH,
    MEMORY_PEAK,
    SWAP,
    OOM_KILLS,
    HIGH_EVENTS,
    PIDS,
    PIDS_LIMIT,
    N_COLUMNS
};

static const struct probing_column columns[N_COLUMNS] = {
    [VERSION] = PROBING_I64_COLUMN("version", PROBING_PLAIN, "of cgroups, that the memory is in"),
    [PATH] = PROBING_STR_COLUMN("path", "folder of the group"),
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "the time that this row covers"),
    [CPU_LIMIT] = PROBING_F64_COLUMN("cpu_limit_cores", PROBING_PLAIN,
                                     "processors that the group may use; NULL: no limit"),
    [CPU_PCT] =
        PROBING_F64_COLUMN("cpu_pct", PROBING_PERCENT, "CPU time of the group, of one core"),
    [PERIODS] = PROBING_I64_COLUMN("delta_periods", PROBING_COUNT,
                                   "periods in which it, or a group around it, ran with a limit; "
                                   "NULL: the first look at a group"),
    [THROTTLED] = PROBING_I64_COLUMN("delta_throttled", PROBING_COUNT,
                                     "of these, in which it was stopped as it had used its share"),
    [THROTTLED_NS] = PROBING_I64_COLUMN("delta_throttled_ns", PROBING_NS,
                                        "how long it was stopped, all processors together"),
    [MEMORY] = PROBING_I64_COLUMN("memory_bytes", PROBING_BYTES, "memory that is charged to it"),
    [MEMORY_LIMIT] =
        PROBING_I64_COLUMN("memory_limit_bytes", PROBING_BYTES,
                           "above which the kernel kills (memory.max); NULL: no limit"),
    [MEMORY_HIGH] =
        PROBING_I64_COLUMN("memory_high_bytes", PROBING_BYTES,
                           "above which the group is slowed down (memory.high); NULL: no limit"),
    [MEMORY_PEAK] = PROBING_I64_COLUMN("memory_peak_bytes", PROBING_BYTES, "the most there was"),
    [SWAP] = PROBING_I64_COLUMN("swap_bytes", PROBING_BYTES, "swapped out"),
    [OOM_KILLS] = PROBING_I64_COLUMN("oom_kills", PROBING_COUNT,
                                     "processes killed in it for want of memory, so far"),
    [HIGH_EVENTS] = PROBING_I64_COLUMN("high_events", PROBING_COUNT,
                                       "times that it was above memory_high_bytes, so far"),
    [PIDS] = PROBING_I64_COLUMN("pids", PROBING_COUNT, "threads in it"),
    [PIDS_LIMIT] = PROBING_I64_COLUMN("pids_limit", PROBING_COUNT,
                                      "threads that may be in it; NULL: no limit"),
};

static const struct probing_table_desc table =
    PROBING_TABLE("cgroup.utilization", columns,
                  "what the process's cgroup may use and uses, and how long it was throttled");

/* Forget the counts so far: they are another group's. */
static void forget_counts(struct cgroup_usage *g)
{
    g->cpu_ns = g->periods = g->throttled = g->throttled_ns = UNKNOWN;
}

int cgroup_init(struct cgroup_usage *g, const struct probing_host *h)
{
    *g = (struct cgroup_usage){.host = h};
    forget_counts(g);
    return h->table(h, &table, &g->table);
}

/* ---- files ---- */

/* true: it is another one than before. */
static bool find_group(struct cgroup_folder *f, const char *controller)
{
    struct cgroup_folder before = *f;
    f->known = proc_cgroup_folder(0, controller, &f->at);
    return f->known != before.known || strcmp(f->at.path, before.at.path) != 0;
}

static void find_groups(struct cgroup_usage *g)
{
    bool counters = find_group(&g->unified, "");
    counters = find_group(&g->cpu, "cpu") || counters;
    counters = find_group(&g->cpuacct, "cpuacct") || counters;
    (void)find_group(&g->memory, "memory");
    (void)find_group(&g->pids, "pids");
    if (counters)
        forget_counts(g);
}

/* Do its groups have other names than at the last look?  A file of a line for each controller. */
static bool has_moved(struct cgroup_usage *g)
{
    char room[1024];
    struct proc_lines l;
    size_t n;
    uint64_t names = HASH_FNV;
    (void)proc_lines_open(&l, "/proc/self/cgroup", room, sizeof(room));
    for (const char *line; (line = proc_lines_next(&l, &n)) != NULL;)
        names = hash_bytes(names, line, n + 1);
    proc_lines_close(&l);
    bool moved = names != g->names;
    g->names = names;
    return moved;
}

const char *cgroup_folder_of(const struct cgroup_usage *g)
{
    return g->unified.known && strlen(g->unified.at.path) > g->unified.at.point ? g->unified.at.path
                                                                                : "";
}

static uint64_t value_in(const struct cgroup_folder *f, const char *file, const char *key)
{
    char path[PROC_CGROUP_BYTES + 64];
    uint64_t value;
    if (!f->known)
        return UNKNOWN;
    (void)snprintf(path, sizeof(path), "%s/%s", f->at.path, file);
    return proc_number_in(path, key, &value) ? value : UNKNOWN;
}

/* The value of the group and its parents together; UNKNOWN: none of them has it. */
static uint64_t sum_in(const struct cgroup_folder *f, const char *file, const char *key)
{
    struct cgroup_folder at = *f;
    uint64_t sum = UNKNOWN;
    do {
        uint64_t value = value_in(&at, file, key);
        if (value != UNKNOWN)
            sum = (sum == UNKNOWN ? 0 : sum) + value;
    } while (at.known && proc_cgroup_parent(&at.at));
    return sum;
}

/* The least of the group's and its parents', NO_LIMIT and above: none. */
static uint64_t least_in(const struct cgroup_folder *f, const char *file)
{
    struct cgroup_folder at = *f;
    uint64_t least = UNKNOWN;
    do {
        uint64_t value = value_in(&at, file, "");
        least = value < least && value < NO_LIMIT ? value : least;
    } while (at.known && proc_cgroup_parent(&at.at));
    return least;
}

/* Processors by one folder's quota; 0: no limit. */
static double quota_of(const struct cgroup_folder *f, bool second)
{
    char path[PROC_CGROUP_BYTES + 64], text[64], *end;
    if (!second) {
        uint64_t quota = value_in(f, "cpu.cfs_quota_us", ""); /* -1: none */
        uint64_t period = value_in(f, "cpu.cfs_period_us", "");
        return quota != UNKNOWN && period != UNKNOWN && period > 0 ? (double)quota / (double)period
                                                                   : 0;
    }
    (void)snprintf(path, sizeof(path), "%s/cpu.max",
                   f->at.path); /* "150000 100000", "max 100000" */
    if (proc_read_path(path, text, sizeof(text)) <= 0 || text[0] < '0' || text[0] > '9')
        return 0;
    uint64_t quota = strtoull(text, &end, 10), period = strtoull(end, NULL, 10);
    return period > 0 ? (double)quota / (double)period : 0;
}

static union probing_cell cpu_limit(const struct cgroup_folder *f, bool second)
{
    struct cgroup_folder at = *f;
    double least = 0;
    do {
        double cores = at.known ? quota_of(&at, second) : 0;
        least = cores > 0 && (least <= 0 || cores < least) ? cores : least;
    } while (at.known && proc_cgroup_parent(&at.at));
    return least > 0 ? probing_f64(least) : probing_null(PROBING_F64);
}

/* ---- the row ---- */

static void cpu_cells(struct cgroup_usage *g, uint64_t wall, union probing_cell *cells)
{
    bool second = !g->cpu.known;
    const struct cgroup_folder *f = second ? &g->unified : &g->cpu;
    uint64_t usec = value_in(f, "cpu.stat", "usage_usec ");
    uint64_t cpu = usec != UNKNOWN ? usec * 1000 : value_in(&g->cpuacct, "cpuacct.usage", "");
    uint64_t periods = sum_in(f, "cpu.stat", "nr_periods ");
    uint64_t throttled = sum_in(f, "cpu.stat", "nr_throttled ");
    uint64_t stopped = sum_in(f, "cpu.stat", second ? "throttled_usec " : "throttled_time ");
    if (second && stopped != UNKNOWN)
        stopped *= 1000;
    cells[CPU_LIMIT] = cpu_limit(f, second);
    cells[CPU_PCT] = percent_cell(
        g->cpu_ns != UNKNOWN && cpu != UNKNOWN && cpu >= g->cpu_ns ? cpu - g->cpu_ns : UNKNOWN,
        wall);
    cells[PERIODS] = delta_cell(g->periods, periods);
    cells[THROTTLED] = delta_cell(g->throttled, throttled);
    cells[THROTTLED_NS] = delta_cell(g->throttled_ns, stopped);
    g->cpu_ns = cpu;
    g->periods = periods;
    g->throttled = throttled;
    g->throttled_ns = stopped;
}

static void memory_cells(const struct cgroup_usage *g, union probing_cell *cells)
{
    const struct cgroup_folder *f = &g->memory;
    if (f->known) {
        uint64_t with_swap = value_in(f, "memory.memsw.usage_in_bytes", "");
        uint64_t bytes = value_in(f, "memory.usage_in_bytes", "");
        cells[MEMORY] = count_cell(bytes);
        cells[MEMORY_LIMIT] = count_cell(least_in(f, "memory.limit_in_bytes"));
        cells[MEMORY_HIGH] = count_cell(UNKNOWN); /* there is none in version 1 */
        cells[MEMORY_PEAK] = count_cell(value_in(f, "memory.max_usage_in_bytes", ""));
        cells[SWAP] = delta_cell(bytes, with_swap);
        cells[OOM_KILLS] = count_cell(value_in(f, "memory.oom_control", "oom_kill "));
        cells[HIGH_EVENTS] = count_cell(UNKNOWN);
        return;
    }
    f = &g->unified;
    cells[MEMORY] = count_cell(value_in(f, "memory.current", ""));
    cells[MEMORY_LIMIT] = count_cell(least_in(f, "memory.max"));
    cells[MEMORY_HIGH] = count_cell(least_in(f, "memory.high"));
    cells[MEMORY_PEAK] = count_cell(value_in(f, "memory.peak", ""));
    cells[SWAP] = count_cell(value_in(f, "memory.swap.current", ""));
    cells[OOM_KILLS] = count_cell(value_in(f, "memory.events", "oom_kill "));
    cells[HIGH_EVENTS] = count_cell(value_in(f, "memory.events", "high "));
}

void cgroup_look(struct cgroup_usage *g, uint64_t now, uint64_t interval_ns)
{
    union probing_cell cells[N_COLUMNS];
    uint64_t begun = own_cpu_ns(), wall = g->row_ns ? now - g->row_ns : UNKNOWN;
    bool due = pace_is_due(&g->pace, now), mounts = pace_is_due(&g->mounts_pace, now);
    if ((due && has_moved(g)) || mounts)
        find_groups(g);
    if (mounts)
        pace_took(&g->mounts_pace, now, own_cpu_ns() - begun, MOUNTS_TICKS, interval_ns,
                  PACE_SMALL);
    bool known = g->memory.known || g->unified.known || g->cpu.known;
    atomic_store_explicit(&g->known, known, memory_order_relaxed);
    if (!known || !g->host->wanted(g->table) || !due)
        return;
    const struct cgroup_folder *pids = g->pids.known ? &g->pids : &g->unified;
    cells[VERSION] = probing_i64(g->memory.known || !g->unified.known ? 1 : 2);
    cells[PATH].u = text_id(g->host, g->memory.known    ? g->memory.at.path
                                     : g->unified.known ? g->unified.at.path
                                                        : g->cpu.at.path);
    cells[WALL] = count_cell(wall);
    cpu_cells(g, wall, cells);
    memory_cells(g, cells);
    cells[PIDS] = count_cell(value_in(pids, "pids.current", ""));
    cells[PIDS_LIMIT] = count_cell(least_in(pids, "pids.max"));
    (void)g->host->append(g->table, now, cells, N_COLUMNS, NULL, 0);
    g->row_ns = now;
    pace_took(&g->pace, now, own_cpu_ns() - begun, LOOK_TICKS, interval_ns, PACE_SMALL);
}
