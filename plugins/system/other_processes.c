/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/other_processes.c - process.cpu_stats: the machine's processes, what each takes of
 * its processors just now, and which GPUs it has open, when a query asks.
 *
 * Workers; no state.  It looks twice, a fifth of a second apart.  What may not be seen (hidepid,
 * another container) is not there.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <probing/ext/draft/rows.h>

#include "computed.h"
#include "lib/proc/task.h"

#define BETWEEN_MS 200
#define PROCESSES_MAX 65536
#define CLOCK_EXACT 2 /* of a process, as linux/posix-timers.h makes it */

enum { GPUS = 8 };
static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("pid", PROBING_PLAIN, "the process, as this one sees it"),
    PROBING_STR_COLUMN("comm", "its name, 15 bytes at most"),
    PROBING_I64_COLUMN("uid", PROBING_PLAIN, "its user"),
    PROBING_STR_COLUMN("state", "R: running or runnable; S: sleeping; D: waiting for a device"),
    PROBING_F64_COLUMN("cpu_pct", PROBING_PERCENT,
                       "of one core, while the query ran; NULL: it began or ended meanwhile"),
    PROBING_I64_COLUMN("cpu_ns", PROBING_NS, "CPU time since it began"),
    PROBING_I64_COLUMN("rss_bytes", PROBING_BYTES, "resident memory"),
    PROBING_I64_COLUMN("threads", PROBING_COUNT, "its threads"),
    PROBING_STR_COLUMN("gpus", "devices that it has open: /dev/nvidia0 /dev/kfd; NULL: none, or "
                               "its files may not be looked at"),
    PROBING_I64_COLUMN("self", PROBING_PLAIN, "1: this process"),
};

struct seen {
    int32_t pid;
    uint64_t cpu_ns;
};

/* UNKNOWN: it is gone, or in another pid namespace than this /proc. */
static uint64_t cpu_of(int32_t pid)
{
    struct timespec t;
    clockid_t clock = (clockid_t)((~(uint32_t)pid << 3) | CLOCK_EXACT);
    if (syscall(SYS_clock_gettime, clock, &t) == 0)
        return (uint64_t)t.tv_sec * PROBING_NS_PER_S + (uint64_t)t.tv_nsec;
    struct proc_stat s;
    uint64_t tick = PROBING_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    return proc_stat_of(pid, 0, &s) == 0 ? (s.user_ticks + s.system_ticks) * tick : UNKNOWN;
}

static uint32_t read_processes(struct seen **ret, int *ret_error)
{
    struct proc_numbers all;
    struct proc_number one;
    struct seen *list = NULL;
    uint32_t n = 0, room = 0;
    *ret_error = proc_numbers_open(&all, "/proc");
    while (*ret_error == 0 && n < PROCESSES_MAX && proc_numbers_next(&all, &one)) {
        if (n == room) {
            struct seen *more = realloc(list, (room = room ? room * 2 : 256) * sizeof(*more));
            if (!more)
                break;
            list = more;
        }
        list[n++] = (struct seen){(int32_t)one.value, cpu_of((int32_t)one.value)};
    }
    proc_numbers_close(&all);
    *ret = list;
    return n;
}

/* ---- GPUs ---- */

static bool is_gpu(const char *path)
{
    static const char *const begins[] = {"/dev/nvidia", "/dev/dri/renderD", "/dev/kfd",
                                         "/dev/accel",  "/dev/davinci",     "/dev/mxcd"};
    static const char *const not_these[] = {"/dev/nvidiactl", "/dev/nvidia-"};
    for (size_t i = 0; i < PROBING_LENGTH(not_these); i++)
        if (strncmp(path, not_these[i], strlen(not_these[i])) == 0)
            return false;
    for (size_t i = 0; i < PROBING_LENGTH(begins); i++)
        if (strncmp(path, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static void add_word(char *list, size_t size, const char *word)
{
    size_t n = strlen(list), w = strlen(word);
    const char *at = strstr(list, word);
    if (at && (at[w] == ' ' || at[w] == '\0'))
        return;
    if (n + w + 2 <= size)
        (void)snprintf(list + n, size - n, "%s%s", n ? " " : "", word);
}

void gpus_of(int32_t pid, char *ret, size_t size)
{
    char path[PROC_PATH_BYTES + 24], target[128];
    struct proc_numbers all;
    struct proc_number one;
    ret[0] = '\0';
    proc_path(pid, 0, "fd", path);
    size_t n = strlen(path);
    (void)proc_numbers_open(&all, path);
    while (proc_numbers_next(&all, &one)) {
        (void)snprintf(path + n, sizeof(path) - n, "/%llu", (unsigned long long)one.value);
        ssize_t got = readlink(path, target, sizeof(target) - 1);
        target[got > 0 ? got : 0] = '\0';
        if (is_gpu(target))
            add_word(ret, size, target);
    }
    proc_numbers_close(&all);
    text_clean(ret);
}

/* ---- rows ---- */

static int emit_process(struct probing_rows *out, const struct probing_host *h,
                        const struct seen *s, uint64_t wall_ns, bool with_gpus)
{
    struct proc_stat said;
    struct stat owner;
    char path[PROC_PATH_BYTES], gpus[256] = "", state[2] = {0};
    uint64_t cpu = cpu_of(s->pid);
    if (proc_stat_of(s->pid, 0, &said) < 0)
        return 0; /* it has ended */
    proc_path(s->pid, 0, NULL, path);
    bool owned = stat(path, &owner) == 0;
    if (with_gpus)
        gpus_of(s->pid, gpus, sizeof(gpus));
    text_clean(said.comm);
    state[0] = said.state;
    bool same = cpu != UNKNOWN && s->cpu_ns != UNKNOWN && cpu >= s->cpu_ns;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const union probing_cell cells[] = {
        probing_i64(s->pid),
        probing_str(said.comm),
        owned ? probing_i64((int64_t)owner.st_uid) : probing_null(PROBING_I64),
        probing_str(state),
        percent_cell(same ? cpu - s->cpu_ns : UNKNOWN, wall_ns),
        count_cell(cpu),
        count_cell(said.rss_pages == PROC_UNKNOWN ? UNKNOWN : said.rss_pages * page),
        count_cell(said.threads),
        probing_str(gpus[0] ? gpus : NULL),
        probing_i64(s->pid == (int32_t)getpid())};
    return h->emit(out, cells, PROBING_LENGTH(cells));
}

static int scan_processes(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    const struct probing_rows_1 *rows = h->extension(h, PROBING_ROWS_1);
    bool with_gpus = !rows || rows->wanted(out, GPUS);
    struct seen *list;
    int r;
    uint64_t begun = h->now();
    uint32_t n = read_processes(&list, &r);
    if (r < 0)
        r = probing_failf(h, r, "/proc cannot be read: %s", strerror(-r));
    while (r == 0 && h->now() - begun < BETWEEN_MS * PROBING_NS_PER_MS) {
        (void)poll(NULL, 0, BETWEEN_MS / 4);
        r = h->emit(out, NULL, 0); /* does anybody still want it? */
    }
    for (uint32_t i = 0; i < n && r == 0; i++)
        r = emit_process(out, h, &list[i], h->now() - begun, with_gpus);
    free(list);
    return probing_scanned(r);
}

const struct probing_table_desc cpu_stats_table =
    PROBING_COMPUTED_TABLE("process.cpu_stats", columns, scan_processes,
                           "processes of the machine: what each takes of processors and memory, "
                           "and which GPUs it has open");
