/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/target_files.c - files in the target's own view of the file system, with its user's
 * rights.
 *
 * One thread; the rights are that thread's alone.
 *
 * Where a process sees /tmp may be anything: a directory of root's that it has mounted there, a
 * link that leads out of its root, a FIFO.  So a folder is looked up inside of the target's root
 * (openat2, or name by name), and what is made, read or removed in it is so with the rights of the
 * target's user: root cannot be made to write where that user could not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/proc/task.h"

#define GROUPS_MAX 1024 /* of a root that has more, the rest is given up for good */

struct rights {
    gid_t groups[GROUPS_MAX];
    int n_groups; /* -1: they are not ours to change */
    bool taken;
};

/* By the system calls, which are for the calling thread; libc's would change all. */
static void become_user(uid_t uid, gid_t gid)
{
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
}

static void rights_back(struct rights *r)
{
    if (!r->taken)
        return;
    become_user(geteuid(), getegid());
    if (r->n_groups >= 0)
        (void)!syscall(SYS_setgroups, r->n_groups, r->groups);
}

static int rights_take(pid_t pid, struct rights *ret)
{
    struct proc_status s;

    ret->taken = false;
    if (geteuid() != 0)
        return 0; /* we have no others */
    if (proc_status_of(pid, 0, &s) < 0 || s.uid[3] == PROC_UNKNOWN || s.gid[3] == PROC_UNKNOWN)
        return -ESRCH;
    uid_t uid = (uid_t)s.uid[3];
    gid_t gid = (gid_t)s.gid[3];
    if (uid == 0)
        return 0;
    ret->taken = true;
    ret->n_groups = (int)syscall(SYS_getgroups, GROUPS_MAX, ret->groups);
    if (ret->n_groups >= 0 && syscall(SYS_setgroups, 0, NULL) == -1)
        ret->n_groups = -1; /* a user namespace that may not: ours are its own, then */
    become_user(uid, gid);
    if ((uid_t)syscall(SYS_setfsuid, uid) == uid && (gid_t)syscall(SYS_setfsgid, gid) == gid)
        return 0;
    rights_back(ret);
    return -EPERM;
}

int theirs_folder(pid_t pid, const char *path)
{
    char view[4096];

    (void)snprintf(view, sizeof(view), "/proc/%d/root%s", (int)pid, path);
    return datadir_view(view);
}

int theirs_open(pid_t pid, int folder, const char *name, int flags, mode_t mode)
{
    struct rights r;
    int rc = rights_take(pid, &r);

    if (rc < 0)
        return rc;
    int fd = openat(folder, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
    rc = fd == -1 ? -errno : fd;
    rights_back(&r);
    return rc;
}

int theirs_remove(pid_t pid, int folder, const char *name)
{
    struct rights r;
    int rc = rights_take(pid, &r);

    if (rc < 0)
        return rc;
    rc = unlinkat(folder, name, 0) == -1 ? -errno : 0;
    rights_back(&r);
    return rc;
}

/* A descriptor of the target may be another file from one moment to the next, and opening some
 * files for writing does something.  So it is taken hold of first (O_PATH) and looked at. */
int theirs_descriptor(pid_t pid, int number, const char *made)
{
    char path[64], name[256];
    struct stat st;
    struct rights r;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, number);
    int held = open(path, O_PATH | O_CLOEXEC);
    if (held == -1)
        return -errno;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", held);
    ssize_t n = readlink(path, name, sizeof(name) - 1);
    name[n > 0 ? n : 0] = '\0';
    int rc = fstat(held, &st) == -1 || !S_ISREG(st.st_mode) || st.st_nlink != 0 ||
                     strcmp(name, made) != 0
                 ? -ESTALE
                 : rights_take(pid, &r);
    if (rc == 0) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        rc = fd == -1 ? -errno : fd;
        rights_back(&r);
    }
    (void)close(held);
    return rc;
}

void theirs_owner(pid_t pid, int number, int fd, char ret[24])
{
    struct proc_status s;
    struct stat here, there;
    char path[96];

    (void)snprintf(ret, 24, "self");
    if (proc_status_of(pid, 0, &s) < 0 || s.inner_id == PROC_UNKNOWN || fstat(fd, &here) == -1)
        return;
    (void)snprintf(path, sizeof(path), "/proc/%d/root/proc/%llu/fd/%d", pid,
                   (unsigned long long)s.inner_id, number);
    if (stat(path, &there) == 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino)
        (void)snprintf(ret, 24, "%llu", (unsigned long long)s.inner_id);
}
