/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/process_fds.c - process.fds: the open files of the process, when a query asks.
 *
 * Workers; no state.  The one descriptor that the look itself takes is left out.
 */
#include <fcntl.h>
#include <unistd.h>

#include "computed.h"
#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"

static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("fd", PROBING_PLAIN, "the descriptor"),
    PROBING_STR_COLUMN("kind", "file, socket, pipe, device, memfd, anon (eventfd, epoll, ...)"),
    PROBING_STR_COLUMN("target", "what it is open to, as readlink() of /proc/self/fd says"),
    PROBING_I64_COLUMN("inode", PROBING_PLAIN,
                       "of a socket or pipe: who has the same is its other end"),
    PROBING_I64_COLUMN("position", PROBING_BYTES, "where the next read() or write() begins"),
    PROBING_STR_COLUMN("access", "r, w or rw"),
    PROBING_I64_COLUMN("cloexec", PROBING_PLAIN, "1: it is closed by exec()"),
};

static const char *kind_of(const char *target)
{
    static const char *const kinds[][2] = {
        {"socket:", "socket"}, {"pipe:", "pipe"},   {"anon_inode:", "anon"}, {"/memfd:", "memfd"},
        {"/dev/shm/", "file"}, {"/dev/", "device"}, {"/", "file"},           {"net:", "anon"}};
    for (size_t i = 0; i < PROBING_LENGTH(kinds); i++)
        if (strncmp(target, kinds[i][0], strlen(kinds[i][0])) == 0)
            return kinds[i][1];
    return "anon";
}

/* "socket:[1234]" */
static uint64_t inode_of(const char *target)
{
    const char *open = strchr(target, '[');
    uint64_t inode = UNKNOWN;
    char digits[24];
    if (target[0] == '/' || !open)
        return UNKNOWN;
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    (void)probing_parse_u64(digits, INT64_MAX, &inode);
    return inode;
}

/* Of /proc/self/fdinfo/N: "pos:\t12\nflags:\t02000002\n". */
static void read_info(uint64_t fd, uint64_t *ret_position, uint64_t *ret_flags)
{
    char path[64], text[1024];
    *ret_position = *ret_flags = UNKNOWN;
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%llu", (unsigned long long)fd);
    if (proc_read_path(path, text, sizeof(text)) <= 0)
        return;
    const char *at = strstr(text, "pos:"), *flags = strstr(text, "flags:");
    if (at)
        *ret_position = strtoull(at + strlen("pos:"), NULL, 10);
    if (flags)
        *ret_flags = strtoull(flags + strlen("flags:"), NULL, 8);
}

static int emit_descriptor(struct probing_rows *out, const struct probing_host *h, uint64_t fd)
{
    static const char *const accesses[] = {"r", "w", "rw", NULL};
    char path[64], target[4096];
    uint64_t position, flags;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%llu", (unsigned long long)fd);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0)
        return 0; /* closed meanwhile */
    target[n] = '\0';
    read_info(fd, &position, &flags);
    text_clean(target);
    const char *kind = kind_of(target);
    bool seeks = strcmp(kind, "file") == 0 || strcmp(kind, "memfd") == 0;
    const union probing_cell cells[] = {
        count_cell(fd),
        probing_str(kind),
        probing_str(target),
        count_cell(inode_of(target)),
        count_cell(seeks ? position : UNKNOWN),
        probing_str(flags == UNKNOWN ? NULL : accesses[flags & O_ACCMODE]),
        flags == UNKNOWN ? probing_null(PROBING_I64) : probing_i64((flags & O_CLOEXEC) != 0)};
    return h->emit(out, cells, PROBING_LENGTH(cells));
}

static int scan_descriptors(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    struct proc_numbers all;
    struct proc_number one;
    int r = proc_numbers_open(&all, "/proc/self/fd");
    if (r < 0)
        return probing_failf(h, r, "/proc/self/fd cannot be read: %s", strerror(-r));
    while (r == 0 && proc_numbers_next(&all, &one))
        if (one.value != (uint64_t)all.fd)
            r = emit_descriptor(out, h, one.value);
    if (r == 0 && all.error < 0)
        r = probing_failf(h, all.error, "/proc/self/fd was not read to its end: %s",
                          strerror(-all.error));
    proc_numbers_close(&all);
    return probing_scanned(r);
}

const struct probing_table_desc fds_table =
    PROBING_COMPUTED_TABLE("process.fds", columns, scan_descriptors, "open files of the process");
