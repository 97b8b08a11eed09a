/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/look.c - one look at /proc and at cgroups.
 *
 * [worker], one thread at a time.
 */
#include "look.h"

#include <sys/resource.h>

#include "lib/proc/lines.h"
#include "probing_sdk.h"

#define CGROUP_AGAIN_NS (60 * PROBING_NS_PER_S)
#define OWN_AGAIN_NS (10 * PROBING_NS_PER_S)
/* smaps_rollup walks the page tables with the lock that mmap() wants: 1 ms for 400 MB of small
 * pages.  So rarely, a thousandth of the time at most, and not where it would take long. */
#define PSS_AGAIN_NS (60 * PROBING_NS_PER_S)
#define PSS_SHARE 1000
#define PSS_RSS_MAX ((uint64_t)4 << 30)
#define PSS_ASKED_RSS_MAX ((uint64_t)8 << 30)

#define MACHINE_LEFT 10 /* a tenth of the machine's memory: below that it is a limit */

static uint64_t kilobytes_in(const char *path, const char *key)
{
    uint64_t n;
    return proc_number_in(path, key, &n) ? n * 1024 : LOOK_UNKNOWN;
}

static void look_at_pss(struct looker *k, bool whole, struct memory_look *l)
{
    uint64_t most = whole ? PSS_ASKED_RSS_MAX : PSS_RSS_MAX;
    uint64_t rest = k->pss_took_ns * PSS_SHARE;
    rest = rest > PSS_AGAIN_NS ? rest : PSS_AGAIN_NS;
    l->pss = LOOK_UNKNOWN;
    if (l->process.rss_bytes > most || (!whole && k->pss_ns && l->now_ns - k->pss_ns < rest))
        return;
    uint64_t before = probing_clock_ns(CLOCK_MONOTONIC);
    l->pss = kilobytes_in("/proc/self/smaps_rollup", "Pss:");
    k->pss_took_ns = probing_clock_ns(CLOCK_MONOTONIC) - before;
    k->pss_ns = l->now_ns;
}

static void look_at_own(struct looker *k, bool whole, struct memory_look *l)
{
    bool can =
        k->core && k->core->size > offsetof(struct probing_memory_1, resident) && k->core->resident;
    if (can && (whole || k->own_ns == 0 || l->now_ns - k->own_ns >= OWN_AGAIN_NS)) {
        k->own_heap = k->core->resident(&k->own_files);
        k->own_ns = l->now_ns;
    }
    l->own = k->own_ns ? k->own_heap + k->own_files : LOOK_UNKNOWN;
    l->own_heap = k->own_ns ? k->own_heap : LOOK_UNKNOWN;
}

static void try_limit(struct memory_look *l, const char *of, uint64_t limit, uint64_t used)
{
    if (limit == LOOK_UNKNOWN || limit == 0 || used == LOOK_UNKNOWN)
        return;
    if (l->limit != LOOK_UNKNOWN &&
        (double)used / (double)limit <= (double)l->used / (double)l->limit)
        return;
    l->limit = limit;
    l->used = used;
    l->limit_of = of;
}

static uint64_t address_space(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? r.rlim_cur : LOOK_UNKNOWN;
}

/* That of which the largest share is used; the machine's memory only where there is no other, or
 * where it is nearly gone: half of it may be used while a cgroup is empty still. */
static void choose_limit(struct memory_look *l, uint64_t setting)
{
    l->limit = l->used = LOOK_UNKNOWN;
    l->limit_of = NULL;
    try_limit(l, "cgroup", l->cgroup.limit, l->cgroup.used);
    try_limit(l, "memory.limit", setting, look_theirs(l));
    try_limit(l, "RLIMIT_AS", address_space(), l->process.size_bytes);
    if (l->machine_available == LOOK_UNKNOWN || l->machine_available >= l->machine_total)
        return;
    if (l->limit == LOOK_UNKNOWN || l->machine_available < l->machine_total / MACHINE_LEFT)
        try_limit(l, "machine", l->machine_total, l->machine_total - l->machine_available);
}

int look_at_memory(struct looker *k, uint64_t now_ns, uint64_t setting, bool whole,
                   struct memory_look *ret)
{
    *ret = (struct memory_look){.now_ns = now_ns};
    int rc = proc_status_of(0, 0, &ret->process);
    if (rc < 0)
        return rc;
    if (k->cgroup_found_ns == 0 || now_ns - k->cgroup_found_ns >= CGROUP_AGAIN_NS) {
        cgroup_find(0, &k->cgroup);
        k->cgroup_found_ns = now_ns;
    }
    cgroup_read(&k->cgroup, &ret->cgroup);
    ret->machine_total = kilobytes_in("/proc/meminfo", "MemTotal:");
    ret->machine_available = kilobytes_in("/proc/meminfo", "MemAvailable:");
    look_at_own(k, whole, ret);
    look_at_pss(k, whole, ret);
    choose_limit(ret, setting);
    return 0;
}

uint64_t look_theirs(const struct memory_look *l)
{
    uint64_t rss = l->process.rss_bytes;
    if (rss == PROC_UNKNOWN || l->own == LOOK_UNKNOWN)
        return rss;
    return rss > l->own ? rss - l->own : 0;
}

static uint64_t known_or_zero(uint64_t n)
{
    return n == UINT64_MAX ? 0 : n;
}

static uint64_t subtract_or_zero(uint64_t n, uint64_t what)
{
    return n > what ? n - what : 0;
}

uint64_t look_kept(const struct memory_look *l)
{
    const struct proc_status *p = &l->process;
    uint64_t files = known_or_zero(l->own) -
                     known_or_zero(l->own_heap); /* shared memory where they are in one */
    return subtract_or_zero(known_or_zero(p->anon_bytes), known_or_zero(l->own_heap)) +
           known_or_zero(p->swap_bytes) + subtract_or_zero(known_or_zero(p->shmem_bytes), files);
}
