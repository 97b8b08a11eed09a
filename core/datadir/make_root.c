/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/make_root.c - a root of our own in a place where everybody may make directories,
 * whoever has been there before.
 *
 * Any thread.  Everybody knows what our root will be called, so somebody may have made it first: a
 * link, a file, his own directory.  Then another is made whose name nobody could know; the next
 * process of ours finds it by the beginning of its name, and believes it by its owner and mode.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/datadir/datadir.h"
#include "core/datadir/internal.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/proc/identity.h"

#define TRIES 16 /* at a name that nobody has */

uint32_t datadir_own_roots(const char *place, char (*ret)[DATADIR_LEAF], uint32_t max)
{
    uint32_t n = 0, seen = 0;
    struct stat st;
    uid_t uid;
    DIR *all = opendir(place);
    if (!all)
        return 0;
    /* Names that nobody could know are left out where they are others': those may be many. */
    for (struct dirent *e; n < max && seen < DATADIR_ENTRIES_MAX && (e = readdir(all)); seen++)
        if (root_name_read(e->d_name, &uid) && uid == identity_own_owner() &&
            (!strchr(e->d_name, '.') ||
             (fstatat(dirfd(all), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == uid)))
            (void)snprintf(ret[n++], DATADIR_LEAF, "%s", e->d_name);
    (void)closedir(all);
    return n;
}

/* 0 when a name that should be ours is; else the error says who has it. */
static int is_private(int place, const char *path, const char *name)
{
    struct stat st;
    if (fstatat(place, name, &st, AT_SYMLINK_NOFOLLOW) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode) && st.st_uid == identity_own_owner() && !(st.st_mode & 077))
        return 0;
    if (st.st_uid == identity_own_owner() && S_ISDIR(st.st_mode))
        return err_set(-EPERM, "%s is open to others (mode %03o); chmod 700 it", path,
                       (unsigned)(st.st_mode & 0777));
    return err_set(-EPERM, "%s is %s of uid %u; have it removed", path, file_kind(st.st_mode),
                   (unsigned)st.st_uid);
}

static int try_name(int place, const char *where, const char *name, char *ret, size_t size)
{
    if ((size_t)snprintf(ret, size, "%s/%s", where, name) >= size)
        return err_set(-ENAMETOOLONG, "the path of %.80s... is too long: use a shorter one", where);
    if (mkdirat(place, name, 0700) == -1 && errno != EEXIST)
        return err_set(-errno, "directory %s cannot be made: %s", ret, strerror(errno));
    return is_private(place, ret, name);
}

/* Random enough: it must only be unknown beforehand, and it is looked at once it is there. */
static uint32_t other_number(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t x = hash_spread((uint64_t)t.tv_nsec) ^ (uint64_t)getpid() << 32;
    x ^= x >> 29;
    return (uint32_t)(x * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
}

static int make_other(int place, const char *where, char *ret, size_t size)
{
    char names[TRIES][DATADIR_LEAF], name[40];
    int rc = -EEXIST;
    uint32_t n = datadir_own_roots(where, names, TRIES);
    for (uint32_t i = 0; i < n; i++)
        if (strchr(names[i], '.') && try_name(place, where, names[i], ret, size) == 0)
            return 0;
    for (int i = 0; i < TRIES && rc < 0; i++) {
        (void)snprintf(name, sizeof(name), "probing-%u.%08x", (unsigned)identity_own_owner(),
                       other_number());
        rc = try_name(place, where, name, ret, size);
    }
    return rc;
}

/* In a place where anybody may take any name away, nothing stays ours. */
static int open_own_dir(const char *place)
{
    struct stat st;
    int fd = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return err_set(-errno, "%s: %s", place, strerror(errno));
    if (fstat(fd, &st) == 0 && (!(st.st_mode & 022) || (st.st_mode & S_ISVTX)))
        return fd;
    (void)close(fd);
    return err_set(-EPERM,
                   "in %s (mode %04o) others could put another directory in place of ours; chmod "
                   "+t it",
                   place, (unsigned)(st.st_mode & 07777));
}

int datadir_root_make(const char *place, char *ret, size_t size, char *note, size_t note_size)
{
    char name[40];
    int fd = open_own_dir(place);
    note[0] = '\0';
    if (fd < 0)
        return fd;
    (void)snprintf(name, sizeof(name), "probing-%u", (unsigned)identity_own_owner());
    int rc = try_name(fd, place, name, ret, size);
    if (rc == -EPERM) {
        (void)snprintf(note, note_size, "%s", err_text());
        rc = make_other(fd, place, ret, size);
    }
    (void)close(fd);
    return rc;
}
