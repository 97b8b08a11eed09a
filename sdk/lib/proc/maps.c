/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/maps.c - lines of /proc/PID/maps: "start-end rwxp offset major:minor inode   path".
 *
 * Any thread, handlers too.
 */
#include "sdk/lib/proc/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "sdk/lib/proc/digits.h"
#include "sdk/lib/proc/proc_file.h"

/* A number and the character that must be behind it. */
static const char *parse_field(const char *at, unsigned base, char behind, uint64_t *ret)
{
    const char *end = at ? proc_digits(at, base, ret) : NULL;
    return end && *end == behind ? end + 1 : NULL;
}

static const char *parse_rights(const char *at, struct proc_mapping *m)
{
    for (int i = 0; at && i < 5; i++)
        if (at[i] == '\0')
            return NULL;
    if (!at || at[4] != ' ')
        return NULL;
    m->readable = at[0] == 'r';
    m->writable = at[1] == 'w';
    m->executable = at[2] == 'x';
    m->shared = at[3] == 's';
    return at + 5;
}

bool proc_maps_parse(char *line, struct proc_mapping *ret)
{
    struct proc_mapping m = {.cut = false};
    uint64_t major = 0, minor = 0;
    const char *at = parse_field(line, 16, '-', &m.start);
    at = parse_rights(parse_field(at, 16, ' ', &m.end), &m);
    at = parse_field(at, 16, ' ', &m.offset);
    at = parse_field(at, 16, ':', &major);
    at = parse_field(at, 16, ' ', &minor);
    at = at ? proc_digits(at, 10, &m.inode) : NULL;
    if (!at || (*at != ' ' && *at != '\0') || m.end <= m.start || major > UINT32_MAX ||
        minor > UINT32_MAX)
        return false;
    m.major = (uint32_t)major;
    m.minor = (uint32_t)minor;
    m.path = line + (proc_blanks(at) - line);
    *ret = m;
    return true;
}

int proc_maps_open(struct proc_lines *l, pid_t pid, char *room, size_t size)
{
    char path[PROC_PATH_BYTES];
    proc_path(pid, 0, "maps", path);
    return proc_lines_open(l, path, room, size);
}

bool proc_maps_next(struct proc_lines *l, struct proc_mapping *ret)
{
    size_t size;
    for (char *line; (line = proc_lines_next(l, &size)) != NULL;) {
        if (!proc_maps_parse(line, ret))
            continue;
        ret->cut = l->cut;
        return true;
    }
    return false;
}

/* By its file of this thread, 0: of the first one. */
static uint64_t count_lines(pid_t pid, pid_t tid)
{
    char path[PROC_PATH_BYTES], text[4096]; /* the kernel gives no more than a page at once */
    uint64_t lines = 0;
    ssize_t n;
    proc_path(pid, tid, "maps", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return PROC_UNKNOWN;
    while ((n = read(fd, text, sizeof(text))) > 0 || (n == -1 && errno == EINTR))
        for (ssize_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    (void)close(fd);
    return n < 0 ? PROC_UNKNOWN : lines;
}

uint64_t proc_maps_count(pid_t pid)
{
    struct proc_numbers threads;
    struct proc_number one;
    uint64_t lines = count_lines(pid, 0);
    if (lines > 0)
        return lines;
    (void)proc_threads_open(&threads, pid);
    while ((lines == 0 || lines == PROC_UNKNOWN) && proc_numbers_next(&threads, &one))
        lines = count_lines(pid, (pid_t)one.value);
    proc_numbers_close(&threads);
    return lines > 0 ? lines : PROC_UNKNOWN;
}

/* 8 bytes a page, the highest bit of which says that it is here. */
uint64_t proc_resident(const void *at, uint64_t bytes)
{
    uint64_t entries[512], found = 0, page = (uint64_t)getpagesize();
    uint64_t first = (uint64_t)(uintptr_t)at / page, end;
    if (bytes == 0 || __builtin_add_overflow((uint64_t)(uintptr_t)at, bytes - 1, &end))
        return 0;
    end = end / page + 1;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (ssize_t got = 8; fd != -1 && first < end && got >= 8; first += (uint64_t)got / 8) {
        uint64_t n = end - first < 512 ? end - first : 512;
        got = pread(fd, entries, n * 8, (off_t)(first * 8));
        for (ssize_t i = 0; i < got / 8; i++)
            found += entries[i] >> 63;
        if (got < 8)
            break;
    }
    if (fd != -1)
        (void)close(fd);
    return found * page;
}
