/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/numa_nodes.c - system.numa: the machine's memory nodes, and how much of the
 * process lies on each, when a query asks.
 *
 * Workers; no state.
 */
#include <probing/ext/draft/rows.h>

#include "computed.h"
#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"

#define NODES_MAX 256
#define ROOT "/sys/devices/system/node"

enum { PROCESS_BYTES = 4 };
static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("node", PROBING_PLAIN, "its number"),
    PROBING_STR_COLUMN("cpus", "its processors: 0-15,32-47"),
    PROBING_I64_COLUMN("total_bytes", PROBING_BYTES, "memory of the node"),
    PROBING_I64_COLUMN("free_bytes", PROBING_BYTES, "that is free"),
    PROBING_I64_COLUMN("process_bytes", PROBING_BYTES,
                       "resident memory of this process on it (numa_maps); NULL: not known"),
    PROBING_I64_COLUMN("numa_hit", PROBING_COUNT, "pages taken here that were wanted here"),
    PROBING_I64_COLUMN("numa_miss", PROBING_COUNT, "pages taken here that were wanted elsewhere"),
    PROBING_I64_COLUMN("numa_foreign", PROBING_COUNT, "pages wanted here and taken elsewhere"),
    PROBING_I64_COLUMN("local_node", PROBING_COUNT, "pages taken by processors of this node"),
    PROBING_I64_COLUMN("other_node", PROBING_COUNT, "pages taken by processors of another one"),
};

/* One line of numa_maps: "7f.. default anon=3 N0=2 N1=1 kernelpagesize_kB=4". */
void numa_add(const char *line, uint64_t *bytes, uint32_t n)
{
    const char *size = strstr(line, "kernelpagesize_kB=");
    uint64_t page = size ? strtoull(strchr(size, '=') + 1, NULL, 10) * 1024 : 4096;
    for (const char *at = strstr(line, " N"); at; at = strstr(at + 1, " N")) {
        char *end;
        uint64_t node = strtoull(at + 2, &end, 10);
        if (end > at + 2 && *end == '=' && node < n)
            bytes[node] += strtoull(end + 1, NULL, 10) * page;
    }
}

static bool process_bytes(uint64_t *bytes)
{
    char room[8192];
    struct proc_lines l;
    size_t size;
    memset(bytes, 0, NODES_MAX * sizeof(*bytes));
    if (proc_lines_open(&l, "/proc/self/numa_maps", room, sizeof(room)) < 0)
        return false;
    for (char *line; (line = proc_lines_next(&l, &size)) != NULL;)
        numa_add(line, bytes, NODES_MAX);
    proc_lines_close(&l);
    return l.error == 0;
}

static uint64_t stat_of(uint32_t node, const char *key)
{
    char path[96];
    uint64_t value;
    (void)snprintf(path, sizeof(path), ROOT "/node%u/numastat", node);
    return proc_number_in(path, key, &value) ? value : UNKNOWN;
}

static uint64_t memory_of(uint32_t node, const char *key)
{
    char path[96], begin[64];
    uint64_t kb;
    (void)snprintf(path, sizeof(path), ROOT "/node%u/meminfo", node);
    (void)snprintf(begin, sizeof(begin), "Node %u %s:", node, key);
    return proc_number_in(path, begin, &kb) ? kb * 1024 : UNKNOWN;
}

static int scan_numa_nodes(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    const struct probing_rows_1 *rows = h->extension(h, PROBING_ROWS_1);
    uint64_t bytes[NODES_MAX];
    bool known = (!rows || rows->wanted(out, PROCESS_BYTES)) && process_bytes(bytes);
    int r = 0;
    for (uint32_t node = 0; node < NODES_MAX && r == 0; node++) {
        char path[96], cpus[1024];
        (void)snprintf(path, sizeof(path), ROOT "/node%u/cpulist", node);
        if (proc_read_path(path, cpus, sizeof(cpus)) < 0)
            continue; /* numbers may have holes */
        cpus[strcspn(cpus, "\n")] = '\0';
        const union probing_cell cells[] = {probing_i64(node),
                                            probing_str(cpus[0] ? cpus : NULL),
                                            count_cell(memory_of(node, "MemTotal")),
                                            count_cell(memory_of(node, "MemFree")),
                                            count_cell(known ? bytes[node] : UNKNOWN),
                                            count_cell(stat_of(node, "numa_hit ")),
                                            count_cell(stat_of(node, "numa_miss ")),
                                            count_cell(stat_of(node, "numa_foreign ")),
                                            count_cell(stat_of(node, "local_node ")),
                                            count_cell(stat_of(node, "other_node "))};
        r = h->emit(out, cells, PROBING_LENGTH(cells));
    }
    return probing_scanned(r);
}

const struct probing_table_desc numa_table =
    PROBING_COMPUTED_TABLE("system.numa", columns, scan_numa_nodes,
                           "memory nodes of the machine, and the process's part of each");
