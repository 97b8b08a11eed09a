/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/altstack_pool.c - which thread has which alternate signal stack of ours.
 * The thread of the reports only.  A stack that a thread has made for itself is never touched; one
 * of ours is used again when its thread has gone from /proc, and unmapped when it was given back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/crash/internal.h"
#include "core/guest/headroom.h"
#include "core/stack/stack.h"

#define LOANS_MAX 2048u
/* Touched pages only are real.  A handler of the program's that runs on it may need room. */
#define ALTSTACK_BYTES ((size_t)256 << 10)
#define GUARD_BYTES ((size_t)64 << 10) /* a multiple of every page size */
#define ANSWER_NS (20 * NS_PER_MS)     /* for a thread that runs */
#define RETURN_NS (100 * NS_PER_MS)    /* for all threads to give theirs back, when we leave */
#define RETURN_NAP_NS (5 * NS_PER_MS)  /* for a thread that just waits in the wrong call */

struct altstack_entry {
    pid_t tid; /* 0: free */
    uint32_t kind;
    void *memory;    /* of a free one too */
    bool seen, ours; /* ours: needs none, and its name is not read again */
};

struct altstack_pool {
    struct altstack_entry list[LOANS_MAX];
    uint32_t n; /* ever used */
    _Atomic uint32_t count[ALTSTACK_KINDS];
    pid_t tids[LOANS_MAX];
};

int altstack_pool_new(struct altstack_pool **ret)
{
    struct altstack_pool *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(-ENOMEM, "no memory for a list of threads");
    *ret = l;
    return 0;
}

void altstack_pool_free(struct altstack_pool *l)
{
    free(l);
}

void altstack_pool_count(const struct altstack_pool *l, uint32_t ret[ALTSTACK_KINDS])
{
    for (int i = 0; i < ALTSTACK_KINDS; i++)
        ret[i] = atomic_load_explicit(&l->count[i], memory_order_relaxed);
}

static void *memory_new(void)
{
    if (!room_claim(ROOM_MAPPINGS, 2) || !room_claim(ROOM_DATA, ALTSTACK_BYTES))
        return NULL;
    char *memory = mmap(NULL, ALTSTACK_BYTES + GUARD_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (mprotect(memory + GUARD_BYTES, ALTSTACK_BYTES, PROT_READ | PROT_WRITE) == -1) {
        (void)munmap(memory, ALTSTACK_BYTES + GUARD_BYTES);
        return NULL;
    }
    return memory + GUARD_BYTES;
}

static void memory_free(struct altstack_entry *o)
{
    if (o->memory)
        (void)munmap((char *)o->memory - GUARD_BYTES, ALTSTACK_BYTES + GUARD_BYTES);
    o->memory = NULL;
}

/* Lists come in the same order as last time, nearly: look from where the last one was. */
static struct altstack_entry *find_entry(struct altstack_pool *l, pid_t tid, uint32_t *hint)
{
    for (uint32_t i = 0; i < l->n; i++) {
        struct altstack_entry *o = &l->list[(*hint + i) % l->n];
        if (o->tid == tid) {
            *hint += i + 1;
            return o;
        }
    }
    return NULL;
}

static struct altstack_entry *altstack_entry_new(struct altstack_pool *l, pid_t tid)
{
    struct altstack_entry *o = NULL;
    for (uint32_t i = 0; i < l->n && !o; i++)
        o = l->list[i].tid == 0 ? &l->list[i] : NULL;
    if (!o && l->n < LOANS_MAX)
        o = &l->list[l->n++];
    if (o) {
        o->tid = tid;
        o->kind = ALTSTACK_NONE;
    }
    return o;
}

static void lend_stack(struct altstack_entry *o)
{
    char comm[16];
    if (!o->ours)
        task_comm(o->tid, comm);
    if (o->ours || task_is_ours(comm)) {
        o->ours = true;
        memory_free(o);
        return;
    }
    if (!o->memory)
        o->memory = memory_new();
    if (!o->memory)
        return;
    int rc = altstack_give(o->tid, o->memory, ALTSTACK_BYTES, /* take_back= */ false, ANSWER_NS);
    if (rc == 1)
        o->kind = ALTSTACK_GIVEN;
    else if (rc == 0)
        o->kind = ALTSTACK_OWN;
    if (o->kind == ALTSTACK_OWN)
        memory_free(o);
}

/* Gives how many could not be reached; those that do not run cost time, so not all may be asked. */
static uint32_t take_back(struct altstack_pool *l, uint64_t end)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < l->n && (left == 0 || clock_monotonic() < end); i++) {
        struct altstack_entry *o = &l->list[i];
        if (o->tid == 0 || o->kind != ALTSTACK_GIVEN)
            continue;
        int rc = altstack_give(o->tid, o->memory, ALTSTACK_BYTES, /* take_back= */ true, ANSWER_NS);
        if (rc >= 0 || rc == -ESRCH)
            o->kind = ALTSTACK_NONE; /* given back, it has taken another itself, or gone */
        else
            left++; /* it has ours still: also where the program has taken our signal (-EBUSY) */
    }
    return left;
}

void altstack_pool_maintain(struct altstack_pool *l, const _Atomic bool *wanted)
{
    uint32_t hint = 0, count[ALTSTACK_KINDS] = {0};
    bool more, on = atomic_load_explicit(wanted, memory_order_relaxed);
    if (!on) {
        altstack_pool_end(l);
        return;
    }
    uint32_t n = task_list(l->tids, LOANS_MAX, &more);
    for (uint32_t i = 0; i < l->n; i++)
        l->list[i].seen = false;
    for (uint32_t i = 0; i < n; i++) {
        struct altstack_entry *o = find_entry(l, l->tids[i], &hint);
        if (!o)
            o = altstack_entry_new(l, l->tids[i]);
        if (!o)
            break;
        o->seen = true;
        if (o->kind == ALTSTACK_NONE)
            lend_stack(o);
        count[o->kind] += o->memory || o->kind == ALTSTACK_OWN;
    }
    for (uint32_t i = 0; i < l->n; i++)
        if (!l->list[i].seen)
            l->list[i].tid = 0;
    for (int i = 0; i < ALTSTACK_KINDS; i++)
        atomic_store_explicit(&l->count[i], count[i], memory_order_relaxed);
}

/* A stack that a thread still has stays mapped: it may crash on it yet. */
void altstack_pool_end(struct altstack_pool *l)
{
    const struct timespec nap = {.tv_nsec = RETURN_NAP_NS};
    uint64_t end = clock_monotonic() + RETURN_NS;
    while (take_back(l, end) > 0 && clock_monotonic() < end)
        (void)nanosleep(&nap, NULL);
    for (uint32_t i = 0; i < l->n; i++) {
        struct altstack_entry *o = &l->list[i];
        if (o->tid == 0 || o->kind == ALTSTACK_NONE)
            memory_free(o);
    }
    l->n = 0;
    memset(l->list, 0, sizeof(l->list));
    for (int i = 0; i < ALTSTACK_KINDS; i++)
        atomic_store_explicit(&l->count[i], 0, memory_order_relaxed);
}
