/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/cpu_usage.c - cpu.utilization: rows of the process and of those of its threads
 * that did something.
 *
 * The sampler's worker only.  A row covers the time since its thread's row before, so that sums are
 * right however seldom a thread has one.  What a tick may cost is limited: threads are looked at
 * closely (their files in /proc) in turn while the allowance lasts, and the rows of the others have
 * what their clocks say.
 */
#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "internal.h"
#include "lib/proc/task.h"

#define BUSY_PERCENT 1  /* of a core, for a row at each tick */
#define LITTLE_TICKS 10 /* between rows of a thread that uses less */
#define IDLE_TICKS 60   /* between rows of one that uses nothing */
#define CALM_TICKS 2    /* between rows of a process that uses little */
#define COMM_TICKS 60   /* between looks at the name of the process */
#define QUIET_LOOKS 3   /* a thread whose clock stood so often is idle */
#define IDLE_CLOCKS 16  /* of idle threads, read at each tick in turn: 0.2 to 0.7 us each */
#define ALLOWANCE 6666u /* CPU time of a tick when close looks end: 1 / this of the interval */
#define LATE_NS \
    (20 * PROBING_NS_PER_MS) /* a look that comes so late did not come when it was due */
#define FIRST_NS (20 * PROBING_NS_PER_MS) /* the same of the first tick, which sees all threads */
#define LOOKS_LEAST 1
#define PSS_RSS_MOST (UINT64_C(4) << 30) /* bytes; the kernel walks all pages for the PSS */
#define KB 1024u
#define CPU_SETS 8 /* of 1,024 processors each */

enum {
    SCOPE,
    THREAD_ID,
    COMM,
    STATE,
    WCHAN,
    WALL,
    DELTA_USER,
    DELTA_SYS,
    DELTA_TOTAL,
    USER_PCT,
    SYS_PCT,
    TOTAL_PCT,
    CUM_USER,
    CUM_SYS,
    RSS,
    PSS,
    THREAD_COUNT,
    VOLUNTARY,
    INVOLUNTARY,
    DELTA_MAJFLT,
    MAJFLT,
    PLATFORM,
    RUNQ_WAIT,
    NICE,
    CPUS_ALLOWED,
    STOPPED,
    N_COLUMNS
};

static const struct probing_column columns[N_COLUMNS] = {
    [SCOPE] = PROBING_STR_COLUMN("scope", "process, or thread"),
    [THREAD_ID] = PROBING_I64_COLUMN("thread_id", PROBING_PLAIN,
                                     "the kernel's id of the thread; NULL: the process"),
    [COMM] = PROBING_STR_COLUMN("comm", "name of the thread or process, 15 bytes at most"),
    [STATE] = PROBING_STR_COLUMN(
        "state", "R: running or runnable; S: sleeping; D: waiting for a device; T: stopped; X: it "
                 "has ended; NULL: not looked at for this row"),
    [WCHAN] = PROBING_STR_COLUMN("wchan", "kernel function that it waits in; NULL: it does not "
                                          "wait, or the kernel hides it"),
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "the time that this row covers"),
    [DELTA_USER] = PROBING_I64_COLUMN("delta_user_ns", PROBING_NS, "CPU time in user mode"),
    [DELTA_SYS] = PROBING_I64_COLUMN("delta_sys_ns", PROBING_NS, "CPU time in the kernel"),
    [DELTA_TOTAL] = PROBING_I64_COLUMN("delta_total_ns", PROBING_NS, "CPU time"),
    [USER_PCT] = PROBING_F64_COLUMN("cpu_user_pct", PROBING_PERCENT, "of one core, in user mode"),
    [SYS_PCT] = PROBING_F64_COLUMN("cpu_sys_pct", PROBING_PERCENT, "of one core, in the kernel"),
    [TOTAL_PCT] = PROBING_F64_COLUMN("cpu_total_pct", PROBING_PERCENT, "of one core"),
    [CUM_USER] =
        PROBING_I64_COLUMN("cum_user_ns", PROBING_NS, "CPU time in user mode since it began"),
    [CUM_SYS] =
        PROBING_I64_COLUMN("cum_sys_ns", PROBING_NS, "CPU time in the kernel since it began"),
    [RSS] = PROBING_I64_COLUMN("rss_kb", PROBING_PLAIN, "resident memory of the process, in KiB"),
    [PSS] = PROBING_I64_COLUMN("pss_kb", PROBING_PLAIN,
                               "the same, shared pages in parts, in KiB; NULL: not read for this "
                               "row, as it costs much"),
    [THREAD_COUNT] = PROBING_I64_COLUMN("thread_count", PROBING_COUNT,
                                        "threads of the process, including those of probing"),
    [VOLUNTARY] =
        PROBING_I64_COLUMN("delta_vol_ctxt", PROBING_COUNT, "times that it gave up the processor"),
    [INVOLUNTARY] = PROBING_I64_COLUMN("delta_invol_ctxt", PROBING_COUNT,
                                       "times that the processor was taken from it"),
    [DELTA_MAJFLT] =
        PROBING_I64_COLUMN("delta_majflt", PROBING_COUNT, "page faults that needed a disk"),
    [MAJFLT] = PROBING_I64_COLUMN("majflt", PROBING_COUNT, "the same since it began"),
    [PLATFORM] = PROBING_STR_COLUMN("platform", "linux"),
    [RUNQ_WAIT] = PROBING_I64_COLUMN(
        "delta_runq_wait_ns", PROBING_NS,
        "ready to run and on no processor, a cgroup's quota included (run_delay of "
        "/proc/PID/schedstat); counted when a wait ends; of the process: of those threads that "
        "were looked at since its row before; NULL: none was, or the kernel does not count it"),
    [NICE] = PROBING_I64_COLUMN("nice", PROBING_PLAIN,
                                "-20 (goes before others) to 19; of the process: its main thread"),
    [CPUS_ALLOWED] = PROBING_I64_COLUMN(
        "cpus_allowed", PROBING_PLAIN,
        "processors that it may run on (affinity, cpuset); of the process: its main thread"),
    [STOPPED] = PROBING_I64_COLUMN(
        "delta_stopped_ns", PROBING_NS,
        "the process stood still as a whole: stopped by a signal or a debugger, frozen, or without "
        "a processor; an estimate, by how many looks did not come when they were due; NULL: a "
        "thread"),
};

static const struct probing_table_desc table =
    PROBING_TABLE("cpu.utilization", columns, "CPU time of the process and of its threads");

int cpu_init(struct cpu_usage *c, const struct probing_host *h)
{
    *c = (struct cpu_usage){.host = h};
    return h->table(h, &table, &c->table);
}

void cpu_done(struct cpu_usage *c)
{
    threads_done(&c->threads);
}

static void clear_cells(union probing_cell *cells)
{
    for (uint32_t i = 0; i < N_COLUMNS; i++)
        cells[i] = probing_null(columns[i].type);
}

/* ---- the process ---- */

static uint64_t microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * PROBING_NS_PER_S + (uint64_t)t.tv_usec * PROBING_NS_PER_US;
}

static void remember_process(struct cpu_usage *c, const struct rusage *u, uint64_t now)
{
    c->before_ns = now;
    c->user_ns = microseconds(u->ru_utime);
    c->sys_ns = microseconds(u->ru_stime);
    c->voluntary = (uint64_t)u->ru_nvcsw;
    c->involuntary = (uint64_t)u->ru_nivcsw;
    c->majflt = (uint64_t)u->ru_majflt;
}

/* Bytes; UNKNOWN without /proc. */
static uint64_t resident_bytes(void)
{
    char text[128], *end;
    if (proc_read(0, 0, "statm", text, sizeof(text)) <= 0)
        return UNKNOWN;
    (void)strtoull(text, &end, 10); /* the size */
    return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static union probing_cell pss_cell(struct cpu_usage *c, uint64_t rss, uint64_t now,
                                   uint64_t interval_ns)
{
    uint64_t kb, begun = own_cpu_ns();
    if (rss > PSS_RSS_MOST || !pace_is_due(&c->pss_pace, now))
        return probing_null(PROBING_I64);
    bool known = proc_number_in("/proc/self/smaps_rollup", "Pss:", &kb);
    pace_took(&c->pss_pace, now, own_cpu_ns() - begun, LITTLE_TICKS, interval_ns, PACE_RARE);
    return known ? count_cell(kb) : probing_null(PROBING_I64);
}

static void name_process(struct cpu_usage *c, uint64_t now, uint64_t interval_ns)
{
    char comm[PROC_COMM_BYTES];
    if (!pace_is_due(&c->comm_pace, now))
        return;
    if (proc_comm_of(0, 0, comm, sizeof(comm)) == 0)
        c->comm = text_id(c->host, comm);
    pace_took(&c->comm_pace, now, 0, COMM_TICKS, interval_ns, PACE_SMALL);
}

/* Cells of a thread's scheduling, by its number in our own pid namespace. */
static void place_cells(pid_t tid, union probing_cell *cells)
{
    cpu_set_t set[CPU_SETS];
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)tid);
    if (errno == 0)
        cells[NICE] = probing_i64(nice);
    if (sched_getaffinity(tid, sizeof(set), set) == 0)
        cells[CPUS_ALLOWED] = probing_i64(CPU_COUNT_S(sizeof(set), set));
}

static void process_row(struct cpu_usage *c, uint64_t threads, uint64_t now, uint64_t interval_ns)
{
    union probing_cell cells[N_COLUMNS];
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0)
        return;
    uint64_t user = microseconds(u.ru_utime), sys = microseconds(u.ru_stime),
             wall = now - c->before_ns;
    uint64_t rss = resident_bytes();
    name_process(c, now, interval_ns);
    clear_cells(cells);
    cells[SCOPE].u = c->process_scope;
    cells[COMM].u = c->comm;
    cells[PLATFORM].u = c->platform;
    cells[WALL] = count_cell(wall);
    cells[DELTA_USER] = delta_cell(c->user_ns, user);
    cells[DELTA_SYS] = delta_cell(c->sys_ns, sys);
    cells[DELTA_TOTAL] = delta_cell(c->user_ns + c->sys_ns, user + sys);
    cells[USER_PCT] = percent_cell(user - c->user_ns, wall);
    cells[SYS_PCT] = percent_cell(sys - c->sys_ns, wall);
    cells[TOTAL_PCT] = percent_cell(user + sys - c->user_ns - c->sys_ns, wall);
    cells[CUM_USER] = count_cell(user);
    cells[CUM_SYS] = count_cell(sys);
    cells[RSS] = count_cell(rss == UNKNOWN ? rss : rss / KB);
    cells[PSS] = pss_cell(c, rss, now, interval_ns);
    cells[THREAD_COUNT] = count_cell(threads);
    cells[VOLUNTARY] = delta_cell(c->voluntary, (uint64_t)u.ru_nvcsw);
    cells[INVOLUNTARY] = delta_cell(c->involuntary, (uint64_t)u.ru_nivcsw);
    cells[DELTA_MAJFLT] = delta_cell(c->majflt, (uint64_t)u.ru_majflt);
    cells[MAJFLT] = count_cell((uint64_t)u.ru_majflt);
    cells[RUNQ_WAIT] = count_cell(c->runq_wait_ns);
    c->runq_wait_ns = UNKNOWN;
    cells[STOPPED] = count_cell(c->stopped_ns < wall ? c->stopped_ns : wall);
    c->stopped_ns = 0;
    place_cells(getpid(), cells);
    (void)c->host->append(c->table, now, cells, N_COLUMNS, NULL, 0);
    c->spent_ns = user + sys - c->user_ns - c->sys_ns;
    c->spent_in_ns = wall;
    remember_process(c, &u, now);
}

/* ---- a thread ---- */

/* Read a thread's files into cells; NULL for what they do not have. */
static void look_closely(struct cpu_usage *c, struct thread *t, union probing_cell *cells)
{
    struct proc_stat stat;
    struct proc_status status = {.voluntary = UNKNOWN, .involuntary = UNKNOWN};
    struct proc_schedstat sched = {.waited_ns = UNKNOWN};
    char wchan[64] = "";

    if (proc_stat_of(0, t->tid, &stat) < 0) { /* it has ended, or /proc is gone */
        uint64_t cpu;
        t->dead = !thread_cpu(&c->threads, t->tid, &cpu);
        c->threads.gone = c->threads.gone || t->dead;
        t->state = 0;
        return;
    }
    if (t->start_ticks != UNKNOWN && t->start_ticks != stat.start_ticks) {
        t->reused = c->threads.gone = true;
        t->cpu_ns = t->row_cpu_ns; /* what was read is another thread's */
        return;
    }
    t->start_ticks = stat.start_ticks;
    t->state = stat.state;
    if (stat.state == 'S' || stat.state == 'D')
        (void)proc_read(0, t->tid, "wchan", wchan, sizeof(wchan));
    t->comm = text_id(c->host, stat.comm);
    t->wchan = strcmp(wchan, "0") == 0 ? PROBING_NULL_ID : text_id(c->host, wchan);
    (void)proc_status_of(0, t->tid, &status);
    cells[VOLUNTARY] = delta_cell(t->voluntary, status.voluntary);
    cells[INVOLUNTARY] = delta_cell(t->involuntary, status.involuntary);
    cells[DELTA_MAJFLT] = delta_cell(t->majflt, stat.major_faults);
    cells[MAJFLT] = count_cell(stat.major_faults);
    (void)proc_schedstat_of(0, t->tid, &sched);
    cells[RUNQ_WAIT] = delta_cell(t->runq_wait_ns, sched.waited_ns);
    if (cells[RUNQ_WAIT].i != PROBING_NULL_I64)
        c->runq_wait_ns =
            (c->runq_wait_ns == UNKNOWN ? 0 : c->runq_wait_ns) + (uint64_t)cells[RUNQ_WAIT].i;
    if (c->threads.clocks) /* /proc calls it by the number that system calls take */
        place_cells(t->tid, cells);
    t->voluntary = status.voluntary;
    t->involuntary = status.involuntary;
    t->majflt = stat.major_faults;
    t->runq_wait_ns = sched.waited_ns;
}

/* The part of `total` CPU time that was in user mode, in the proportion of the kernel's ticks;
 * UNKNOWN: it has had no tick. */
static uint64_t user_part(uint64_t total, uint64_t user, uint64_t both)
{
    return total == 0 ? 0
           : both == 0
               ? UNKNOWN
               : (uint64_t)((double)total * (double)(user < both ? user : both) / (double)both);
}

static void cpu_cells(const struct cpu_usage *c, struct thread *t, uint64_t wall,
                      union probing_cell *cells)
{
    uint64_t total = t->cpu_ns - t->row_cpu_ns, user = t->row_user, both = t->row_both;
    if (!t->dead)
        (void)thread_split(&c->threads, t->tid, &user, &both);
    uint64_t part = both > t->row_both && user >= t->row_user
                        ? user_part(total, user - t->row_user, both - t->row_both)
                        : user_part(total, user, both);
    uint64_t cum = user_part(t->cpu_ns, user, both);
    cells[DELTA_TOTAL] = count_cell(total);
    cells[TOTAL_PCT] = percent_cell(total, wall);
    cells[DELTA_USER] = count_cell(part);
    cells[DELTA_SYS] = count_cell(part == UNKNOWN ? part : total - part);
    cells[USER_PCT] = percent_cell(part, wall);
    cells[SYS_PCT] = percent_cell(part == UNKNOWN ? part : total - part, wall);
    cells[CUM_USER] = count_cell(cum);
    cells[CUM_SYS] = count_cell(cum == UNKNOWN ? cum : t->cpu_ns - cum);
    t->row_cpu_ns = t->cpu_ns;
    t->row_user = user;
    t->row_both = both;
}

/* same: it has not run since the look before, so it is in the state that it was in. */
static void thread_row(struct cpu_usage *c, struct thread *t, uint64_t now, bool closely, bool same)
{
    union probing_cell cells[N_COLUMNS];
    uint64_t wall = now - t->row_ns;
    char state[2] = {0};

    clear_cells(cells);
    if (closely)
        look_closely(c, t, cells);
    if (t->dead || t->reused)
        return; /* the list tells, with its last row */
    state[0] = closely || same ? t->state : 0;
    cpu_cells(c, t, wall, cells);
    cells[SCOPE].u = c->thread_scope;
    cells[THREAD_ID] = probing_i64(t->tid);
    cells[COMM].u = t->comm;
    cells[STATE].u = state[0] ? probing_intern_text(c->host, state) : PROBING_NULL_ID;
    cells[WCHAN].u = state[0] ? t->wchan : PROBING_NULL_ID;
    cells[PLATFORM].u = c->platform;
    cells[WALL] = count_cell(wall);
    (void)c->host->append(c->table, now, cells, N_COLUMNS, NULL, 0);
    t->row_ns = now;
    t->has_row = true;
}

/* Add a row of what the thread used between its last row and the last tick that saw it. */
static void thread_ended(void *arg, const struct thread *t)
{
    struct cpu_usage *c = arg;
    struct thread last = *t;
    union probing_cell cells[N_COLUMNS];
    uint64_t now = c->host->now(), wall = now - t->row_ns;
    if (t->cpu_ns == t->row_cpu_ns)
        return;
    clear_cells(cells);
    last.dead = true;
    cpu_cells(c, &last, wall, cells);
    cells[SCOPE].u = c->thread_scope;
    cells[THREAD_ID] = probing_i64(t->tid);
    cells[COMM].u = t->comm;
    cells[STATE].u = probing_intern_text(c->host, "X");
    cells[PLATFORM].u = c->platform;
    cells[WALL] = count_cell(wall);
    (void)c->host->append(c->table, now, cells, N_COLUMNS, NULL, 0);
}

/* ---- all threads ---- */

enum due { NOT_DUE, DUE_SAME, DUE_CLOSELY, DUE_BUSY };

static enum due is_due(const struct thread *t, uint64_t now, uint64_t interval_ns)
{
    uint64_t used = t->cpu_ns - t->row_cpu_ns, age = now - t->row_ns;
    bool settled = t->has_row && t->state != 'R';
    if (used > 0 && used >= age / 100 * BUSY_PERCENT && age >= interval_ns / 8 * 7)
        return DUE_BUSY;
    if (!t->has_row || ((used > 0 || !settled) && age >= LITTLE_TICKS * interval_ns))
        return DUE_CLOSELY;
    return used == 0 && age >= IDLE_TICKS * interval_ns ? DUE_SAME : NOT_DUE;
}

/* Read its clock; false: it is gone, or another one has its number. */
static bool read_clock(struct thread_list *l, struct thread *t, uint64_t *ret_ran)
{
    uint64_t cpu;
    if (t->dead || t->reused)
        return false;
    t->dead = !thread_cpu(l, t->tid, &cpu);
    t->reused = !t->dead && cpu < t->cpu_ns;
    if (t->dead || t->reused) {
        l->gone = true;
        return false;
    }
    *ret_ran = cpu - t->cpu_ns;
    t->quiet = *ret_ran > 0 ? 0 : t->quiet < UINT8_MAX ? t->quiet + 1 : t->quiet;
    t->cpu_ns = cpu;
    return true;
}

/* One tick's walk over the threads. */
struct walk {
    uint64_t now, interval_ns;
    uint64_t until_ns;  /* CPU time of this worker: no close look from then on, */
    uint32_t looks;     /* but for the first few */
    bool refused;       /* somebody's turn had come, and it must wait for the next tick */
    uint64_t explained; /* CPU time of the threads whose clocks were read */
};

static void visit_thread(struct cpu_usage *c, struct thread *t, struct walk *w)
{
    uint64_t ran;
    if (t->read_ns == w->now || !read_clock(&c->threads, t, &ran))
        return;
    t->read_ns = w->now;
    w->explained += ran;
    enum due due = is_due(t, w->now, w->interval_ns);
    if (due == DUE_SAME)
        thread_row(c, t, w->now, /* closely= */ false, /* same= */ true);
    if (due < DUE_CLOSELY)
        return;
    bool turn = t->turn <= c->turn;
    bool closely = turn && (w->looks < LOOKS_LEAST || own_cpu_ns() < w->until_ns);
    w->refused = w->refused || (turn && !closely);
    if (closely || due == DUE_BUSY)
        thread_row(c, t, w->now, closely, /* same= */ false);
    if (closely) {
        w->looks++;
        t->turn = c->turn + 1;
    }
}

/* whole: c->spent_ns, of the process, is of the time up to now. */
static void look_at_threads(struct cpu_usage *c, struct walk *w, bool whole)
{
    struct thread_list *l = &c->threads;
    uint64_t begun = own_cpu_ns();

    for (uint32_t i = 0; i < l->n; i++)
        if (c->first || l->all[i].quiet < QUIET_LOOKS)
            visit_thread(c, &l->all[i], w);
    for (uint32_t i = 0; i < IDLE_CLOCKS && i < l->n; i++)
        visit_thread(c, &l->all[c->cursor++ % l->n], w);
    /* Somebody whom we took to be idle, or did not know, has run. */
    c->explained_ns += w->explained;
    bool unexplained = whole && c->spent_ns > c->explained_ns + w->interval_ns / 100 * BUSY_PERCENT;
    if (!c->first && unexplained && pace_is_due(&c->scan_pace, w->now)) {
        for (uint32_t i = 0; i < l->n; i++)
            visit_thread(c, &l->all[i], w);
        pace_took(&c->scan_pace, w->now, own_cpu_ns() - begun, 1, w->interval_ns, PACE_LIST);
    }
    c->turn += w->refused ? 0 : 1;
    if (whole)
        c->explained_ns = 0;
    c->first = false;
}

/* Is a row of the process due?  The kernel walks all its threads for that, and most have slept. */
static bool is_whole_due(const struct cpu_usage *c, uint64_t now, uint64_t interval_ns)
{
    uint64_t age = now - c->before_ns;
    return c->first || age >= CALM_TICKS * interval_ns - interval_ns / 8 ||
           c->spent_ns >= c->spent_in_ns / 100 * BUSY_PERCENT ||
           c->explained_ns >= age / 100 * BUSY_PERCENT;
}

void cpu_start(struct cpu_usage *c, uint64_t now)
{
    const struct probing_host *h = c->host;
    struct rusage u;
    c->platform = probing_intern_text(h, "linux");
    c->process_scope = probing_intern_text(h, "process");
    c->thread_scope = probing_intern_text(h, "thread");
    c->first = true;
    c->runq_wait_ns = UNKNOWN;
    c->due_ns = c->stopped_ns = 0;
    if (getrusage(RUSAGE_SELF, &u) == 0)
        remember_process(c, &u, now);
    threads_init(&c->threads);
    threads_refresh(&c->threads, threads_count(), now, PROBING_NS_PER_S, thread_ended, c);
}

/* Looks are due at even distances, and what stops all threads keeps them from coming: the share of
 * those that come late, or not at all, is the share of the time that the process stands still. */
static void note_stops(struct cpu_usage *c, uint64_t now, uint64_t interval_ns)
{
    uint64_t due = c->due_ns + interval_ns;
    if (c->due_ns == 0 || interval_ns != c->due_interval_ns || now < due) {
        c->due_ns = now; /* the rhythm is not known, or by a look that was late */
        c->due_interval_ns = interval_ns;
        return;
    }
    uint64_t missed = (now - due) / interval_ns;
    c->due_ns = due + missed * interval_ns;
    c->stopped_ns += (missed + (now - c->due_ns > LATE_NS)) * interval_ns;
}

void cpu_look(struct cpu_usage *c, uint64_t now, uint64_t interval_ns)
{
    struct walk w = {.now = now, .interval_ns = interval_ns};
    uint64_t begun = own_cpu_ns();
    note_stops(c, now, interval_ns);
    if (!c->host->wanted(c->table) || !pace_is_due(&c->pace, now))
        return;
    bool first = c->first;
    w.until_ns = begun + (first ? FIRST_NS : interval_ns / ALLOWANCE);
    uint64_t links = threads_count();
    threads_refresh(&c->threads, links, now, interval_ns, thread_ended, c);
    bool whole = is_whole_due(c, now, interval_ns);
    if (whole)
        process_row(c, links, now, interval_ns);
    look_at_threads(c, &w, whole);
    pace_took(&c->pace, now, first ? 0 : own_cpu_ns() - begun, 1, interval_ns, PACE_THREADS);
}
