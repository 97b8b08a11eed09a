/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/tcp_sockets.h - the process's own TCP connections, as the kernel counts them:
 * what `ss -ti` shows, for one process and without its tools.
 *
 * A socket is asked by its number in /proc/self/fd, with getsockopt(TCP_INFO), getsockname() and
 * getpeername() only.  No descriptor is kept or duplicated.  The program may close one between two
 * of these calls, and give its number to another file: of what is no TCP socket they only fail, and
 * of another TCP socket the two names differ, so that it is left out until the next look.
 */
#ifndef SYSTEM_TCP_SOCKETS_H
#define SYSTEM_TCP_SOCKETS_H

#include "internal.h"

struct tcp_end {
    uint8_t address[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
    uint32_t port;
};

struct tcp_socket {
    struct tcp_end local, peer;
    bool connected;     /* it has a peer */
    uint32_t fd, state; /* TCP_ESTABLISHED ...: netinet/tcp.h */
    /* UNKNOWN: this kernel does not say, or nothing has been measured yet. */
    uint64_t rtt_ns, rttvar_ns, min_rtt_ns, rto_ns; /* min: of the last five minutes */
    uint64_t rx_bytes, tx_bytes;                    /* tx: acknowledged by the peer */
    uint64_t tx_segs, retrans_segs;                 /* tx: those with data */
    uint64_t unacked_segs, notsent_bytes;
    uint64_t timeouts;                         /* in a row, as nothing is acknowledged any more */
    uint64_t cwnd_segs, mss_bytes, rate_bytes; /* rate: at which the last data were delivered */
    uint64_t busy_ns;                          /* in which data were under way */
    uint64_t sent_ago_ns, received_ago_ns;
};

#define TCP_ADDRESS_BYTES 48

/* Is there such a socket?  0; -ENOTCONN and the like: it is none, or another one by now. */
int tcp_socket_read(int fd, struct tcp_socket *ret);
/* The same of what getsockopt(TCP_INFO) has given: `size` bytes, more or fewer by the kernel. */
void tcp_info_take(const void *info, size_t size, struct tcp_socket *ret);
const char *tcp_state_name(uint32_t state);
/* "10.0.0.7", "fe80::1" */
const char *tcp_address_text(const struct tcp_end *e, char ret[TCP_ADDRESS_BYTES]);

struct tcp_walk {
    uint64_t looked, left_out; /* descriptors */
};

/* Every TCP socket of the process but those of ours (probing.descriptor/1), the first `most`
 * descriptors in at most `time_ns`; `each` gives 0, or what ends it.  0, -errno of /proc/self/fd,
 * or what `each` gave. */
int tcp_sockets_walk(const struct probing_host *h, uint64_t most, uint64_t time_ns,
                     struct tcp_walk *ret, int (*each)(void *arg, const struct tcp_socket *s),
                     void *arg);

/* ---- net.peers ---- */

struct tcp_known {
    uint32_t fd;
    struct tcp_end local, peer;
    uint64_t rx_bytes, tx_bytes, tx_segs, retrans_segs, busy_ns; /* at the last look */
    bool fresh; /* it has not been looked at yet: nothing is known of what it did before */
};

struct tcp_peers {
    const struct probing_host *host;
    struct probing_table *table;
    struct tcp_known *known;
    struct tcp_name { /* texts are kept for good: of so many addresses only */
        uint8_t address[16];
        uint64_t id;
    } names[32];
    uint32_t n_names;
    uint32_t n, room;
    uint64_t left_out;  /* connections and descriptors, at the last listing */
    uint64_t links;     /* of /proc/self/fd then */
    uint64_t listed_ns; /* when; 0: never */
    uint64_t look_ns;   /* the last look */
    bool gone;          /* a known one is */
    struct pace pace, list_pace;
    _Atomic int error; /* of the last listing: 0 or -errno */
};

int peers_init(struct tcp_peers *p, const struct probing_host *h);
void peers_look(struct tcp_peers *p, uint64_t now, uint64_t interval_ns);
void peers_done(struct tcp_peers *p);

#endif
