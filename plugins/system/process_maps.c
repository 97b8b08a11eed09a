/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/process_maps.c - process.maps: what is mapped, as /proc/self/maps has it when a
 * query asks.
 *
 * Workers; no state.
 */
#include "computed.h"
#include "lib/proc/maps.h"

static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("start_address", PROBING_PLAIN,
                       "of the first byte; NULL: above 2^63, as the kernel's own vsyscall page is"),
    PROBING_I64_COLUMN("end_address", PROBING_PLAIN, "of the first byte behind it"),
    PROBING_I64_COLUMN("size_bytes", PROBING_BYTES, "address space; not all need be resident"),
    PROBING_STR_COLUMN("perms", "r, w, x, and p (private) or s (shared)"),
    PROBING_I64_COLUMN("file_offset", PROBING_BYTES, "of its first byte in the file"),
    PROBING_STR_COLUMN("device", "of the file: major:minor, in hex"),
    PROBING_I64_COLUMN("inode", PROBING_PLAIN, "of the file; NULL: no file"),
    PROBING_STR_COLUMN("path", "the file, or [heap], [stack]; NULL: memory without a name"),
    PROBING_I64_COLUMN("deleted", PROBING_PLAIN, "1: the file has lost its name"),
};

static int emit_mapping(struct probing_rows *out, const struct probing_host *h,
                        struct proc_mapping *m)
{
    static const char gone[] = " (deleted)";
    char perms[] = {m->readable ? 'r' : '-', m->writable ? 'w' : '-', m->executable ? 'x' : '-',
                    m->shared ? 's' : 'p', '\0'};
    char device[32];
    size_t n = strlen(m->path), tail = sizeof(gone) - 1;
    bool deleted = n > tail && strcmp(m->path + n - tail, gone) == 0;
    if (deleted)
        m->path[n - tail] = '\0';
    text_clean(m->path);
    (void)snprintf(device, sizeof(device), "%02x:%02x", m->major, m->minor);
    const union probing_cell cells[] = {count_cell(m->start),
                                        count_cell(m->end),
                                        count_cell(m->end - m->start),
                                        probing_str(perms),
                                        count_cell(m->offset),
                                        probing_str(m->inode ? device : NULL),
                                        count_cell(m->inode ? m->inode : UNKNOWN),
                                        probing_str(m->path[0] ? m->path : NULL),
                                        probing_i64(deleted)};
    return h->emit(out, cells, PROBING_LENGTH(cells));
}

static int scan_mappings(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    char room[PROC_MAPS_ROOM];
    struct proc_lines l;
    struct proc_mapping m;
    int r = proc_maps_open(&l, 0, room, sizeof(room));
    if (r < 0)
        return probing_failf(h, r, "/proc/self/maps cannot be read: %s", strerror(-r));
    while (r == 0 && proc_maps_next(&l, &m))
        r = emit_mapping(out, h, &m);
    if (r == 0 && l.error < 0)
        r = probing_failf(h, l.error, "/proc/self/maps was not read to its end: %s",
                          strerror(-l.error));
    proc_lines_close(&l);
    return probing_scanned(r);
}

const struct probing_table_desc maps_table =
    PROBING_COMPUTED_TABLE("process.maps", columns, scan_mappings, "what is mapped in the process");
