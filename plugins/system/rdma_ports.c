/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/rdma_ports.c - rdma.counters: ports of InfiniBand and RoCE devices, by
 * /sys/class/infiniband.
 *
 * The sampler's worker only.  The devices count for the machine, not for the process.  Which
 * counters there are differs between vendors: one that is not there is NULL.
 */
#include <dirent.h>

#include "internal.h"
#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"

enum { DEVICE, PORT, LINK_STATE, LINK_RATE, WALL, FIRST_COUNTER };

/* data_words: counted in words of 4 bytes, given in bytes. */
static const struct counter {
    const char *file;
    bool data_words;
    struct probing_column column;
} counters[RDMA_COUNTERS] = {
#define COUNTER(file, doc)                                        \
    {                                                             \
        file, false, PROBING_I64_COLUMN(file, PROBING_COUNT, doc) \
    }
    [RDMA_RCV_DATA] = {"port_rcv_data", true,
                       PROBING_I64_COLUMN("rcv_bytes", PROBING_BYTES, "received (port_rcv_data)")},
    [RDMA_XMIT_DATA] = {"port_xmit_data", true,
                        PROBING_I64_COLUMN("xmit_bytes", PROBING_BYTES, "sent (port_xmit_data)")},
    [RDMA_RCV_PACKETS] = COUNTER("port_rcv_packets", "packets received"),
    [RDMA_XMIT_PACKETS] = COUNTER("port_xmit_packets", "packets sent"),
    COUNTER("port_rcv_errors", "packets received with an error"),
    COUNTER("port_xmit_discards", "packets thrown away as the port was down or congested"),
    COUNTER("port_xmit_wait", "ticks that data waited for the other side to take it"),
    COUNTER("symbol_error", "minor errors of the link"),
    COUNTER("link_error_recovery", "times that the link recovered from an error"),
    [RDMA_LINK_DOWNED] = COUNTER("link_downed", "times that the link went down"),
    COUNTER("local_link_integrity_errors", "times that too many errors were met"),
    COUNTER("excessive_buffer_overrun_errors", "overruns of buffers, in a row"),
    [RDMA_CNP_SENT] = COUNTER("np_cnp_sent", "congestion notifications sent"),
    [RDMA_ECN_MARKED] =
        COUNTER("np_ecn_marked_roce_packets", "packets received with the mark of congestion"),
    COUNTER("rp_cnp_handled", "congestion notifications that slowed this side down"),
    COUNTER("rp_cnp_ignored", "congestion notifications not heeded"),
    COUNTER("out_of_sequence", "packets received out of order"),
    COUNTER("out_of_buffer", "packets thrown away as no buffer was posted"),
    COUNTER("packet_seq_err", "packets that the other side asked for again"),
    COUNTER("local_ack_timeout_err", "times that no acknowledgement came"),
    COUNTER("rnr_nak_retry_err", "times that the other side was not ready"),
    COUNTER("implied_nak_seq_err", "answers that showed a packet to be lost"),
    COUNTER("rx_icrc_encapsulated", "packets received with a bad checksum"),
    COUNTER("roce_adp_retrans", "packets sent again by adaptive retransmission"),
#undef COUNTER
};

enum {
    RCV_RATE = FIRST_COUNTER + RDMA_COUNTERS,
    XMIT_RATE,
    RCV_PACKETS_RATE,
    XMIT_PACKETS_RATE,
    PAUSE_RX,
    PAUSE_TX,
    N_COLUMNS
};

static const struct probing_column others[N_COLUMNS] = {
    [DEVICE] = PROBING_STR_COLUMN("device", "its name: mlx5_0"),
    [PORT] = PROBING_I64_COLUMN("port", PROBING_PLAIN, "number of the port, from 1"),
    [LINK_STATE] = PROBING_STR_COLUMN("state", "of the link: 4: ACTIVE"),
    [LINK_RATE] = PROBING_STR_COLUMN("rate", "of the link: 400 Gb/sec (4X NDR)"),
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "since the port's row before"),
    [RCV_RATE] = PROBING_F64_COLUMN("rcv_bytes_per_sec", PROBING_BYTES, "received a second"),
    [XMIT_RATE] = PROBING_F64_COLUMN("xmit_bytes_per_sec", PROBING_BYTES, "sent a second"),
    [RCV_PACKETS_RATE] =
        PROBING_F64_COLUMN("rcv_packets_per_sec", PROBING_COUNT, "packets received a second"),
    [XMIT_PACKETS_RATE] =
        PROBING_F64_COLUMN("xmit_packets_per_sec", PROBING_COUNT, "packets sent a second"),
    [PAUSE_RX] = PROBING_I64_COLUMN("pause_rx", PROBING_COUNT,
                                    "frames received that ask for a pause, of all priorities"),
    [PAUSE_TX] = PROBING_I64_COLUMN("pause_tx", PROBING_COUNT,
                                    "frames sent that ask for a pause, of all priorities"),
};

int rdma_init(struct rdma_usage *r, const struct probing_host *h)
{
    struct probing_column columns[N_COLUMNS];
    struct probing_table_desc table =
        PROBING_TABLE("rdma.counters", columns,
                      "ports of InfiniBand and RoCE devices; counters are those since the device "
                      "was set up");
    *r = (struct rdma_usage){.host = h, .root = "/sys/class/infiniband"};
    memcpy(columns, others, sizeof(columns));
    for (uint32_t i = 0; i < RDMA_COUNTERS; i++)
        columns[FIRST_COUNTER + i] = counters[i].column;
    return h->table(h, &table, &r->table);
}

void rdma_done(struct rdma_usage *r)
{
    free(r->all);
    r->all = NULL;
    r->n = 0;
}

/* ---- files ---- */

static uint64_t number_of(const char *folder, const char *kind, const char *file)
{
    char path[512];
    uint64_t value;
    int n = snprintf(path, sizeof(path), "%s/%s/%s", folder, kind, file);
    return n > 0 && n < (int)sizeof(path) && proc_number_in(path, "", &value) ? value : UNKNOWN;
}

static uint64_t counter_of(const char *folder, const struct counter *c)
{
    uint64_t value = number_of(folder, "counters", c->file);
    if (value == UNKNOWN)
        value = number_of(folder, "hw_counters", c->file);
    return value != UNKNOWN && c->data_words ? value * 4 : value;
}

/* Is it a counter of pauses, and which way?  Their names differ: rx_prio3_pause, pfc3_tx. */
bool rdma_is_pause(const char *name, bool *ret_rx)
{
    if (!strstr(name, "pause") && !strstr(name, "pfc"))
        return false;
    if (strstr(name, "duration") || strstr(name, "transition"))
        return false; /* times, not frames */
    *ret_rx = strstr(name, "rx") != NULL || strstr(name, "rcv") != NULL;
    return true;
}

static void add_pauses(const char *folder, const char *kind, struct rdma_port *p)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, kind);
    DIR *all = opendir(path);
    for (struct dirent *d; all && (d = readdir(all)) != NULL;) {
        bool rx;
        uint64_t value =
            rdma_is_pause(d->d_name, &rx) ? number_of(folder, kind, d->d_name) : UNKNOWN;
        uint64_t *sum = value == UNKNOWN ? NULL : rx ? &p->pause_rx : &p->pause_tx;
        if (sum)
            *sum = (*sum == UNKNOWN ? 0 : *sum) + value;
    }
    if (all)
        (void)closedir(all);
}

static uint64_t line_id(const struct probing_host *h, const char *folder, const char *file)
{
    char path[512], text[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, file);
    if (proc_read_path(path, text, sizeof(text)) <= 0)
        return PROBING_NULL_ID;
    text[strcspn(text, "\n")] = '\0';
    return text_id(h, text);
}

/* ---- rows ---- */

static void add_row(struct rdma_usage *r, const char *folder, const struct rdma_port *was,
                    const struct rdma_port *is)
{
    union probing_cell cells[N_COLUMNS];
    uint64_t wall = was ? is->row_ns - was->row_ns : UNKNOWN;
    static const struct rdma_port none;
    const uint64_t *b = was ? was->counters : none.counters, *a = is->counters;
    for (uint32_t i = 0; i < N_COLUMNS; i++)
        cells[i] = probing_null(others[i].name ? others[i].type : PROBING_I64);
    cells[DEVICE].u = text_id(r->host, is->device);
    cells[PORT] = probing_i64(is->port);
    cells[LINK_STATE].u = line_id(r->host, folder, "state");
    cells[LINK_RATE].u = line_id(r->host, folder, "rate");
    cells[WALL] = count_cell(wall);
    for (uint32_t i = 0; i < RDMA_COUNTERS; i++)
        cells[FIRST_COUNTER + i] = count_cell(a[i]);
    if (was) {
        cells[RCV_RATE] = rate_cell(b[RDMA_RCV_DATA], a[RDMA_RCV_DATA], wall);
        cells[XMIT_RATE] = rate_cell(b[RDMA_XMIT_DATA], a[RDMA_XMIT_DATA], wall);
        cells[RCV_PACKETS_RATE] = rate_cell(b[RDMA_RCV_PACKETS], a[RDMA_RCV_PACKETS], wall);
        cells[XMIT_PACKETS_RATE] = rate_cell(b[RDMA_XMIT_PACKETS], a[RDMA_XMIT_PACKETS], wall);
    }
    cells[PAUSE_RX] = count_cell(is->pause_rx);
    cells[PAUSE_TX] = count_cell(is->pause_tx);
    (void)r->host->append(r->table, is->row_ns, cells, N_COLUMNS, NULL, 0);
}

static void keep_port(struct rdma_usage *r, const struct rdma_port *p, struct rdma_port *known)
{
    if (known) {
        *known = *p;
        return;
    }
    struct rdma_port *more = realloc(r->all, (r->n + 1) * sizeof(*more));
    if (!more)
        return;
    r->all = more;
    r->all[r->n++] = *p;
}

static void look_at_port(struct rdma_usage *r, const char *device, uint32_t port, uint64_t now)
{
    char folder[384];
    struct rdma_port is = {.port = port, .row_ns = now, .pause_rx = UNKNOWN, .pause_tx = UNKNOWN},
                     *was = NULL;
    (void)snprintf(is.device, sizeof(is.device), "%.*s", (int)sizeof(is.device) - 1, device);
    (void)snprintf(folder, sizeof(folder), "%s/%s/ports/%u", r->root, is.device, port);
    for (uint32_t i = 0; i < RDMA_COUNTERS; i++)
        is.counters[i] = counter_of(folder, &counters[i]);
    add_pauses(folder, "counters", &is);
    add_pauses(folder, "hw_counters", &is);
    for (uint32_t i = 0; i < r->n && !was; i++)
        if (r->all[i].port == port && strcmp(r->all[i].device, is.device) == 0)
            was = &r->all[i];
    if (!was && r->n == RDMA_PORTS_MAX)
        return;
    add_row(r, folder, was, &is);
    keep_port(r, &is, was);
}

void rdma_look(struct rdma_usage *r, uint64_t now, uint64_t interval_ns)
{
    uint64_t begun = own_cpu_ns();
    if (!r->host->wanted(r->table) || !pace_is_due(&r->pace, now))
        return;
    DIR *devices = opendir(r->root);
    for (struct dirent *d; devices && (d = readdir(devices)) != NULL;) {
        char path[384];
        if (d->d_name[0] == '.' || strlen(d->d_name) >= sizeof(((struct rdma_port *)0)->device))
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s/ports", r->root, d->d_name);
        DIR *ports = opendir(path);
        for (struct dirent *p; ports && (p = readdir(ports)) != NULL;) {
            uint64_t port;
            if (probing_parse_u64(p->d_name, 255, &port) == 0)
                look_at_port(r, d->d_name, (uint32_t)port, now);
        }
        if (ports)
            (void)closedir(ports);
    }
    if (devices)
        (void)closedir(devices);
    /* A machine without them gets some later: then, too. */
    pace_took(&r->pace, now, own_cpu_ns() - begun, r->n ? 1 : 60, interval_ns, PACE_LIST);
}
