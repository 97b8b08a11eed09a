/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/host_clock.h - a host as broker.c knows it: is it reached, does it live, what does its
 * clock say.
 *
 * One thread.  Nothing waits.
 */
#ifndef CLI_LINK_HOST_CLOCK_H
#define CLI_LINK_HOST_CLOCK_H

#include "cli/link/frame.h"
#include "cli/link/link.h"

struct peer {
    enum { PEER_AWAITED, PEER_REACHED, PEER_LOST } state;
    struct link_host told;
    uint64_t reached_ns, heard_ns, asked_ns; /* asked: the last PING, whose answer is awaited */
    uint32_t looks;                          /* at its clock, that came back */
    int64_t best_ns;                         /* shortest round trip */
    uint64_t unasked;                        /* bytes that came for streams that are no more */
};

/* A host's words in one line that steers no terminal. */
void peer_words(char *ret, size_t size, const char *text, size_t n);
void peer_reached(struct peer *p, const struct frame_hello *h, uint64_t now);
/* An answer to the PING at asked_ns came now (both clock_monotonic()), when our clock said utc_ns.
 * true: another look at its clock is wanted. */
bool peer_take_pong(struct peer *p, const struct frame *f, uint64_t now, int64_t utc_ns);
/* Is all known that is told of it as it is now?  What its clock says is waited for. */
bool peer_is_known(const struct peer *p, uint64_t now);

#endif
