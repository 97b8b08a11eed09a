/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/checked_open.c - the files of a data directory: opened when they are what a core
 * makes, and copied before they are looked at when somebody else can change them.
 *
 * Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/datadir/datadir.h"
#include "core/datadir/internal.h"
#include "core/guest/own_descriptors.h"
#include "sdk/lib/proc/identity.h"

#define MEMORY_COPY_MAX ((uint64_t)1 << 30) /* bytes, where no disk takes it */
#define COPY_STEP ((size_t)64 << 10)

bool datadir_has(const struct datadir *d, const char *name, struct stat *ret)
{
    struct stat st;
    return fstatat(d->fd, name, ret ? ret : &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Is what was found a file of the directory's owner? */
static int prove_file(const struct datadir *d, const char *name, int fd, struct stat *st)
{
    if (fstat(fd, st) == -1)
        return err_set(-errno, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st->st_mode))
        return err_set(-EINVAL, "%s is %s, not a file", name, file_kind(st->st_mode));
    if (st->st_uid != d->owner)
        return err_set(-EPERM, "%s belongs to uid %u, and its directory to uid %u", name,
                       (unsigned)st->st_uid, (unsigned)d->owner);
    return 0;
}

/* As an O_PATH descriptor, which opens nothing yet. */
static int find_file(const struct datadir *d, const char *name, struct stat *st)
{
    int fd = entry_open(d->fd, name, O_PATH, d->own);
    if (fd < 0)
        return err_set(fd, "%s: %s", name,
                       fd == -EXDEV ? "another file system is mounted over it" : strerror(-fd));
    int rc = fstat(fd, st) == 0 && S_ISLNK(st->st_mode) ? 1 : prove_file(d, name, fd, st);
    if (rc == 0)
        return fd;
    (void)close(fd);
    if (rc < 0)
        return rc;
    struct datadir fast;
    if ((rc = datadir_fast(d, name, &fast)) < 0)
        return rc;
    fd = rc = entry_open(fast.fd, name, O_PATH, fast.own);
    if (rc < 0)
        (void)err_set(rc, "%s in %s: %s", name, fast.path, strerror(-rc));
    else
        rc = prove_file(&fast, name, fd, st); /* a link there is none of a core's */
    datadir_close(&fast);
    if (rc < 0 && fd >= 0)
        (void)close(fd);
    return rc < 0 ? rc : fd;
}

int datadir_file(const struct datadir *d, const char *name, struct stat *st)
{
    struct stat found;
    int fd = find_file(d, name, &found);
    if (fd < 0)
        return fd;
    int again = file_open_again(fd, d->fd, name);
    (void)close(fd);
    if (again >= 0 && st)
        *st = found;
    return again;
}

int datadir_read(const struct datadir *d, const char *name, struct buf *b)
{
    int fd = datadir_file(d, name, /* st= */ NULL);
    if (fd < 0)
        return fd;
    int rc = file_read_fd(fd, name, b);
    (void)close(fd);
    return rc;
}

int datadir_info(const struct datadir *d, struct buf *ret)
{
    buf_init(ret, INFO_MAX_BYTES);
    int rc = datadir_read(d, "info", ret);
    return rc < 0 ? rc : info_check(ret, "info");
}

bool datadir_locked(const struct datadir *d, const char *name)
{
    int fd = datadir_file(d, name, /* st= */ NULL);
    if (fd < 0) /* what is no file of ours holds nobody's lock */
        return fd != -ENOENT && fd != -EINVAL && fd != -EPERM;
    bool locked = file_is_locked(fd);
    (void)close(fd);
    return locked;
}

/* ---- a stranger's file ---- */

/* A file without a name, which goes with its last descriptor; and how much may be put into it. */
static int open_nameless(uint64_t *ret_room)
{
    const char *place = identity_getenv("TMPDIR");
    struct statvfs fs;
    int fd = open(place && place[0] == '/' ? place : "/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    *ret_room = MEMORY_COPY_MAX;
    if (fd != -1 && fstatvfs(fd, &fs) == 0)
        *ret_room = (uint64_t)fs.f_bavail * fs.f_frsize / 2; /* the rest is for others */
#ifdef SYS_memfd_create
    if (fd == -1) {
        descriptor_begin();
        fd = descriptor_end((int)syscall(SYS_memfd_create, "probing", /* MFD_CLOEXEC */ 1u));
    }
#endif
    return fd == -1 ? -errno : fd;
}

static int copy_piece(int from, int to, off_t at, off_t end)
{
    char piece[COPY_STEP];
    while (at < end) {
        size_t want = (uint64_t)(end - at) < sizeof(piece) ? (size_t)(end - at) : sizeof(piece);
        ssize_t n = pread(from, piece, want, at);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? 0 : -errno;
        ssize_t put = pwrite(to, piece, (size_t)n, at);
        if (put != n)
            return put == -1 ? -errno : -ENOSPC;
        at += n;
    }
    return 0;
}

/* Copy the parts that have data; holes stay holes. */
static int copy_data(int from, int to, off_t size, uint64_t room)
{
    uint64_t copied = 0;
    off_t at = 0;
    int rc = ftruncate(to, size) == -1 ? -errno : 0;
    while (rc == 0 && at < size) {
        off_t begin = lseek(from, at, SEEK_DATA);
        if (begin == -1)
            return errno == ENXIO ? 0 : -errno; /* ENXIO: nothing but a hole behind */
        off_t end = lseek(from, begin, SEEK_HOLE);
        end = end == -1 || end > size ? size : end;
        if (end <= begin) /* it was cut short meanwhile */
            return 0;
        copied += (uint64_t)(end - begin);
        rc = copied > room ? -EFBIG : copy_piece(from, to, begin, end);
        at = end;
    }
    return rc;
}

int datadir_file_stable(const struct datadir *d, const char *name)
{
    struct stat st;
    uint64_t room;
    int fd = datadir_file(d, name, &st);
    if (fd < 0 || d->own)
        return fd;
    int to = open_nameless(&room);
    int r = to < 0 ? to : copy_data(fd, to, st.st_size, room);
    (void)close(fd);
    if (r == 0)
        return to;
    if (to >= 0)
        (void)close(to);
    return err_set(r,
                   "%s cannot be copied to TMPDIR, and its owner (uid %u) could change it while it "
                   "is read: %s",
                   name, (unsigned)d->owner, r == -EFBIG ? "too little room there" : strerror(-r));
}
