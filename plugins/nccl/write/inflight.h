/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/inflight.h - what is under way now: copies of slots whose events have begun
 * and not ended.
 *
 * Any thread: nothing is changed, and nobody waits.
 */
#ifndef NCCL_INFLIGHT_H
#define NCCL_INFLIGHT_H

#include "record/recorder.h"

enum inflight_state {
    INFLIGHT_ENQUEUING, /* NCCL has not queued it yet */
    INFLIGHT_ENQUEUED,  /* queued; the GPU has not begun it */
    INFLIGHT_RUNNING,   /* some of it has begun */
    INFLIGHT_ENDING,    /* all that began has ended; not all has begun, or it is not known */
    INFLIGHT_POSTED,    /* a proxy without a step */
    INFLIGHT_WAITS      /* + enum wait: what the oldest step of a proxy waits for */
};

struct inflight {
    enum event_kind event; /* EVENT_OP or EVENT_PROXY */
    enum op_kind kind;
    uint32_t number, generation; /* of its slot */
    char func[TEXT_BYTES + 1];
    uint64_t id, seq, start_ns, enqueued_ns, moved_ns, channels, progress, told_ns;
    uint64_t waits_ns;           /* since when it is in that state */
    int64_t rank, peer, channel; /* channel: of a proxy */
    bool has_seq, is_send;
    int state; /* enum inflight_state */
};

/* Look at a slot; false: nothing is under way there. */
bool inflight_op(struct pool *p, uint32_t number, struct inflight *ret);
bool inflight_proxy(struct pool *p, uint32_t number, struct inflight *ret);
const char *inflight_state_name(int state);
/* The rank that is waited for; INT64_MIN: nobody's, or it is not known. */
int64_t wait_culprit(enum wait wait, int64_t rank, int64_t peer);
int64_t inflight_culprit(const struct inflight *f);

#endif
