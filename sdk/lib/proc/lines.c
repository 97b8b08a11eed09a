/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/lines.c - files of lines, read through a small room of the caller's.
 *
 * Any thread, handlers too.
 */
#include "sdk/lib/proc/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sdk/lib/proc/digits.h"
#include "sdk/lib/proc/proc_file.h"

#define ROOM_BYTES 512

int proc_lines_open(struct proc_lines *l, const char *path, char *room, size_t size)
{
    *l = (struct proc_lines){.fd = open(path, O_RDONLY | O_CLOEXEC), .room = room, .size = size};
    if (l->fd == -1)
        l->error = -errno;
    return l->error;
}

void proc_lines_of(struct proc_lines *l, char *text, size_t size)
{
    *l = (struct proc_lines){.fd = -1, .room = text, .size = size + 1, .end = size};
}

void proc_lines_close(struct proc_lines *l)
{
    if (l->fd != -1)
        (void)close(l->fd);
    l->fd = -1;
    l->at = l->end = 0;
}

/* More bytes behind those in room.  false: there are none. */
static bool fill_room(struct proc_lines *l)
{
    int64_t n;
    if (l->fd == -1)
        return false;
    memmove(l->room, l->room + l->at, l->end - l->at);
    l->end -= l->at;
    l->at = 0;
    do {
        n = read(l->fd, l->room + l->end, l->size - 1 - l->end);
    } while (n == -1 && errno == EINTR);
    if (n == -1)
        l->error = -errno;
    l->end += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static char *give_line(struct proc_lines *l, size_t size, bool cut, size_t *ret_bytes)
{
    char *line = l->room + l->at;
    line[size] = '\0';
    l->cut = l->skips = cut;
    l->at += size + !cut;
    *ret_bytes = size;
    return line;
}

char *proc_lines_next(struct proc_lines *l, size_t *ret_bytes)
{
    for (;;) {
        size_t size = l->end - l->at;
        const char *end = size > 0 ? memchr(l->room + l->at, '\n', size) : NULL;
        if (end && !l->skips)
            return give_line(l, (size_t)(end - (l->room + l->at)), /* cut= */ false, ret_bytes);
        if (end)
            l->at = (size_t)(end + 1 - l->room);
        else if (l->skips)
            l->at = l->end;
        if (end) {
            l->skips = false;
            continue;
        }
        if (!l->skips && l->fd != -1 && size == l->size - 1)
            return give_line(l, size, /* cut= */ true, ret_bytes);
        if (!fill_room(l)) {
            size = l->end - l->at;
            return size > 0 && !l->skips ? give_line(l, size, /* cut= */ true, ret_bytes) : NULL;
        }
    }
}

bool proc_number_in(const char *path, const char *key, uint64_t *ret)
{
    char room[ROOM_BYTES];
    struct proc_lines l;
    size_t size, n = strlen(key);
    bool found = false;
    (void)proc_lines_open(&l, path, room, sizeof(room));
    for (const char *line; !found && (line = proc_lines_next(&l, &size)) != NULL;) {
        if (size < n || memcmp(line, key, n) != 0)
            continue;
        const char *end = proc_digits(proc_blanks(line + n), 10, ret);
        found = end && (*end == '\0' || *end == ' ' || *end == '\t') && !(l.cut && *end == '\0');
        break;
    }
    proc_lines_close(&l);
    return found;
}

/* Is the word among "cpu,cpuacct"?  "" is only in "". */
static bool has_word(const char *names, size_t size, const char *word)
{
    size_t n = strlen(word);
    for (size_t at = 0; at <= size;) {
        const char *comma = at < size ? memchr(names + at, ',', size - at) : NULL;
        size_t length = comma ? (size_t)(comma - (names + at)) : size - at;
        if (length == n && memcmp(names + at, word, n) == 0)
            return true;
        at += length + 1;
    }
    return false;
}

bool proc_cgroup(pid_t pid, const char *controller, char *ret, size_t size)
{
    char path[PROC_PATH_BYTES], room[4096 + ROOM_BYTES];
    struct proc_lines l;
    size_t bytes;
    bool found = false;
    proc_path(pid, 0, "cgroup", path);
    (void)proc_lines_open(&l, path, room, sizeof(room));
    for (const char *line; !found && (line = proc_lines_next(&l, &bytes)) != NULL;) {
        const char *names = memchr(line, ':', bytes);
        const char *group =
            names ? memchr(names + 1, ':', bytes - (size_t)(names + 1 - line)) : NULL;
        if (!group || l.cut || !has_word(names + 1, (size_t)(group - names - 1), controller))
            continue;
        size_t n = strnlen(group + 1, size);
        found = n < size;
        memcpy(ret, group + 1, found ? n + 1 : 0);
    }
    proc_lines_close(&l);
    return found;
}
