/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/internal.h - what the files of core/datadir share and nobody else sees.
 */
#ifndef CORE_DATADIR_INTERNAL_H
#define CORE_DATADIR_INTERNAL_H

#include "core/datadir/datadir.h"

#define DATADIR_ENTRIES_MAX 100000 /* of one directory: who puts more there wants us to be busy */

/* Open the entry `name` of a directory as openat() with O_CLOEXEC, following no link.  Of a
 * stranger's nothing is entered that is mounted over it (-EXDEV).  Our own are opened without
 * openat2(2), as a filter of the host's may end it for a call that it does not know.  A descriptor
 * or -errno, no words. */
int entry_open(int dirfd, const char *name, int flags, bool own);
/* The same for a path that may have links in it, all of them seen from `view`. */
int view_open(int view, const char *path, int flags);

/* "probing-<uid>" or "probing-<uid>.<random>" -> its uid. */
bool root_name_read(const char *name, uid_t *ret);
/* A default root below `place` (/tmp, /dev/shm), proved to be of `owner`, which is its number too
 * unless seen through a view.  A descriptor. */
int root_open(int view, const char *place, const char *name, bool own, uid_t *ret_owner);

/* The directory that has a data directory's name in it. */
struct datadir_in {
    int fd;
    const char *path;
    const uid_t *owner; /* whose all in it must be; NULL: anybody's */
    bool mounts;        /* another file system may lie over a name: the user said so */
};
/* Prove the entry `name`.  in->fd is taken over by `ret` when it worked. */
int datadir_open_in(const struct datadir_in *in, const char *name, enum datadir_whose whose,
                    struct datadir *ret);

#endif
