/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/process_limits.c - process.limits: what the process may have at most, and how much
 * of it is used, when a query asks.
 *
 * Workers; no state.
 */
#include <sys/resource.h>

#include "computed.h"
#include "lib/proc/task.h"

static const struct probing_column columns[] = {
    PROBING_STR_COLUMN("name", "nofile: as in ulimit and limits.conf"),
    PROBING_I64_COLUMN("soft", PROBING_PLAIN, "the limit that counts, in `unit`; NULL: none"),
    PROBING_I64_COLUMN("hard", PROBING_PLAIN, "to which the process may raise it; NULL: none"),
    PROBING_I64_COLUMN("used", PROBING_PLAIN, "of it by the process; NULL: not known"),
    PROBING_STR_COLUMN("unit", "bytes, seconds, ..."),
    PROBING_STR_COLUMN("doc", "what is limited"),
};

static const struct limit {
    int number;
    const char *name, *unit, *doc;
} limits[] = {
    {RLIMIT_NOFILE, "nofile", "files", "open files"},
    {RLIMIT_AS, "as", "bytes", "address space"},
    {RLIMIT_DATA, "data", "bytes", "private writable memory"},
    {RLIMIT_STACK, "stack", "bytes", "stack of the first thread, and what others get by default"},
    {RLIMIT_CORE, "core", "bytes", "size of a core file"},
    {RLIMIT_MEMLOCK, "memlock", "bytes", "memory that may be locked, or registered for RDMA"},
    {RLIMIT_NPROC, "nproc", "threads", "threads of the user, on the whole machine"},
    {RLIMIT_FSIZE, "fsize", "bytes", "size of a file that it writes"},
    {RLIMIT_CPU, "cpu", "seconds", "CPU time"},
    {RLIMIT_SIGPENDING, "sigpending", "signals", "signals and timers that wait, of the user"},
    {RLIMIT_MSGQUEUE, "msgqueue", "bytes", "POSIX message queues of the user"},
    {RLIMIT_NICE, "nice", "", "20 - the lowest nice value"},
    {RLIMIT_RTPRIO, "rtprio", "", "real-time priority"},
    {RLIMIT_RTTIME, "rttime", "us", "CPU time of a real-time thread between two waits"},
    {RLIMIT_LOCKS, "locks", "locks", "file locks; not heeded"},
    {RLIMIT_RSS, "rss", "bytes", "resident memory; not heeded"},
};

static uint64_t open_files(void)
{
    struct proc_numbers all;
    struct proc_number one;
    uint64_t n = 0;
    if (proc_numbers_open(&all, "/proc/self/fd") < 0)
        return UNKNOWN;
    while (proc_numbers_next(&all, &one))
        n += one.value != (uint64_t)all.fd;
    n = all.error == 0 ? n : UNKNOWN;
    proc_numbers_close(&all);
    return n;
}

static uint64_t used_of(int number, const struct proc_status *s)
{
    struct rusage u;
    uint64_t kb;
    switch (number) {
    case RLIMIT_NOFILE:
        return open_files();
    case RLIMIT_AS:
        return s->size_bytes;
    case RLIMIT_DATA:
        return s->data_bytes;
    case RLIMIT_RSS:
        return s->rss_bytes;
    case RLIMIT_MEMLOCK:
        return proc_number_in("/proc/self/status", "VmLck:", &kb) ? kb * 1024 : UNKNOWN;
    case RLIMIT_CPU:
        return getrusage(RUSAGE_SELF, &u) == 0
                   ? (uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec
                   : UNKNOWN;
    default: /* the kernel does not say */
        return UNKNOWN;
    }
}

static union probing_cell limit_cell(rlim_t value)
{
    return value == RLIM_INFINITY ? probing_null(PROBING_I64) : count_cell((uint64_t)value);
}

static int scan_limits(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    struct proc_status status;
    int r = 0;
    if (proc_status_of(0, 0, &status) < 0)
        memset(&status, 0xff, sizeof(status)); /* UNKNOWN */
    for (size_t i = 0; i < PROBING_LENGTH(limits) && r == 0; i++) {
        const struct limit *l = &limits[i];
        struct rlimit now;
        if (getrlimit(l->number, &now) != 0)
            continue; /* an older kernel */
        const union probing_cell cells[] = {probing_str(l->name),
                                            limit_cell(now.rlim_cur),
                                            limit_cell(now.rlim_max),
                                            count_cell(used_of(l->number, &status)),
                                            probing_str(l->unit[0] ? l->unit : NULL),
                                            probing_str(l->doc)};
        r = h->emit(out, cells, PROBING_LENGTH(cells));
    }
    return probing_scanned(r);
}

const struct probing_table_desc limits_table = PROBING_COMPUTED_TABLE(
    "process.limits", columns, scan_limits, "what the process may have at most, and what it has");
