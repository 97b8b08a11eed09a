/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_work.c - see hang_work.h.
 *
 * One thread.
 */
#include "cli/hang/hang_work.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/hang/hang_judge.h"
#include "cli/inject/sleep_time.h"
#include "core/base/clock.h"
#include "sdk/lib/number.h"
#include "sdk/lib/proc/digits.h"
#include "sdk/lib/proc/task.h"

#define CLOCK_KEPT_NS (10 * NS_PER_S) /* in which two clocks drift apart by some milliseconds */
#define CHILDREN_BYTES 4096           /* of the list of its children: some 500 */
#define NUMBERS (sizeof(struct hang_work) / sizeof(int64_t))

static const struct hang_work unknown = {HANG_UNKNOWN, HANG_UNKNOWN, HANG_UNKNOWN,
                                         HANG_UNKNOWN, HANG_UNKNOWN, HANG_UNKNOWN};

/* 0 where it is not told: what is added up then is less than it was. */
static int64_t processor_ns(pid_t pid)
{
    struct proc_stat s;
    int64_t ticks = sysconf(_SC_CLK_TCK);

    if (ticks <= 0 || proc_stat_of(pid, 0, &s) < 0 || s.user_ticks > INT32_MAX ||
        s.system_ticks > INT32_MAX)
        return 0;
    return (int64_t)(s.user_ticks + s.system_ticks) * (int64_t)(NS_PER_S / (uint64_t)ticks);
}

/* Add up the times of its main thread's children; no CONFIG_PROC_CHILDREN, no list. */
static int64_t childrens_ns(pid_t pid)
{
    char text[CHILDREN_BYTES];
    int64_t n = proc_read(pid, pid, "children", text, sizeof(text)), sum = 0;
    uint64_t child;

    for (const char *at = n > 0 ? text : NULL; at != NULL && *at != '\0';) {
        at = proc_digits(proc_blanks(at), 10, &child);
        if (at != NULL && *at == ' ' && child <= INT32_MAX) /* the last may be cut */
            sum += processor_ns((pid_t)child);
        at = at != NULL ? proc_blanks(at) : NULL;
    }
    return sum;
}

/* The first two numbers of schedstat: how long a thread has run, and how long it was ready to, and
 * did not.  A kernel without CONFIG_SCHED_INFO has neither. */
static void schedule_of(pid_t pid, pid_t tid, int64_t *ret_ran_ns, int64_t *ret_delayed_ns)
{
    char text[128];
    uint64_t ran, delayed;

    *ret_ran_ns = HANG_UNKNOWN;
    *ret_delayed_ns = 0;
    if (proc_read(pid, tid, "schedstat", text, sizeof(text)) <= 0)
        return;
    const char *at = proc_digits(text, 10, &ran);
    at = at != NULL ? proc_digits(proc_blanks(at), 10, &delayed) : NULL;
    if (at == NULL || ran > INT64_MAX / 2 || delayed > INT64_MAX / 2)
        return;
    *ret_ran_ns = (int64_t)ran;
    *ret_delayed_ns = (int64_t)delayed;
}

static int64_t moved_bytes(pid_t pid)
{
    uint64_t read = 0, written = 0;
    char path[PROC_PATH_BYTES];

    proc_path(pid, 0, "io", path);
    if (!proc_number_in(path, "rchar:", &read) || !proc_number_in(path, "wchar:", &written) ||
        read > INT64_MAX / 2 || written > INT64_MAX / 2)
        return HANG_UNKNOWN;
    return (int64_t)(read + written);
}

static int64_t still_ns(pid_t pid, pid_t tid)
{
    struct sleep_time s;

    return sleep_time_of(pid, tid, CLOCK_KEPT_NS, &s) && s.slept_ns <= INT64_MAX
               ? (int64_t)s.slept_ns
               : HANG_UNKNOWN;
}

void hang_work_read(pid_t pid, pid_t tid, struct hang_work *ret)
{
    struct proc_status s;
    int64_t delayed_ns;

    *ret = unknown;
    tid = tid != 0 ? tid : pid;
    if (pid == 0 || proc_status_of(pid, tid, &s) < 0 || s.voluntary > INT64_MAX)
        return;
    ret->at_ns = (int64_t)clock_monotonic();
    ret->woken = (int64_t)s.voluntary;
    schedule_of(pid, tid, &ret->ran_ns, &delayed_ns);
    ret->busy_ns = processor_ns(pid) + childrens_ns(pid) + delayed_ns;
    ret->bytes = moved_bytes(pid);
    ret->still_ns = still_ns(pid, tid);
}

void hang_work_write(const struct hang_work *w, char *ret, size_t size)
{
    (void)snprintf(ret, size,
                   "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, w->at_ns,
                   w->woken, w->busy_ns, w->bytes, w->ran_ns, w->still_ns);
}

void hang_work_parse(const char *line, size_t size, struct hang_work *ret)
{
    int64_t numbers[NUMBERS];
    size_t n = 0;

    *ret = unknown;
    for (const char *at = line, *end = line + size; at < end && n < NUMBERS; n++) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        size_t length = (size_t)((blank != NULL ? blank : end) - at);
        if (number_i64(at, length, &numbers[n]) < 0 || numbers[n] < HANG_UNKNOWN)
            return;
        at += length + 1;
    }
    if (n == NUMBERS)
        *ret = (struct hang_work){numbers[0], numbers[1], numbers[2],
                                  numbers[3], numbers[4], numbers[5]};
}
