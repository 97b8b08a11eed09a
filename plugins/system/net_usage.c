/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/net_usage.c - net.utilization: the network interfaces of the process's network
 * namespace, by /proc/self/net/dev.
 *
 * The sampler's worker only.  The kernel counts by interface, not by process: what others send is
 * in the numbers.
 */
#include <ctype.h>

#include "internal.h"
#include "lib/proc/lines.h"

#define LOOK_TICKS 2
#define SAME_TICKS 60 /* between rows of an interface that is idle */

enum {
    INTERFACE,
    WALL,
    RX_BYTES,
    TX_BYTES,
    DELTA_RX,
    DELTA_TX,
    RX_RATE,
    TX_RATE,
    RX_PACKETS,
    TX_PACKETS,
    RX_ERRORS,
    TX_ERRORS,
    RX_DROPPED,
    TX_DROPPED,
    N_COLUMNS
};

static const struct probing_column columns[N_COLUMNS] = {
    [INTERFACE] = PROBING_STR_COLUMN("interface", "its name: eth0"),
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "the time that this row covers"),
    [RX_BYTES] = PROBING_I64_COLUMN("rx_bytes", PROBING_BYTES, "received since it was set up"),
    [TX_BYTES] = PROBING_I64_COLUMN("tx_bytes", PROBING_BYTES, "sent since it was set up"),
    [DELTA_RX] = PROBING_I64_COLUMN("delta_rx_bytes", PROBING_BYTES, "received"),
    [DELTA_TX] = PROBING_I64_COLUMN("delta_tx_bytes", PROBING_BYTES, "sent"),
    [RX_RATE] = PROBING_F64_COLUMN("rx_bytes_per_sec", PROBING_BYTES, "received a second"),
    [TX_RATE] = PROBING_F64_COLUMN("tx_bytes_per_sec", PROBING_BYTES, "sent a second"),
    [RX_PACKETS] = PROBING_I64_COLUMN("delta_rx_packets", PROBING_COUNT, "packets received"),
    [TX_PACKETS] = PROBING_I64_COLUMN("delta_tx_packets", PROBING_COUNT, "packets sent"),
    [RX_ERRORS] = PROBING_I64_COLUMN("delta_rx_errors", PROBING_COUNT, "bad packets received"),
    [TX_ERRORS] =
        PROBING_I64_COLUMN("delta_tx_errors", PROBING_COUNT, "packets not sent for errors"),
    [RX_DROPPED] = PROBING_I64_COLUMN("delta_rx_dropped", PROBING_COUNT,
                                      "received packets that were thrown away"),
    [TX_DROPPED] = PROBING_I64_COLUMN("delta_tx_dropped", PROBING_COUNT,
                                      "packets that were thrown away before they were sent"),
};

static const struct probing_table_desc table = PROBING_TABLE(
    "net.utilization", columns, "network interfaces that the process sees, with what others send");

int net_init(struct net_usage *n, const struct probing_host *h)
{
    *n = (struct net_usage){.host = h};
    return h->table(h, &table, &n->table);
}

void net_done(struct net_usage *n)
{
    free(n->all);
    n->all = NULL;
    n->n = 0;
}

/* "  eth0: 1 2 3 ...": 16 numbers. */
bool net_parse(char *line, struct net_interface *ret)
{
    char *colon = strrchr(line, ':'), *at = colon ? colon + 1 : line;
    if (!colon)
        return false;
    *colon = '\0';
    line += strspn(line, " ");
    *ret = (struct net_interface){.row_ns = 0};
    (void)snprintf(ret->name, sizeof(ret->name), "%s", line);
    for (uint32_t i = 0; i < NET_COUNTERS; i++) {
        char *end = at;
        ret->counters[i] = strtoull(at, &end, 10);
        if (end == at || (*end && !isspace((unsigned char)*end)))
            return false;
        at = end;
    }
    return ret->name[0] != '\0';
}

static struct net_interface *find_interface(struct net_usage *n, const char *name)
{
    for (uint32_t i = 0; i < n->n; i++)
        if (strcmp(n->all[i].name, name) == 0)
            return &n->all[i];
    return NULL;
}

static void add_interface(struct net_usage *n, const struct net_interface *fresh)
{
    struct net_interface *more =
        n->n < NET_INTERFACES_MAX ? realloc(n->all, (n->n + 1) * sizeof(*more)) : NULL;
    if (!more)
        return;
    n->all = more;
    n->all[n->n++] = *fresh;
}

/* was->row_ns: 0 for its first row, which has no deltas. */
static void add_row(struct net_usage *n, const struct net_interface *was, const uint64_t *is,
                    uint64_t now)
{
    const uint64_t *b = was->counters;
    uint64_t wall = was->row_ns ? now - was->row_ns : 0;
    union probing_cell cells[N_COLUMNS];
    cells[INTERFACE].u = text_id(n->host, was->name);
    cells[WALL] = count_cell(wall ? wall : UNKNOWN);
    cells[RX_BYTES] = count_cell(is[NET_RX_BYTES]);
    cells[TX_BYTES] = count_cell(is[NET_TX_BYTES]);
    cells[DELTA_RX] = delta_cell(b[NET_RX_BYTES], is[NET_RX_BYTES]);
    cells[DELTA_TX] = delta_cell(b[NET_TX_BYTES], is[NET_TX_BYTES]);
    cells[RX_RATE] = rate_cell(b[NET_RX_BYTES], is[NET_RX_BYTES], wall);
    cells[TX_RATE] = rate_cell(b[NET_TX_BYTES], is[NET_TX_BYTES], wall);
    cells[RX_PACKETS] = delta_cell(b[NET_RX_PACKETS], is[NET_RX_PACKETS]);
    cells[TX_PACKETS] = delta_cell(b[NET_TX_PACKETS], is[NET_TX_PACKETS]);
    cells[RX_ERRORS] = delta_cell(b[NET_RX_ERRORS], is[NET_RX_ERRORS]);
    cells[TX_ERRORS] = delta_cell(b[NET_TX_ERRORS], is[NET_TX_ERRORS]);
    cells[RX_DROPPED] = delta_cell(b[NET_RX_DROPPED], is[NET_RX_DROPPED]);
    cells[TX_DROPPED] = delta_cell(b[NET_TX_DROPPED], is[NET_TX_DROPPED]);
    (void)n->host->append(n->table, now, cells, N_COLUMNS, NULL, 0);
}

static void look_at(struct net_usage *n, struct net_interface *fresh, uint64_t now,
                    uint64_t interval_ns)
{
    struct net_interface *known = find_interface(n, fresh->name);
    fresh->row_ns = now;
    if (!known) { /* what went through before is none of our time */
        struct net_interface none = *fresh;
        none.row_ns = 0;
        memset(none.counters, 0xff, sizeof(none.counters)); /* UNKNOWN */
        add_row(n, &none, fresh->counters, now);
        add_interface(n, fresh);
        return;
    }
    if (memcmp(known->counters, fresh->counters, sizeof(known->counters)) == 0 &&
        now - known->row_ns < SAME_TICKS * interval_ns)
        return;
    add_row(n, known, fresh->counters, now);
    *known = *fresh;
}

void net_look(struct net_usage *n, uint64_t now, uint64_t interval_ns)
{
    char room[1024];
    struct proc_lines l;
    struct net_interface fresh;
    size_t bytes;
    uint64_t begun = own_cpu_ns();
    if (!n->host->wanted(n->table) || !pace_is_due(&n->pace, now))
        return;
    int r = proc_lines_open(&l, "/proc/self/net/dev", room, sizeof(room));
    for (char *line; (line = proc_lines_next(&l, &bytes)) != NULL;)
        if (net_parse(line, &fresh))
            look_at(n, &fresh, now, interval_ns);
    proc_lines_close(&l);
    atomic_store_explicit(&n->error, r, memory_order_relaxed);
    pace_took(&n->pace, now, own_cpu_ns() - begun, LOOK_TICKS, interval_ns, PACE_SMALL);
}
