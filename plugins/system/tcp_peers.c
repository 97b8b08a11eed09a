/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/tcp_peers.c - net.peers: whom the process talks to over TCP, by address: round
 * trips, bytes, what had to be sent again.
 *
 * The sampler's worker only.  Which descriptors are TCP connections is found out when their number
 * has changed or one is gone, and now and then; between that only those are asked.
 */
#include <sys/stat.h>

#include "tcp_sockets.h"

#define LOOK_TICKS 10
#define LIST_TICKS 60
#define LISTED_MAX 16384u /* descriptors */
#define LISTED_NS (50 * PROBING_NS_PER_MS)
#define KNOWN_MAX 1024u /* connections; more are not looked at */
#define PEERS_MAX 32u   /* rows of one look: those with whom it exchanged most */

enum {
    LOCAL_ADDRESS,
    WALL,
    CONNECTIONS,
    RTT,
    MIN_RTT,
    DELTA_RX,
    DELTA_TX,
    DELTA_TX_SEGS,
    DELTA_RETRANS,
    DELTA_BUSY,
    UNACKED_SEGS,
    NOTSENT_BYTES,
    OTHER_PEERS,
    LEFT_OUT,
    N_COLUMNS
};

static const struct probing_column columns[N_COLUMNS] = {
    [LOCAL_ADDRESS] = PROBING_STR_COLUMN("local_address", "its own address"),
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "the time that this row covers"),
    [CONNECTIONS] = PROBING_I64_COLUMN("connections", PROBING_COUNT, "between the two addresses"),
    [RTT] =
        PROBING_I64_COLUMN("rtt_ns", PROBING_NS,
                           "smoothed round trip of the one that has the shortest, of those that "
                           "have sent something in this time"),
    [MIN_RTT] = PROBING_I64_COLUMN("min_rtt_ns", PROBING_NS,
                                   "the shortest round trip of the last five minutes (Linux 4.6)"),
    [DELTA_RX] = PROBING_I64_COLUMN("delta_rx_bytes", PROBING_BYTES, "received"),
    [DELTA_TX] = PROBING_I64_COLUMN("delta_tx_bytes", PROBING_BYTES, "sent, and acknowledged"),
    [DELTA_TX_SEGS] = PROBING_I64_COLUMN("delta_tx_segs", PROBING_COUNT, "segments with data sent"),
    [DELTA_RETRANS] = PROBING_I64_COLUMN("delta_retrans_segs", PROBING_COUNT, "sent again"),
    [DELTA_BUSY] = PROBING_I64_COLUMN("delta_busy_ns", PROBING_NS,
                                      "time in which data were under way, of all connections"),
    [UNACKED_SEGS] = PROBING_I64_COLUMN("unacked_segs", PROBING_COUNT,
                                        "sent and not yet acknowledged, at the look"),
    [NOTSENT_BYTES] = PROBING_I64_COLUMN("notsent_bytes", PROBING_BYTES,
                                         "written by the program and not yet sent, at the look"),
    [OTHER_PEERS] = PROBING_I64_COLUMN("other_peers", PROBING_COUNT,
                                       "a row without addresses: so many peers together, with whom "
                                       "it exchanged least"),
    [LEFT_OUT] = PROBING_I64_COLUMN("left_out", PROBING_COUNT,
                                    "a row without addresses: so many connections and descriptors "
                                    "were not looked at"),
};

static const struct probing_table_desc table =
    PROBING_TEXT_TABLE("net.peers", columns, "peer_address",
                       "whom the process talks to over TCP: round trips, bytes, retransmissions");

int peers_init(struct tcp_peers *p, const struct probing_host *h)
{
    *p = (struct tcp_peers){.host = h};
    return h->table(h, &table, &p->table);
}

void peers_done(struct tcp_peers *p)
{
    free(p->known);
    p->known = NULL;
    p->n = p->room = 0;
}

/* ---- which there are ---- */

/* By the peer's address, then its own: those of a row are neighbours. */
static int compare_ends(const void *one, const void *two)
{
    const struct tcp_known *a = one, *b = two;
    int by = memcmp(a->peer.address, b->peer.address, sizeof(a->peer.address));
    return by ? by : memcmp(a->local.address, b->local.address, sizeof(a->local.address));
}

static bool is_between(const struct tcp_known *k, const struct tcp_socket *s)
{
    return k->fd == s->fd && k->local.port == s->local.port && k->peer.port == s->peer.port &&
           memcmp(k->local.address, s->local.address, sizeof(k->local.address)) == 0 &&
           memcmp(k->peer.address, s->peer.address, sizeof(k->peer.address)) == 0;
}

struct listing {
    struct tcp_peers *p;
    struct tcp_known *fresh;
    uint32_t n, room;
    uint64_t left_out;
};

static int list_one(void *arg, const struct tcp_socket *s)
{
    struct listing *l = arg;
    if (!s->connected)
        return 0;
    if (l->n == l->room) {
        uint32_t room = l->room > 0 ? 2 * l->room : 16;
        struct tcp_known *more = l->n < KNOWN_MAX ? realloc(l->fresh, room * sizeof(*more)) : NULL;
        if (!more) {
            l->left_out++;
            return 0;
        }
        l->fresh = more;
        l->room = room;
    }
    l->fresh[l->n++] = (struct tcp_known){.fd = s->fd, .local = s->local, .peer = s->peer};
    return 0;
}

/* A connection that is known goes on; of one that began since the last listing all is of our time,
 * where none was left out then. */
static void take_listing(struct tcp_peers *p, struct listing *l)
{
    bool whole = p->listed_ns != 0 && p->left_out == 0;
    for (uint32_t i = 0; i < l->n; i++) {
        struct tcp_known *k = &l->fresh[i];
        const struct tcp_socket same = {.fd = k->fd, .local = k->local, .peer = k->peer};
        k->fresh = !whole;
        for (uint32_t b = 0; b < p->n; b++)
            if (is_between(&p->known[b], &same)) {
                *k = p->known[b];
                break;
            }
    }
    free(p->known);
    p->known = l->fresh;
    p->n = l->n;
    p->room = l->room;
    if (p->n > 1)
        qsort(p->known, p->n, sizeof(*p->known), compare_ends);
}

/* How many descriptors there are, where the kernel says so (Linux 6.2); else always the same. */
static uint64_t count_descriptors(void)
{
    struct stat st;
    return stat("/proc/self/fd", &st) == 0 ? (uint64_t)st.st_size : UNKNOWN;
}

static void list_sockets(struct tcp_peers *p, uint64_t now, uint64_t interval_ns)
{
    uint64_t begun = own_cpu_ns(), links = count_descriptors();
    bool changed = p->listed_ns == 0 || p->gone || links != p->links;
    struct listing l = {.p = p};
    struct tcp_walk walked;
    if (!pace_is_due(&p->list_pace, now) ||
        (!changed && now - p->listed_ns < LIST_TICKS * interval_ns))
        return;
    int rc = tcp_sockets_walk(p->host, LISTED_MAX, LISTED_NS, &walked, list_one, &l);
    if (rc == 0) {
        take_listing(p, &l);
        p->left_out = l.left_out + walked.left_out;
        p->listed_ns = now;
        p->links = links;
        p->gone = false;
    } else {
        free(l.fresh);
    }
    atomic_store_explicit(&p->error, rc, memory_order_relaxed);
    pace_took(&p->list_pace, now, own_cpu_ns() - begun, 1, interval_ns, PACE_LIST);
}

/* ---- rows ---- */

struct sum { /* of the connections between two addresses */
    const struct tcp_known *of;
    uint32_t n, peers;
    bool fresh;
    uint64_t rtt_ns, min_rtt_ns, rx, tx, tx_segs, retrans, busy_ns, unacked, notsent;
};

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b; /* UNKNOWN is the largest number */
}

/* a + b, UNKNOWN where either is. */
static uint64_t add_known(uint64_t a, uint64_t b)
{
    return a == UNKNOWN || b == UNKNOWN ? UNKNOWN : a + b;
}

static uint64_t subtract_known(uint64_t before, uint64_t after)
{
    return before != UNKNOWN && after != UNKNOWN && after >= before ? after - before : UNKNOWN;
}

static void add_connection(struct sum *sum, struct tcp_known *k, const struct tcp_socket *s)
{
    uint64_t tx = subtract_known(k->tx_bytes, s->tx_bytes),
             segs = subtract_known(k->tx_segs, s->tx_segs);
    bool sent = k->fresh || (segs != UNKNOWN ? segs > 0 : tx != 0);
    sum->n++;
    sum->fresh = sum->fresh || k->fresh;
    if (sent)
        sum->rtt_ns = least_of(sum->rtt_ns, s->rtt_ns);
    sum->min_rtt_ns = least_of(sum->min_rtt_ns, s->min_rtt_ns);
    sum->unacked = add_known(sum->unacked, s->unacked_segs);
    sum->notsent = add_known(sum->notsent, s->notsent_bytes);
    if (!k->fresh) {
        sum->rx = add_known(sum->rx, subtract_known(k->rx_bytes, s->rx_bytes));
        sum->tx = add_known(sum->tx, tx);
        sum->tx_segs = add_known(sum->tx_segs, segs);
        sum->retrans = add_known(sum->retrans, subtract_known(k->retrans_segs, s->retrans_segs));
        sum->busy_ns = add_known(sum->busy_ns, subtract_known(k->busy_ns, s->busy_ns));
    }
    k->rx_bytes = s->rx_bytes;
    k->tx_bytes = s->tx_bytes;
    k->tx_segs = s->tx_segs;
    k->retrans_segs = s->retrans_segs;
    k->busy_ns = s->busy_ns;
    k->fresh = false;
}

/* Asks all that are known; gives how many sums there are.  sums: room for each of them. */
static uint32_t add_up(struct tcp_peers *p, struct sum *sums)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        struct tcp_known *k = &p->known[i];
        struct tcp_socket s;
        if (tcp_socket_read((int)k->fd, &s) < 0 || !s.connected || !is_between(k, &s)) {
            p->gone = true;
            continue;
        }
        p->known[kept] = *k;
        k = &p->known[kept++];
        if (n == 0 || compare_ends(sums[n - 1].of, k) != 0)
            sums[n++] = (struct sum){.of = k, .rtt_ns = UNKNOWN, .min_rtt_ns = UNKNOWN};
        add_connection(&sums[n - 1], k, &s);
    }
    p->n = kept;
    return n;
}

static uint64_t bytes_of(const struct sum *s)
{
    return (s->rx == UNKNOWN ? 0 : s->rx) + (s->tx == UNKNOWN ? 0 : s->tx);
}

/* The peer that has exchanged the most comes first. */
static int compare_sums(const void *one, const void *two)
{
    uint64_t a = bytes_of(one), b = bytes_of(two);
    return a > b ? -1 : a < b;
}

/* Nothing went through, as far as the kernel says, and nothing waits. */
static bool is_quiet(const struct sum *s)
{
    const uint64_t counts[] = {s->tx_segs, s->retrans, s->unacked, s->notsent};
    bool none = !s->fresh && s->rx == 0 && s->tx == 0;
    for (uint32_t i = 0; i < PROBING_LENGTH(counts); i++)
        none = none && (counts[i] == 0 || counts[i] == UNKNOWN);
    return none;
}

/* NULL where there are too many. */
static uint64_t name_id(struct tcp_peers *p, const struct tcp_end *e)
{
    char text[TCP_ADDRESS_BYTES];
    for (uint32_t i = 0; i < p->n_names; i++)
        if (memcmp(p->names[i].address, e->address, sizeof(e->address)) == 0)
            return p->names[i].id;
    if (p->n_names == PROBING_LENGTH(p->names))
        return PROBING_NULL_ID;
    struct tcp_name *name = &p->names[p->n_names++];
    memcpy(name->address, e->address, sizeof(name->address));
    name->id = text_id(p->host, tcp_address_text(e, text));
    return name->id;
}

static void add_row(struct tcp_peers *p, const struct sum *s, uint64_t wall, uint64_t now)
{
    char peer[TCP_ADDRESS_BYTES] = "";
    bool one = s->of != NULL;
    union probing_cell cells[N_COLUMNS];
    cells[LOCAL_ADDRESS].u = one ? name_id(p, &s->of->local) : PROBING_NULL_ID;
    cells[WALL] = count_cell(wall);
    cells[CONNECTIONS] = count_cell(s->n);
    cells[RTT] = count_cell(s->rtt_ns);
    cells[MIN_RTT] = count_cell(s->min_rtt_ns);
    cells[DELTA_RX] = count_cell(s->fresh ? UNKNOWN : s->rx);
    cells[DELTA_TX] = count_cell(s->fresh ? UNKNOWN : s->tx);
    cells[DELTA_TX_SEGS] = count_cell(s->fresh ? UNKNOWN : s->tx_segs);
    cells[DELTA_RETRANS] = count_cell(s->fresh ? UNKNOWN : s->retrans);
    cells[DELTA_BUSY] = count_cell(s->fresh ? UNKNOWN : s->busy_ns);
    cells[UNACKED_SEGS] = count_cell(s->unacked);
    cells[NOTSENT_BYTES] = count_cell(s->notsent);
    cells[OTHER_PEERS] = count_cell(one ? UNKNOWN : s->peers);
    cells[LEFT_OUT] = count_cell(one || p->left_out == 0 ? UNKNOWN : p->left_out);
    if (one)
        (void)tcp_address_text(&s->of->peer, peer);
    (void)p->host->append(p->table, now, cells, N_COLUMNS, one ? peer : NULL,
                          (uint32_t)strlen(peer));
}

static void add_rest(struct sum *rest, const struct sum *s)
{
    rest->peers++;
    rest->n += s->n;
    rest->fresh = rest->fresh || s->fresh;
    rest->rtt_ns = least_of(rest->rtt_ns, s->rtt_ns);
    rest->min_rtt_ns = least_of(rest->min_rtt_ns, s->min_rtt_ns);
    rest->rx = add_known(rest->rx, s->rx);
    rest->tx = add_known(rest->tx, s->tx);
    rest->tx_segs = add_known(rest->tx_segs, s->tx_segs);
    rest->retrans = add_known(rest->retrans, s->retrans);
    rest->busy_ns = add_known(rest->busy_ns, s->busy_ns);
    rest->unacked = add_known(rest->unacked, s->unacked);
    rest->notsent = add_known(rest->notsent, s->notsent);
}

static void add_rows(struct tcp_peers *p, struct sum *sums, uint32_t n, uint64_t now)
{
    uint64_t wall = p->look_ns ? now - p->look_ns : UNKNOWN;
    struct sum rest = {.rtt_ns = UNKNOWN, .min_rtt_ns = UNKNOWN};
    if (n > 1)
        qsort(sums, n, sizeof(*sums), compare_sums);
    for (uint32_t i = 0; i < n; i++) {
        if (i >= PEERS_MAX)
            add_rest(&rest, &sums[i]);
        else if (!is_quiet(&sums[i]))
            add_row(p, &sums[i], wall, now);
    }
    if ((rest.peers > 0 && !is_quiet(&rest)) || p->left_out > 0)
        add_row(p, &rest, wall, now);
}

void peers_look(struct tcp_peers *p, uint64_t now, uint64_t interval_ns)
{
    uint64_t begun = own_cpu_ns();
    if (!p->host->wanted(p->table) || !pace_is_due(&p->pace, now))
        return;
    list_sockets(p, now, interval_ns);
    struct sum *sums = p->n > 0 ? calloc(p->n, sizeof(*sums)) : NULL;
    uint32_t n = sums ? add_up(p, sums) : 0;
    add_rows(p, sums, n, now);
    free(sums);
    p->look_ns = now;
    pace_took(&p->pace, now, own_cpu_ns() - begun, LOOK_TICKS, interval_ns, PACE_LIST);
}
