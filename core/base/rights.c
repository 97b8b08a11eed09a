/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/rights.c - see rights.h.
 *
 * Any thread.  Of a thread's ids only those of the file system are ever changed, by the system
 * call: libc changes the others of all threads at once, and ends the process when one cannot
 * follow.
 */
#include "core/base/rights.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/task.h"

/* ---- the ids of our threads ---- */

/* The owner of a thread of the process; false: it has ended. */
static bool thread_owner(pid_t tid, uint32_t *ret)
{
    struct proc_identity id = {.permitted = 0};
    struct proc_status s;
    if (proc_status_of(0, tid, &s) < 0 || s.uid[0] == PROC_UNKNOWN)
        return false;
    for (int i = 0; i < 4; i++)
        id.uid[i] = (uint32_t)s.uid[i];
    *ret = identity_owner(&id);
    return true;
}

/* Programs that give each thread rights of its own (by the system call; libc has no such function)
 * are root's when a thread is: all share one memory. */
static int check_threads(uint32_t own)
{
    struct proc_numbers all;
    struct proc_number one;
    uint32_t other = own;
    int rc = 0;
    if (own == 0)
        return 0;
    (void)proc_threads_open(&all, 0);
    while (rc == 0 && proc_numbers_next(&all, &one))
        if (thread_owner((pid_t)one.value, &other) && other != own)
            rc =
                err_set(-EPERM,
                        "thread %d of this process belongs to uid %u, and the one that was entered "
                        "by to uid %u: enter it while all of them have the same ids",
                        (int)one.value, (unsigned)other, (unsigned)own);
    proc_numbers_close(&all);
    return rc;
}

/* A filter may end the program for a call that it never makes. */
static bool has_filter(void)
{
    struct proc_status s;
    return proc_status_of(0, (pid_t)syscall(SYS_gettid), &s) < 0 || s.seccomp != 0;
}

/* The kernel makes a process that changes these undumpable, as for all ids. */
static int set_ids(uint32_t uid, uint32_t gid)
{
    struct proc_identity now;
    int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    bool may = !has_filter();
    if (may) {
        (void)syscall(SYS_setfsgid, gid);
        (void)syscall(SYS_setfsuid, uid);
    }
    if (may && dumpable == 1)
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    identity_own(&now);
    return now.uid[IDENTITY_FILES] == uid && now.gid[IDENTITY_FILES] == gid
               ? 0
               : err_set(-EPERM,
                         "this process has put on the rights of uid %u, and may not make files as "
                         "uid %u, to whom it belongs: enter it when it has put them off",
                         (unsigned)now.uid[IDENTITY_FILES], (unsigned)uid);
}

int rights_take(void)
{
    struct proc_identity own;
    identity_own(&own);
    uint32_t uid = identity_owner(&own), gid = identity_group(&own);
    int rc = own.dumpable && !identity_is_mixed(&own) ? 0 : check_threads(uid);
    if (rc < 0 || (own.uid[IDENTITY_FILES] == uid && own.gid[IDENTITY_FILES] == gid))
        return rc;
    return set_ids(uid, gid);
}

void rights_keep(void)
{
    if (geteuid() != getuid() || getegid() != getgid())
        (void)rights_take(); /* else making the file fails, and that says so */
}

/* ---- files that others may have written ---- */

struct trust {
    uint32_t own, group; /* of the process */
    uint32_t top; /* who has "/": root, or nobody in a user namespace that does not map root */
};

static int refuse_file(const struct trust *t, const char *path, const struct stat *st)
{
    if (st->st_uid != 0 && st->st_uid != t->own && st->st_uid != t->top)
        return err_set(-EPERM, "%s belongs to uid %u (mode %04o), and this process to uid %u", path,
                       (unsigned)st->st_uid, (unsigned)(st->st_mode & 07777), (unsigned)t->own);
    return err_set(-EPERM,
                   "others than uid %u may write to %s (uid %u, gid %u, mode %04o): chmod go-w it",
                   (unsigned)t->own, path, (unsigned)st->st_uid, (unsigned)st->st_gid,
                   (unsigned)(st->st_mode & 07777));
}

/* A folder with the sticky bit keeps what is in it to the owners of that, who are looked at. */
static bool is_ours(const struct trust *t, const struct stat *st)
{
    bool sticky = S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX);
    bool group = (st->st_mode & S_IWGRP) && (t->own == 0 || st->st_gid != t->group);
    bool owned = st->st_uid == 0 || st->st_uid == t->own || st->st_uid == t->top;
    return owned && (sticky || (!group && !(st->st_mode & S_IWOTH)));
}

/* From "/" down: below what only we and root may rename, a name stays what it was. */
static int check_path(struct trust *t, char *path, const struct stat *file)
{
    struct stat st = *file;
    for (char *at = path; at; at = strchr(at + 1, '/')) {
        char *cut = at == path ? at + 1 : at, first = *cut;
        *cut = '\0';
        int rc = lstat(path, &st);
        if (rc == 0 && at == path)
            t->top = st.st_uid;
        if (rc == -1)
            return err_set(-errno, "%s: %s", path, strerror(errno));
        if (!is_ours(t, &st))
            return refuse_file(t, path, &st);
        *cut = first;
    }
    if (lstat(path, &st) == -1 || st.st_dev != file->st_dev || st.st_ino != file->st_ino)
        return err_set(-ESTALE, "%s was moved or replaced meanwhile", path);
    return is_ours(t, file) ? 0 : refuse_file(t, path, file);
}

int rights_file_check(int fd)
{
    struct proc_identity own;
    char link[40], path[PATH_MAX];
    struct stat st;
    identity_own(&own);
    struct trust t = {.own = identity_owner(&own), .group = identity_group(&own)};
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    if (path[0] != '/' || fstat(fd, &st) == -1)
        return err_set(-EPERM, "/proc/self/fd does not say where the file lies");
    return check_path(&t, path, &st);
}
