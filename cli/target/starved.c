/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/starved.c - how long a process's threads of probing have waited for a processor.
 *
 * Any thread; no state.
 */
#include "cli/target/starved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "sdk/lib/proc/task.h"

static int is_ours(const char *comm)
{
    return strncmp(comm, "probing/", 8) == 0 || strncmp(comm, "plugin ", 7) == 0;
}

/* The second number of schedstat: time on a run queue; what a cgroup's quota takes is in it. */
static uint64_t delayed_ns(pid_t pid, pid_t tid)
{
    char text[128], *end;
    if (proc_read(pid, tid, "schedstat", text, sizeof(text)) <= 0)
        return 0;
    (void)strtoull(text, &end, 10);
    return strtoull(end, NULL, 10);
}

uint64_t starved_ns(pid_t pid)
{
    struct proc_numbers all;
    struct proc_number one;
    char comm[PROC_COMM_BYTES];
    uint64_t sum = 0;

    (void)proc_threads_open(&all, pid);
    while (proc_numbers_next(&all, &one))
        if (proc_comm_of(pid, (pid_t)one.value, comm, sizeof(comm)) == 0 && is_ours(comm))
            sum += delayed_ns(pid, (pid_t)one.value);
    proc_numbers_close(&all);
    return sum;
}

void starved_words(pid_t pid, uint64_t before, uint64_t waited_ns, char *ret, size_t size)
{
    uint64_t now = starved_ns(pid), starved = now > before ? now - before : 0;

    ret[0] = '\0';
    if (starved >= waited_ns / 2) /* they are some: this may be more than was waited */
        (void)snprintf(ret, size,
                       "; probing's threads in it got no processor for most of these %.1f s: the "
                       "machine is busy, or the process may use little of it (nice, CPU quota of "
                       "its cgroup); try again with more time",
                       (double)waited_ns / (double)NS_PER_S);
}
