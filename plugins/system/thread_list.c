/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/thread_list.c - which threads the process has, and their CPU clocks.
 *
 * The sampler's worker only.  A thread's clock costs a system call of 0.2 us, its files in /proc
 * some ten times as much each: so clocks are read at every tick, and the folder of threads only
 * when there are more or fewer of them, or a clock of a thread is gone.
 */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"
#include "lib/proc/task.h"

/* The ids of a thread's clocks, as linux/posix-timers.h makes them. */
#define CLOCK_TICKS_BOTH 4 /* user and system time, by the kernel's ticks */
#define CLOCK_TICKS_USER 5
#define CLOCK_EXACT 6 /* what the scheduler has counted */

#define LIST_MOST_NS (UINT64_C(10) * PROBING_NS_PER_S) /* however much it costs */

static bool clock_of(int32_t tid, uint32_t kind, uint64_t *ret_ns)
{
    struct timespec t;
    clockid_t clock = (clockid_t)((~(uint32_t)tid << 3) | kind);
    if (syscall(SYS_clock_gettime, clock, &t) != 0)
        return false;
    *ret_ns = (uint64_t)t.tv_sec * PROBING_NS_PER_S + (uint64_t)t.tv_nsec;
    return true;
}

/* Does /proc call our threads by the numbers that system calls take?  Not that of another pid
 * namespace; and some sandboxes have no such clocks. */
static bool clocks_work(void)
{
    int32_t own = (int32_t)syscall(SYS_gettid);
    char path[PROC_PATH_BYTES];
    struct stat folder;
    uint64_t ns;
    proc_path(0, own, NULL, path);
    return stat(path, &folder) == 0 && clock_of(own, CLOCK_EXACT, &ns);
}

void threads_init(struct thread_list *l)
{
    *l = (struct thread_list){.clocks = clocks_work()};
}

void threads_done(struct thread_list *l)
{
    free(l->all);
    *l = (struct thread_list){.n = 0};
}

uint64_t threads_count(void)
{
    struct stat folder; /* its links: itself, its parent, and its threads */
    return stat("/proc/self/task", &folder) == 0 && folder.st_nlink > 2 ? folder.st_nlink - 2
                                                                        : UNKNOWN;
}

static bool ticks_of(int32_t tid, uint64_t *ret_user, uint64_t *ret_both)
{
    struct proc_stat s;
    uint64_t tick = PROBING_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    if (proc_stat_of(0, tid, &s) < 0)
        return false;
    *ret_user = s.user_ticks * tick;
    *ret_both = *ret_user + s.system_ticks * tick;
    return true;
}

bool thread_cpu(const struct thread_list *l, int32_t tid, uint64_t *ret_ns)
{
    uint64_t user;
    return l->clocks ? clock_of(tid, CLOCK_EXACT, ret_ns) : ticks_of(tid, &user, ret_ns);
}

bool thread_split(const struct thread_list *l, int32_t tid, uint64_t *ret_user, uint64_t *ret_both)
{
    return l->clocks ? clock_of(tid, CLOCK_TICKS_USER, ret_user) &&
                           clock_of(tid, CLOCK_TICKS_BOTH, ret_both)
                     : ticks_of(tid, ret_user, ret_both);
}

/* ---- the list ---- */

static int by_tid(const void *a, const void *b)
{
    int32_t x = ((const struct thread *)a)->tid, y = ((const struct thread *)b)->tid;
    return (x > y) - (x < y);
}

/* The place of tid in the list, or where it would go. */
static struct thread *find_thread(const struct thread_list *l, int32_t tid)
{
    uint32_t low = 0, high = l->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (l->all[middle].tid < tid)
            low = middle + 1;
        else
            high = middle;
    }
    return l->all + low;
}

static bool add_thread(struct thread_list *into, const struct thread *t)
{
    if (into->n == into->room) {
        uint32_t room = into->room ? into->room * 2 : 64;
        struct thread *more =
            into->n < THREADS_MAX ? realloc(into->all, room * sizeof(*more)) : NULL;
        if (!more)
            return false;
        into->all = more;
        into->room = room;
    }
    into->all[into->n++] = *t;
    return true;
}

/* When it began, CLOCK_MONOTONIC ns, if that was after `least`; but for a tick of the kernel's. */
static uint64_t thread_begin_ns(int32_t tid, uint64_t least, uint64_t now)
{
    struct proc_stat s;
    uint64_t tick = PROBING_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    if (proc_stat_of(0, tid, &s) < 0 || s.start_ticks == PROC_UNKNOWN)
        return least;
    uint64_t up = probing_clock_ns(CLOCK_BOOTTIME), start = s.start_ticks * tick;
    uint64_t age = up > start ? up - start : 0;
    return age < now && now - age > least ? now - age : least;
}

/* List the folder's threads, with what is known of them.  All that a new one used was used since
 * the plugin came. */
static void read_folder(const struct thread_list *old, struct thread_list *ret)
{
    struct proc_numbers all;
    struct proc_number one;
    ret->whole = proc_threads_open(&all, 0) == 0;
    while (ret->whole && proc_numbers_next(&all, &one)) {
        int32_t tid = (int32_t)one.value;
        const struct thread *known = find_thread(old, tid);
        struct thread fresh = {.tid = tid,
                               .start_ticks = UNKNOWN,
                               .comm = PROBING_NULL_ID,
                               .wchan = PROBING_NULL_ID,
                               .voluntary = old->listed_ns ? 0 : UNKNOWN,
                               .involuntary = old->listed_ns ? 0 : UNKNOWN,
                               .majflt = old->listed_ns ? 0 : UNKNOWN,
                               .runq_wait_ns = old->listed_ns ? 0 : UNKNOWN};
        bool same =
            known < old->all + old->n && known->tid == tid && !known->dead && !known->reused;
        if (!same && old->listed_ns)
            fresh.row_ns = thread_begin_ns(tid, old->listed_ns, ret->listed_ns);
        ret->whole = add_thread(ret, same ? known : &fresh);
    }
    ret->whole = ret->whole && all.error == 0;
    proc_numbers_close(&all);
    if (ret->n)
        qsort(ret->all, ret->n, sizeof(*ret->all), by_tid);
}

/* Note what each thread had used before the plugin came: that is not counted. */
static void take_baseline(struct thread_list *l, uint64_t now)
{
    for (uint32_t i = 0; i < l->n; i++) {
        struct thread *t = &l->all[i];
        t->row_ns = now;
        (void)thread_cpu(l, t->tid, &t->cpu_ns);
        (void)thread_split(l, t->tid, &t->row_user, &t->row_both);
        t->row_cpu_ns = t->cpu_ns;
    }
}

void threads_refresh(struct thread_list *l, uint64_t links, uint64_t now, uint64_t interval_ns,
                     void (*ended)(void *arg, const struct thread *t), void *arg)
{
    uint64_t begun = own_cpu_ns();
    struct thread_list fresh = {.clocks = l->clocks, .links = links, .listed_ns = now};
    bool stale = !l->whole || l->gone || links != l->links || !l->clocks;
    if (!stale || !pace_is_due(&l->pace, now))
        return;
    read_folder(l, &fresh);
    if (!fresh.whole && fresh.n < l->n) { /* no memory, or no /proc: what is known stays */
        free(fresh.all);
        fresh = *l;
    } else {
        for (uint32_t i = 0; i < l->n; i++) {
            const struct thread *old = &l->all[i], *t = find_thread(&fresh, old->tid);
            bool there = t < fresh.all + fresh.n && t->tid == old->tid;
            if (!there || old->dead || old->reused)
                ended(arg, old);
        }
        free(l->all);
    }
    if (l->listed_ns == 0)
        take_baseline(&fresh, now);
    fresh.pace = l->pace;
    pace_took(&fresh.pace, now, own_cpu_ns() - begun, 1, interval_ns, PACE_LIST);
    if (fresh.pace.next_ns > now + LIST_MOST_NS)
        fresh.pace.next_ns = now + LIST_MOST_NS;
    fresh.gone = false;
    *l = fresh;
}
