/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/datadir.h - may this data directory be believed, and by whom?  The one door to what
 * other processes, other users and the dead have left on disk and in memory files.
 *
 * Whoever owns a directory can put anything into it at any moment: links to others' files, FIFOs
 * that nobody writes to, a terabyte of zeros, hard links, and something else a moment later.  So a
 * directory is opened once, proved by its descriptor, and everything else is done relative to it:
 *
 *     no symbolic link is followed, in the directory's name or in a file's; one link has a meaning
 *     (rings, strings and lock.mdb may lie in memory), and its text is read, never resolved;
 *     a file is a regular one, of the directory's owner and not mounted there, or it is not opened,
 *     so that nothing waits and no device is woken;
 *     what is removed is an entry of a directory that was proved, never something at a path;
 *     of a stranger's file a private copy is read, which he cannot change between two looks.
 *
 * On kernels without openat2(2) (before 5.6) O_NOFOLLOW and what fstat() says do the same, but for
 * other file systems mounted over a name, which then are noticed only after they were opened.  For
 * DATADIR_OWN it is never called: the core uses this, too, inside of programs that filter calls.
 *
 * Any thread, each with its own struct; never [signal].  0, a count or a descriptor (O_CLOEXEC), or
 * -errno with err_set() done.
 */
#ifndef CORE_DATADIR_H
#define CORE_DATADIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

#define DATADIR_PATH 4096
#define DATADIR_LEAF 256
#define DATADIR_SHM "/dev/shm"
#define DATADIR_PLACES                  \
    {                                   \
        "/tmp", "/var/tmp", DATADIR_SHM \
    } /* of default roots, best first */

enum datadir_whose {
    DATADIR_OWN, /* of our effective user and closed to all others: it may be written to */
    DATADIR_ANY, /* of anybody: to be read without belief, or removed by root */
};

struct datadir {
    int fd, parent; /* the directory, and the one that has its name; -1: closed */
    int view;       /* /proc/PID/root that the path began with; -1: our own view */
    bool own;       /* as DATADIR_OWN, but others may be able to read it */
    uid_t owner;
    dev_t device;
    ino_t inode;
    struct timespec changed; /* st_mtim when it was opened */
    char leaf[DATADIR_LEAF]; /* its name in `parent` */
    char path[DATADIR_PATH]; /* for words, and never opened again */
};

#define DATADIR_NONE                       \
    {                                      \
        .fd = -1, .parent = -1, .view = -1 \
    }

/* Open and prove one.  A path below a default root (/tmp/probing-<uid>[.<random>], likewise in the
 * other DATADIR_PLACES) must have the root's owner, who must be <uid>; /proc/PID/root/... is looked
 * up as that process sees it, and cannot lead out of what it sees.  -ELOOP: it is a link; -ENOTDIR;
 * -EPERM: whose. */
int datadir_open(const char *path, enum datadir_whose whose, struct datadir *ret);
/* Any directory, to make something in: O_PATH.  "/proc/PID/root/..." as above. */
int datadir_view(const char *path);
void datadir_close(struct datadir *d); /* also of DATADIR_NONE, and twice */

/* ---- its files (checked_open.c) ---- */

/* Open for reading.  -EINVAL: it is no regular file; -EPERM: of another owner, or a link that
 * is not one of ours; -EXDEV: it is mounted there.  `st` may be NULL. */
int datadir_file(const struct datadir *d, const char *name, struct stat *st);
/* The same for who believes what he has looked at once (mmap): a copy without a name where the
 * directory is not our own.  -EFBIG: there is no room for one. */
int datadir_file_stable(const struct datadir *d, const char *name);
/* Add all of it to `b`, whose max bounds it. */
int datadir_read(const struct datadir *d, const char *name, struct buf *b);
/* The lines of `info` into `ret`, which is made here; caller buf_done()s whatever comes.  -EBADMSG:
 * it is damaged, and what is there is given nonetheless. */
int datadir_info(const struct datadir *d, struct buf *ret);
/* Is there anything with that name, and (where ret is not NULL) what?  Links are not followed. */
bool datadir_has(const struct datadir *d, const char *name, struct stat *ret);
/* Does a process hold a lock on it?  true also when that cannot be told. */
bool datadir_locked(const struct datadir *d, const char *name);

/* ---- what lies in memory (memory_files.c) ---- */

/* The directory in /dev/shm that the link `name` leads to, when it is this one's: of the same owner
 * and with the same name.  -ENOENT: `name` is no link; -EPERM: it leads to something else. */
int datadir_fast(const struct datadir *d, const char *name, struct datadir *ret);
/* Open the data directory that a directory in memory names in its file `home`.  0: opened; 1: it is
 * gone; -EXDEV: it cannot be seen from here; -EBADMSG: `home` does not name one; else it is not
 * believed. */
int datadir_home(const struct datadir *fast, enum datadir_whose whose, struct datadir *ret);

/* ---- taking it away (remove.c) ---- */

/* Its memory files, its files (one level of subdirectories) and itself.  -EPERM: it is not ours,
 * and we are not root. */
int datadir_remove(const struct datadir *d);

/* ---- finding them (roots.c) ---- */

struct datadir_search {
    const char *named; /* PROBING_DATA_DIR, or NULL */
    bool all_users;    /* default roots of everybody, not of ours alone: for root */
    /* Non-zero ends the search and is given back.  `d` is closed after the call. */
    int (*found)(void *arg, const struct datadir *d);
    void (*refused)(void *arg, const char *why); /* one line; may be NULL */
    void *arg;
};
/* Every data directory below the roots.  In /dev/shm those with data in them, not the memory files
 * of others. */
int datadir_search(const struct datadir_search *s);

/* A root to make directories in, already there: ours or root's, and where all may write to it
 * nobody may rename what is not his (the sticky bit).  A descriptor. */
int datadir_root(const char *path);

/* ---- a root of our own (make_root.c) ---- */

/* Names in a place that look like roots of ours, to be proved yet; gives how many. */
uint32_t datadir_own_roots(const char *place, char (*ret)[DATADIR_LEAF], uint32_t max);
/* A private root of ours in a place of all users': "probing-<uid>", or where somebody is there
 * before us "probing-<uid>.<random>".  note: who that is and what to do, else "". */
int datadir_root_make(const char *place, char *ret, size_t size, char *note, size_t note_size);

#endif
