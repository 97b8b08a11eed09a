/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/why_ended.c - why a process has ended, as far as anything says it.
 *
 * One thread.  In the order of what proves the most: a report of its crash, the kernel's log, the
 * counter of its cgroup, and how near its limit it was when it was last seen.  The log and the
 * counter are of this machine: they say nothing where the process ran elsewhere or before a reboot.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"
#include "lib/proc/task.h"
#include "report.h"

#define RECORD_BYTES 8192 /* the longest of /dev/kmsg */
#define RECORDS_MAX 200000
#define BEFORE_LAST_SEC 5.0 /* a kill is not so much earlier than the last row */
#define AFTER_LAST_SEC 90.0 /* and not so much later: a row comes each minute */
#define NEAR 0.9            /* of a limit */

struct death {
    char crash[256];  /* a signal that it had no handler for; "" */
    char kernel[512]; /* what the kernel's log says of it; "" */
    bool log_read;
    double kills;        /* OOM kills of its cgroup since its last row; NAN: not known */
    char event[320];     /* its last event; "" */
    double event_before; /* seconds before its last row */
};

static int take_crash(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct death *d = arg;
    if (n >= 1)
        (void)snprintf(d->crash, sizeof(d->crash), "%s", cell_text(&cells[0]));
    return 0;
}

static int take_event(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct death *d = arg;
    if (n < 3)
        return 0;
    (void)snprintf(d->event, sizeof(d->event), "%s: %s", cell_text(&cells[0]),
                   cell_text(&cells[1]));
    d->event_before = cell_number(&cells[2]);
    return 0;
}

static bool is_this_boot(const struct usage_report *r)
{
    char text[64];
    int64_t n = proc_read_path("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    return n > 0 && r->boot_id[0] && strncmp(text, r->boot_id, strlen(r->boot_id)) == 0;
}

/* NAN: not known, as where the group is gone.  A directory is a stranger's to write: no path out of
 * it is opened that is not one of cgroups. */
static double kills_now(const struct usage_report *r)
{
    static const char *const names[] = {"memory.events", "memory.oom_control"}; /* version 2, 1 */
    static const char root[] = "/sys/fs/cgroup";
    char path[sizeof(r->cgroup) + 32];
    uint64_t n;
    bool fine = strncmp(r->cgroup, root, sizeof(root) - 1) == 0 &&
                strchr("/", r->cgroup[sizeof(root) - 1]) && !strstr(r->cgroup, "/..");
    for (int i = 0; i < 2 && fine; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", r->cgroup, names[i]);
        if (proc_number_in(path, "oom_kill ", &n))
            return (double)n;
    }
    return (double)NAN;
}

/* Has only probing left it?  A later process may have its number. */
static bool is_alive(const struct memory_args *w, const struct usage_report *r)
{
    struct proc_stat s;
    struct timespec boot;
    if (w->api->target_pid <= 0 || !is_this_boot(r) ||
        proc_stat_of((pid_t)w->api->target_pid, 0, &s) < 0 || s.state == 'Z' || s.state == 'X')
        return false;
    (void)clock_gettime(CLOCK_BOOTTIME, &boot);
    double begun = (double)time(NULL) - (double)boot.tv_sec +
                   (double)s.start_ticks / (double)sysconf(_SC_CLK_TCK);
    return begun <= r->first_sec + 2; /* of both clocks' rounding */
}

/* ---- the kernel's log ---- */

static double seconds_of(clockid_t clock)
{
    struct timespec t = {0, 0};
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* "Out of memory: Killed process 4242 (python3) total-vm:..."; and "Memory cgroup out of ...". */
static bool names_kill(const char *text, int64_t pid)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "Killed process %lld ", (long long)pid);
    if (strstr(text, key))
        return true;
    (void)snprintf(key, sizeof(key), "Killed process %lld,", (long long)pid); /* older kernels */
    return strstr(text, key) != NULL;
}

/* "6,1234,5678901,-;text\n": level, number, microseconds since the machine began. */
static void read_record(char *record, const struct usage_report *r, int64_t pid, struct death *d)
{
    char *text = strchr(record, ';'), *at = strchr(record, ',');
    at = at ? strchr(at + 1, ',') : NULL;
    if (!text || !at || at > text)
        return;
    double sec =
        strtod(at + 1, NULL) / 1e6 + seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_MONOTONIC);
    text++;
    text[strcspn(text, "\n")] = '\0';
    if (sec > r->last_sec - BEFORE_LAST_SEC && sec < r->last_sec + AFTER_LAST_SEC &&
        names_kill(text, pid))
        (void)snprintf(d->kernel, sizeof(d->kernel), "%s", text);
}

static void read_log(const struct usage_report *r, int64_t pid, struct death *d)
{
    static char record[RECORD_BYTES + 1];
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    for (int i = 0; fd != -1 && i < RECORDS_MAX; i++) {
        ssize_t n = read(fd, record, RECORD_BYTES);
        if (n == -1 && errno == EPIPE)
            continue; /* it was written over meanwhile: the next is still there */
        if (n <= 0) {
            d->log_read = d->log_read || (n == -1 && errno == EAGAIN);
            break;
        }
        d->log_read = true;
        record[n] = '\0';
        read_record(record, r, pid, d);
    }
    if (fd != -1)
        (void)close(fd);
}

/* ---- all of it ---- */

static void read_death(const struct memory_args *w, const struct usage_report *r, struct death *d)
{
    *d = (struct death){.kills = (double)NAN, .event_before = (double)NAN};
    (void)w->api->ask(w->api,
                      "select coalesce(meaning, 'signal ' || signal::text) from crash.reports "
                      "where survived is null or survived = 0 order by ts desc limit 1",
                      take_crash, d);
    (void)w->api->ask(
        w->api,
        "select event, message, extract(epoch from (select max(ts) from memory.usage) - "
        "ts) from memory.events order by ts desc limit 1",
        take_event, d);
    if (!is_this_boot(r))
        return;
    d->kills = kills_now(r) - r->oom_kills;
    if (w->api->target_pid > 0)
        read_log(r, w->api->target_pid, d);
}

static void print_paragraph(const struct memory_args *w, const char *text)
{
    w->api->print_wrapped(w->api, "", text, strlen(text));
}

static void say_last(const struct memory_args *w, const struct usage_report *r)
{
    char text[512], used[32], limit[32];
    const double *p = r->part;
    double share = p[PART_LIMIT_USED] / p[PART_LIMIT];
    bool of_machine = strcmp(r->limit_of, "machine") == 0;
    report_mb(p[PART_LIMIT_USED], used);
    report_mb(p[PART_LIMIT], limit);
    if (!is_number(share))
        return;
    (void)snprintf(text, sizeof(text),
                   "when it was last looked at, %.0f %% of %s were used: %s of %s%s%s%s%s",
                   100 * share, of_machine ? "the machine's memory" : "the limit", used, limit,
                   of_machine ? "" : " (", of_machine ? "" : r->limit_of, of_machine ? "" : ")",
                   share < NEAR ? "; that was not near it, but memory can be taken faster than it "
                                  "is looked at"
                                : "");
    print_paragraph(w, text);
}

void death_show(const struct memory_args *w, const struct usage_report *r)
{
    struct death d;
    char text[900];
    if (is_alive(w, r)) {
        print_paragraph(w, "it runs on; probing has left it. When it was last looked at it had:");
        report_printf(w->api, "\n");
        return;
    }
    read_death(w, r, &d);
    if (d.kernel[0]) {
        (void)snprintf(text, sizeof(text),
                       "the kernel has killed it for want of memory; its log says: %s", d.kernel);
        print_paragraph(w, text);
    } else if (d.crash[0]) {
        (void)snprintf(text, sizeof(text), "it has crashed: %s; probing -t %.40s backtrace",
                       d.crash, w->api->target_text);
        print_paragraph(w, text);
    } else if (d.kills > 0) {
        (void)snprintf(text, sizeof(text),
                       "since it was last looked at the kernel has killed %.0f process%s of its "
                       "cgroup for want of memory; that this was one of them is likely, but %s",
                       d.kills, d.kills == 1 ? "" : "es",
                       d.log_read ? "the kernel's log does not name it"
                                  : "the kernel's log cannot be read here");
        print_paragraph(w, text);
    } else {
        (void)snprintf(text, sizeof(text),
                       "nothing says why it has ended: no crash report%s%s; it may have "
                       "ended by itself, or somebody has killed it",
                       d.kills == 0 ? ", no OOM kill in its cgroup" : "",
                       d.log_read ? ", no word of it in the kernel's log" : "");
        print_paragraph(w, text);
    }
    if (d.event[0]) {
        (void)snprintf(text, sizeof(text),
                       "its last event, %.0f s before it was last looked at: %s", d.event_before,
                       d.event);
        print_paragraph(w, text);
    }
    say_last(w, r);
    report_printf(w->api, "\nthen it had:\n\n");
}

void death_show_json(const struct memory_args *w, const struct usage_report *r,
                     struct report_json *j)
{
    struct death d;
    if (is_alive(w, r))
        return;
    read_death(w, r, &d);
    json_key(j, "death");
    json_open(j, '{');
    json_text(j, "kernel", d.kernel);
    json_text(j, "crash", d.crash);
    json_number(j, "oom_kills_since", d.kills);
    json_text(j, "last_event", d.event);
    json_number(j, "last_event_sec", d.event_before);
    json_close(j, '}');
}
