/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/cpu_budget.c - how much of the process's time its scripts may take.
 *
 * All scripts together have SHARE_PERCENT of one core, those that want it now in equal parts, and
 * each a little at once.  Niceness would not do: below a busy process a script would have no time
 * left to see that it shall end, and who is no root cannot take niceness back.  A script that waits
 * holds nothing and hears a stop at once.
 *
 * Threads: the script's own counts and waits; "probing/scripts" (the keeper) only makes scripts
 * that run look at their clock now and then, so that Lua itself has one flag to test and no clock.
 */
#include "core/base/clock.h"
#include "core/script/internal.h"

#define SHARE_PERCENT 10            /* of one core: tests/bench/lua_bench.c */
#define CREDIT_NS (100 * NS_PER_MS) /* of CPU time that one may use at once after doing nothing */
#define TURN_NS (2 * NS_PER_MS)     /* what a looping one runs before it waits again */
#define TICK_NS (2 * NS_PER_MS)     /* how often the keeper looks while a script runs */
#define WAIT_NS (NS_PER_S / 2)      /* at most, then the share is worked out again */
#define FOREVER_NS (3600 * NS_PER_S)

bool bucket_take(struct bucket *b, uint32_t at_once, uint32_t a_second)
{
    uint64_t now = clock_now();
    double more = b->begun ? (double)(now - b->at) / (double)NS_PER_S * a_second : at_once;
    b->left = b->left + more < at_once ? b->left + more : at_once;
    b->begun = true;
    b->at = now;
    if (b->left < 1)
        return false;
    b->left -= 1;
    return true;
}

/* ---- a script's own account ---- */

/* Its part of a core, in ns a second. */
static uint64_t part_of(const struct script *s)
{
    int n = atomic_load_explicit(&s->owner->n_want, memory_order_relaxed);
    return NS_PER_S / 100 * SHARE_PERCENT / (uint64_t)(n > 1 ? n : 1);
}

static void count_cpu(struct script *s)
{
    struct share *h = &s->share;
    uint64_t now = clock_now(), cpu = thread_cpu();
    if (h->at == 0) {
        h->credit_ns = CREDIT_NS;
    } else {
        double gained = (double)(now - h->at) / (double)NS_PER_S * (double)part_of(s);
        double credit = (double)h->credit_ns + gained;
        h->credit_ns = credit < (double)CREDIT_NS ? (int64_t)credit : (int64_t)CREDIT_NS;
        h->credit_ns -= (int64_t)(cpu - h->cpu_at);
        (void)atomic_fetch_add_explicit(&h->cpu_ns, cpu - h->cpu_at, memory_order_relaxed);
    }
    h->at = now;
    h->cpu_at = cpu;
}

static void set_runs(struct script *s, bool runs)
{
    struct scripts *all = s->owner;
    if (atomic_load_explicit(&s->share.runs, memory_order_relaxed) == runs)
        return;
    atomic_store_explicit(&s->share.runs, runs, memory_order_relaxed);
    if (!runs)
        (void)atomic_fetch_sub_explicit(&all->n_run, 1, memory_order_relaxed);
    else if (atomic_fetch_add_explicit(&all->n_run, 1, memory_order_relaxed) == 0)
        event_raise(&all->run);
}

void share_pay(struct script *s)
{
    struct share *h = &s->share;
    count_cpu(s);
    if (h->credit_ns >= 0)
        return;
    bool ran = atomic_load_explicit(&h->runs, memory_order_relaxed);
    uint64_t since = h->at;
    set_runs(s, false);
    while (h->credit_ns < (int64_t)TURN_NS &&
           !atomic_load_explicit(&s->stop, memory_order_acquire)) {
        double missing = (double)((int64_t)TURN_NS - h->credit_ns);
        double wait = missing / (double)part_of(s) * (double)NS_PER_S;
        (void)event_wait(&s->wake, wait < (double)WAIT_NS ? (uint64_t)wait + 1 : WAIT_NS);
        count_cpu(s);
    }
    (void)atomic_fetch_add_explicit(&h->throttled_ns, h->at - since, memory_order_relaxed);
    set_runs(s, ran);
}

void share_begin(struct script *s)
{
    s->share.wants = true;
    (void)atomic_fetch_add_explicit(&s->owner->n_want, 1, memory_order_relaxed);
    share_pay(s);
    set_runs(s, true);
}

void share_end(struct script *s)
{
    if (!s->share.wants)
        return;
    s->share.wants = false;
    set_runs(s, false);
    (void)atomic_fetch_sub_explicit(&s->owner->n_want, 1, memory_order_relaxed);
}

/* ---- the keeper ---- */

static void *keeper_thread(void *arg)
{
    struct scripts *all = arg;
    while (!atomic_load_explicit(&all->over, memory_order_acquire)) {
        bool some = atomic_load_explicit(&all->n_run, memory_order_relaxed) > 0;
        (void)event_wait(&all->run, some ? TICK_NS : FOREVER_NS);
        (void)pthread_mutex_lock(&all->mutex);
        for (struct script *s = some ? all->first : NULL; s; s = s->next)
            if (atomic_load_explicit(&s->share.runs, memory_order_relaxed))
                atomic_store_explicit(&s->poll, 1, memory_order_release);
        (void)pthread_mutex_unlock(&all->mutex);
    }
    return NULL;
}

int share_keep(struct scripts *all)
{
    if (all->keeps)
        return 0;
    int rc = thread_start(&all->keeper, "probing/scripts", 0, keeper_thread, all);
    all->keeps = rc == 0;
    return rc;
}

void share_keep_end(struct scripts *all)
{
    if (!all->keeps)
        return;
    atomic_store_explicit(&all->over, true, memory_order_release);
    event_raise(&all->run);
    (void)pthread_join(all->keeper, NULL);
    all->keeps = false;
}
