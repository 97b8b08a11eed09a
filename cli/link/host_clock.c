/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/host_clock.c - see host_clock.h.
 *
 * One thread.
 */
#include "cli/link/host_clock.h"

#include <string.h>

#include "core/base/clock.h"

#define CLOCK_LOOKS 8
#define CLOCK_NS (2 * NS_PER_S) /* a clock that takes longer is not waited for */

void peer_words(char *ret, size_t size, const char *text, size_t n)
{
    n = n < size - 1 ? n : size - 1;
    memcpy(ret, text, n);
    ret[n] = '\0';
    for (char *at = ret; *at != '\0'; at++)
        *at = (unsigned char)*at < ' ' || *at == 127 ? ' ' : *at;
}

void peer_reached(struct peer *p, const struct frame_hello *h, uint64_t now)
{
    p->state = PEER_REACHED;
    p->told.reached = true;
    peer_words(p->told.build, sizeof(p->told.build), h->build, strlen(h->build));
    peer_words(p->told.name, sizeof(p->told.name), h->text, strlen(h->text));
    p->reached_ns = now;
}

/* The other clock was read somewhere between our PING and its answer: taken as the middle, it is
 * wrong by half of the round trip at most.  The shortest one counts.  Of one clock that goes on any
 * two looks overlap: where they do not, it (or ours) has been set, and the later one counts. */
bool peer_take_pong(struct peer *p, const struct frame *f, uint64_t now, int64_t utc_ns)
{
    if (p->asked_ns == 0 || load_le64(f->data) != p->asked_ns)
        return false; /* an answer to nothing */
    int64_t trip = (int64_t)(now - p->asked_ns), error = trip / 2 + 1, offset, moved;
    int64_t there = (int64_t)(load_le64(f->data + 8) & INT64_MAX);
    bool number = !__builtin_sub_overflow(there, utc_ns - trip / 2, &offset);
    bool apart = __builtin_sub_overflow(offset, p->told.offset_ns, &moved) ||
                 moved > error + p->told.error_ns || moved < -error - p->told.error_ns;
    bool first = p->told.error_ns == LINK_UNKNOWN;
    p->asked_ns = 0;
    if (number && (first || trip < p->best_ns || apart)) {
        p->best_ns = trip;
        p->told.offset_ns = offset;
        p->told.error_ns = error;
    }
    return ++p->looks < CLOCK_LOOKS;
}

bool peer_is_known(const struct peer *p, uint64_t now)
{
    bool clock = p->looks >= CLOCK_LOOKS || now - p->reached_ns > CLOCK_NS;

    return p->state != PEER_REACHED || clock;
}
