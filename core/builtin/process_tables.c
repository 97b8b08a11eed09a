/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/process_tables.c - computed tables about the process that is entered: its threads,
 * its memory, its environment; what probing itself costs it, and who asks.
 *
 * Threads: workers.  All is read from /proc when a query asks, nothing is kept between.  The
 * environment is the one the program began with: reading the live one would race with setenv().
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/redact.h"
#include "core/base/text.h"
#include "core/builtin/builtin.h"
#include "core/host/host.h"
#include "core/server/server.h"
#include "core/store/store.h"

#define FILE_MAX_BYTES ((size_t)4 << 20) /* of /proc: an environment may be large */
#define OURS "probing/"                  /* how the names of our own threads begin */

/* ---- numbers out of /proc ---- */

static int read_file(const char *path, struct buf *ret)
{
    buf_reset(ret);
    return file_read(AT_FDCWD, path, ret);
}

/* The number behind "VmRSS:" of a file of such lines, times `unit`; NULL when there is none. */
static int64_t number_of(const char *text, const char *key, int64_t unit)
{
    const char *at = strstr(text, key);
    int64_t value = 0;
    if (!at)
        return PROBING_NULL_I64;
    for (at += strlen(key); *at == ' ' || *at == '\t'; at++)
        continue;
    if (*at < '0' || *at > '9')
        return PROBING_NULL_I64;
    for (; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (*at - '0');
    return value * unit;
}

/* ---- threads ---- */

struct thread_now {
    int64_t tid;
    char comm[32], state[2], wchan[64];
    int64_t cpu_ns, user_ns, sys_ns, cpu, majflt, voluntary, involuntary, age_ns;
};

/* Fields of stat(5) behind the name, which may hold anything: "S 1 2 ...", the first is the 3rd. */
static bool read_stat(const char *text, struct thread_now *ret)
{
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    int64_t fields[40] = {0}, tick = NS_PER_S / sysconf(_SC_CLK_TCK);
    struct timespec boot;
    int n = 4;

    if (!open || !close || close[1] != ' ' || !close[2])
        return false;
    (void)snprintf(ret->comm, sizeof(ret->comm), "%.*s", (int)(close - open - 1), open + 1);
    (void)snprintf(ret->state, sizeof(ret->state), "%c", close[2]);
    for (const char *p = close + 3; *p == ' ' && n < 40; n++) {
        bool minus = *++p == '-';
        for (p += minus; *p >= '0' && *p <= '9'; p++)
            fields[n] = fields[n] * 10 + (*p - '0');
    }
    ret->majflt = fields[12];
    ret->user_ns = fields[14] * tick;
    ret->sys_ns = fields[15] * tick;
    ret->cpu = n > 39 ? fields[39] : PROBING_NULL_I64;
    (void)clock_gettime(CLOCK_BOOTTIME, &boot);
    ret->age_ns = (int64_t)boot.tv_sec * (int64_t)NS_PER_S + boot.tv_nsec - fields[22] * tick;
    return true;
}

/* false: it has ended meanwhile. */
static bool read_thread(const char *tid, struct buf *room, struct thread_now *ret)
{
    char path[320];
    uint64_t number;

    *ret = (struct thread_now){.cpu_ns = PROBING_NULL_I64};
    if (parse_u64(tid, &number) < 0)
        return false;
    ret->tid = (int64_t)number;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", tid);
    if (read_file(path, room) < 0 || !read_stat(buf_text(room), ret))
        return false;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", tid);
    ret->cpu_ns =
        read_file(path, room) == 0 ? number_of(buf_text(room), "", 1) : ret->user_ns + ret->sys_ns;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
    const char *status = read_file(path, room) == 0 ? buf_text(room) : "";
    ret->voluntary = number_of(status, "\nvoluntary_ctxt_switches:", 1);
    ret->involuntary = number_of(status, "\nnonvoluntary_ctxt_switches:", 1);
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/wchan", tid);
    if (read_file(path, room) == 0)
        (void)snprintf(ret->wchan, sizeof(ret->wchan), "%s", buf_text(room));
    return true;
}

static int each_thread(int (*fn)(void *arg, const struct thread_now *t), void *arg)
{
    struct buf room;
    struct thread_now now;
    int r = 0;
    DIR *d = opendir("/proc/self/task");

    if (!d)
        return err_set(-errno, "/proc/self/task cannot be read: %s", strerror(errno));
    buf_init(&room, FILE_MAX_BYTES);
    for (struct dirent *e; r == 0 && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && read_thread(e->d_name, &room, &now))
            r = fn(arg, &now);
    err_clear();
    (void)closedir(d);
    buf_done(&room);
    return r;
}

static int task_row(void *arg, const struct thread_now *t)
{
    struct probing_rows *out = arg;
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
                                      {.i = strncmp(t->comm, OURS, strlen(OURS)) == 0}};
    return out->row(out, row, 13);
}

static int scan_tasks(void *self, struct probing_rows *out)
{
    (void)self;
    return each_thread(task_row, out);
}

/* ---- memory ---- */

static int scan_memory(void *self, struct probing_rows *out)
{
    struct buf b;
    union probing_cell row[10];
    static const char *const keys[] = {"\nVmRSS:",   "\nVmHWM:",    "\nVmSize:", "\nRssAnon:",
                                       "\nRssFile:", "\nRssShmem:", "\nVmSwap:"};
    int at = 0;

    (void)self;
    buf_init(&b, FILE_MAX_BYTES);
    int r = read_file("/proc/self/status", &b);
    for (; r == 0 && at < 7; at++)
        row[at].i = number_of(buf_text(&b), keys[at], 1024);
    if (r == 0)
        row[at++].i = number_of(buf_text(&b), "\nThreads:", 1);
    if (r == 0)
        r = read_file("/proc/meminfo", &b);
    if (r == 0) {
        row[at++].i = number_of(buf_text(&b), "MemTotal:", 1024);
        row[at++].i = number_of(buf_text(&b), "\nMemAvailable:", 1024);
    }
    buf_done(&b);
    return r < 0 ? r : out->row(out, row, (uint32_t)at);
}

/* ---- environment ---- */

/* text: "NAME=VALUE" */
static int env_row(const char *text, struct buf *name, struct buf *shown, struct probing_rows *out)
{
    size_t n = strcspn(text, "=");
    if (n == 0 || !text[n])
        return 0; /* the program has written over it, as setproctitle() does */
    buf_reset(name);
    buf_reset(shown);
    int r = buf_add(name, text, n);
    if (r == 0)
        r = secret_show(text, n, text + n + 1, shown);
    bool redacted = strcmp(buf_text(shown), text + n + 1) != 0;
    const union probing_cell row[] = {
        {.s = buf_text(name)}, {.s = buf_text(shown)}, {.i = redacted}};
    return r < 0 ? err_set(r, "the environment is too large") : out->row(out, row, 3);
}

static int scan_envs(void *self, struct probing_rows *out)
{
    struct buf all, name, shown;
    (void)self;
    buf_init(&all, FILE_MAX_BYTES);
    buf_init(&name, FILE_MAX_BYTES);
    buf_init(&shown, FILE_MAX_BYTES);
    int r = read_file("/proc/self/environ", &all);
    const char *text = buf_text(&all); /* with a NUL behind it, whatever the program wrote there */
    for (size_t at = 0; at < all.size && r == 0; at += strlen(text + at) + 1)
        r = env_row(text + at, &name, &shown, out);
    buf_done(&shown);
    buf_done(&name);
    buf_done(&all);
    return r;
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
    int r = each_thread(thread_cost, out);
    if (c->server)
        server_stats(c->server, &stats);
    if (r == 0)
        r = bytes_cost(out, "memory", "answers that wait for clients", stats.queued);
    return r < 0 ? r : bytes_cost(out, "disk", "stored rows", stored_bytes(c));
}

/* ---- who asks ---- */

static int scan_clients(void *self, struct probing_rows *out)
{
    struct core *c = self;
    return c->server ? server_clients(c->server, out) : 0;
}

/* ---- the tables ---- */

#define COLUMN(n, t, u, d)                                            \
    {                                                                 \
        .name = n, .type = PROBING_##t, .unit = PROBING_##u, .doc = d \
    }

static const struct probing_column task_columns[] = {
    COLUMN("thread_id", I64, PLAIN, "as the kernel numbers it"),
    COLUMN("comm", STR, PLAIN, "its name, 15 bytes at most"),
    COLUMN("state", STR, PLAIN, "R runs or could, S sleeps, D waits for a device, T stopped"),
    COLUMN("cpu_ns", I64, NS, "time on a processor, ever"),
    COLUMN("cpu_user_ns", I64, NS, "of these in user mode, to the tick"),
    COLUMN("cpu_sys_ns", I64, NS, "and in the kernel"),
    COLUMN("cpu", I64, PLAIN, "the processor it ran on last"),
    COLUMN("wchan", STR, PLAIN, "where in the kernel it waits; NULL: it does not, or it is hidden"),
    COLUMN("vol_ctxt", I64, COUNT, "times it gave up the processor"),
    COLUMN("invol_ctxt", I64, COUNT, "times the processor was taken from it"),
    COLUMN("majflt", I64, COUNT, "page faults that needed a disk"),
    COLUMN("age_ns", I64, NS, "since it was made"),
    COLUMN("probing", I64, PLAIN, "1: a thread of probing itself")};
static const struct probing_column memory_columns[] = {
    COLUMN("rss_bytes", I64, BYTES, "resident, VmRSS of /proc/self/status"),
    COLUMN("peak_rss_bytes", I64, BYTES, "the most it ever was, VmHWM"),
    COLUMN("vms_bytes", I64, BYTES, "address space, VmSize"),
    COLUMN("anon_bytes", I64, BYTES, "resident and its own, RssAnon"),
    COLUMN("file_bytes", I64, BYTES, "resident and of files, RssFile"),
    COLUMN("shmem_bytes", I64, BYTES, "resident and shared, RssShmem"),
    COLUMN("swap_bytes", I64, BYTES, "swapped out, VmSwap"),
    COLUMN("threads", I64, COUNT, "threads, probing's too"),
    COLUMN("system_total_bytes", I64, BYTES, "of the machine, MemTotal"),
    COLUMN("system_available_bytes", I64, BYTES, "left on the machine, MemAvailable")};
static const struct probing_column env_columns[] = {
    COLUMN("name", STR, PLAIN, "the variable"),
    COLUMN("value", STR, PLAIN, "as the program began; *** for what sounds like a secret"),
    COLUMN("redacted", I64, PLAIN, "1: not all of the value is shown")};
static const struct probing_column overhead_columns[] = {
    COLUMN("kind", STR, PLAIN, "thread, memory or disk"),
    COLUMN("name", STR, PLAIN, "the thread, or what is held"),
    COLUMN("thread_id", I64, PLAIN, "of a thread"),
    COLUMN("cpu_ns", I64, NS, "time on a processor since the thread began"),
    COLUMN("cpu_pct", F64, PERCENT, "that, of a core"),
    COLUMN("bytes", I64, BYTES, "of memory or disk")};

static const struct probing_column client_columns[] = {
    COLUMN("who", STR, PLAIN, "process and user, or address"),
    COLUMN("transport", STR, PLAIN, "unix or tcp"),
    COLUMN("protocol", STR, PLAIN, "http, websocket or text; NULL: it has not spoken yet"),
    COLUMN("access", STR, PLAIN, "full, read, or none: no token was shown yet"),
    COLUMN("since", TIME, NS, "when it came"),
    COLUMN("requests", I64, COUNT, "commands and streams it asked for"),
    COLUMN("bytes_in", I64, BYTES, "received from it"),
    COLUMN("bytes_out", I64, BYTES, "sent to it"),
    COLUMN("queued_bytes", I64, BYTES, "of answers that wait for it"),
    COLUMN("dropped", I64, COUNT, "messages of streams that it was too slow for")};

#define TABLE(n, d, c, s)                                                                        \
    {                                                                                            \
        .size = sizeof(struct probing_table_desc), .column_size = sizeof(struct probing_column), \
        .name = n, .doc = d, .columns = c, .n_columns = sizeof(c) / sizeof((c)[0]), .scan = s    \
    }

int process_tables_add(struct core *c)
{
    static const struct probing_table_desc tables[] = {
        TABLE("cpu.tasks", "threads of the process, and what they have used", task_columns,
              scan_tasks),
        TABLE("process.memory", "memory of the process, one row", memory_columns, scan_memory),
        TABLE("process.envs", "environment of the process, without secrets", env_columns,
              scan_envs),
        TABLE("probing.overhead", "what probing itself costs the process", overhead_columns,
              scan_overhead),
        TABLE("probing.clients", "who is connected to this process now", client_columns,
              scan_clients)};
    int r = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && r == 0; i++)
        r = host_table_add(c->host, &tables[i], c);
    return r;
}
