/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/remove.c - a data directory is taken away by its descriptors: whatever its owner
 * puts in the way meanwhile, only entries of directories that are his are unlinked.
 *
 * Any thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/datadir/datadir.h"
#include "core/datadir/internal.h"
#include "sdk/lib/proc/identity.h"

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int remove_entries(const struct datadir *d, int fd, int depth);

/* A directory in it goes when it is the same owner's, and nothing is mounted there: a link could
 * not be opened so, and what is moved there meanwhile is looked at itself. */
static int remove_inner(const struct datadir *d, int parent, const char *name, int depth)
{
    struct stat st;
    const int how = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
    int fd = depth > 0 ? entry_open(parent, name, how, d->own) : -ENOTEMPTY;
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return fd;
    int rc = fstat(fd, &st) == -1 ? -errno : st.st_uid != d->owner ? -EPERM : 0;
    if (rc == 0)
        rc = remove_entries(d, fd, depth - 1);
    (void)close(fd);
    if (rc == 0 && unlinkat(parent, name, AT_REMOVEDIR) == -1 && errno != ENOENT)
        rc = -errno;
    return rc;
}

/* Everything in the directory `fd`, which stays open.  The first failure is given. */
static int remove_entries(const struct datadir *d, int fd, int depth)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *all = again == -1 ? NULL : fdopendir(again);
    if (!all) {
        rc = -errno;
        if (again != -1)
            (void)close(again);
        return rc;
    }
    struct dirent *e;
    for (int n = 0; (e = readdir(all));) {
        if (is_dots(e->d_name))
            continue;
        if (++n > DATADIR_ENTRIES_MAX) {
            rc = -E2BIG; /* somebody fills it while we empty it */
            break;
        }
        int failed = unlinkat(fd, e->d_name, 0) == -1 && errno != ENOENT ? -errno : 0;
        if (failed == -EISDIR || failed == -EPERM)
            failed = remove_inner(d, fd, e->d_name, depth);
        rc = rc ? rc : failed;
    }
    (void)closedir(all);
    return rc;
}

/* The name, when it still is the directory that was proved. */
static int remove_name(const struct datadir *d)
{
    struct stat st;
    if (fstatat(d->parent, d->leaf, &st, AT_SYMLINK_NOFOLLOW) == -1)
        return errno == ENOENT ? 0 : -errno;
    if (st.st_dev != d->device || st.st_ino != d->inode)
        return -ESTALE;
    return unlinkat(d->parent, d->leaf, AT_REMOVEDIR) == -1 && errno != ENOENT ? -errno : 0;
}

/* Another directory may have the same name (a copy), and the memory may be that one's. */
static bool is_ours(const struct datadir *d, const struct datadir *fast)
{
    struct datadir home;
    int r = datadir_home(fast, d->own ? DATADIR_OWN : DATADIR_ANY, &home);
    bool same = r == 0 && home.device == d->device && home.inode == d->inode;
    datadir_close(&home);
    /* Or there is no other whose it could be. */
    return same || r == 1 || r == -EXDEV || r == -EBADMSG;
}

static void remove_fast(const struct datadir *d)
{
    static const char *const names[] = {"rings", "strings", "lock.mdb"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct datadir fast;
        if (datadir_fast(d, names[i], &fast) == 0 && is_ours(d, &fast) &&
            remove_entries(&fast, fast.fd, /* depth= */ 0) == 0)
            (void)remove_name(&fast);
        datadir_close(&fast);
    }
}

int datadir_remove(const struct datadir *d)
{
    uint32_t own = identity_own_owner();
    if (d->owner != own && own != 0)
        return err_set(-EPERM, "directory %s belongs to uid %u, not to us", d->path,
                       (unsigned)d->owner);
    remove_fast(d);
    int rc = remove_entries(d, d->fd, /* depth= */ 1);
    if (rc == 0)
        rc = remove_name(d);
    return rc < 0 ? err_set(rc, "directory %s cannot be removed: %s", d->path,
                            rc == -ENOTEMPTY ? "there are directories in its directories"
                            : rc == -ESTALE  ? "another one has its name now"
                                             : strerror(-rc))
                  : 0;
}
