/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/maps.h - what is mapped in a process: /proc/PID/maps.
 *
 * Any thread, handlers too: see proc_file.h.  Mappings that change while the file is read may be
 * seen as they were, as they are, or not.
 */
#ifndef SDK_LIB_PROC_MAPS_H
#define SDK_LIB_PROC_MAPS_H

#include "lines.h"

struct proc_mapping {
    uint64_t start, end; /* addresses; end: of the first byte behind it */
    uint64_t offset;     /* bytes, of its first byte in the file */
    uint64_t inode;      /* 0: no file */
    uint32_t major, minor;
    bool readable, writable, executable, shared;
    bool cut; /* the path goes on: it did not fit into the reader's room */
    /* "" for memory without a name, "[heap]", or a path as this process's root sees it: a newline
     * in it is written \012, blanks are not written otherwise, and " (deleted)" stands behind a
     * file that has lost its name (and may be the end of a name).  Borrowed, lives as the line. */
    char *path;
};

/* One line without its newline, ended by NUL.  false: it is none.  [signal] */
bool proc_maps_parse(char *line, struct proc_mapping *ret);

#define PROC_MAPS_ROOM 4352 /* bytes: the longest path, and what stands before it */

/* 0 or -errno.  The file of a process whose first thread has ended is empty: any other thread's
 * shows the same.  [signal] */
int proc_maps_open(struct proc_lines *l, pid_t pid, char *room, size_t size);
/* The next mapping; lines that are none are passed over.  Close with proc_lines_close().  [signal]
 */
bool proc_maps_next(struct proc_lines *l, struct proc_mapping *ret);

/* How many mappings a process has, by its lines; PROC_UNKNOWN: it cannot be seen.  One whose first
 * thread has ended is asked by another of its threads.  [signal] */
uint64_t proc_maps_count(pid_t pid);

/* How many bytes of a range of our own memory are resident, by whole pages: what it adds to the
 * process's RSS.  Some nanoseconds a page.  0 where the kernel does not tell.  Not in
 * handlers. */
uint64_t proc_resident(const void *at, uint64_t bytes);

#endif
