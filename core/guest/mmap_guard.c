/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/mmap_guard.c - a page of memory where one of a file of ours was lost.
 *
 * Watching and looking: any thread, one lock.  Mending: the thread that faulted, in its handler.
 *
 * A handler may stand in the chain more than once: the program puts its own over ours and goes on
 * to ours from there, and ours comes over that.  So each time it is another function, with an
 * action of its own that it goes on to, or they would go round in a circle.
 */
#include "core/guest/mmap_guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "sdk/lib/proc/maps.h"

#define MAPPINGS_MAX 32 /* mappings watched; a store has four */
#define LEVELS 4        /* of ours in the chain */
#define TRIES 10        /* against a program that changes its handler meanwhile */

struct mapping {
    _Atomic uintptr_t at; /* 0: free; release: the rest is written */
    _Atomic size_t bytes;
    _Atomic uint64_t
        head[MAPPED_HEAD / 8]; /* atomic: a fault elsewhere may look while it is filled */
    _Atomic uint64_t lost;
    _Atomic size_t there; /* bytes that have a file behind them */
};

struct level {
    struct sigaction before;
    bool used; /* it is, or may be, in the chain.  lock: lock */
};

/* For all below, but what the handler reads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping mappings[MAPPINGS_MAX];
static struct level levels[LEVELS];
static uint32_t n_watched;           /* lock: lock */
static _Atomic uint32_t page_bytes;  /* 0: not asked yet */
static _Atomic(handler_fn *) helper; /* see mapped_stand_in() */

/* ---- the handler ---- */

static struct mapping *mapping_of(uintptr_t address) /* [signal] */
{
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        uintptr_t at = atomic_load_explicit(&mappings[i].at, memory_order_acquire);
        if (at && address >= at &&
            address - at < atomic_load_explicit(&mappings[i].bytes, memory_order_relaxed))
            return &mappings[i];
    }
    return NULL;
}

bool mapped_mend(const siginfo_t *info)
{
    if (info->si_code <= 0)
        return false; /* somebody sent it */
    uintptr_t address;
    memcpy(&address, &info->si_addr, sizeof(address));
    struct mapping *p = mapping_of(address);
    if (!p)
        return false;
    size_t n = atomic_load_explicit(&page_bytes, memory_order_relaxed);
    void *page = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    uint64_t *words = page;
    for (size_t i = 0; i < MAPPED_HEAD / 8; i++)
        words[i] = atomic_load_explicit(&p->head[i], memory_order_relaxed);
    /* Counted first: who reads what is there now sees that. */
    (void)atomic_fetch_add_explicit(&p->lost, 1, memory_order_acq_rel);
    if (syscall(SYS_mremap, page, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, address & ~(n - 1)) == -1) {
        (void)munmap(page, n);
        return false;
    }
    return true;
}

static void on_fault(const struct level *l, int signo, siginfo_t *info,
                     void *context) /* [signal] */
{
    int kept = errno;
    if (!mapped_mend(info)) {
        if (handler_is_default(&l->before))
            handler_die(signo, info);
        else
            handler_run(&l->before, signo, info, context);
    }
    errno = kept;
}

static void on_fault_0(int signo, siginfo_t *info, void *context)
{
    on_fault(&levels[0], signo, info, context);
}

static void on_fault_1(int signo, siginfo_t *info, void *context)
{
    on_fault(&levels[1], signo, info, context);
}

static void on_fault_2(int signo, siginfo_t *info, void *context)
{
    on_fault(&levels[2], signo, info, context);
}

static void on_fault_3(int signo, siginfo_t *info, void *context)
{
    on_fault(&levels[3], signo, info, context);
}

static handler_fn *const handlers[LEVELS] = {on_fault_0, on_fault_1, on_fault_2, on_fault_3};

/* Which of ours it is; -1: none. */
static int level_of(const struct sigaction *a) /* [signal] */
{
    for (int i = 0; i < LEVELS && a->sa_flags & SA_SIGINFO; i++)
        if (a->sa_sigaction == handlers[i])
            return i;
    return -1;
}

bool mapped_see_through(struct sigaction *a)
{
    int i = level_of(a);
    if (i != -1)
        *a = levels[i].before;
    return i != -1;
}

/* ---- taking the signal, and giving it back ---- */

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_sigaction == b->sa_sigaction && a->sa_flags == b->sa_flags;
}

static bool comes_to_us(const struct sigaction *now)
{
    return level_of(now) != -1 ||
           ((now->sa_flags & SA_SIGINFO) &&
            now->sa_sigaction == atomic_load_explicit(&helper, memory_order_acquire));
}

/* One that goes on to just that, or one that is not in the chain. */
static int level_for(const struct sigaction *before)
{
    int free_one = -1;
    for (int i = LEVELS - 1; i >= 0; i--) {
        if (!levels[i].used)
            free_one = i;
        else if (same_action(&levels[i].before, before))
            return i;
    }
    return free_one;
}

/* lock: lock */
static void take_signal(void)
{
    struct sigaction now, replaced, ours;
    for (int tries = 0; tries < TRIES; tries++) {
        if (sigaction(SIGBUS, NULL, &now) == -1 || comes_to_us(&now))
            return;
        if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_IGN)
            return; /* a program that is exec'ed inherits that; and a fault is not ignored */
        int i = level_for(&now);
        if (i == -1)
            return;
        levels[i] = (struct level){.before = now, .used = true}; /* first: it may run at once */
        handler_fill(&ours, &now, handlers[i]);
        if (sigaction(SIGBUS, &ours, &replaced) == -1 || same_action(&replaced, &now))
            return;
        (void)sigaction(SIGBUS, &replaced, NULL); /* the program was quicker */
    }
}

/* Only a handler on top goes; one under a handler of the program's stays, and hands on. */
static void give_back(void) /* [child] */
{
    struct sigaction now, replaced;
    if (sigaction(SIGBUS, NULL, &now) == -1)
        return;
    int i = level_of(&now);
    if (i == -1)
        return;
    (void)sigaction(SIGBUS, &levels[i].before, &replaced);
    if (level_of(&replaced) == i)
        levels[i].used = false;
    else
        (void)sigaction(SIGBUS, &replaced, NULL); /* the program was quicker */
}

void mapped_inspect(void)
{
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) == -1 || comes_to_us(&now))
        return;
    (void)pthread_mutex_lock(&lock);
    if (n_watched)
        take_signal();
    (void)pthread_mutex_unlock(&lock);
}

void mapped_stand_in(handler_fn *fn)
{
    atomic_store_explicit(&helper, fn, memory_order_release);
}

/* ---- what is watched ---- */

int mapped_watch(void *at, size_t bytes, const uint8_t head[MAPPED_HEAD])
{
    int rc = err_set(-ENOSPC, "too many files are mapped to be watched");
    atomic_store_explicit(&page_bytes, (uint32_t)getpagesize(), memory_order_relaxed);
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPPINGS_MAX && rc; i++) {
        struct mapping *p = &mappings[i];
        if (atomic_load_explicit(&p->at, memory_order_relaxed))
            continue;
        atomic_store_explicit(&p->bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&p->there, bytes, memory_order_relaxed);
        for (size_t k = 0; k < MAPPED_HEAD / 8; k++) {
            uint64_t word = 0;
            if (head)
                memcpy(&word, head + k * sizeof(word), sizeof(word));
            atomic_store_explicit(&p->head[k], word, memory_order_relaxed);
        }
        atomic_store_explicit(&p->lost, 0, memory_order_relaxed);
        atomic_store_explicit(&p->at, (uintptr_t)at, memory_order_release);
        n_watched++;
        take_signal();
        rc = 0;
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

void mapped_forget(const void *at)
{
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        if (at && atomic_load_explicit(&mappings[i].at, memory_order_relaxed) == (uintptr_t)at) {
            atomic_store_explicit(&mappings[i].at, 0, memory_order_release);
            n_watched--;
        }
    }
    if (n_watched == 0)
        give_back();
    (void)pthread_mutex_unlock(&lock);
}

uint64_t mapped_lost(const void *at)
{
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (at && atomic_load_explicit(&mappings[i].at, memory_order_acquire) == (uintptr_t)at)
            return atomic_load_explicit(&mappings[i].lost, memory_order_acquire);
    return 0;
}

void mapped_there(const void *at, size_t bytes)
{
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (at && atomic_load_explicit(&mappings[i].at, memory_order_acquire) == (uintptr_t)at)
            atomic_store_explicit(&mappings[i].there, bytes, memory_order_relaxed);
}

uint64_t mapped_resident(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        uintptr_t at = atomic_load_explicit(&mappings[i].at, memory_order_acquire);
        size_t bytes = atomic_load_explicit(&mappings[i].bytes, memory_order_relaxed);
        size_t there = atomic_load_explicit(&mappings[i].there, memory_order_relaxed);
        if (at)
            sum += proc_resident((const void *)at, there < bytes ? there : bytes);
    }
    return sum;
}

void mapped_disable_in_child(void)
{
    give_back();
    for (int i = 0; i < MAPPINGS_MAX; i++)
        atomic_store_explicit(&mappings[i].at, 0, memory_order_relaxed);
    n_watched = 0;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
