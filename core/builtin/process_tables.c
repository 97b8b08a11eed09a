/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/process_tables.c - computed tables about the process that is entered: its threads,
 * its memory, its environment; what probing itself costs it, and who asks.
 *
 * Threads: workers.  All is read from /proc when a query asks, nothing is kept between.  The
 * environment is the one the program began with: reading the live one would race with setenv().
 */
#include <fcntl.h>
#include <probing/ext/draft/cost.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/redact.h"
#include "core/builtin/builtin.h"
#include "core/plugin_host/plugin_host.h"
#include "core/server/server.h"
#include "core/store/store.h"
#include "sdk/lib/proc/environ_now.h"
#include "sdk/lib/proc/task.h"

#define FILE_MAX_BYTES ((size_t)4 << 20) /* of /proc: an environment may be large */
#define OURS "probing/"                  /* how the names of our own threads begin */

/* ---- numbers out of /proc ---- */

static int read_file(const char *path, struct buf *ret)
{
    buf_reset(ret);
    return file_read(AT_FDCWD, path, ret);
}

static int64_t or_null(uint64_t value)
{
    return value <= INT64_MAX ? (int64_t)value : PROBING_NULL_I64;
}

/* /proc/meminfo has kB. */
static int64_t machine_bytes(const char *key)
{
    uint64_t n;
    return proc_number_in("/proc/meminfo", key, &n) ? or_null(n * 1024) : PROBING_NULL_I64;
}

/* ---- threads ---- */

struct thread_now {
    int64_t tid;
    char comm[32], state[2], wchan[64];
    int64_t cpu_ns, user_ns, sys_ns, cpu, majflt, voluntary, involuntary, age_ns;
};

static void fill_stat(const struct proc_stat *s, struct thread_now *ret)
{
    int64_t tick = NS_PER_S / sysconf(_SC_CLK_TCK);
    struct timespec boot;

    (void)snprintf(ret->comm, sizeof(ret->comm), "%.31s", s->comm);
    (void)snprintf(ret->state, sizeof(ret->state), "%c", s->state);
    ret->majflt = or_null(s->major_faults);
    ret->user_ns = (int64_t)s->user_ticks * tick;
    ret->sys_ns = (int64_t)s->system_ticks * tick;
    ret->cpu = or_null(s->cpu);
    (void)clock_gettime(CLOCK_BOOTTIME, &boot);
    ret->age_ns =
        (int64_t)boot.tv_sec * (int64_t)NS_PER_S + boot.tv_nsec - (int64_t)s->start_ticks * tick;
}

/* false: it has ended meanwhile. */
static bool read_thread(pid_t tid, struct thread_now *ret)
{
    char path[PROC_PATH_BYTES];
    struct proc_stat stat;
    struct proc_status status;
    uint64_t cpu_ns;

    *ret = (struct thread_now){
        .tid = tid, .voluntary = PROBING_NULL_I64, .involuntary = PROBING_NULL_I64};
    if (proc_stat_of(0, tid, &stat) < 0)
        return false;
    fill_stat(&stat, ret);
    proc_path(0, tid, "schedstat", path);
    ret->cpu_ns = proc_number_in(path, "", &cpu_ns) ? or_null(cpu_ns) : ret->user_ns + ret->sys_ns;
    if (proc_status_of(0, tid, &status) == 0) {
        ret->voluntary = or_null(status.voluntary);
        ret->involuntary = or_null(status.involuntary);
    }
    (void)proc_read(0, tid, "wchan", ret->wchan, sizeof(ret->wchan));
    return true;
}

static int each_thread(int (*fn)(void *arg, const struct thread_now *t), void *arg)
{
    struct proc_numbers all;
    struct proc_number one;
    struct thread_now now;
    int rc = proc_threads_open(&all, 0);

    if (rc < 0)
        return err_set(rc, "/proc/self/task cannot be read: %s", strerror(-rc));
    while (rc == 0 && proc_numbers_next(&all, &one))
        if (read_thread((pid_t)one.value, &now))
            rc = fn(arg, &now);
    proc_numbers_close(&all);
    return rc;
}

/* ---- what they have used since they were looked at before ---- */

#define LOOK_THREADS 1024      /* of more it is told since they began */
#define LOOK_LEAST_NS NS_PER_S /* younger looks are no span to speak of */

struct look {
    uint64_t at_ns; /* 0: none */
    uint32_t n;
    struct thread_time {
        int64_t tid, cpu_ns, user_ns, sys_ns;
    } threads[LOOK_THREADS];
};

/* The look that readers compare with, and a newer one that takes its place.  lock: busy, which is
 * only tried: a forked child may find it taken for good, and then tells since the threads began. */
static struct {
    atomic_flag busy;
    struct look before, newest;
} looks = {.busy = ATOMIC_FLAG_INIT};

static void take_before(uint64_t now, struct look *ret)
{
    if (atomic_flag_test_and_set_explicit(&looks.busy, memory_order_acquire))
        return;
    if (looks.newest.at_ns && now - looks.newest.at_ns >= LOOK_LEAST_NS)
        looks.before = looks.newest;
    *ret = looks.before;
    atomic_flag_clear_explicit(&looks.busy, memory_order_release);
}

static void leave_look(const struct look *new)
{
    if (atomic_flag_test_and_set_explicit(&looks.busy, memory_order_acquire))
        return;
    if (new->at_ns > looks.newest.at_ns &&new->at_ns - looks.newest.at_ns >= LOOK_LEAST_NS)
        looks.newest = *new;
    atomic_flag_clear_explicit(&looks.busy, memory_order_release);
}

struct task_scan {
    struct probing_rows *out;
    uint64_t now;
    struct look *before, *new; /* NULL: no memory for them */
    uint32_t at; /* where the last thread was found in `before`: they keep their order */
};

/* NULL: it has begun since then; a number may have been another thread's. */
static const struct thread_time *find_before(struct task_scan *s, const struct thread_now *t)
{
    uint32_t n = s->before ? s->before->n : 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct thread_time *b = &s->before->threads[(s->at + i) % n];
        if (b->tid != t->tid)
            continue;
        s->at = (s->at + i + 1) % n;
        bool same = t->age_ns >= (int64_t)(s->now - s->before->at_ns) && t->cpu_ns >= b->cpu_ns;
        return same ? b : NULL;
    }
    return NULL;
}

static int task_row(void *arg, const struct thread_now *t)
{
    struct task_scan *s = arg;
    const struct thread_time *b = find_before(s, t);
    bool waits = t->wchan[0] && strcmp(t->wchan, "0") != 0;
    const union probing_cell row[] = {{.i = t->tid},
                                      {.s = t->comm},
                                      {.s = t->state},
                                      {.i = t->cpu_ns},
                                      {.i = t->user_ns},
                                      {.i = t->sys_ns},
                                      {.i = t->cpu},
                                      {.s = waits ? t->wchan : NULL},
                                      {.i = t->voluntary},
                                      {.i = t->involuntary},
                                      {.i = t->majflt},
                                      {.i = t->age_ns},
                                      {.i = strncmp(t->comm, OURS, strlen(OURS)) == 0},
                                      {.i = (int64_t)s->now},
                                      {.i = b ? (int64_t)(s->now - s->before->at_ns) : t->age_ns},
                                      {.i = t->user_ns - (b ? b->user_ns : 0)},
                                      {.i = t->sys_ns - (b ? b->sys_ns : 0)},
                                      {.i = t->cpu_ns - (b ? b->cpu_ns : 0)}};
    if (s->new && s->new->n < LOOK_THREADS)
        s->new->threads[s->new->n++] =
            (struct thread_time){t->tid, t->cpu_ns, t->user_ns, t->sys_ns};
    return s->out->row(s->out, row, sizeof(row) / sizeof(row[0]));
}

static int scan_tasks(void *self, struct probing_rows *out)
{
    struct task_scan s = {.out = out, .now = clock_monotonic()};
    struct look *mine = calloc(2, sizeof(*mine));

    (void)self;
    if (mine) {
        s.before = &mine[0];
        s.new = &mine[1];
        s.new->at_ns = s.now;
        take_before(s.now, s.before);
    }
    int rc = each_thread(task_row, &s);
    if (mine && rc >= 0)
        leave_look(s.new);
    free(mine);
    return rc;
}

/* ---- memory ---- */

static int scan_memory(void *self, struct probing_rows *out)
{
    struct proc_status s;

    (void)self;
    int rc = proc_status_of(0, 0, &s);
    if (rc < 0)
        return err_set(rc, "/proc/self/status cannot be read: %s", strerror(-rc));
    const union probing_cell row[] = {
        {.i = or_null(s.rss_bytes)},       {.i = or_null(s.peak_rss_bytes)},
        {.i = or_null(s.size_bytes)},      {.i = or_null(s.anon_bytes)},
        {.i = or_null(s.file_bytes)},      {.i = or_null(s.shmem_bytes)},
        {.i = or_null(s.swap_bytes)},      {.i = or_null(s.threads)},
        {.i = machine_bytes("MemTotal:")}, {.i = machine_bytes("MemAvailable:")}};
    return out->row(out, row, sizeof(row) / sizeof(row[0]));
}

/* ---- environment ---- */

/* text: "NAME=VALUE" */
static int env_row(const char *text, struct buf *name, struct buf *shown, struct probing_rows *out)
{
    size_t n = strcspn(text, "=");
    if (n == 0 || !text[n])
        return 0; /* the program has written over it */
    buf_reset(name);
    buf_reset(shown);
    int rc = buf_add(name, text, n);
    if (rc == 0 && (!out->want || out->want[1] || out->want[2])) /* it takes the most of it */
        rc = secret_show(text, n, text + n + 1, shown);
    bool redacted = rc == 0 && strcmp(buf_text(shown), text + n + 1) != 0;
    const union probing_cell row[] = {
        {.s = buf_text(name)}, {.s = buf_text(shown)}, {.i = redacted}};
    return rc < 0 ? err_set(rc, "the environment is too large") : out->row(out, row, 3);
}

static int scan_envs(void *self, struct probing_rows *out)
{
    struct buf all, name, shown;
    (void)self;
    buf_init(&all, FILE_MAX_BYTES);
    buf_init(&name, FILE_MAX_BYTES);
    buf_init(&shown, FILE_MAX_BYTES);
    int rc = proc_environ_own(&all);
    const char *text = buf_text(&all); /* with a NUL behind it, whatever the program wrote there */
    for (size_t at = 0; at < all.size && rc == 0; at += strlen(text + at) + 1)
        rc = env_row(text + at, &name, &shown, out);
    buf_done(&shown);
    buf_done(&name);
    buf_done(&all);
    return rc;
}

/* ---- what we cost ---- */

static int cost_row(struct probing_rows *out, const char *kind, const char *name, int64_t tid,
                    int64_t cpu_ns, double cpu_pct, int64_t bytes)
{
    const union probing_cell row[] = {{.s = kind},   {.s = name},    {.i = tid},
                                      {.i = cpu_ns}, {.f = cpu_pct}, {.i = bytes}};
    return out->row(out, row, 6);
}

static int thread_cost(void *arg, const struct thread_now *t)
{
    if (strncmp(t->comm, OURS, strlen(OURS)) != 0)
        return 0;
    double pct = t->age_ns > 0 ? 100.0 * (double)t->cpu_ns / (double)t->age_ns : 0;
    return cost_row(arg, "thread", t->comm, t->tid, t->cpu_ns, pct, PROBING_NULL_I64);
}

static int bytes_cost(struct probing_rows *out, const char *kind, const char *name, uint64_t bytes)
{
    union probing_cell none = {.u = PROBING_NULL_F64};
    return cost_row(out, kind, name, PROBING_NULL_I64, PROBING_NULL_I64, none.f, (int64_t)bytes);
}

static int plugin_cost(void *arg, const struct probing_cost *c)
{
    bool known = c->cpu_ns != PROBING_NULL_I64 && c->since_ns > 0;
    union probing_cell pct = {.u = PROBING_NULL_F64};
    if (known)
        pct.f = 100.0 * (double)c->cpu_ns / (double)c->since_ns;
    return cost_row(arg, "program", c->name, PROBING_NULL_I64, c->cpu_ns, pct.f, c->bytes);
}

static uint64_t stored_bytes(struct core *c)
{
    struct table **all = calloc(TABLES_MAX, sizeof(struct table *));
    uint32_t n = all ? tables_list(c->tables, all, TABLES_MAX) : 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct store_table_stats stats = {0};
        if (!all[i]->scan && store_stats(c->store, all[i], &stats) == 0)
            sum += stats.bytes;
    }
    free(all);
    return sum;
}

static int scan_overhead(void *self, struct probing_rows *out)
{
    struct core *c = self;
    struct server_stats stats = {0};
    int rc = each_thread(thread_cost, out);
    if (c->server)
        server_stats(c->server, &stats);
    if (rc == 0)
        rc = host_costs_each(c->host, plugin_cost, out);
    if (rc == 0)
        rc = bytes_cost(out, "memory", "answers that wait for clients", stats.queued);
    return rc < 0 ? rc : bytes_cost(out, "disk", "stored rows", stored_bytes(c));
}

/* ---- who asks ---- */

static int scan_clients(void *self, struct probing_rows *out)
{
    struct core *c = self;
    return c->server ? server_clients(c->server, out) : 0;
}

/* ---- which process it is ---- */

static int scan_info(void *self, struct probing_rows *out)
{
    const struct core *c = self;
    char host[64] = "", boot[64] = "";
    struct buf text;

    buf_init(&text, 4096);
    (void)gethostname(host, sizeof(host) - 1);
    if (read_file("/proc/sys/kernel/random/boot_id", &text) >= 0)
        (void)snprintf(boot, sizeof(boot), "%.*s", (int)strcspn(buf_text(&text), "\n"),
                       buf_text(&text));
    buf_done(&text);
    const union probing_cell row[] = {{.i = getpid()},
                                      {.i = or_null(c->place.start_time)},
                                      {.s = host},
                                      {.s = boot[0] ? boot : NULL},
                                      {.s = c->place.directory},
                                      {.s = c->version},
                                      {.s = c->place.instance_id[0] ? c->place.instance_id : NULL}};
    return out->row(out, row, 7);
}

/* ---- the tables ---- */

#define COLUMN(n, t, u, d)                                            \
    {                                                                 \
        .name = n, .type = PROBING_##t, .unit = PROBING_##u, .doc = d \
    }

static const struct probing_column task_columns[] = {
    COLUMN("thread_id", I64, PLAIN, "the kernel's id of the thread"),
    COLUMN("comm", STR, PLAIN, "its name, 15 bytes at most"),
    COLUMN("state", STR, PLAIN,
           "R: running or runnable; S: sleeping; D: waiting for a device; T: stopped"),
    COLUMN("cpu_ns", I64, NS, "CPU time since the thread began"),
    COLUMN("cpu_user_ns", I64, NS, "CPU time in user mode, in the kernel's ticks"),
    COLUMN("cpu_sys_ns", I64, NS, "CPU time in the kernel, in its ticks"),
    COLUMN("cpu", I64, PLAIN, "processor that it last ran on"),
    COLUMN("wchan", STR, PLAIN,
           "kernel function that it waits in; NULL: it does not wait, or the kernel hides it"),
    COLUMN("vol_ctxt", I64, COUNT, "number of times that it gave up the processor"),
    COLUMN("invol_ctxt", I64, COUNT, "number of times that the processor was taken from it"),
    COLUMN("majflt", I64, COUNT, "number of page faults that needed a disk"),
    COLUMN("age_ns", I64, NS, "time since the thread was created"),
    COLUMN("probing", I64, PLAIN, "1: a thread of probing itself"),
    COLUMN("ts", TIME, NS, "when it was looked at: now"),
    COLUMN("wall_ns", I64, NS,
           "time that delta_... cover: since this table was read before, a second ago at least, or "
           "since the thread began"),
    COLUMN("delta_user_ns", I64, NS, "CPU time in user mode in wall_ns, in the kernel's ticks"),
    COLUMN("delta_sys_ns", I64, NS, "CPU time in the kernel in wall_ns, in its ticks"),
    COLUMN("delta_total_ns", I64, NS, "CPU time in wall_ns")};
static const struct probing_column memory_columns[] = {
    COLUMN("rss_bytes", I64, BYTES, "resident memory (VmRSS of /proc/self/status)"),
    COLUMN("peak_rss_bytes", I64, BYTES, "peak of the resident memory (VmHWM)"),
    COLUMN("vms_bytes", I64, BYTES, "address space (VmSize)"),
    COLUMN("anon_bytes", I64, BYTES, "resident anonymous memory (RssAnon)"),
    COLUMN("file_bytes", I64, BYTES, "resident memory of mapped files (RssFile)"),
    COLUMN("shmem_bytes", I64, BYTES, "resident shared memory (RssShmem)"),
    COLUMN("swap_bytes", I64, BYTES, "memory that is swapped out (VmSwap)"),
    COLUMN("threads", I64, COUNT, "number of threads, including those of probing"),
    COLUMN("system_total_bytes", I64, BYTES, "memory of the machine (MemTotal)"),
    COLUMN("system_available_bytes", I64, BYTES, "memory available on the machine (MemAvailable)")};
static const struct probing_column info_columns[] = {
    COLUMN("pid", I64, PLAIN, "process id, as the process itself sees it"),
    COLUMN("start_time", I64, PLAIN, "when it was started, in the kernel's ticks since boot"),
    COLUMN("host", STR, PLAIN, "name of the machine"),
    COLUMN("boot_id", STR, PLAIN, "the kernel's id of this boot of the machine"),
    COLUMN("directory", STR, PLAIN, "data directory; its name is another one for each process"),
    COLUMN("version", STR, PLAIN, "version and build of the core"),
    COLUMN("instance_id", STR, PLAIN,
           "made at random with the data directory: no other process has it, of no machine; NULL: "
           "the kernel gave none")};
static const struct probing_column env_columns[] = {
    COLUMN("name", STR, PLAIN, "the variable"),
    COLUMN("value", STR, PLAIN,
           "its value when the program started; *** for what looks like a secret"),
    COLUMN("redacted", I64, PLAIN, "1: the value is not shown completely")};
static const struct probing_column overhead_columns[] = {
    COLUMN("kind", STR, PLAIN, "thread, memory or disk"),
    COLUMN("name", STR, PLAIN, "the thread, or what holds the memory"),
    COLUMN("thread_id", I64, PLAIN, "the kernel's id of the thread; NULL: the row is no thread"),
    COLUMN("cpu_ns", I64, NS, "CPU time since the thread began"),
    COLUMN("cpu_pct", F64, PERCENT, "CPU time as a share of one core"),
    COLUMN("bytes", I64, BYTES, "bytes of memory or disk")};

static const struct probing_column client_columns[] = {
    COLUMN("client", STR, PLAIN, "process and user, or address, of the client"),
    COLUMN("transport", STR, PLAIN, "unix or tcp"),
    COLUMN("protocol", STR, PLAIN, "http, websocket or text; NULL: it has not sent anything yet"),
    COLUMN("access", STR, PLAIN, "full, read, or none: it has not shown a token yet"),
    COLUMN("connected_at", TIME, NS, "when it connected"),
    COLUMN("requests", I64, COUNT, "number of commands and streams that it requested"),
    COLUMN("bytes_in", I64, BYTES, "bytes received from it"),
    COLUMN("bytes_out", I64, BYTES, "bytes sent to it"),
    COLUMN("queued_bytes", I64, BYTES, "bytes of answers that wait for it"),
    COLUMN("dropped", I64, COUNT,
           "number of stream messages that it lost because it was too slow")};

#define TABLE(n, d, c, s)                                                                        \
    {                                                                                            \
        .size = sizeof(struct probing_table_desc), .column_size = sizeof(struct probing_column), \
        .name = n, .doc = d, .columns = c, .n_columns = sizeof(c) / sizeof((c)[0]), .scan = s    \
    }

int process_tables_add(struct core *c)
{
    static const struct probing_table_desc tables[] = {
        TABLE("cpu.tasks", "threads of the process and the CPU time that they have used",
              task_columns, scan_tasks),
        TABLE("process.memory", "memory of the process, in one row", memory_columns, scan_memory),
        TABLE("process.info", "which process this is, in one row", info_columns, scan_info),
        TABLE("process.envs", "environment variables of the process, without secrets", env_columns,
              scan_envs),
        TABLE("probing.overhead", "what probing itself costs the process: CPU time, memory, disk",
              overhead_columns, scan_overhead),
        TABLE("probing.clients", "clients that are connected to this process now", client_columns,
              scan_clients)};
    int rc = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && rc == 0; i++)
        rc = host_table_add(c->host, &tables[i], c);
    return rc;
}
