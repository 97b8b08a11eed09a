/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/tcp_sockets.c - see tcp_sockets.h; and net.connections, a row for each TCP socket
 * of the process, when a query asks.
 *
 * Any thread; no state.
 */
#include "tcp_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

#include <probing/ext/draft/descriptor.h>

#include "computed.h"
#include "lib/proc/proc_file.h"

/* struct tcp_info of linux/tcp.h, which only grows at its end; that of an old C library ends where
 * Linux 3.14 did.  In brackets: since when. */
struct info {
    uint8_t state, ca_state, retransmits, probes, backoff, options, wscale, app_limited;
    uint32_t rto, ato, snd_mss, rcv_mss, unacked, sacked, lost, retrans, fackets;
    uint32_t last_data_sent, last_ack_sent, last_data_recv, last_ack_recv; /* ms */
    uint32_t pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, snd_cwnd, advmss, reordering;
    uint32_t rcv_rtt, rcv_space, total_retrans;
    uint64_t pacing_rate, max_pacing_rate;                        /* [3.15] */
    uint64_t bytes_acked, bytes_received;                         /* [4.1] */
    uint32_t segs_out, segs_in;                                   /* [4.2] */
    uint32_t notsent_bytes, min_rtt, data_segs_in, data_segs_out; /* [4.6] */
    uint64_t delivery_rate;                                       /* [4.9] */
    uint64_t busy_time, rwnd_limited, sndbuf_limited;             /* [4.10] us */
};

#define HAS(size, field) \
    ((size) >= offsetof(struct info, field) + sizeof(((struct info *)0)->field))
#define NO_RTT UINT32_MAX /* min_rtt, before the first */
#define US UINT64_C(1000)
#define LISTENS 10u /* TCP_LISTEN */

#define WALK_MOST 65536u
#define WALK_NS (2 * PROBING_NS_PER_S)

/* ---- one socket ---- */

void tcp_info_take(const void *info, size_t size, struct tcp_socket *ret)
{
    struct info i = {.state = 0};
    memcpy(&i, info, size < sizeof(i) ? size : sizeof(i));
    bool listens = i.state == LISTENS; /* then some numbers are of its queue */
    ret->state = i.state;
    ret->rtt_ns = i.rtt > 0 && !listens ? i.rtt * US : UNKNOWN;
    ret->rttvar_ns = i.rtt > 0 && !listens ? i.rttvar * US : UNKNOWN;
    ret->rto_ns = listens ? UNKNOWN : i.rto * US;
    ret->unacked_segs = listens ? UNKNOWN : i.unacked;
    ret->retrans_segs = listens ? UNKNOWN : i.total_retrans;
    ret->timeouts = listens ? UNKNOWN : i.retransmits;
    ret->cwnd_segs = listens ? UNKNOWN : i.snd_cwnd;
    ret->mss_bytes = i.snd_mss;
    ret->sent_ago_ns = listens ? UNKNOWN : i.last_data_sent * PROBING_NS_PER_MS;
    ret->received_ago_ns = listens ? UNKNOWN : i.last_data_recv * PROBING_NS_PER_MS;
    ret->tx_bytes = HAS(size, bytes_received) && !listens ? i.bytes_acked : UNKNOWN;
    ret->rx_bytes = HAS(size, bytes_received) && !listens ? i.bytes_received : UNKNOWN;
    bool newer = HAS(size, data_segs_out) && !listens;
    ret->notsent_bytes = newer ? i.notsent_bytes : UNKNOWN;
    ret->min_rtt_ns = newer && i.min_rtt != NO_RTT && i.rtt > 0 ? i.min_rtt * US : UNKNOWN;
    ret->tx_segs = newer ? i.data_segs_out : UNKNOWN;
    ret->rate_bytes =
        HAS(size, delivery_rate) && !listens && i.delivery_rate > 0 ? i.delivery_rate : UNKNOWN;
    ret->busy_ns = HAS(size, busy_time) && !listens ? i.busy_time * US : UNKNOWN;
}

/* false: an address of another family. */
static bool end_of(const struct sockaddr_storage *a, struct tcp_end *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    memcpy(&four, a, sizeof(four));
    memcpy(&six, a, sizeof(six));
    if (a->ss_family == AF_INET6)
        memcpy(ret->address, &six.sin6_addr, sizeof(ret->address));
    if (a->ss_family == AF_INET) {
        memcpy(ret->address, mapped, sizeof(mapped));
        memcpy(ret->address + sizeof(mapped), &four.sin_addr, sizeof(four.sin_addr));
    }
    ret->port = ntohs(a->ss_family == AF_INET ? four.sin_port : six.sin6_port);
    return a->ss_family == AF_INET || a->ss_family == AF_INET6;
}

static int names_of(int fd, struct tcp_socket *ret)
{
    struct sockaddr_storage a = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &size) == -1)
        return -errno;
    if (!end_of(&a, &ret->local))
        return -EAFNOSUPPORT;
    size = sizeof(a);
    ret->connected = getpeername(fd, (struct sockaddr *)&a, &size) == 0 && end_of(&a, &ret->peer);
    return 0;
}

static bool is_same_end(const struct tcp_end *a, const struct tcp_end *b)
{
    return a->port == b->port && memcmp(a->address, b->address, sizeof(a->address)) == 0;
}

int tcp_socket_read(int fd, struct tcp_socket *ret)
{
    struct info info = {.state = 0};
    struct tcp_socket again = {.fd = 0};
    socklen_t size = sizeof(info);
    *ret = (struct tcp_socket){.fd = (uint32_t)fd};
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == -1)
        return -errno;
    if (!HAS(size, total_retrans))
        return -EPROTO;
    int rc = names_of(fd, ret);
    if (rc == 0 && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == -1)
        rc = -errno;
    if (rc == 0)
        rc = names_of(fd, &again);
    if (rc == 0 && (again.connected != ret->connected || !is_same_end(&again.local, &ret->local) ||
                    !is_same_end(&again.peer, &ret->peer)))
        rc = -EAGAIN;
    tcp_info_take(&info, size, ret);
    return rc;
}

const char *tcp_state_name(uint32_t state)
{
    /* As ss(8) calls them. */
    static const char *const names[] = {NULL,         "estab",      "syn-sent",  "syn-recv",
                                        "fin-wait-1", "fin-wait-2", "time-wait", "close",
                                        "close-wait", "last-ack",   "listen",    "closing"};
    return state < PROBING_LENGTH(names) ? names[state] : NULL;
}

const char *tcp_address_text(const struct tcp_end *e, char ret[TCP_ADDRESS_BYTES])
{
    struct in6_addr six;
    memcpy(&six, e->address, sizeof(six));
    bool four = IN6_IS_ADDR_V4MAPPED(&six);
    ret[0] = '\0';
    (void)inet_ntop(four ? AF_INET : AF_INET6, e->address + (four ? 12 : 0), ret,
                    TCP_ADDRESS_BYTES);
    return ret;
}

/* ---- all of them ---- */

int tcp_sockets_walk(const struct probing_host *h, uint64_t most, uint64_t time_ns,
                     struct tcp_walk *ret, int (*each)(void *arg, const struct tcp_socket *s),
                     void *arg)
{
    const struct probing_descriptor_1 *ours = h->extension(h, PROBING_DESCRIPTOR_1);
    struct proc_numbers all;
    struct proc_number one;
    struct tcp_socket s;
    uint64_t begun = h->now();
    bool late = false;
    int rc = proc_numbers_open(&all, "/proc/self/fd");
    *ret = (struct tcp_walk){.looked = 0};
    while (rc == 0 && proc_numbers_next(&all, &one)) {
        if (ret->looked % 64 == 63)
            late = late || h->now() - begun > time_ns;
        if (late || ret->looked >= most) {
            ret->left_out++;
            continue;
        }
        ret->looked++;
        bool other = one.value == (uint64_t)all.fd || one.value > INT32_MAX ||
                     (ours && ours->is_ours((int)one.value));
        if (!other && tcp_socket_read((int)one.value, &s) == 0)
            rc = each(arg, &s);
    }
    if (rc == 0)
        rc = all.error;
    proc_numbers_close(&all);
    return rc;
}

/* ---- net.connections ---- */

enum {
    FD,
    STATE,
    LOCAL_ADDRESS,
    LOCAL_PORT,
    PEER_ADDRESS,
    PEER_PORT,
    RTT,
    RTTVAR,
    MIN_RTT,
    RTO,
    RX_BYTES,
    TX_BYTES,
    TX_SEGS,
    RETRANS_SEGS,
    UNACKED_SEGS,
    NOTSENT_BYTES,
    TIMEOUTS,
    RATE,
    BUSY,
    CWND,
    MSS,
    SENT_AGO,
    RECEIVED_AGO,
    LEFT_OUT,
    N_COLUMNS
};

static const struct probing_column columns[N_COLUMNS] = {
    [FD] = PROBING_I64_COLUMN("fd", PROBING_PLAIN, "the descriptor"),
    [STATE] = PROBING_STR_COLUMN("state", "estab, listen, close-wait ...: as ss(8) has it"),
    [LOCAL_ADDRESS] = PROBING_STR_COLUMN("local_address", "its own end"),
    [LOCAL_PORT] = PROBING_I64_COLUMN("local_port", PROBING_PLAIN, "its own end"),
    [PEER_ADDRESS] = PROBING_STR_COLUMN("peer_address", "the other end; NULL: it has none"),
    [PEER_PORT] = PROBING_I64_COLUMN("peer_port", PROBING_PLAIN, "the other end"),
    [RTT] = PROBING_I64_COLUMN("rtt_ns", PROBING_NS,
                               "round trip until data are acknowledged, smoothed by the kernel"),
    [RTTVAR] = PROBING_I64_COLUMN("rttvar_ns", PROBING_NS, "how much it varies"),
    [MIN_RTT] = PROBING_I64_COLUMN("min_rtt_ns", PROBING_NS,
                                   "the shortest one of the last five minutes (Linux 4.6)"),
    [RTO] = PROBING_I64_COLUMN("rto_ns", PROBING_NS, "after so long it sends again"),
    [RX_BYTES] = PROBING_I64_COLUMN("rx_bytes", PROBING_BYTES, "received (Linux 4.1)"),
    [TX_BYTES] =
        PROBING_I64_COLUMN("tx_bytes", PROBING_BYTES, "sent, and acknowledged (Linux 4.1)"),
    [TX_SEGS] = PROBING_I64_COLUMN("tx_segs", PROBING_COUNT, "segments with data sent (Linux 4.6)"),
    [RETRANS_SEGS] =
        PROBING_I64_COLUMN("retrans_segs", PROBING_COUNT, "segments sent again, since it began"),
    [UNACKED_SEGS] =
        PROBING_I64_COLUMN("unacked_segs", PROBING_COUNT, "sent and not yet acknowledged"),
    [NOTSENT_BYTES] = PROBING_I64_COLUMN("notsent_bytes", PROBING_BYTES,
                                         "written by the program and not yet sent (Linux 4.6)"),
    [TIMEOUTS] = PROBING_I64_COLUMN("timeouts", PROBING_COUNT,
                                    "in a row: nothing has been acknowledged since then"),
    [RATE] = PROBING_I64_COLUMN("delivery_bytes_per_sec", PROBING_BYTES,
                                "rate at which the last data were delivered (Linux 4.9)"),
    [BUSY] = PROBING_I64_COLUMN("busy_ns", PROBING_NS,
                                "time in which data were under way, since it began (Linux 4.10)"),
    [CWND] = PROBING_I64_COLUMN("cwnd_segs", PROBING_COUNT, "the congestion window"),
    [MSS] = PROBING_I64_COLUMN("mss_bytes", PROBING_BYTES, "data of a segment at most"),
    [SENT_AGO] = PROBING_I64_COLUMN("sent_ago_ns", PROBING_NS, "since data were last sent"),
    [RECEIVED_AGO] =
        PROBING_I64_COLUMN("received_ago_ns", PROBING_NS, "since data were last received"),
    [LEFT_OUT] = PROBING_I64_COLUMN("left_out", PROBING_COUNT,
                                    "a last row without fd, where there are too many: so many "
                                    "descriptors were not looked at"),
};

struct scanned {
    const struct probing_host *host;
    struct probing_rows *out;
};

static int emit_row(void *arg, const struct tcp_socket *s)
{
    const struct scanned *to = arg;
    char local[TCP_ADDRESS_BYTES], peer[TCP_ADDRESS_BYTES];
    const union probing_cell cells[N_COLUMNS] = {
        [FD] = count_cell(s->fd),
        [STATE] = probing_str(tcp_state_name(s->state)),
        [LOCAL_ADDRESS] = probing_str(tcp_address_text(&s->local, local)),
        [LOCAL_PORT] = count_cell(s->local.port),
        [PEER_ADDRESS] = probing_str(s->connected ? tcp_address_text(&s->peer, peer) : NULL),
        [PEER_PORT] = count_cell(s->connected ? s->peer.port : UNKNOWN),
        [RTT] = count_cell(s->rtt_ns),
        [RTTVAR] = count_cell(s->rttvar_ns),
        [MIN_RTT] = count_cell(s->min_rtt_ns),
        [RTO] = count_cell(s->rto_ns),
        [RX_BYTES] = count_cell(s->rx_bytes),
        [TX_BYTES] = count_cell(s->tx_bytes),
        [TX_SEGS] = count_cell(s->tx_segs),
        [RETRANS_SEGS] = count_cell(s->retrans_segs),
        [UNACKED_SEGS] = count_cell(s->unacked_segs),
        [NOTSENT_BYTES] = count_cell(s->notsent_bytes),
        [TIMEOUTS] = count_cell(s->timeouts),
        [RATE] = count_cell(s->rate_bytes),
        [BUSY] = count_cell(s->busy_ns),
        [CWND] = count_cell(s->cwnd_segs),
        [MSS] = count_cell(s->mss_bytes),
        [SENT_AGO] = count_cell(s->sent_ago_ns),
        [RECEIVED_AGO] = count_cell(s->received_ago_ns),
        [LEFT_OUT] = count_cell(UNKNOWN)};
    return to->host->emit(to->out, cells, N_COLUMNS);
}

static int emit_left_out(struct scanned *to, uint64_t left_out)
{
    union probing_cell cells[N_COLUMNS];
    for (uint32_t i = 0; i < N_COLUMNS; i++)
        cells[i] = probing_null(columns[i].type);
    cells[LEFT_OUT] = count_cell(left_out);
    return to->host->emit(to->out, cells, N_COLUMNS);
}

static int scan_sockets(void *self, struct probing_rows *out)
{
    struct scanned to = {.host = plugin_host(self), .out = out};
    struct tcp_walk walked;
    int r = tcp_sockets_walk(to.host, WALK_MOST, WALK_NS, &walked, emit_row, &to);
    if (r == 0 && walked.left_out > 0)
        r = emit_left_out(&to, walked.left_out);
    if (r < 0 && r != -ECANCELED)
        r = probing_failf(to.host, r, "/proc/self/fd cannot be read: %s", strerror(-r));
    return probing_scanned(r);
}

const struct probing_table_desc connections_table =
    PROBING_COMPUTED_TABLE("net.connections", columns, scan_sockets,
                           "TCP connections of the process: round trips, bytes, what is sent again "
                           "and what waits");
