/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/events.c - NCCL's events: begun, changed, ended.
 *
 * Any thread of NCCL and of the program, several at once, also of one communicator.  No lock,
 * nothing allocated, no system call but the clock's, which is none.  Nothing is believed of a
 * handle: it is numbers, looked up and compared with the life that the slot is in.
 */
#include <string.h>
#include <time.h>

#include "callbacks/profiler_abi.h"
#include "lib/hash.h"
#include "probing_sdk.h"
#include "record/recorder.h"

/* A handle: communicator 10 bits, kind 3, slot 14, step 3, generation 29. */
struct handle {
    uint32_t comm, kind, slot, step, generation;
};

static uint64_t handle_make(const struct comm *c, uint32_t kind, uint32_t slot, uint32_t step,
                            uint32_t generation)
{
    return (uint64_t)c->index << 49 | (uint64_t)kind << 46 | (uint64_t)slot << 32 |
           (uint64_t)step << 29 | generation;
}

static struct handle handle_parts(uint64_t h)
{
    return (struct handle){.comm = (uint32_t)(h >> 49) & 0x3ff,
                           .kind = (uint32_t)(h >> 46) & 7,
                           .slot = (uint32_t)(h >> 32) & 0x3fff,
                           .step = (uint32_t)(h >> 29) & 7,
                           .generation = (uint32_t)h & SLOT_GENERATIONS};
}

static uint64_t now_ns(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

/* ---- texts ---- */

static void text_set(struct text_field *t, const char *text)
{
    union {
        char bytes[TEXT_BYTES];
        uint64_t half[TEXT_BYTES / 8];
    } copy = {.half = {0, 0}};
    for (uint32_t i = 0; text && i < TEXT_BYTES && text[i]; i++)
        copy.bytes[i] = text[i];
    for (uint32_t i = 0; i < TEXT_BYTES / 8; i++)
        field_set(&t->half[i], copy.half[i]);
}

void text_clean(char *text)
{
    for (char *at = text; *at; at++)
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
}

void text_read(const struct text_field *t, char *ret)
{
    for (uint32_t i = 0; i < TEXT_BYTES / 8; i++) {
        uint64_t half = field(&t->half[i]);
        memcpy(ret + i * 8, &half, 8);
    }
    ret[TEXT_BYTES] = '\0';
    text_clean(ret);
}

/* ---- slots of handles ---- */

static struct comm *comm_of(struct recorder *r, const struct handle *h)
{
    return atomic_load_explicit(&r->comms[h->comm], memory_order_acquire);
}

static struct pool *pool_of(struct comm *c, uint32_t kind)
{
    struct pools *p = atomic_load_explicit(&c->pools, memory_order_acquire);
    if (!p)
        return NULL;
    switch (kind) {
    case EVENT_OP:
        return &p->op;
    case EVENT_PROXY:
    case EVENT_STEP:
        return &p->proxy;
    case EVENT_KERNEL:
        return &p->kernel;
    case EVENT_NET:
        return &p->net;
    default: /* not one of ours */
        return NULL;
    }
}

/* NULL: it is not under way. */
static struct slot *slot_of(struct recorder *r, const struct handle *h, struct comm **ret_comm)
{
    struct comm *c = comm_of(r, h);
    struct pool *p = c ? pool_of(c, h->kind) : NULL;
    *ret_comm = c;
    if (!p || h->slot >= atomic_load_explicit(&p->fresh, memory_order_acquire))
        return NULL;
    struct slot *s = pool_slot(p, h->slot);
    return slot_is_live(s, h->generation) ? s : NULL;
}

static struct op_slot *parent_of(struct recorder *r, uint64_t handle, struct handle *ret,
                                 struct comm **ret_comm)
{
    *ret = handle_parts(handle);
    struct slot *s = ret->kind == EVENT_OP ? slot_of(r, ret, ret_comm) : NULL;
    return (struct op_slot *)(void *)s;
}

/* Events are taken, and there is room.  Else NULL, and what was dropped is counted. */
static struct slot *take_slot(struct comm *c, uint32_t kind, uint32_t *ret_number,
                              uint32_t *ret_generation)
{
    if (!atomic_load_explicit(&c->recorder->on, memory_order_relaxed) ||
        atomic_load_explicit(&c->state, memory_order_acquire) != COMM_OPEN)
        return NULL;
    struct pool *p = pool_of(c, kind);
    *ret_number = p ? pool_take(p, ret_generation) : SLOT_NONE;
    if (*ret_number != SLOT_NONE)
        return pool_slot(p, *ret_number);
    comm_count(c, COUNT_NO_ROOM);
    return NULL;
}

/* Unique while the process lives, with the communicator's number in it. */
static uint64_t new_id(struct comm *c)
{
    return atomic_load_explicit(&c->serial, memory_order_relaxed) << 36 |
           (atomic_fetch_add_explicit(&c->ids, 1, memory_order_relaxed) + 1);
}

uint64_t record_group(void)
{
    return (uint64_t)EVENT_GROUP << 46;
}

/* ---- operations ---- */

/* NCCL tells nothing more of these after they are queued: copy engines, graphs over symmetric
 * memory, and what a rank sends to itself. */
static bool is_silent(const struct op_slot *op, uint64_t progress)
{
    return field(&op->kind) == OP_CE || (progress & PROGRESS_UNTOLD) ||
           (field(&op->kind) == OP_P2P && field(&op->peer) == field(&op->rank));
}

static bool op_has_ended(const struct op_slot *op, uint64_t progress)
{
    uint64_t channels = field(&op->channels);
    if (!(progress & PROGRESS_STOPPED) || PROGRESS_COUNT(progress, PROGRESS_LIVE))
        return false;
    return is_silent(op, progress) ||
           (channels && PROGRESS_COUNT(progress, PROGRESS_KERNEL) >= channels);
}

bool op_close(struct comm *c, uint32_t number, uint32_t generation)
{
    struct pool *p = pool_of(c, EVENT_OP);
    struct op_slot *op = (struct op_slot *)(void *)pool_slot(p, number);
    if (!slot_end(&op->slot, generation))
        return false;
    (void)atomic_fetch_or_explicit(&op->progress, PROGRESS_CLOSED, memory_order_relaxed);
    pool_give_up(p, number);
    return true;
}

/* Advance the life that the handle is of; false: that one is over. */
static bool op_advance(struct op_slot *op, uint32_t generation, uint64_t set, uint64_t ended,
                       int live, uint64_t *ret)
{
    uint64_t old = atomic_load_explicit(&op->progress, memory_order_relaxed), next;
    do {
        if (((old ^ PROGRESS_LIFE(generation)) & PROGRESS_LIFE(UINT32_MAX)) ||
            (old & PROGRESS_CLOSED) || (live < 0 && PROGRESS_COUNT(old, PROGRESS_LIVE) == 0))
            return false;
        next = (old | set) + (uint64_t)(int64_t)live;
        if (ended && PROGRESS_COUNT(old, ended) < 0xffff)
            next += ended;
    } while (!atomic_compare_exchange_weak_explicit(&op->progress, &old, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    *ret = next;
    return true;
}

static void learn_comm(struct comm *c, const struct op_about *about)
{
    if (about->comm_hash && !field(&c->hash))
        atomic_store_explicit(&c->hash, about->comm_hash, memory_order_relaxed);
    if (atomic_load_explicit(&c->rank, memory_order_relaxed) < 0)
        atomic_store_explicit(&c->rank, about->rank, memory_order_relaxed);
}

static bool is_same_call(const struct op_slot *a, const struct op_slot *b)
{
    bool same = field(&a->seq) == field(&b->seq);
    for (uint32_t i = 0; same && i < TEXT_BYTES / 8; i++)
        same = field(&a->func.half[i]) == field(&b->func.half[i]);
    return same;
}

/* NCCL counts what the program calls, and not what a CUDA graph launches: two of one number are
 * launches.  NCCL never tells of their kernels over symmetric memory (2.32), and they would be in
 * flight for ever. */
static void find_launches(struct comm *c, struct op_slot *op, uint64_t handle)
{
    struct handle h;
    struct comm *of;
    uint64_t key = hash_spread(field(&op->func.half[0]));
    struct op_slot *before = parent_of(
        c->recorder,
        atomic_exchange_explicit(&c->symmetric[key >> 60], handle, memory_order_acq_rel), &h, &of);
    uint64_t progress;
    if (!before || of != c || !is_same_call(before, op))
        return;
    (void)op_advance(op, handle_parts(handle).generation, PROGRESS_UNTOLD, 0, 0, &progress);
    if (op_advance(before, h.generation, PROGRESS_UNTOLD, 0, 0, &progress) &&
        op_has_ended(before, progress))
        (void)op_close(c, h.slot, h.generation);
}

uint64_t record_op(struct comm *c, const struct op_about *about)
{
    uint32_t number, generation;
    struct slot *s = c ? take_slot(c, EVENT_OP, &number, &generation) : NULL;
    if (!s)
        return 0;
    struct op_slot *op = (struct op_slot *)(void *)s;
    uint64_t at = now_ns();
    learn_comm(c, about);
    comm_count(c, COUNT_OPS);
    text_set(&op->func, about->func);
    text_set(&op->datatype, about->datatype);
    text_set(&op->algo, about->algo);
    text_set(&op->proto, about->proto);
    field_set(&op->id, new_id(c));
    field_set(&op->kind, (uint64_t)about->kind);
    field_set(&op->has_seq, about->has_seq);
    field_set(&op->seq, about->seq);
    field_set(&op->count, about->count);
    field_set(&op->channels, about->channels);
    field_set(&op->rank, (uint64_t)(int64_t)about->rank);
    field_set(&op->peer, (uint64_t)(int64_t)about->peer);
    field_set(&op->start_ns, at);
    field_set(&op->moved_ns, at);
    field_set(&op->enqueued_ns, 0);
    for (uint32_t i = 0; i < 2; i++) {
        field_set(&op->first_ns[i], 0);
        field_set(&op->last_ns[i], 0);
    }
    field_set(&op->gpu_first_ns, 0);
    field_set(&op->gpu_last_ns, 0);
    field_set(&op->lost, 0);
    field_set(&op->told_ns, 0);
    field_set(&op->aborted, 0);
    field_set(&op->symmetric, about->symmetric);
    field_set(&op->user_tag, about->user_tag);
    field_set(&op->progress, PROGRESS_LIFE(generation));
    slot_publish(s, generation);
    uint64_t handle = handle_make(c, EVENT_OP, number, 0, generation);
    if (about->symmetric)
        find_launches(c, op, handle);
    return handle;
}

/* ---- what an operation has done by others ---- */

static bool child_begins(struct op_slot *op, uint32_t generation, uint32_t of_kernel, uint64_t at)
{
    uint64_t progress;
    if (!op_advance(op, generation, 0, 0, 1, &progress))
        return false;
    field_min(&op->first_ns[of_kernel], at);
    field_set(&op->moved_ns, at);
    return true;
}

static void child_ends(struct recorder *r, uint64_t parent, uint32_t of_kernel, uint64_t at)
{
    struct handle h;
    struct comm *c;
    uint64_t progress;
    struct op_slot *op = parent_of(r, parent, &h, &c);
    if (!op)
        return;
    field_max(&op->last_ns[of_kernel], at);
    field_set(&op->moved_ns, at);
    if (op_advance(op, h.generation, 0, of_kernel ? PROGRESS_KERNEL : PROGRESS_PROXY, -1,
                   &progress) &&
        op_has_ended(op, progress))
        (void)op_close(c, h.slot, h.generation);
}

uint64_t record_kernel(struct comm *c, uint64_t parent, uint64_t gpu_ns)
{
    uint32_t number, generation;
    struct handle h;
    struct comm *of;
    if (!c)
        return 0;
    struct slot *s = take_slot(c, EVENT_KERNEL, &number, &generation);
    struct op_slot *op = parent_of(c->recorder, parent, &h, &of);
    if (!s) {
        if (op)
            field_add(&op->lost, 1);
        return 0;
    }
    struct kernel_slot *k = (struct kernel_slot *)(void *)s;
    uint64_t at = now_ns();
    comm_count(c, COUNT_KERNELS);
    bool joined = op && child_begins(op, h.generation, 1, at);
    if (joined && gpu_ns)
        field_min(&op->gpu_first_ns, gpu_ns);
    field_set(&k->op, joined ? parent : 0);
    field_set(&k->start_ns, at);
    field_set(&k->gpu_start_ns, gpu_ns);
    field_set(&k->gpu_end_ns, 0);
    slot_publish(s, generation);
    return handle_make(c, EVENT_KERNEL, number, 0, generation);
}

void record_kernel_end(struct recorder *r, uint64_t handle, uint64_t gpu_ns)
{
    const struct handle h = handle_parts(handle);
    struct comm *c;
    struct slot *s = h.kind == EVENT_KERNEL ? slot_of(r, &h, &c) : NULL;
    if (s)
        field_set(&((struct kernel_slot *)(void *)s)->gpu_end_ns, gpu_ns);
}

static void stop_kernel(struct comm *c, struct kernel_slot *k, uint32_t number)
{
    struct handle h;
    struct comm *of;
    uint64_t parent = field(&k->op), gpu_ns = field(&k->gpu_end_ns);
    struct op_slot *op = parent ? parent_of(c->recorder, parent, &h, &of) : NULL;
    if (op && gpu_ns)
        field_max(&op->gpu_last_ns, gpu_ns);
    pool_free(pool_of(c, EVENT_KERNEL), number);
    if (parent)
        child_ends(c->recorder, parent, 1, now_ns());
}

/* ---- proxies and their steps ---- */

static void copy_parent(struct proxy_slot *p, const struct op_slot *op)
{
    static const struct text_field none;
    const struct text_field *func = op ? &op->func : &none;
    for (uint32_t i = 0; i < TEXT_BYTES / 8; i++)
        field_set(&p->func.half[i], field(&func->half[i]));
    field_set(&p->op_id, op ? field(&op->id) : 0);
    field_set(&p->has_seq, op ? field(&op->has_seq) : 0);
    field_set(&p->seq, op ? field(&op->seq) : 0);
}

uint64_t record_proxy(struct comm *c, const struct proxy_about *about)
{
    uint32_t number, generation;
    struct handle h;
    struct comm *of;
    if (!c)
        return 0;
    struct slot *s = take_slot(c, EVENT_PROXY, &number, &generation);
    /* With PXN a proxy works for another process, whose handles are not ours. */
    bool ours = about->pid == atomic_load_explicit(&c->recorder->pid, memory_order_relaxed);
    struct op_slot *op = ours ? parent_of(c->recorder, about->parent, &h, &of) : NULL;
    if (!s) {
        if (op)
            field_add(&op->lost, 1);
        return 0;
    }
    struct proxy_slot *p = (struct proxy_slot *)(void *)s;
    uint64_t at = now_ns();
    comm_count(c, COUNT_PROXIES);
    copy_parent(p, op);
    field_set(&p->id, new_id(c));
    bool joined = op && child_begins(op, h.generation, 0, at);
    field_set(&p->op, joined ? about->parent : 0);
    field_set(&p->rank, (uint64_t)(int64_t)about->rank);
    field_set(&p->peer, (uint64_t)(int64_t)about->peer);
    field_set(&p->channel, (uint64_t)(int64_t)about->channel);
    field_set(&p->is_send, about->is_send);
    field_set(&p->n_steps, (uint64_t)(int64_t)about->n_steps);
    field_set(&p->chunk, (uint64_t)(int64_t)about->chunk_bytes);
    field_set(&p->start_ns, at);
    field_set(&p->end_ns, 0);
    field_set(&p->bytes, 0);
    field_set(&p->steps, 0);
    field_set(&p->told_ns, 0);
    for (uint32_t i = 0; i < WAITS; i++)
        field_set(&p->waits_ns[i], 0);
    for (uint32_t i = 0; i < STEPS; i++)
        field_set(&p->step[i].state, 0);
    slot_publish(s, generation);
    return handle_make(c, EVENT_PROXY, number, 0, generation);
}

/* The time in the state that it leaves is one of its operation's waits. */
static void step_enter(struct proxy_slot *p, struct step_slot *step, uint64_t state, uint64_t at)
{
    uint64_t before = field(&step->state), since = field(&step->since_ns);
    if (before >= 2 && at > since)
        field_add(&p->waits_ns[before - 2], at - since);
    field_set(&step->since_ns, at);
    field_set(&step->state, state);
}

uint64_t record_step(struct recorder *r, uint64_t proxy, int number)
{
    struct handle h = handle_parts(proxy);
    struct comm *c;
    struct slot *s = h.kind == EVENT_PROXY ? slot_of(r, &h, &c) : NULL;
    if (!s)
        return 0;
    struct proxy_slot *p = (struct proxy_slot *)(void *)s;
    uint32_t at = (uint32_t)number % STEPS; /* as NCCL keeps them */
    if (field(&p->step[at].state))
        comm_count(c, COUNT_STOPS_MISSING);
    comm_count(c, COUNT_STEPS);
    field_add(&p->steps, 1);
    step_enter(p, &p->step[at], 1, now_ns());
    return handle_make(c, EVENT_STEP, h.slot, at, h.generation);
}

static int wait_of_state(int state)
{
    switch (state) {
    case NCCL_STEP_SEND_GPU_WAIT:
        return WAIT_SEND_GPU;
    case NCCL_STEP_SEND_PEER_WAIT:
        return WAIT_SEND_PEER;
    case NCCL_STEP_SEND_WAIT:
        return WAIT_SEND;
    case NCCL_STEP_RECV_WAIT:
        return WAIT_RECV;
    case NCCL_STEP_RECV_FLUSH_WAIT:
        return WAIT_RECV_FLUSH;
    case NCCL_STEP_RECV_GPU_WAIT:
        return WAIT_RECV_GPU;
    default: /* of another kind of event, or newer than this */
        return -1;
    }
}

void record_state(struct recorder *r, uint64_t handle, int state, uint64_t bytes, bool total)
{
    const struct handle h = handle_parts(handle);
    struct comm *c;
    struct slot *s = slot_of(r, &h, &c);
    if (!s || (h.kind != EVENT_PROXY && h.kind != EVENT_STEP)) {
        if (c && !s)
            comm_count(c, COUNT_UNKNOWN);
        return;
    }
    struct proxy_slot *p = (struct proxy_slot *)(void *)s;
    int wait = wait_of_state(state);
    if (total && bytes)
        field_max(&p->bytes, bytes);
    if (h.kind != EVENT_STEP)
        return;
    if (wait < 0) {
        comm_count(c, COUNT_UNKNOWN);
        return;
    }
    /* NCCL knows a step's size when it is handed to the network, or has come from there. */
    if (!total && (wait == WAIT_SEND || wait == WAIT_RECV_FLUSH))
        field_add(&p->bytes, bytes);
    step_enter(p, &p->step[h.step], 2 + (uint64_t)wait, now_ns());
}

static void stop_proxy(struct comm *c, struct proxy_slot *p, uint32_t number)
{
    uint64_t at = now_ns(), parent = field(&p->op);
    for (uint32_t i = 0; i < STEPS; i++)
        if (field(&p->step[i].state)) {
            comm_count(c, COUNT_STOPS_MISSING);
            step_enter(p, &p->step[i], 0, at);
        }
    field_set(&p->end_ns, at);
    pool_give_up(pool_of(c, EVENT_PROXY), number);
    if (parent)
        child_ends(c->recorder, parent, 0, at);
}

/* ---- the network's own ---- */

uint64_t record_net(struct comm *c, const struct net_about *about)
{
    uint32_t number, generation;
    struct slot *s = c ? take_slot(c, EVENT_NET, &number, &generation) : NULL;
    if (!s)
        return 0;
    struct net_slot *n = (struct net_slot *)(void *)s;
    comm_count(c, COUNT_NETS);
    field_set(&n->rank, (uint64_t)(int64_t)about->rank);
    field_set(&n->device, (uint64_t)(int64_t)about->device);
    field_set(&n->opcode, (uint64_t)(int64_t)about->opcode);
    field_set(&n->qp_num, (uint64_t)(int64_t)about->qp_num);
    field_set(&n->wr_id, about->wr_id);
    field_set(&n->length, about->length);
    field_set(&n->end_ns, 0);
    field_set(&n->start_ns, now_ns());
    slot_publish(s, generation);
    return handle_make(c, EVENT_NET, number, 0, generation);
}

/* ---- the end of any of them ---- */

static void stop_op(struct comm *c, struct op_slot *op, const struct handle *h)
{
    uint64_t at = now_ns(), progress;
    /* Once is enough: it goes on after that. */
    if ((atomic_load_explicit(&op->progress, memory_order_relaxed) & PROGRESS_STOPPED)) {
        comm_count(c, COUNT_UNKNOWN);
        return;
    }
    field_set(&op->enqueued_ns, at);
    field_set(&op->moved_ns, at);
    if (op_advance(op, h->generation, PROGRESS_STOPPED, 0, 0, &progress) &&
        op_has_ended(op, progress))
        (void)op_close(c, h->slot, h->generation);
}

void record_stop(struct recorder *r, uint64_t handle)
{
    const struct handle h = handle_parts(handle);
    struct comm *c;
    if (h.kind == EVENT_GROUP)
        return;
    struct slot *s = slot_of(r, &h, &c);
    if (!s) {
        if (c)
            comm_count(c, COUNT_UNKNOWN);
        return;
    }
    if (h.kind == EVENT_OP) {
        stop_op(c, (struct op_slot *)(void *)s, &h);
    } else if (h.kind == EVENT_STEP) {
        struct proxy_slot *p = (struct proxy_slot *)(void *)s;
        step_enter(p, &p->step[h.step], 0, now_ns());
    } else if (slot_end(s, h.generation)) {
        if (h.kind == EVENT_PROXY)
            stop_proxy(c, (struct proxy_slot *)(void *)s, h.slot);
        else if (h.kind == EVENT_KERNEL)
            stop_kernel(c, (struct kernel_slot *)(void *)s, h.slot);
        else {
            field_set(&((struct net_slot *)(void *)s)->end_ns, now_ns());
            pool_give_up(pool_of(c, EVENT_NET), h.slot);
        }
    }
}

/* ---- nobody reads it ---- */

static void discard_events(struct pool *p)
{
    for (uint32_t at = pool_take_done(p); at;) {
        uint32_t number = at - 1;
        at = atomic_load_explicit(&pool_slot(p, number)->next, memory_order_relaxed);
        pool_free(p, number);
    }
    uint32_t fresh = atomic_load_explicit(&p->fresh, memory_order_acquire);
    for (uint32_t i = 0; i < fresh; i++) {
        struct slot *s = pool_slot(p, i);
        uint32_t head = atomic_load_explicit(&s->head, memory_order_acquire);
        if (slot_state(head) == SLOT_LIVE && slot_end(s, slot_generation(head)))
            pool_free(p, i);
    }
}

void comm_discard(struct comm *c)
{
    struct pools *p = atomic_load_explicit(&c->pools, memory_order_acquire);
    if (!p)
        return;
    discard_events(&p->op);
    discard_events(&p->proxy);
    discard_events(&p->kernel);
    discard_events(&p->net);
}
