/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/lines.h - a file of /proc line by line, however long it or a line of it is.
 *
 * Any thread, handlers too: see proc_file.h.  A reader belongs to one thread.
 */
#ifndef SDK_LIB_PROC_LINES_H
#define SDK_LIB_PROC_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_lines {
    int fd;
    int error;      /* 0, or -errno: it was not read to its end */
    bool cut;       /* the line that came last is only the beginning of one */
    bool skips;     /* the rest of that one is still to come */
    char *room;     /* the caller's, `size` bytes */
    size_t size;    /* bytes */
    size_t at, end; /* what is in room, and not given out yet */
};

/* A line that does not fit into the room (at least 2 bytes) is given as far as it does. 0 or
 * -errno; then proc_lines_next() gives NULL at once.  [signal] */
int proc_lines_open(struct proc_lines *l, const char *path, char *room, size_t size);
/* A text that is there already, which changes: its lines are ended by NUL in place, and stay.
 * text[size] is written to, too.  [signal] */
void proc_lines_of(struct proc_lines *l, char *text, size_t size);
/* The next line without its newline, ended by NUL; *ret_bytes: its length.  Borrowed until the next
 * call.  NULL: no more.  [signal] */
char *proc_lines_next(struct proc_lines *l, size_t *ret_bytes);
/* [signal] */
void proc_lines_close(struct proc_lines *l);

/* The number that stands behind `key` at the beginning of a line ("MemAvailable:", "inactive_file
 * ", "" for a file of one number), blanks between; as it is written there, in its unit.  false: no
 * such line, or no number there ("unlimited").  [signal] */
bool proc_number_in(const char *path, const char *key, uint64_t *ret);

/* The cgroup that a process is in: the path behind "4:memory:/path", or behind "0::/path" of
 * version 2 for the controller "".  false: none, or it does not fit.  [signal] */
bool proc_cgroup(pid_t pid, const char *controller, char *ret, size_t size);

#endif
