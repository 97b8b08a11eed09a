/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/task.c - the texts in which the kernel describes a process or thread.
 *
 * Any thread, handlers too.
 */
#include "sdk/lib/proc/task.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sdk/lib/proc/digits.h"

#define ALWAYS_THERE 22 /* fields of stat: Linux 2.6 has them all */
#define LINE_BYTES 2048 /* of status at once; lines that are wanted have 400 at most */

/* A file of /proc that is not there is one of a task that has ended. */
static int task_error(int64_t rc)
{
    return rc == -ENOENT ? -ESRCH : (int)rc;
}

/* ---- stat ---- */

static const struct {
    int number; /* as proc(5) counts */
    size_t offset;
} stat_fields[] = {
    {4, offsetof(struct proc_stat, ppid)},          {9, offsetof(struct proc_stat, flags)},
    {12, offsetof(struct proc_stat, major_faults)}, {14, offsetof(struct proc_stat, user_ticks)},
    {15, offsetof(struct proc_stat, system_ticks)}, {20, offsetof(struct proc_stat, threads)},
    {22, offsetof(struct proc_stat, start_ticks)},  {23, offsetof(struct proc_stat, size_bytes)},
    {24, offsetof(struct proc_stat, rss_pages)},    {39, offsetof(struct proc_stat, cpu)}};

/* From behind the name on: " S 1 2 ..."; how many fields there are, counted with those before. */
static int read_fields(const char *at, struct proc_stat *ret)
{
    int number = 2;
    size_t known = 0;
    while (*at == ' ' && at[1] != '\n' && at[1] != '\0') {
        at++;
        number++;
        uint64_t value = PROC_UNKNOWN;
        if (number == 3)
            ret->state = *at;
        else if (known < sizeof(stat_fields) / sizeof(stat_fields[0]) &&
                 stat_fields[known].number == number) {
            (void)proc_digits(at, 10, &value);
            memcpy((char *)ret + stat_fields[known++].offset, &value, sizeof(value));
        }
        while (*at != ' ' && *at != '\n' && *at != '\0')
            at++;
    }
    return number;
}

int proc_stat_parse(const char *text, size_t size, struct proc_stat *ret)
{
    /* The name may hold all that stands behind it; it is the first that is in parentheses, and
     * nothing behind it has any.  A text without its end may end in the name. */
    const char *open_at = memchr(text, '(', size), *close_at = memrchr(text, ')', size);
    if (size == 0 || text[size - 1] != '\n' || !open_at || !close_at || close_at < open_at)
        return -EPROTO;
    memset(ret, 0xff, sizeof(*ret)); /* PROC_UNKNOWN in every number */
    size_t n = (size_t)(close_at - open_at) - 1;
    n = n < sizeof(ret->comm) ? n : sizeof(ret->comm) - 1;
    memcpy(ret->comm, open_at + 1, n);
    ret->comm[n] = '\0';
    return read_fields(close_at + 1, ret) < ALWAYS_THERE ? -EPROTO : 0;
}

int proc_stat_of(pid_t pid, pid_t tid, struct proc_stat *ret)
{
    char text[PROC_STAT_BYTES];
    int64_t n = proc_read(pid, tid, "stat", text, sizeof(text));
    return n < 0 ? task_error(n) : n == 0 ? -ESRCH : proc_stat_parse(text, (size_t)n, ret);
}

/* ---- comm ---- */

int proc_comm_of(pid_t pid, pid_t tid, char *ret, size_t size)
{
    int64_t n = proc_read(pid, tid, "comm", ret, size);
    if (n > 0 && ret[n - 1] == '\n')
        ret[n - 1] = '\0';
    return n < 0 ? task_error(n) : 0;
}

int proc_comm_set(pid_t tid, const char *name)
{
    char path[PROC_PATH_BYTES];
    proc_path(0, tid, "comm", path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return task_error(-errno);
    int64_t n = write(fd, name, strlen(name));
    int rc = n == -1 ? task_error(-errno) : 0;
    (void)close(fd);
    return rc;
}

/* ---- schedstat ---- */

int proc_schedstat_parse(const char *text, struct proc_schedstat *ret)
{
    struct proc_schedstat s;
    const char *at = proc_digits(text, 10, &s.ran_ns);
    at = at && *at == ' ' ? proc_digits(at + 1, 10, &s.waited_ns) : NULL;
    if (!at || *at != ' ')
        return -EPROTO;
    *ret = s;
    return 0;
}

int proc_schedstat_of(pid_t pid, pid_t tid, struct proc_schedstat *ret)
{
    char text[128];
    int64_t n = proc_read(pid, tid, "schedstat", text, sizeof(text));
    return n > 0 ? proc_schedstat_parse(text, ret) : n < 0 ? (int)n : -ESRCH;
}

/* ---- syscall ---- */

/* "-1 0xSP 0xIP" or "202 0x1 0x2 0x3 0x4 0x5 0x6 0xSP 0xIP", or "running". */
int proc_syscall_parse(const char *text, size_t size, struct proc_syscall *ret)
{
    uint64_t number = 0, word[9];
    int n = 0;
    *ret = (struct proc_syscall){.number = -1};
    if (size == 0 || text[size - 1] != '\n')
        return -EPROTO;
    if (memcmp(text, "running", size < 7 ? size : 7) == 0)
        return PROC_RUNS;
    bool outside = text[0] == '-';
    const char *at = proc_digits(text + outside, 10, &number);
    while (at && n < 9 && at[0] == ' ' && at[1] == '0' && at[2] == 'x')
        at = proc_digits(at + 3, 16, &word[n++]);
    if (!at || *at != '\n' || number > INT32_MAX || n != (outside ? 2 : 8))
        return -EPROTO;
    if (!outside) {
        ret->number = (int64_t)number;
        memcpy(ret->arguments, word, sizeof(ret->arguments));
    }
    ret->sp = word[n - 2];
    ret->ip = word[n - 1];
    return outside ? PROC_OUTSIDE : PROC_WAITS;
}

int proc_syscall_of(pid_t pid, pid_t tid, struct proc_syscall *ret)
{
    char text[256];
    int64_t n = proc_read(pid, tid, "syscall", text, sizeof(text));
    if (n > 0)
        return proc_syscall_parse(text, (size_t)n, ret);
    *ret = (struct proc_syscall){.number = -1};
    return n < 0 ? task_error(n) : -ESRCH;
}

/* ---- status ---- */

#define AT(member) offsetof(struct proc_status, member)

#define NAMED(text) text, sizeof(text) - 1

static const struct {
    const char *name;
    size_t length;
    size_t offset;
    uint8_t base, numbers;
    uint16_t unit; /* what is written is so many of ours */
} status_fields[] = {{NAMED("Tgid:"), AT(tgid), 10, 1, 1},
                     {NAMED("PPid:"), AT(ppid), 10, 1, 1},
                     {NAMED("TracerPid:"), AT(tracer), 10, 1, 1},
                     {NAMED("Uid:"), AT(uid), 10, 4, 1},
                     {NAMED("Gid:"), AT(gid), 10, 4, 1},
                     {NAMED("Threads:"), AT(threads), 10, 1, 1},
                     {NAMED("SigQ:"), AT(queued), 10, 1, 1}, /* "3/96365": the limit behind it */
                     {NAMED("SigPnd:"), AT(pending), 16, 1, 1},
                     {NAMED("ShdPnd:"), AT(shared), 16, 1, 1},
                     {NAMED("SigBlk:"), AT(blocked), 16, 1, 1},
                     {NAMED("SigCgt:"), AT(caught), 16, 1, 1},
                     {NAMED("CapPrm:"), AT(permitted), 16, 1, 1},
                     {NAMED("CapEff:"), AT(effective), 16, 1, 1},
                     {NAMED("Seccomp:"), AT(seccomp), 10, 1, 1},
                     {NAMED("Seccomp_filters:"), AT(filters), 10, 1, 1},
                     {NAMED("voluntary_ctxt_switches:"), AT(voluntary), 10, 1, 1},
                     {NAMED("nonvoluntary_ctxt_switches:"), AT(involuntary), 10, 1, 1},
                     {NAMED("VmPeak:"), AT(peak_size_bytes), 10, 1, 1024},
                     {NAMED("VmSize:"), AT(size_bytes), 10, 1, 1024},
                     {NAMED("VmData:"), AT(data_bytes), 10, 1, 1024},
                     {NAMED("VmLck:"), AT(locked_bytes), 10, 1, 1024},
                     {NAMED("VmRSS:"), AT(rss_bytes), 10, 1, 1024},
                     {NAMED("VmHWM:"), AT(peak_rss_bytes), 10, 1, 1024},
                     {NAMED("RssAnon:"), AT(anon_bytes), 10, 1, 1024},
                     {NAMED("RssFile:"), AT(file_bytes), 10, 1, 1024},
                     {NAMED("RssShmem:"), AT(shmem_bytes), 10, 1, 1024},
                     {NAMED("VmSwap:"), AT(swap_bytes), 10, 1, 1024}};

/* All of its numbers, or none. */
static void read_numbers(const char *at, size_t i, struct proc_status *ret)
{
    uint64_t value[4];
    for (uint8_t k = 0; k < status_fields[i].numbers; k++) {
        at = proc_digits(proc_blanks(at), status_fields[i].base, &value[k]);
        if (!at || __builtin_mul_overflow(value[k], status_fields[i].unit, &value[k]))
            return;
    }
    memcpy((char *)ret + status_fields[i].offset, value,
           status_fields[i].numbers * sizeof(value[0]));
}

/* "NSpid:\t4711\t12\t1": from the outermost in. */
static void read_namespaces(const char *at, struct proc_status *ret)
{
    uint64_t n = 0, id = PROC_UNKNOWN;
    for (at = proc_blanks(at); *at != '\0'; at = proc_blanks(at), n++) {
        at = proc_digits(at, 10, &id);
        if (!at)
            return;
    }
    if (n > 0) {
        ret->inner_id = id;
        ret->namespaces = n;
    }
}

static inline const char *text_after(const char *line, size_t size, const char *name, size_t n)
{
    return size >= n && line[0] == name[0] && memcmp(line, name, n) == 0 ? line + n : NULL;
}

/* Nobody can put a line into this file: the kernel writes a newline of a name as "\n". */
int proc_status_parse(struct proc_lines *l, struct proc_status *ret)
{
    size_t size;
    bool any = false;
    memset(ret, 0xff, sizeof(*ret));
    ret->state = '?';
    for (const char *line, *at; (line = proc_lines_next(l, &size)) != NULL;) {
        if (l->cut)
            continue; /* half a number is another one */
        if ((at = text_after(line, size, NAMED("State:"))) != NULL) {
            at = proc_blanks(at);
            ret->state = *at ? *at : '?';
            any = true;
        } else if ((at = text_after(line, size, NAMED("NSpid:"))) != NULL) {
            read_namespaces(at, ret);
        }
        for (size_t i = 0; i < sizeof(status_fields) / sizeof(status_fields[0]); i++)
            if ((at = text_after(line, size, status_fields[i].name, status_fields[i].length)) !=
                NULL) {
                read_numbers(at, i, ret);
                break;
            }
    }
    return any ? 0 : -EPROTO;
}

int proc_status_of(pid_t pid, pid_t tid, struct proc_status *ret)
{
    char path[PROC_PATH_BYTES], room[LINE_BYTES];
    struct proc_lines l;
    proc_path(pid, tid, "status", path);
    int rc = proc_lines_open(&l, path, room, sizeof(room));
    if (rc == 0)
        rc = proc_status_parse(&l, ret);
    if (l.error)
        rc = task_error(l.error);
    proc_lines_close(&l);
    return rc;
}

/* ---- sched ---- */

/* "      :     82812243.017181": milliseconds, and always six digits behind the point. */
static uint64_t read_ms(const char *at)
{
    uint64_t ms, rest, ns;
    at = proc_digits(at, 10, &ms);
    const char *end = at && *at == '.' ? proc_digits(at + 1, 10, &rest) : NULL;
    if (!end || end - at != 7 || __builtin_mul_overflow(ms, 1000000u, &ns) ||
        __builtin_add_overflow(ns, rest, &ns))
        return PROC_UNKNOWN;
    return ns;
}

static const char *behind_colon(const char *at)
{
    at = proc_blanks(at);
    return proc_blanks(*at == ':' ? at + 1 : at);
}

int proc_sched_parse(struct proc_lines *l, struct proc_sched *ret)
{
    size_t size;
    *ret = (struct proc_sched){PROC_UNKNOWN, PROC_UNKNOWN};
    for (const char *line, *at; (line = proc_lines_next(l, &size)) != NULL;) {
        if (l->cut)
            continue;
        if ((at = text_after(line, size, NAMED("se.exec_start"))) != NULL)
            ret->ran_ns = read_ms(behind_colon(at));
        else if ((at = text_after(line, size, NAMED("nr_voluntary_switches"))) != NULL)
            (void)proc_digits(behind_colon(at), 10, &ret->switches);
    }
    if (ret->ran_ns == PROC_UNKNOWN || ret->switches == PROC_UNKNOWN)
        return -EPROTO;
    return ret->ran_ns == 0 ? -ENODATA : 0;
}

int proc_sched_of(pid_t pid, pid_t tid, struct proc_sched *ret)
{
    char path[PROC_PATH_BYTES], room[LINE_BYTES];
    struct proc_lines l;
    proc_path(pid, tid, "sched", path);
    int rc = proc_lines_open(&l, path, room, sizeof(room));
    if (rc == 0)
        rc = proc_sched_parse(&l, ret);
    if (l.error)
        rc = task_error(l.error);
    proc_lines_close(&l);
    return rc;
}
