/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/host_usage.c - host.utilization: what the machine does, and what is taken from it:
 * processors, steal, faults and swap, TCP segments that had to be sent again.
 *
 * The sampler's worker only.  Counters are of the whole machine (in a container, too), those of TCP
 * of the process's network namespace.  What the kernel does not count is NULL.
 */
#include <unistd.h>

#include "internal.h"
#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"

#define LOOK_TICKS 5
#define PATH_BYTES 128

enum {
    WALL,
    CPUS,
    USER_PCT,
    SYSTEM_PCT,
    IOWAIT_PCT,
    STEAL_PCT,
    DELTA_STEAL,
    LOAD1,
    RUNNING,
    BLOCKED,
    DELTA_MAJFLT,
    DELTA_SWAP_IN,
    DELTA_SWAP_OUT,
    DELTA_OOM_KILLS,
    DELTA_TCP_SENT,
    DELTA_TCP_RETRANS,
    TCP_RETRANS_PCT,
    N_COLUMNS
};

static const struct probing_column columns[N_COLUMNS] = {
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "the time that this row covers"),
    [CPUS] = PROBING_I64_COLUMN("cpus", PROBING_COUNT, "processors of the machine"),
    [USER_PCT] = PROBING_F64_COLUMN("cpu_user_pct", PROBING_PERCENT,
                                    "of all its processors, in user mode, nice included"),
    [SYSTEM_PCT] = PROBING_F64_COLUMN("cpu_sys_pct", PROBING_PERCENT,
                                      "of all its processors, in the kernel and its interrupts"),
    [IOWAIT_PCT] = PROBING_F64_COLUMN("cpu_iowait_pct", PROBING_PERCENT,
                                      "of all its processors, idle while a task waited for a disk"),
    [STEAL_PCT] = PROBING_F64_COLUMN("cpu_steal_pct", PROBING_PERCENT,
                                     "of all its processors, taken by the hypervisor for others"),
    [DELTA_STEAL] = PROBING_I64_COLUMN("delta_steal_ns", PROBING_NS,
                                       "taken by the hypervisor, all processors together"),
    [LOAD1] = PROBING_F64_COLUMN("load1", PROBING_PLAIN,
                                 "tasks that ran, could run or waited for a disk, mean of 1 min"),
    [RUNNING] = PROBING_I64_COLUMN("procs_running", PROBING_COUNT, "tasks that run or could"),
    [BLOCKED] = PROBING_I64_COLUMN("procs_blocked", PROBING_COUNT, "tasks that wait for a disk"),
    [DELTA_MAJFLT] =
        PROBING_I64_COLUMN("delta_majflt", PROBING_COUNT, "page faults that needed a disk"),
    [DELTA_SWAP_IN] = PROBING_I64_COLUMN("delta_swap_in_bytes", PROBING_BYTES, "swapped in"),
    [DELTA_SWAP_OUT] = PROBING_I64_COLUMN("delta_swap_out_bytes", PROBING_BYTES, "swapped out"),
    [DELTA_OOM_KILLS] = PROBING_I64_COLUMN("delta_oom_kills", PROBING_COUNT,
                                           "processes killed for want of memory (Linux 4.13)"),
    [DELTA_TCP_SENT] = PROBING_I64_COLUMN(
        "delta_tcp_out_segs", PROBING_COUNT,
        "TCP segments sent in the process's network namespace, without those sent again"),
    [DELTA_TCP_RETRANS] =
        PROBING_I64_COLUMN("delta_tcp_retrans_segs", PROBING_COUNT,
                           "TCP segments sent again, as nobody had said that they came"),
    [TCP_RETRANS_PCT] =
        PROBING_F64_COLUMN("tcp_retrans_pct", PROBING_PERCENT, "of those sent, again"),
};

static const struct probing_table_desc table =
    PROBING_TABLE("host.utilization", columns,
                  "the machine: processors, steal, load, faults, swap, TCP retransmissions");

int host_init(struct host_usage *u, const struct probing_host *h)
{
    *u = (struct host_usage){.host = h, .root = "/proc"};
    memset(u->before, 0xff, sizeof(u->before)); /* UNKNOWN */
    return h->table(h, &table, &u->table);
}

/* ---- files ---- */

static uint64_t next_number(char **at)
{
    char *end = *at;
    uint64_t value = strtoull(*at, &end, 10);
    bool there = end != *at;
    *at = end;
    return there ? value : UNKNOWN;
}

/* "cpu  user nice system idle iowait irq softirq steal guest guest_nice"; old kernels have fewer.
 * Guests' time is in user and nice. */
static void take_cpu(char *at, struct host_look *ret)
{
    uint64_t v[8];
    for (uint32_t i = 0; i < 8; i++)
        v[i] = next_number(&at);
    if (v[3] == UNKNOWN)
        return;
    ret->counters[HOST_USER_TICKS] = v[0] + v[1];
    ret->counters[HOST_SYSTEM_TICKS] =
        v[2] + (v[5] == UNKNOWN ? 0 : v[5]) + (v[6] == UNKNOWN ? 0 : v[6]);
    ret->counters[HOST_IDLE_TICKS] = v[3];
    ret->counters[HOST_IOWAIT_TICKS] = v[4];
    ret->counters[HOST_STEAL_TICKS] = v[7];
}

static bool starts_with(const char *line, const char *word, char **ret)
{
    size_t n = strlen(word);
    *ret = (char *)line + n;
    return strncmp(line, word, n) == 0;
}

static void read_stat(const char *path, struct host_look *ret)
{
    char room[512], *at;
    struct proc_lines l;
    size_t n;
    uint64_t cpus = 0;
    (void)proc_lines_open(&l, path, room, sizeof(room));
    for (char *line; (line = proc_lines_next(&l, &n)) != NULL;) {
        if (starts_with(line, "cpu ", &at))
            take_cpu(at, ret);
        else if (starts_with(line, "cpu", &at))
            cpus++;
        else if (starts_with(line, "procs_running ", &at))
            ret->running = next_number(&at);
        else if (starts_with(line, "procs_blocked ", &at))
            ret->blocked = next_number(&at);
    }
    proc_lines_close(&l);
    ret->cpus = cpus > 0 ? cpus : UNKNOWN;
}

static void read_vmstat(const char *path, struct host_look *ret)
{
    static const struct {
        const char *key;
        int counter;
    } keys[] = {{"pgmajfault ", HOST_MAJFLT},
                {"pswpin ", HOST_SWAP_IN},
                {"pswpout ", HOST_SWAP_OUT},
                {"oom_kill ", HOST_OOM_KILLS}};
    char room[512], *at;
    struct proc_lines l;
    size_t n;
    (void)proc_lines_open(&l, path, room, sizeof(room));
    for (char *line; (line = proc_lines_next(&l, &n)) != NULL;)
        for (uint32_t i = 0; i < PROBING_LENGTH(keys); i++)
            if (starts_with(line, keys[i].key, &at))
                ret->counters[keys[i].counter] = next_number(&at);
    proc_lines_close(&l);
}

/* "Tcp: RtoAlgorithm ... OutSegs RetransSegs ..." and below it "Tcp: 1 ... 137632580 119318". */
static void read_snmp(const char *path, struct host_look *ret)
{
    char room[2048], names[1024] = "", *at;
    struct proc_lines l;
    size_t n;
    (void)proc_lines_open(&l, path, room, sizeof(room));
    for (char *line; (line = proc_lines_next(&l, &n)) != NULL;) {
        if (!starts_with(line, "Tcp:", &at) || l.cut)
            continue;
        if (!names[0]) {
            (void)snprintf(names, sizeof(names), "%s", at);
            continue;
        }
        for (const char *name = names + strspn(names, " "); *name;) {
            size_t length = strcspn(name, " ");
            at += strspn(at, " -"); /* MaxConn is -1 */
            uint64_t value = next_number(&at);
            if (length == 7 && strncmp(name, "OutSegs", 7) == 0)
                ret->counters[HOST_TCP_SENT] = value;
            if (length == 11 && strncmp(name, "RetransSegs", 11) == 0)
                ret->counters[HOST_TCP_RETRANS] = value;
            name += length + strspn(name + length, " ");
        }
        break;
    }
    proc_lines_close(&l);
}

/* "0.05 1.41 2.84 1/123 456"; by hand: strtod() takes the decimal point of the program's locale. */
static double read_load(const char *path)
{
    char text[128], *at = text;
    if (proc_read_path(path, text, sizeof(text)) <= 0)
        return -1;
    uint64_t whole = next_number(&at);
    if (whole == UNKNOWN || at[0] != '.' || at[1] < '0' || at[1] > '9' || at[2] < '0' ||
        at[2] > '9')
        return -1;
    return (double)whole + (at[1] - '0') / 10.0 + (at[2] - '0') / 100.0;
}

void host_read(const char *root, struct host_look *ret)
{
    char path[PATH_BYTES];
    *ret = (struct host_look){.cpus = UNKNOWN, .running = UNKNOWN, .blocked = UNKNOWN};
    memset(ret->counters, 0xff, sizeof(ret->counters)); /* UNKNOWN */
    (void)snprintf(path, sizeof(path), "%s/stat", root);
    read_stat(path, ret);
    (void)snprintf(path, sizeof(path), "%s/vmstat", root);
    read_vmstat(path, ret);
    (void)snprintf(path, sizeof(path), "%s/self/net/snmp", root);
    read_snmp(path, ret);
    (void)snprintf(path, sizeof(path), "%s/loadavg", root);
    ret->load1 = read_load(path);
}

/* ---- the row ---- */

/* after - before; UNKNOWN where one is not known, or the counter went back. */
static uint64_t counter_difference(const struct host_usage *u, const struct host_look *is,
                                   int counter)
{
    uint64_t before = u->before[counter], after = is->counters[counter];
    return before != UNKNOWN && after != UNKNOWN && after >= before ? after - before : UNKNOWN;
}

static void cpu_cells(const struct host_usage *u, const struct host_look *is,
                      union probing_cell *cells)
{
    static const int shares[][2] = {{USER_PCT, HOST_USER_TICKS},
                                    {SYSTEM_PCT, HOST_SYSTEM_TICKS},
                                    {IOWAIT_PCT, HOST_IOWAIT_TICKS},
                                    {STEAL_PCT, HOST_STEAL_TICKS}};
    uint64_t all = 0, tick = PROBING_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    for (int i = HOST_USER_TICKS; i <= HOST_STEAL_TICKS; i++)
        all += counter_difference(u, is, i) == UNKNOWN ? 0 : counter_difference(u, is, i);
    for (uint32_t i = 0; i < PROBING_LENGTH(shares); i++)
        cells[shares[i][0]] = percent_cell(counter_difference(u, is, shares[i][1]), all);
    uint64_t steal = counter_difference(u, is, HOST_STEAL_TICKS);
    cells[DELTA_STEAL] = count_cell(steal == UNKNOWN ? steal : steal * tick);
}

static union probing_cell bytes_cell(uint64_t pages)
{
    return count_cell(pages == UNKNOWN ? pages : pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

void host_look(struct host_usage *u, uint64_t now, uint64_t interval_ns)
{
    union probing_cell cells[N_COLUMNS];
    struct host_look is;
    uint64_t begun = own_cpu_ns(), wall = u->row_ns ? now - u->row_ns : UNKNOWN;
    if (!u->host->wanted(u->table) || !pace_is_due(&u->pace, now))
        return;
    host_read(u->root, &is);
    uint64_t sent = counter_difference(u, &is, HOST_TCP_SENT),
             again = counter_difference(u, &is, HOST_TCP_RETRANS);
    cells[WALL] = count_cell(wall);
    cells[CPUS] = count_cell(is.cpus);
    cpu_cells(u, &is, cells);
    cells[LOAD1] = is.load1 >= 0 ? probing_f64(is.load1) : probing_null(PROBING_F64);
    cells[RUNNING] = count_cell(is.running);
    cells[BLOCKED] = count_cell(is.blocked);
    cells[DELTA_MAJFLT] = count_cell(counter_difference(u, &is, HOST_MAJFLT));
    cells[DELTA_SWAP_IN] = bytes_cell(counter_difference(u, &is, HOST_SWAP_IN));
    cells[DELTA_SWAP_OUT] = bytes_cell(counter_difference(u, &is, HOST_SWAP_OUT));
    cells[DELTA_OOM_KILLS] = count_cell(counter_difference(u, &is, HOST_OOM_KILLS));
    cells[DELTA_TCP_SENT] = count_cell(sent);
    cells[DELTA_TCP_RETRANS] = count_cell(again);
    cells[TCP_RETRANS_PCT] = percent_cell(again, sent == UNKNOWN ? 0 : sent);
    (void)u->host->append(u->table, now, cells, N_COLUMNS, NULL, 0);
    memcpy(u->before, is.counters, sizeof(u->before));
    u->row_ns = now;
    pace_took(&u->pace, now, own_cpu_ns() - begun, LOOK_TICKS, interval_ns, PACE_SMALL);
}
