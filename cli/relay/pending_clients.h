/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/pending_clients.h - connections to a relay that listens whose token has not come yet.
 * They cost a descriptor and some bytes each, no process; when there are too many, the oldest one
 * of the network that has most of them is closed.
 *
 * One thread.
 */
#ifndef CLI_RELAY_PENDING_CLIENTS_H
#define CLI_RELAY_PENDING_CLIENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sdk/lib/buf.h"

#define CALLERS_MAX 512 /* at once; fewer where the process may have fewer descriptors */
#define CALLER_ADDRESS_BYTES 64

struct caller {
    int fd;
    uint64_t number, since_ns; /* counted up: the oldest has the lowest */
    struct buf heard;
    uint32_t host; /* as it calls us */
    char address[CALLER_ADDRESS_BYTES];
    uint64_t network; /* a hash of it */
    uint32_t same;    /* callers of this network */
};

struct callers {
    struct caller list[CALLERS_MAX];
    uint32_t n;
    uint64_t last;
};

/* The network that an address counts for: its first 24 bits, of IPv6 56, which one owner has. */
void caller_name(const struct sockaddr_storage *at, socklen_t size, struct caller *ret);
/* Takes who->fd; where there is no place, another one's is closed. */
void callers_add(struct callers *c, const struct caller *who);
/* false: there is nobody. */
bool callers_put_one_out(struct callers *c);
/* Closes it: the last one comes to its place. */
void callers_forget(struct callers *c, uint32_t i);

enum caller_says {
    CALLER_WAITS,   /* it has not said all yet */
    CALLER_TOKEN,   /* this token: `heard` has it, and what may have come behind */
    CALLER_OTHER,   /* another one */
    CALLER_STRANGE, /* what no probing says */
    CALLER_ENDED
};
/* Read what has come. */
enum caller_says caller_listen(struct caller *who, const char *token);

#endif
