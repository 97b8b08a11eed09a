/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/io_usage.c - io.utilization: what the process reads and writes, by
 * /proc/self/io.
 *
 * The sampler's worker only.  The numbers are those of the whole process: probing's own files are
 * in them.
 */
#include "internal.h"
#include "lib/proc/lines.h"

#define LITTLE_TICKS 10                  /* between rows while little is read and written, */
#define LITTLE_BYTES (UINT64_C(1) << 20) /* less than this: what the looks read is in the numbers */

enum {
    SCOPE,
    WALL,
    READ_BYTES,
    WRITE_BYTES,
    DELTA_READ,
    DELTA_WRITE,
    READ_RATE,
    WRITE_RATE,
    DELTA_RCHAR,
    DELTA_WCHAR,
    RCHAR_RATE,
    WCHAR_RATE,
    DELTA_SYSCR,
    DELTA_SYSCW,
    DELTA_CANCELLED,
    N_COLUMNS
};

static const struct probing_column columns[N_COLUMNS] = {
    [SCOPE] = PROBING_STR_COLUMN("scope", "process"),
    [WALL] = PROBING_I64_COLUMN("wall_ns", PROBING_NS, "the time that this row covers"),
    [READ_BYTES] = PROBING_I64_COLUMN("read_bytes", PROBING_BYTES,
                                      "read from devices since the process began"),
    [WRITE_BYTES] = PROBING_I64_COLUMN("write_bytes", PROBING_BYTES,
                                       "written, or to be written, to devices since it began"),
    [DELTA_READ] = PROBING_I64_COLUMN("delta_read_bytes", PROBING_BYTES, "read from devices"),
    [DELTA_WRITE] = PROBING_I64_COLUMN("delta_write_bytes", PROBING_BYTES, "written to devices"),
    [READ_RATE] = PROBING_F64_COLUMN("read_bytes_per_sec", PROBING_BYTES, "read from devices"),
    [WRITE_RATE] = PROBING_F64_COLUMN("write_bytes_per_sec", PROBING_BYTES, "written to devices"),
    [DELTA_RCHAR] = PROBING_I64_COLUMN("delta_rchar", PROBING_BYTES,
                                       "given by read() and the like, from caches and pipes too"),
    [DELTA_WCHAR] =
        PROBING_I64_COLUMN("delta_wchar", PROBING_BYTES, "taken by write() and the like"),
    [RCHAR_RATE] = PROBING_F64_COLUMN("rchar_per_sec", PROBING_BYTES, "given by read(), a second"),
    [WCHAR_RATE] = PROBING_F64_COLUMN("wchar_per_sec", PROBING_BYTES, "taken by write(), a second"),
    [DELTA_SYSCR] =
        PROBING_I64_COLUMN("delta_read_calls", PROBING_COUNT, "calls of read() and the like"),
    [DELTA_SYSCW] =
        PROBING_I64_COLUMN("delta_write_calls", PROBING_COUNT, "calls of write() and the like"),
    [DELTA_CANCELLED] = PROBING_I64_COLUMN(
        "delta_cancelled_write_bytes", PROBING_BYTES,
        "in write_bytes, but never written, as the file was removed or cut before"),
};

static const struct probing_table_desc table = PROBING_TABLE(
    "io.utilization", columns, "what the process reads and writes, probing's own files included");

static const char *const keys[IO_COUNTERS] = {[IO_RCHAR] = "rchar",
                                              [IO_WCHAR] = "wchar",
                                              [IO_SYSCR] = "syscr",
                                              [IO_SYSCW] = "syscw",
                                              [IO_READ_BYTES] = "read_bytes",
                                              [IO_WRITE_BYTES] = "write_bytes",
                                              [IO_CANCELLED] = "cancelled_write_bytes"};

int io_init(struct io_usage *io, const struct probing_host *h)
{
    *io = (struct io_usage){.host = h};
    memset(io->before, 0xff, sizeof(io->before)); /* UNKNOWN */
    return h->table(h, &table, &io->table);
}

int io_read(const char *path, uint64_t ret[IO_COUNTERS])
{
    char room[512];
    struct proc_lines l;
    size_t n;
    int r = proc_lines_open(&l, path, room, sizeof(room));
    for (uint32_t i = 0; i < IO_COUNTERS; i++)
        ret[i] = UNKNOWN;
    for (char *line; (line = proc_lines_next(&l, &n)) != NULL;) {
        char *colon = strchr(line, ':');
        if (!colon)
            continue;
        *colon = '\0';
        for (uint32_t i = 0; i < IO_COUNTERS; i++)
            if (strcmp(line, keys[i]) == 0)
                (void)probing_parse_u64(colon + 1 + strspn(colon + 1, " "), INT64_MAX, &ret[i]);
    }
    proc_lines_close(&l);
    return r < 0 ? r : l.error;
}

/* wall: 0 for the first row, which has no deltas. */
static void add_row(struct io_usage *io, const uint64_t *now_is, uint64_t wall, uint64_t now)
{
    const uint64_t *was = io->before;
    union probing_cell cells[N_COLUMNS];
    cells[SCOPE].u = probing_intern_text(io->host, "process");
    cells[WALL] = count_cell(wall ? wall : UNKNOWN);
    cells[READ_BYTES] = count_cell(now_is[IO_READ_BYTES]);
    cells[WRITE_BYTES] = count_cell(now_is[IO_WRITE_BYTES]);
    cells[DELTA_READ] = delta_cell(was[IO_READ_BYTES], now_is[IO_READ_BYTES]);
    cells[DELTA_WRITE] = delta_cell(was[IO_WRITE_BYTES], now_is[IO_WRITE_BYTES]);
    cells[READ_RATE] = rate_cell(was[IO_READ_BYTES], now_is[IO_READ_BYTES], wall);
    cells[WRITE_RATE] = rate_cell(was[IO_WRITE_BYTES], now_is[IO_WRITE_BYTES], wall);
    cells[DELTA_RCHAR] = delta_cell(was[IO_RCHAR], now_is[IO_RCHAR]);
    cells[DELTA_WCHAR] = delta_cell(was[IO_WCHAR], now_is[IO_WCHAR]);
    cells[RCHAR_RATE] = rate_cell(was[IO_RCHAR], now_is[IO_RCHAR], wall);
    cells[WCHAR_RATE] = rate_cell(was[IO_WCHAR], now_is[IO_WCHAR], wall);
    cells[DELTA_SYSCR] = delta_cell(was[IO_SYSCR], now_is[IO_SYSCR]);
    cells[DELTA_SYSCW] = delta_cell(was[IO_SYSCW], now_is[IO_SYSCW]);
    cells[DELTA_CANCELLED] = delta_cell(was[IO_CANCELLED], now_is[IO_CANCELLED]);
    (void)io->host->append(io->table, now, cells, N_COLUMNS, NULL, 0);
}

static bool is_due(const struct io_usage *io, const uint64_t *is, uint64_t now,
                   uint64_t interval_ns)
{
    static const uint32_t counted[] = {IO_RCHAR, IO_WCHAR, IO_READ_BYTES, IO_WRITE_BYTES};
    uint64_t bytes = 0;
    if (io->row_ns == 0 || now - io->row_ns >= LITTLE_TICKS * interval_ns - interval_ns / 8)
        return true;
    for (uint32_t i = 0; i < PROBING_LENGTH(counted); i++)
        bytes += is[counted[i]] - io->before[counted[i]]; /* of unknown ones: 0 */
    return bytes >= LITTLE_BYTES;
}

void io_look(struct io_usage *io, uint64_t now, uint64_t interval_ns)
{
    uint64_t counters[IO_COUNTERS], begun = own_cpu_ns();
    if (!io->host->wanted(io->table) || !pace_is_due(&io->pace, now))
        return;
    int error = io_read("/proc/self/io", counters);
    if (error == 0 && is_due(io, counters, now, interval_ns)) {
        add_row(io, counters, io->row_ns ? now - io->row_ns : 0, now);
        memcpy(io->before, counters, sizeof(counters));
        io->row_ns = now;
    }
    atomic_store_explicit(&io->error, error, memory_order_relaxed);
    pace_took(&io->pace, now, own_cpu_ns() - begun, 1, interval_ns, PACE_SMALL);
}
