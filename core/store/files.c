/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/files.c - where the files of a live store lie, made so that writing cannot fail.
 *
 * Whoever makes the store, before anybody else has it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/internal.h"

#define LOCK_BYTES 65536 /* of LMDB's lock file: 64 a reader, and its head */

/* Path of `name`; in the fast directory, with a link to it, when there is one. */
static int own_dir_file(const struct store_options *o, const char *name, bool fast, char *ret,
                        size_t size)
{
    int n = snprintf(ret, size, "%s/%s", fast ? o->fast_directory : o->directory, name);
    if (n < 0 || (size_t)n >= size)
        return err_set(-ENAMETOOLONG,
                       "the path '%.60s...' is too long: set a shorter PROBING_DATA_DIR",
                       o->directory);
    return 0;
}

static int link_file(const struct store_options *o, const char *name, const char *target)
{
    char link[4096];
    int rc = own_dir_file(o, name, /* fast= */ false, link, sizeof(link));
    if (rc)
        return rc;
    (void)unlink(link);
    if (symlink(target, link) == -1)
        return err_set(-errno, "%s cannot be linked: %s", link, strerror(errno));
    return 0;
}

static int make_files(struct store *s, const struct store_options *o, bool fast)
{
    char rings[4096], strings[4096];
    int rc = own_dir_file(o, "rings", fast, rings, sizeof(rings));
    if (rc == 0)
        rc = own_dir_file(o, "strings", fast, strings, sizeof(strings));
    if (rc == 0)
        rc = interns_create(strings, &s->interns);
    if (!o->resume && (rc == -EPROTO || rc == -EINVAL)) {
        /* The file is of another version, or damaged: rows with its ids say nothing any more. */
        (void)unlink(strings);
        rc = env_start_afresh(s);
        if (rc == 0)
            rc = interns_create(strings, &s->interns);
    }
    if (rc == 0)
        rc = rings_create(rings, &s->rings);
    if (rc == 0 && fast)
        rc = link_file(o, "strings", strings);
    if (rc == 0 && fast)
        rc = link_file(o, "rings", rings);
    if (rc) {
        rings_free(s->rings);
        interns_free(s->interns);
        s->rings = NULL;
        s->interns = NULL;
        (void)unlink(rings);
    }
    return rc;
}

/* ---- what must not fail when it is written to ---- */

/* Copy-on-write: a store to a mapped page wants new room each time it was written back, and is a
 * SIGBUS when there is none. */
static bool moves_what_is_written(const char *directory)
{
    static const uint32_t magics[] = {0x9123683e /* btrfs */, 0xca451a4e /* bcachefs */};
    struct statfs fs;
    if (statfs(directory, &fs) == -1)
        return false;
    return (uint32_t)fs.f_type == magics[0] || (uint32_t)fs.f_type == magics[1];
}

static int refuse_to_move(const char *directory)
{
    return err_set(
        -ENOTSUP,
        "%s is on a copy-on-write file system, where a full disk would end this process: "
        "make room for 256 MB in /dev/shm, or name another PROBING_DATA_DIR",
        directory);
}

/* LMDB's lock file with all its bytes, before LMDB maps it and writes to it.  What an earlier life
 * left is nobody's. */
static int make_lock(const struct store_options *o, bool fast)
{
    char path[4096], link[4096];
    int rc = own_dir_file(o, "lock.mdb", fast, path, sizeof(path));
    if (rc == 0)
        rc = own_dir_file(o, "lock.mdb", /* fast= */ false, link, sizeof(link));
    if (rc)
        return rc;
    (void)unlink(link);
    (void)unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return err_set(-errno, "%s cannot be made: %s", path, strerror(errno));
    rc = -posix_fallocate(fd, 0, LOCK_BYTES);
    (void)close(fd);
    if (rc == 0 && fast)
        rc = link_file(o, "lock.mdb", path);
    if (rc)
        (void)unlink(path);
    return rc ? err_set(rc, "%s cannot be made: %s", path, strerror(-rc)) : 0;
}

int own_dir_lock(const struct store_options *o)
{
    if (o->fast_directory && make_lock(o, /* fast= */ true) == 0)
        return 0;
    if (moves_what_is_written(o->directory))
        return refuse_to_move(o->directory);
    return make_lock(o, /* fast= */ false);
}

/* By this lock everybody knows that the directory is not a dead one's, whatever number we have
 * where they look.  One more process with the same directory cannot be. */
int own_dir_hold(struct store *s)
{
    char path[4096];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int n = snprintf(path, sizeof(path), "%s/held", s->directory);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(-ENAMETOOLONG,
                       "the path '%.60s...' is too long: set a shorter PROBING_DATA_DIR",
                       s->directory);
    s->held = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->held == -1)
        return err_set(-errno, "%s cannot be made: %s", path, strerror(errno));
    if (fcntl(s->held, F_SETLK, &lock) == -1 && (errno == EAGAIN || errno == EACCES))
        return err_set(-EBUSY, "another process has the store in %s", s->directory);
    return 0; /* where a file system knows no locks it goes without */
}

bool store_is_held(const struct store *s)
{
    return !file_is_closed(s->held);
}

void store_hold_again(struct store *s)
{
    if (store_is_held(s))
        return;
    (void)close(s->held); /* the number is free for others of ours */
    (void)own_dir_hold(s);
}

/* In the fast directory if that can be.  The memory file system may be too small (64 MB in many
 * containers): then the disk.  An earlier life's names are gone on with where they are. */
int own_dir_files(struct store *s, const struct store_options *o)
{
    char strings[4096];
    struct stat st;
    int rc = own_dir_file(o, "strings", /* fast= */ false, strings, sizeof(strings));
    if (rc)
        return rc;
    bool here = lstat(strings, &st) == 0 && S_ISREG(st.st_mode);
    if (o->fast_directory && !here && make_files(s, o, /* fast= */ true) == 0)
        return 0;
    return moves_what_is_written(o->directory) ? refuse_to_move(o->directory)
                                               : make_files(s, o, /* fast= */ false);
}
