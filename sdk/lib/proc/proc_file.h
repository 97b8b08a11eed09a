/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/proc_file.h - the files and folders of /proc: paths, small files, numbered entries.
 *
 * All of sdk/lib/proc: any thread, signal handlers too (no lock, no allocation, no stdio; errno
 * changes); results go into the caller's memory.  A process may end between two reads: each read
 * says so by itself.  Under hidepid a process that may not be seen is one that is not there.
 *
 * pid 0 is the calling process, by whatever number this /proc knows it; tid 0: the process, not one
 * of its threads.
 */
#ifndef SDK_LIB_PROC_PROC_FILE_H
#define SDK_LIB_PROC_PROC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_PATH_BYTES 80
#define PROC_UNKNOWN UINT64_MAX /* a number that the kernel did not say */

/* "/proc/PID/NAME" or "/proc/PID/task/TID/NAME"; name: at most 32 bytes, NULL: the folder. [signal]
 */
void proc_path(pid_t pid, pid_t tid, const char *name, char ret[PROC_PATH_BYTES]);

/* Read from where a descriptor stands until its end or `size` - 1 bytes, and a NUL.  How many
 * bytes came (size - 1: perhaps not all of it), or -errno.  [signal] */
int64_t proc_read_fd(int fd, char *ret, size_t size);
/* The same of a path; ret is "" when it fails.  [signal] */
int64_t proc_read_path(const char *path, char *ret, size_t size);
/* The same of a file of a process or thread.  [signal] */
int64_t proc_read(pid_t pid, pid_t tid, const char *name, char *ret, size_t size);

/* Entries of a folder that are called by a number: processes, threads, descriptors.  Those that
 * come or go meanwhile may be seen or not. */
struct proc_numbers {
    int fd;
    int error;        /* 0, or -errno: it was not read to its end */
    int64_t size, at; /* bytes in block, and how far it has been walked */
    uint64_t block[256];
};

struct proc_number {
    uint64_t value; /* what it is called */
    uint64_t inode; /* of a folder of /proc: another one is another process or thread */
};

/* 0 or -errno; then proc_numbers_next() gives false at once.  [signal] */
int proc_numbers_open(struct proc_numbers *n, const char *path);
/* The same for a folder that is open already, which proc_numbers_close() closes.  [signal] */
void proc_numbers_of(struct proc_numbers *n, int fd);
/* The threads of a process.  [signal] */
int proc_threads_open(struct proc_numbers *n, pid_t pid);
/* [signal] */
bool proc_numbers_next(struct proc_numbers *n, struct proc_number *ret);
/* [signal] */
void proc_numbers_close(struct proc_numbers *n);

/* Close the calling process's descriptors beyond standard error, but `keep`; -1: keep none.  For a
 * child after a fork: its copies would hold open the connections that the parent closes.  Without
 * /proc they stay.  [signal] */
void proc_close_descriptors(int keep);

/* Give the value of `name` in /proc/PID/environ, by its content and its size; text[size] is NUL, as
 * a program may have written over the last one.  Borrowed; NULL: no such variable.  [signal] */
const char *proc_environ_find(const char *text, size_t size, const char *name);

#endif
