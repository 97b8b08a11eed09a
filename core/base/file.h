/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/file.h - small files, directories of our own, and facts about processes from /proc.
 *
 * Every descriptor is O_CLOEXEC.  0 or -errno with err_set() done.  Any thread; never [signal].
 */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

/* Open for reading what is a regular file (/proc has such, too): nothing waits for the writer of a
 * FIFO, and no device is woken.  -EINVAL: it is something else, the words say what. */
int file_open(int dirfd, const char *path);
/* The same of an O_PATH descriptor of that path, which stays open. */
int file_open_again(int fd, int dirfd, const char *path);
/* "a FIFO", "a socket" ... as st_mode says. */
const char *file_kind(mode_t mode);

/* Add a whole regular file to `b` (its max bounds the size).  dirfd may be AT_FDCWD. */
int file_read(int dirfd, const char *path, struct buf *b);
/* Add all that a descriptor gives; name: for words. */
int file_read_fd(int fd, const char *name, struct buf *b);
/* The same of what a user has named: a FIFO or a terminal, too, which is waited for until a signal
 * comes (-EINTR); "-": stdin. */
int file_read_named(const char *path, struct buf *b);

/* Read a small file as far as it fits, and a NUL; system calls only, no err_set().  0 or -errno. */
int file_peek(const char *path, char *ret, size_t size);

/* Write a small file at once: temporary name, then rename. */
int file_write(int dirfd, const char *path, const void *data, size_t size, mode_t mode);

/* Make `path` (parents must exist) with mode 0700, or check that what is there is a directory,
 * ours, and closed to others (-EPERM with the remedy if not). */
int file_private_dir(const char *path);

/* Remove a directory of ours with its files (one level of subdirectories). */
int file_remove_dir(const char *path);

/* Does any process hold a lock (fcntl) on the file, whether it can be seen from here or not?  true
 * when that cannot be told.  Not of a file that this process has locked: the lock would be lost
 * when `fd` is closed. */
bool file_is_locked(int fd);

/* Was a descriptor of ours closed behind our back, as closefrom(3) of the program does?  -1: no. */
bool file_is_closed(int fd);
/* Connect to the socket at `path` and hang up.  Whoever waits for it in poll() wakes up, also when
 * the program has closed all descriptors, which ends no poll(). */
void socket_knock(const char *path, int type);

/* Start time of a process in clock ticks since boot: field 22 of /proc/PID/stat (proc(5)). */
int proc_start_time(pid_t pid, uint64_t *ret_ticks);

#endif
