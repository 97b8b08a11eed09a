/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/system_test.c - texts of the kernel, and of those who would like to be it; ports
 * of RDMA devices, which few machines have, out of a made-up /sys.
 *
 * One thread.
 */
#include <ftw.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "computed.h"
#include "tests/test.h"

/* ---- texts ---- */

TEST(pressure_lines)
{
    struct pressure_line l;
    CHECK(pressure_parse("some avg10=1.25 avg60=0.05 avg300=100.00 total=123456", &l));
    CHECK(!l.full);
    CHECK(l.averages[0] > 1.2499 && l.averages[0] < 1.2501);
    CHECK(l.averages[1] > 0.0499 && l.averages[1] < 0.0501);
    CHECK(l.averages[2] > 99.99 && l.averages[2] < 100.01);
    CHECK_INT(l.total_ns, 123456000);
    CHECK(pressure_parse("full avg10=0.00 avg60=0.00 avg300=0.00 total=0", &l) && l.full);
    CHECK(!pressure_parse("", &l));
    CHECK(!pressure_parse("some", &l));
    CHECK(!pressure_parse("none avg10=0.00 avg60=0.00 avg300=0.00 total=0", &l));
    CHECK(!pressure_parse("some avg10=0.00 avg60=0.00 total=0", &l));
}

TEST(network_lines)
{
    char good[] = "  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
         head[] = " face |bytes    packets errs drop", few[] = "lo: 1 2 3",
         words[] = "lo: 1 2 3 4 5 6 7 8 9 10 eleven 12", odd[] = "a:b: 1 2 3 4 5 6 7 8 9 10 11 12",
         none[] = ": 1 2 3 4 5 6 7 8 9 10 11 12";
    struct net_interface i;
    CHECK(net_parse(good, &i));
    CHECK_STR(i.name, "eth0");
    CHECK_INT(i.counters[NET_RX_BYTES], 1);
    CHECK_INT(i.counters[NET_RX_DROPPED], 4);
    CHECK_INT(i.counters[NET_TX_BYTES], 9);
    CHECK_INT(i.counters[NET_TX_DROPPED], 12);
    CHECK(!net_parse(head, &i));
    CHECK(!net_parse(few, &i));
    CHECK(!net_parse(words, &i));
    CHECK(!net_parse(none, &i));
    CHECK(net_parse(odd, &i)); /* an alias of an old kernel */
    CHECK_STR(i.name, "a:b");
}

TEST(kernel_log_lines)
{
    char good[] = "6,1181,36823,-;oom-kill: \x1b[31m\xff\n SUBSYSTEM=net\n", user[] = "12,1,2,-;x",
         far[] = "999999,1,2,-;x", cut[] = "6,1181", empty[] = "", text[] = "a,b,c;d";
    struct kmsg_line l;
    CHECK(kmsg_parse(good, &l));
    CHECK_STR(l.level, "info");
    CHECK_STR(l.facility, "kern");
    CHECK_STR(l.message, "oom-kill: ?[31m?");
    CHECK_INT(l.sequence, 1181);
    CHECK_INT(l.at_ns, 36823000);
    CHECK(kmsg_parse(user, &l));
    CHECK_STR(l.facility, "user");
    CHECK(kmsg_parse(far, &l) && l.facility == NULL);
    CHECK(!kmsg_parse(cut, &l));
    CHECK(!kmsg_parse(empty, &l));
    CHECK(!kmsg_parse(text, &l));
}

TEST(numa_lines)
{
    uint64_t bytes[2] = {0, 0};
    numa_add("7f0000000000 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4", bytes, 2);
    numa_add("7f0000000000 default huge N1=2 kernelpagesize_kB=2048", bytes, 2);
    numa_add("7f0000000000 default N9=7 N=1 Nx=2 N0= kernelpagesize_kB=4", bytes, 2);
    numa_add("", bytes, 2);
    CHECK_INT(bytes[0], 8192);
    CHECK_INT(bytes[1], 4096 + (2 << 21));
}

TEST(names_of_pauses)
{
    bool rx = false;
    CHECK(rdma_is_pause("rx_prio3_pause", &rx) && rx);
    CHECK(rdma_is_pause("tx_prio0_pause", &rx) && !rx);
    CHECK(rdma_is_pause("pfc1_tx", &rx) && !rx);
    CHECK(!rdma_is_pause("rx_prio3_pause_duration", &rx));
    CHECK(!rdma_is_pause("out_of_buffer", &rx));
}

TEST(texts_that_are_none)
{
    char text[] = "a\nb\xc3(\xf0\x9f\x98\x80\x7f";
    text_clean(text);
    CHECK_STR(text, "a?b?(\xf0\x9f\x98\x80?");
}

static void put(const char *root, const char *path, const char *text)
{
    char whole[512];
    (void)snprintf(whole, sizeof(whole), "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *f = fopen(whole, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

TEST(a_machine)
{
    char root[] = "/tmp/host-XXXXXX";
    struct host_look is;
    if (!CHECK(mkdtemp(root) != NULL))
        return;
    host_read(root, &is); /* nothing is there */
    CHECK(is.cpus == UNKNOWN && is.running == UNKNOWN && is.load1 < 0);
    for (int i = 0; i < HOST_COUNTERS; i++)
        CHECK(is.counters[i] == UNKNOWN);
    put(root, "stat",
        "cpu  9324334 752091 2734910 3568607 33258 5 32810 3128 7 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
        "cpu1 1 2 3 4 5 6 7 8 9 0\nintr 5 0 0\nprocs_running 3\nprocs_blocked 1\n");
    put(root, "vmstat", "pgpgin 5\npswpin 11\npswpout 12\npgmajfault 496604\noom_kill 29\n");
    put(root, "self/net/snmp",
        "Ip: Forwarding DefaultTTL\nIp: 2 64\n"
        "Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InErrs\n"
        "Tcp: 1 -1 137806166 137632580 119318 0\nUdp: OutSegs\nUdp: 9\n");
    put(root, "loadavg", "12.46 11.74 7.46 1/300 1234\n");
    host_read(root, &is);
    CHECK_INT(is.counters[HOST_USER_TICKS], 9324334 + 752091);
    CHECK_INT(is.counters[HOST_SYSTEM_TICKS], 2734910 + 5 + 32810);
    CHECK_INT(is.counters[HOST_IDLE_TICKS], 3568607);
    CHECK_INT(is.counters[HOST_IOWAIT_TICKS], 33258);
    CHECK_INT(is.counters[HOST_STEAL_TICKS], 3128);
    CHECK_INT(is.counters[HOST_MAJFLT], 496604);
    CHECK_INT(is.counters[HOST_SWAP_IN], 11);
    CHECK_INT(is.counters[HOST_SWAP_OUT], 12);
    CHECK_INT(is.counters[HOST_OOM_KILLS], 29);
    CHECK_INT(is.counters[HOST_TCP_SENT], 137632580);
    CHECK_INT(is.counters[HOST_TCP_RETRANS], 119318);
    CHECK_INT(is.cpus, 2);
    CHECK_INT(is.running, 3);
    CHECK_INT(is.blocked, 1);
    CHECK(is.load1 > 12.459 && is.load1 < 12.461);
    put(root, "stat", "cpu  1 2 3 4\n"); /* Linux 2.4 */
    put(root, "vmstat", "pgmajfault x\n");
    put(root, "self/net/snmp", "Tcp: OutSegs RetransSegs\n");
    put(root, "loadavg", "1,5 x");
    host_read(root, &is);
    CHECK_INT(is.counters[HOST_SYSTEM_TICKS], 3);
    CHECK(is.counters[HOST_STEAL_TICKS] == UNKNOWN && is.counters[HOST_IOWAIT_TICKS] == UNKNOWN);
    CHECK(is.counters[HOST_MAJFLT] == UNKNOWN && is.counters[HOST_TCP_RETRANS] == UNKNOWN);
    CHECK(is.load1 < 0 && is.cpus == UNKNOWN);
    CHECK_INT(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- how often ---- */

TEST(what_costs_much_is_rare)
{
    struct pace p = {0, 0};
    const uint64_t second = PROBING_NS_PER_S;
    CHECK(pace_is_due(&p, 0));
    pace_took(&p, 100 * second, 1000, 1, second, PACE_SMALL); /* 1 us: its tick is enough */
    CHECK(!pace_is_due(&p, 100 * second + second / 2));
    CHECK(pace_is_due(&p, 101 * second));
    pace_took(&p, 100 * second, PROBING_NS_PER_MS, 1, second, PACE_SMALL); /* 0.002 % */
    CHECK(!pace_is_due(&p, 149 * second));
    CHECK(pace_is_due(&p, 150 * second));
    pace_took(&p, 100 * second, PROBING_NS_PER_MS, 1, second / 10, PACE_SMALL); /* as asked for */
    CHECK(!pace_is_due(&p, 104 * second));
    CHECK(pace_is_due(&p, 105 * second));
    pace_took(&p, 100 * second, UINT64_MAX, 1, second, PACE_THREADS);
    CHECK(p.next_ns > 100 * second);
}

TEST(cells_of_counters)
{
    CHECK_INT(delta_cell(3, 5).i, 2);
    CHECK(delta_cell(5, 3).i == PROBING_NULL_I64); /* it began again */
    CHECK(delta_cell(UNKNOWN, 3).i == PROBING_NULL_I64);
    CHECK(rate_cell(0, 5, 0).u == PROBING_NULL_F64);
    CHECK(rate_cell(0, 5, PROBING_NS_PER_S / 2).f > 9.99);
    CHECK(percent_cell(UNKNOWN, 1).u == PROBING_NULL_F64);
    CHECK(count_cell(UINT64_MAX).i == PROBING_NULL_I64);
}

/* ---- ports ---- */

static struct {
    union probing_cell cells[64];
    uint32_t n, rows, columns;
    char names[64][64];
} seen;

static int take_table(const struct probing_host *h, const struct probing_table_desc *d,
                      struct probing_table **ret)
{
    (void)h;
    seen.columns = d->n_columns;
    for (uint32_t i = 0; i < d->n_columns; i++)
        (void)snprintf(seen.names[i], sizeof(seen.names[i]), "%s", d->columns[i].name);
    *ret = (struct probing_table *)&seen;
    return 0;
}

static int take_row(struct probing_table *t, uint64_t ts, const union probing_cell *cells,
                    uint32_t n, const void *tail, uint32_t tail_n)
{
    (void)t, (void)ts, (void)tail, (void)tail_n;
    memcpy(seen.cells, cells, n * sizeof(*cells));
    seen.n = n;
    seen.rows++;
    return 0;
}

static int take_text(const struct probing_host *h, const void *p, size_t n, uint64_t *ret)
{
    (void)h, (void)p;
    *ret = n;
    return 0;
}

static int is_wanted(const struct probing_table *t)
{
    (void)t;
    return 1;
}

static union probing_cell cell(const char *name)
{
    for (uint32_t i = 0; i < seen.n; i++)
        if (strcmp(seen.names[i], name) == 0)
            return seen.cells[i];
    CHECK_STR(name, "a column");
    return seen.cells[0];
}

TEST(counters_of_ports)
{
    char root[] = "/tmp/rdma-XXXXXX";
    const struct probing_host host = {.size = sizeof(host),
                                      .table = take_table,
                                      .append = take_row,
                                      .intern = take_text,
                                      .wanted = is_wanted};
    struct rdma_usage r;
    CHECK(mkdtemp(root) != NULL);
    CHECK_INT(rdma_init(&r, &host), 0);
    r.root = root;
    rdma_look(&r, PROBING_NS_PER_S, PROBING_NS_PER_S);
    CHECK_INT(seen.rows, 0);
    put(root, "mlx5_0/ports/1/counters/port_rcv_data", "1000\n");
    put(root, "mlx5_0/ports/1/counters/port_xmit_packets", "7\n");
    put(root, "mlx5_0/ports/1/counters/symbol_error", "no number\n");
    put(root, "mlx5_0/ports/1/hw_counters/np_cnp_sent", "18446744073709551615\n");
    put(root, "mlx5_0/ports/1/hw_counters/rx_prio1_pause", "3\n");
    put(root, "mlx5_0/ports/1/hw_counters/rx_prio2_pause", "4\n");
    put(root, "mlx5_0/ports/1/state", "4: ACTIVE\n");
    put(root, "mlx5_0/ports/x/state", "no port\n");
    r.pace.next_ns = 0;
    rdma_look(&r, 100 * PROBING_NS_PER_S, PROBING_NS_PER_S);
    CHECK_INT(seen.rows, 1);
    CHECK_INT(seen.n, seen.columns);
    CHECK_INT(cell("port").i, 1);
    CHECK_INT(cell("rcv_bytes").i, 4000);
    CHECK_INT(cell("port_xmit_packets").i, 7);
    CHECK_INT(cell("pause_rx").i, 7);
    CHECK(cell("pause_tx").i == PROBING_NULL_I64);
    CHECK(cell("symbol_error").i == PROBING_NULL_I64);
    CHECK(cell("link_downed").i == PROBING_NULL_I64);
    CHECK(cell("rcv_bytes_per_sec").u == PROBING_NULL_F64);
    put(root, "mlx5_0/ports/1/counters/port_rcv_data", "2000\n");
    r.pace.next_ns = 0;
    rdma_look(&r, 102 * PROBING_NS_PER_S, PROBING_NS_PER_S);
    CHECK_INT(seen.rows, 2);
    CHECK_INT(cell("wall_ns").i, 2 * (int64_t)PROBING_NS_PER_S);
    CHECK(cell("rcv_bytes_per_sec").f > 1999 && cell("rcv_bytes_per_sec").f < 2001);
    rdma_done(&r);
    CHECK_INT(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- cgroups ---- */

TEST(limits_of_version_2_and_of_parents)
{
    char root[] = "/tmp/groups-XXXXXX";
    const struct probing_host host = {.size = sizeof(host),
                                      .table = take_table,
                                      .append = take_row,
                                      .intern = take_text,
                                      .wanted = is_wanted};
    struct cgroup_usage g;
    CHECK(mkdtemp(root) != NULL);
    CHECK_INT(cgroup_init(&g, &host), 0);
    put(root, "up/memory.max", "1000000\n");
    put(root, "up/cpu.max", "150000 100000\n");
    put(root, "up/pids.max", "max\n");
    put(root, "up/in/memory.max", "max\n");
    put(root, "up/in/memory.high", "500000\n");
    put(root, "up/in/memory.current", "250000\n");
    put(root, "up/in/memory.events", "low 0\nhigh 5\nmax 1\noom 1\noom_kill 2\n");
    put(root, "up/in/cpu.max", "max 100000\n");
    put(root, "up/in/cpu.stat",
        "usage_usec 100\nuser_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 70\n");
    put(root, "up/in/pids.max", "\n");
    cgroup_look(&g, 1, PROBING_NS_PER_S); /* finds where it is; from then on it is where we say */
    g = (struct cgroup_usage){.host = &host,
                              .table = g.table,
                              .names = g.names,
                              .mounts_pace = {.next_ns = UINT64_MAX},
                              .cpu_ns = UINT64_MAX,
                              .periods = UINT64_MAX,
                              .throttled = UINT64_MAX,
                              .throttled_ns = UINT64_MAX};
    g.unified.known = true;
    g.unified.at.point = strlen(root);
    (void)snprintf(g.unified.at.path, sizeof(g.unified.at.path), "%s/up/in", root);
    cgroup_look(&g, PROBING_NS_PER_S, PROBING_NS_PER_S);
    CHECK_INT(cell("version").i, 2);
    CHECK(cell("cpu_limit_cores").f > 1.49 && cell("cpu_limit_cores").f < 1.51);
    CHECK_INT(cell("memory_limit_bytes").i, 1000000);
    CHECK_INT(cell("memory_high_bytes").i, 500000);
    CHECK_INT(cell("memory_bytes").i, 250000);
    CHECK_INT(cell("oom_kills").i, 2);
    CHECK_INT(cell("high_events").i, 5);
    CHECK(cell("pids_limit").i == PROBING_NULL_I64);
    CHECK(cell("delta_throttled").i == PROBING_NULL_I64); /* the first look */
    put(root, "up/in/cpu.stat",
        "usage_usec 500100\nnr_periods 20\nnr_throttled 9\nthrottled_usec 170\n");
    g.pace.next_ns = 0;
    cgroup_look(&g, 2 * PROBING_NS_PER_S, PROBING_NS_PER_S);
    CHECK_INT(cell("delta_periods").i, 10);
    CHECK(cell("cpu_pct").f > 49.9 && cell("cpu_pct").f < 50.1);
    CHECK_INT(cell("delta_throttled").i, 5);
    CHECK_INT(cell("delta_throttled_ns").i, 100000);
    put(root, "up/cpu.stat", "nr_periods 7\nnr_throttled 7\nthrottled_usec 7000\n");
    g.pace.next_ns = 0;
    cgroup_look(&g, 3 * PROBING_NS_PER_S, PROBING_NS_PER_S);
    put(root, "up/cpu.stat", "nr_periods 8\nnr_throttled 8\nthrottled_usec 7200\n");
    g.pace.next_ns = 0;
    cgroup_look(&g, 4 * PROBING_NS_PER_S, PROBING_NS_PER_S);
    CHECK_INT(cell("delta_throttled").i, 1); /* what stops its parent stops it */
    CHECK_INT(cell("delta_throttled_ns").i, 200000);
    CHECK_INT(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

int main(void)
{
    RUN(pressure_lines);
    RUN(network_lines);
    RUN(kernel_log_lines);
    RUN(numa_lines);
    RUN(names_of_pauses);
    RUN(texts_that_are_none);
    RUN(a_machine);
    RUN(what_costs_much_is_rare);
    RUN(cells_of_counters);
    RUN(counters_of_ports);
    RUN(limits_of_version_2_and_of_parents);
    return test_end();
}
