/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/starved.c - how long threads of a process have waited for a processor.
 *
 * One thread at a time.  A thread that is ready (R) and whose run time has not grown between two
 * looks waits: the kernel adds that to its count of waits (schedstat) only when it runs again.
 */
#include "cli/inject/starved.h"

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"

#define LOOK_NS (50 * NS_PER_MS) /* tens of ticks of the kernel, by which run times grow */

static bool is_ours(const char *comm)
{
    return strncmp(comm, "probing/", 8) == 0 || strncmp(comm, "plugin ", 7) == 0;
}

static struct starved_thread *thread_of(struct starved *s, pid_t tid)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->threads[i].tid == tid)
            return &s->threads[i];
    if (s->n == STARVED_THREADS)
        return NULL;
    s->threads[s->n] = (struct starved_thread){.tid = tid};
    return &s->threads[s->n++];
}

void starved_take(struct starved *s, pid_t tid, char state, const struct proc_schedstat *has,
                  uint64_t now_ns)
{
    struct starved_thread *t = thread_of(s, tid);
    if (t == NULL)
        return;
    uint64_t ran = has->ran_ns, waited = has->waited_ns;
    bool other = ran < t->ran_ns || waited < t->waited_ns; /* its number is another thread's */
    bool same = ran == t->ran_ns && waited == t->waited_ns;
    s->waited_ns += waited - (other ? 0 : t->waited_ns);
    if (state != 'R')
        t->since_ns = 0;
    else if (t->since_ns == 0 || !same)
        t->since_ns = now_ns;
    t->seen_ns = now_ns; /* one that is there no more waits no longer */
    t->ran_ns = ran;
    t->waited_ns = waited;
}

static void look_at(struct starved *s, pid_t tid)
{
    struct proc_stat stat;
    struct proc_schedstat has;
    if (proc_stat_of(s->pid, tid, &stat) == 0 && (s->only != 0 || is_ours(stat.comm)) &&
        proc_schedstat_of(s->pid, tid, &has) == 0)
        starved_take(s, tid, stat.state, &has, s->looked_ns);
}

static void look_at_process(struct starved *s, uint64_t now_ns)
{
    struct proc_numbers all;
    struct proc_number one;
    bool first = s->looked_ns == 0;

    s->looked_ns = now_ns;
    if (s->only != 0) {
        look_at(s, s->only);
    } else {
        (void)proc_threads_open(&all, s->pid);
        while (proc_numbers_next(&all, &one))
            look_at(s, (pid_t)one.value);
        proc_numbers_close(&all);
    }
    if (first && !s->from_birth)
        s->waited_ns = 0;
}

void starved_begin(struct starved *s, pid_t pid, pid_t only, bool from_birth)
{
    *s = (struct starved){.pid = pid, .only = only, .from_birth = from_birth};
}

void starved_look(struct starved *s, uint64_t now_ns)
{
    if (s->looked_ns == 0 || now_ns - s->looked_ns >= LOOK_NS)
        look_at_process(s, now_ns);
}

uint64_t starved_ns(const struct starved *s)
{
    uint64_t sum = s->waited_ns;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->threads[i].since_ns != 0)
            sum += s->threads[i].seen_ns - s->threads[i].since_ns;
    return sum;
}

void starved_words(struct starved *s, uint64_t waited_ns, char *ret, size_t size)
{
    ret[0] = '\0';
    look_at_process(s, clock_monotonic());
    if (starved_ns(s) >= waited_ns / 2) /* they are some: this may be more than was waited */
        (void)snprintf(ret, size,
                       "; %s got no processor for most of these %.1f s: the "
                       "machine is busy, or the process may use little of it (nice, CPU quota of "
                       "its cgroup); try again with more time",
                       s->only != 0 ? "that thread" : "probing's threads in it",
                       (double)waited_ns / (double)NS_PER_S);
}
