/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/datadir.c - a data directory is opened without following what its owner may have put
 * in the way, and what was opened is proved.
 *
 * Any thread.  It looks at the directory alone: its files are checked_open.c's.
 */
#include "core/datadir/datadir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/datadir/internal.h"
#include "core/guest/own_descriptors.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/proc_file.h"

/* ---- openat2(2), which the C library need not know ---- */

#define OPENAT2 437 /* its number on every machine */
#define NO_XDEV UINT64_C(0x01)
#define NO_MAGICLINKS UINT64_C(0x02)
#define NO_SYMLINKS UINT64_C(0x04)
#define BENEATH UINT64_C(0x08)
#define IN_ROOT UINT64_C(0x10)

struct how {
    uint64_t flags, mode, resolve;
};

static int openat2(int dirfd, const char *path, int flags, uint64_t resolve)
{
    struct how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = resolve};
    descriptor_begin();
    int fd = descriptor_end((int)syscall(OPENAT2, dirfd, path, &how, sizeof(how)));
    return fd == -1 ? -errno : fd;
}

/* An older kernel, or a filter (seccomp) that knows no such call. */
static bool is_unknown(int rc)
{
    return rc == -ENOSYS || rc == -EPERM || rc == -EINVAL || rc == -E2BIG;
}

static int open_plainly(int dirfd, const char *name, int flags)
{
    int fd = openat(dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC);
    return fd == -1 ? -errno : fd;
}

/* Without openat2: what is mounted there has been entered before it is seen. */
static int open_on_device(int dirfd, const char *name, int flags)
{
    struct stat outer, inner;
    int fd = open_plainly(dirfd, name, flags);
    if (fd < 0 ||
        (fstat(dirfd, &outer) == 0 && fstat(fd, &inner) == 0 && outer.st_dev == inner.st_dev))
        return fd;
    (void)close(fd);
    return -EXDEV;
}

int entry_open(int dirfd, const char *name, int flags, bool own)
{
    if (name[0] == '\0' || strchr(name, '/') || strcmp(name, "..") == 0)
        return -EINVAL;
    if (own)
        return open_plainly(dirfd, name, flags);
    int r =
        openat2(dirfd, name, flags | O_NOFOLLOW, NO_SYMLINKS | NO_MAGICLINKS | BENEATH | NO_XDEV);
    return is_unknown(r) ? open_on_device(dirfd, name, flags) : r;
}

/* Without openat2: one name after another, and no link at all. */
static int walk_path(int view, const char *path, int flags)
{
    char name[DATADIR_LEAF];
    int at = fcntl(view, F_DUPFD_CLOEXEC, 0);
    int rc = at == -1 ? -errno : 0;
    while (rc == 0 && path[strspn(path, "/")]) {
        path += strspn(path, "/");
        size_t n = strcspn(path, "/");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, path);
        path += n;
        bool last = path[strspn(path, "/")] == '\0';
        bool up = strcmp(name, "..") == 0 || n >= sizeof(name);
        int next = up ? -1 : openat(at, name, (last ? flags : O_PATH) | O_NOFOLLOW | O_CLOEXEC);
        rc = up ? -EXDEV : next == -1 ? -errno : 0;
        (void)close(at);
        at = next;
    }
    return rc < 0 ? rc : at;
}

int view_open(int view, const char *path, int flags)
{
    if (view == -1) {
        int fd = open(path, flags | O_CLOEXEC);
        return fd == -1 ? -errno : fd;
    }
    int r = openat2(view, path, flags, IN_ROOT | NO_MAGICLINKS);
    return is_unknown(r) ? walk_path(view, path, flags) : r;
}

/* ---- names ---- */

bool root_name_read(const char *name, uid_t *ret)
{
    char number[16];
    uint64_t uid;
    if (strncmp(name, "probing-", 8) != 0)
        return false;
    size_t n = strspn(name + 8, "0123456789");
    const char *more = name + 8 + n;
    if (n >= sizeof(number) || (more[0] != '\0' && more[0] != '.') ||
        strspn(more + (more[0] == '.'), "0123456789abcdef") != strlen(more + (more[0] == '.')))
        return false;
    (void)snprintf(number, sizeof(number), "%.*s", (int)n, name + 8);
    if (parse_u64(number, &uid) < 0 || uid >= UINT32_MAX)
        return false;
    *ret = (uid_t)uid;
    return true;
}

/* "/proc/PID/root/..." -> how long that prefix is, 0: it has none. */
static size_t view_length(const char *path)
{
    static const char proc[] = "/proc/";
    size_t n = sizeof(proc) - 1;
    if (strncmp(path, proc, n) != 0)
        return 0;
    n += strncmp(path + n, "self/", 5) == 0 ? 4 : strspn(path + n, "0123456789");
    return strncmp(path + n, "/root/", 6) == 0 ? n + 5 : 0;
}

/* Parent and name of a path; a name that is none ("/", ".", "..") has itself for a parent. */
static void split_path(const char *path, char parent[DATADIR_PATH], char leaf[DATADIR_LEAF])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    (void)snprintf(leaf, DATADIR_LEAF, "%.*s", (int)(n - from), path + from);
    size_t keep = from > 1 ? from - 1 : from;
    (void)snprintf(parent, DATADIR_PATH, "%.*s", (int)keep, path);
    if (leaf[0] == '\0' || strcmp(leaf, ".") == 0 || strcmp(leaf, "..") == 0) {
        (void)snprintf(parent, DATADIR_PATH, "%.*s", (int)n, path);
        (void)snprintf(leaf, DATADIR_LEAF, ".");
    } else if (keep == 0) {
        (void)snprintf(parent, DATADIR_PATH, ".");
    }
}

/* ---- proving ---- */

static int look_at_directory(struct datadir *d, enum datadir_whose whose, const uid_t *owner)
{
    struct stat st;
    if (fstat(d->fd, &st) == -1)
        return err_set(-errno, "%s: %s", d->path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(-ENOTDIR, "%s is not a directory but %s", d->path, file_kind(st.st_mode));
    if (owner && st.st_uid != *owner)
        return err_set(-EPERM, "%s belongs to uid %u, not to uid %u, whose place it is in", d->path,
                       (unsigned)st.st_uid, (unsigned)*owner);
    if (whose == DATADIR_OWN && st.st_uid != identity_own_owner())
        return err_set(-EPERM, "directory %s belongs to uid %u, not to this user; choose another",
                       d->path, (unsigned)st.st_uid);
    if (whose == DATADIR_OWN && (st.st_mode & 077))
        return err_set(-EPERM, "directory %s is open to others (mode %03o): chmod 700 it", d->path,
                       (unsigned)(st.st_mode & 0777));
    d->own = st.st_uid == identity_own_owner() && !(st.st_mode & 022);
    d->owner = st.st_uid;
    d->device = st.st_dev;
    d->inode = st.st_ino;
    d->changed = st.st_mtim;
    return 0;
}

/* Why an entry was not opened. */
static int refuse_entry(const struct datadir_in *in, const char *name, const char *path, int why)
{
    struct stat st;
    if ((why == -ELOOP || why == -ENOTDIR) &&
        fstatat(in->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
        return err_set(
            S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR, "%s is not a directory but %s%s", path,
            file_kind(st.st_mode),
            S_ISLNK(st.st_mode) ? ", which is not followed; give the path that it leads to" : "");
    return err_set(why, "%s: %s", path,
                   why == -EXDEV ? "another file system is mounted over it" : strerror(-why));
}

int datadir_open_in(const struct datadir_in *in, const char *name, enum datadir_whose whose,
                    struct datadir *ret)
{
    const int how = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
    struct datadir d = DATADIR_NONE;
    const char *between = in->path[strlen(in->path) - 1] == '/' ? "" : "/";
    int n = snprintf(d.path, sizeof(d.path), "%s%s%s", in->path, between, name);
    if (n < 0 || (size_t)n >= sizeof(d.path) ||
        (size_t)snprintf(d.leaf, sizeof(d.leaf), "%s", name) >= sizeof(d.leaf))
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long: at most %d bytes", in->path,
                       DATADIR_PATH - 1);
    d.fd = entry_open(in->fd, name, how, whose == DATADIR_OWN);
    if (d.fd == -EXDEV && in->mounts)
        d.fd = open_plainly(in->fd, name, how);
    if (d.fd < 0)
        return refuse_entry(in, name, d.path, d.fd);
    int rc = look_at_directory(&d, whose, in->owner);
    if (rc < 0) {
        (void)close(d.fd);
        return rc;
    }
    d.parent = in->fd;
    *ret = d;
    return 0;
}

int root_open(int view, const char *place, const char *name, bool own, uid_t *ret_owner)
{
    struct stat st;
    uid_t uid = 0;
    int at = view_open(view, place, O_PATH | O_DIRECTORY);
    if (at < 0)
        return err_set(at, "%s: %s", place, strerror(-at));
    int fd = entry_open(at, name, O_PATH | O_DIRECTORY, own);
    bool numbered = root_name_read(name, &uid);
    if (fd == -EXDEV && (view != -1 || (numbered && uid == identity_own_owner())))
        fd = open_plainly(at, name, O_PATH | O_DIRECTORY); /* a volume of ours */
    (void)close(at);
    if (fd < 0)
        return err_set(fd, "%s/%s is ignored: %s", place, name,
                       fd == -EXDEV                     ? "another file system is mounted there"
                       : fd == -ELOOP || fd == -ENOTDIR ? "it is not a directory, or a link to one"
                                                        : strerror(-fd));
    if (fstat(fd, &st) == -1 || (numbered && view == -1 && st.st_uid != uid) ||
        (st.st_mode & 022)) {
        (void)close(fd);
        return err_set(
            -EPERM,
            "%s/%s is ignored: it belongs to uid %u (mode %03o), and should be uid %u's alone",
            place, name, (unsigned)st.st_uid, (unsigned)(st.st_mode & 0777), (unsigned)uid);
    }
    *ret_owner = st.st_uid;
    return fd;
}

/* The parent of a path: a default root is proved, any other is the user's word. */
static int open_parent(int view, const char *parent, bool own, uid_t *owner,
                       const uid_t **ret_owner)
{
    static const char *const places[] = DATADIR_PLACES;
    uid_t uid;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        size_t n = strlen(places[i]);
        if (strncmp(parent, places[i], n) != 0 || parent[n] != '/' ||
            !root_name_read(parent + n + 1, &uid))
            continue;
        *ret_owner = owner;
        return root_open(view, places[i], parent + n + 1, own, owner);
    }
    int rc = view_open(view, parent, O_PATH | O_DIRECTORY);
    return rc < 0 ? err_set(rc, "%s: %s", parent, strerror(-rc)) : rc;
}

/* "/proc/PID/root" of a process whose first thread has ended: the others see the same, and one that
 * execs waits for the first thread and then is the first.  -1: the process has ended. */
static int open_others_view(const char *root)
{
    struct proc_numbers all;
    struct proc_number one;
    char path[64];
    size_t n = strlen(root) - strlen("root");
    int view = -1;
    (void)snprintf(path, sizeof(path), "%.*stask", (int)n, root);
    (void)proc_numbers_open(&all, path);
    while (view == -1 && proc_numbers_next(&all, &one)) {
        (void)snprintf(path, sizeof(path), "%.*stask/%u/root", (int)n, root, (unsigned)one.value);
        view = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    proc_numbers_close(&all);
    return view != -1 ? view : open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The view that a path begins with: -1, none, and *ret_n bytes long. */
static int open_view(const char *path, size_t *ret_n)
{
    char root[64];
    *ret_n = view_length(path);
    if (*ret_n == 0)
        return -1;
    (void)snprintf(root, sizeof(root), "%.*s", (int)*ret_n, path);
    int view = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), e = errno;
    if (view == -1 && e == ENOENT) {
        view = open_others_view(root);
        e = errno;
    }
    if (view == -1 && e == ENOENT) /* also of a zombie */
        return err_set(-e, "process %.*s has ended", (int)strcspn(root + 6, "/"), root + 6);
    return view == -1 ? err_set(-e, "%s: %s", root, strerror(e)) : view;
}

int datadir_view(const char *path)
{
    size_t n;
    int view = open_view(path, &n);
    if (n > 0 && view < 0)
        return view;
    int rc = view_open(view, path + n, O_PATH | O_DIRECTORY);
    if (view >= 0)
        (void)close(view);
    return rc < 0 ? err_set(rc, "%s: %s", path, strerror(-rc)) : rc;
}

int datadir_open(const char *path, enum datadir_whose whose, struct datadir *ret)
{
    char parent[DATADIR_PATH], leaf[DATADIR_LEAF];
    uid_t uid;
    size_t n;
    *ret = (struct datadir)DATADIR_NONE;
    if (path[0] == '\0')
        return err_set(-EINVAL, "no data directory was given");
    if (strlen(path) >= DATADIR_PATH)
        return err_set(-ENAMETOOLONG,
                       "the path '%.60s...' is too long: %zu bytes, at most %d; use a shorter "
                       "path, from a directory nearer to it",
                       path, strlen(path), DATADIR_PATH - 1);
    int view = open_view(path, &n);
    if (n > 0 && view < 0)
        return view;
    split_path(path + n, parent, leaf);
    struct datadir_in in = {.path = parent};
    int rc = in.fd = open_parent(view, parent, whose == DATADIR_OWN, &uid, &in.owner);
    in.mounts = !in.owner && view == -1;
    if (rc >= 0)
        rc = datadir_open_in(&in, leaf, whose, ret);
    if (rc < 0) {
        if (in.fd >= 0)
            (void)close(in.fd);
        if (view != -1)
            (void)close(view);
        return rc;
    }
    ret->view = view;
    (void)snprintf(ret->path, sizeof(ret->path), "%s", path);
    return 0;
}

void datadir_close(struct datadir *d)
{
    int *const all[] = {&d->fd, &d->parent, &d->view};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (*all[i] != -1)
            (void)close(*all[i]);
        *all[i] = -1;
    }
}
