/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/inflight.c - copies of slots whose events are under way.
 *
 * Any thread.  A slot's head is read before and after its fields: where it has changed, the copy is
 * of two lives, and nobody's.
 */
#include "write/inflight.h"

static int op_state(const struct inflight *f)
{
    if (!(f->progress & PROGRESS_STOPPED))
        return INFLIGHT_ENQUEUING;
    if (PROGRESS_COUNT(f->progress, PROGRESS_LIVE))
        return INFLIGHT_RUNNING;
    return PROGRESS_COUNT(f->progress, PROGRESS_KERNEL) ||
                   PROGRESS_COUNT(f->progress, PROGRESS_PROXY)
               ? INFLIGHT_ENDING
               : INFLIGHT_ENQUEUED;
}

/* The slot's life; false: it is not under way. */
static bool begin_copy(struct pool *p, uint32_t number, struct slot **ret, uint32_t *ret_head)
{
    *ret = pool_slot(p, number);
    *ret_head = atomic_load_explicit(&(*ret)->head, memory_order_acquire);
    return slot_state(*ret_head) == SLOT_LIVE;
}

static bool is_whole(const struct slot *s, uint32_t head)
{
    return atomic_load_explicit(&s->head, memory_order_acquire) == head;
}

bool inflight_op(struct pool *p, uint32_t number, struct inflight *ret)
{
    struct slot *s;
    uint32_t head;
    if (!begin_copy(p, number, &s, &head))
        return false;
    const struct op_slot *op = (struct op_slot *)(void *)s;
    *ret = (struct inflight){.event = EVENT_OP,
                             .kind = (enum op_kind)field(&op->kind),
                             .number = number,
                             .generation = slot_generation(head),
                             .id = field(&op->id),
                             .has_seq = field(&op->has_seq) != 0,
                             .seq = field(&op->seq),
                             .start_ns = field(&op->start_ns),
                             .enqueued_ns = field(&op->enqueued_ns),
                             .moved_ns = field(&op->moved_ns),
                             .channels = field(&op->channels),
                             .progress = field(&op->progress),
                             .told_ns = field(&op->told_ns),
                             .rank = (int64_t)field(&op->rank),
                             .peer = (int64_t)field(&op->peer)};
    text_read(&op->func, ret->func);
    ret->waits_ns = ret->moved_ns;
    ret->state = op_state(ret);
    return is_whole(s, head);
}

static void oldest_step(const struct proxy_slot *p, struct inflight *ret)
{
    ret->state = INFLIGHT_POSTED;
    ret->waits_ns = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        uint64_t state = field(&p->step[i].state), since = field(&p->step[i].since_ns);
        if (state < 2 || state >= 2 + WAITS || (ret->waits_ns && since >= ret->waits_ns))
            continue;
        ret->state = INFLIGHT_WAITS + (int)state - 2;
        ret->waits_ns = since;
    }
    if (!ret->waits_ns)
        ret->waits_ns = ret->start_ns;
}

bool inflight_proxy(struct pool *p, uint32_t number, struct inflight *ret)
{
    struct slot *s;
    uint32_t head;
    if (!begin_copy(p, number, &s, &head))
        return false;
    const struct proxy_slot *x = (struct proxy_slot *)(void *)s;
    *ret = (struct inflight){.event = EVENT_PROXY,
                             .number = number,
                             .generation = slot_generation(head),
                             .id = field(&x->id),
                             .has_seq = field(&x->has_seq) != 0,
                             .seq = field(&x->seq),
                             .start_ns = field(&x->start_ns),
                             .told_ns = field(&x->told_ns),
                             .rank = (int64_t)field(&x->rank),
                             .peer = (int64_t)field(&x->peer),
                             .channel = (int64_t)field(&x->channel),
                             .is_send = field(&x->is_send) != 0};
    text_read(&x->func, ret->func);
    oldest_step(x, ret);
    return is_whole(s, head);
}

const char *inflight_state_name(int state)
{
    static const char *const names[] = {"enqueuing",       "enqueued",     "running",
                                        "ending",          "posted",       "send_gpu_wait",
                                        "send_peer_wait",  "send_wait",    "recv_wait",
                                        "recv_flush_wait", "recv_gpu_wait"};
    return state >= 0 && (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : NULL;
}

int64_t wait_culprit(enum wait wait, int64_t rank, int64_t peer)
{
    switch (wait) {
    case WAIT_SEND_GPU:
    case WAIT_RECV_GPU:
        return rank;
    case WAIT_SEND_PEER:
    case WAIT_RECV:
        return peer;
    case WAIT_SEND:
    case WAIT_RECV_FLUSH:
    case WAITS:
        break;
    }
    return INT64_MIN;
}

int64_t inflight_culprit(const struct inflight *f)
{
    if (f->event != EVENT_PROXY || f->state < INFLIGHT_WAITS)
        return INT64_MIN;
    return wait_culprit((enum wait)(f->state - INFLIGHT_WAITS), f->rank, f->peer);
}
