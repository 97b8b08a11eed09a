/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/roots.c - where data directories are looked for, and which of these places are
 * believed.
 *
 * Any thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/datadir/datadir.h"
#include "core/datadir/internal.h"
#include "sdk/lib/proc/identity.h"

#define OWN_ROOTS_MAX 16 /* a user has one in a place, and another where somebody squats on it */

int datadir_root(const char *path)
{
    struct stat st;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1 || fstat(fd, &st) == -1) {
        int failed = -errno;
        if (fd != -1)
            (void)close(fd);
        return err_set(failed, "%s: %s", path, strerror(-failed));
    }
    bool foreign = st.st_uid != identity_own_owner() && st.st_uid != 0;
    bool loose = (st.st_mode & 002) && !(st.st_mode & S_ISVTX); /* a group is the user's choice */
    if (!foreign && !loose)
        return fd;
    (void)close(fd);
    if (foreign)
        return err_set(-EPERM,
                       "%s belongs to uid %u, who could put another directory in place of ours: "
                       "name one of your own",
                       path, (unsigned)st.st_uid);
    return err_set(-EPERM,
                   "others may write to %s (mode %04o) and could put another directory in place of "
                   "ours: chmod +t it, or name another",
                   path, (unsigned)(st.st_mode & 07777));
}

static void report_error(const struct datadir_search *s, int why)
{
    if (s->refused)
        s->refused(s->arg, err_why(why));
}

/* In /dev/shm memory files alone are part of a directory elsewhere. */
static bool has_data(const struct datadir *d)
{
    return datadir_has(d, "data.mdb", NULL) || datadir_has(d, "info", NULL);
}

/* One entry of a root; its descriptor stays the root's. */
static int take_entry(const struct datadir_search *s, const struct datadir_in *root,
                      const char *name, bool memory)
{
    struct datadir d;
    struct datadir_in in = *root;
    in.fd = fcntl(root->fd, F_DUPFD_CLOEXEC, 0);
    int rc = in.fd == -1 ? err_set(-errno, "%s: %s", root->path, strerror(errno))
                         : datadir_open_in(&in, name, DATADIR_ANY, &d);
    if (rc < 0) {
        if (in.fd != -1)
            (void)close(in.fd);
        if (rc != -ENOENT && rc != -ENOTDIR && rc != -EACCES) /* a file there is nothing of ours */
            report_error(s, rc);
        return 0;
    }
    rc = memory && !has_data(&d) ? 0 : s->found(s->arg, &d);
    datadir_close(&d);
    return rc;
}

/* Each directory whose name begins as a core's. */
static int each_in(const struct datadir_search *s, const struct datadir_in *root, bool memory)
{
    int fd = openat(root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0, n = 0;
    DIR *all = fd == -1 ? NULL : fdopendir(fd);
    if (!all) {
        if (fd != -1)
            (void)close(fd);
        return 0;
    }
    for (struct dirent *e; rc == 0 && (e = readdir(all)); n++) {
        if (n == DATADIR_ENTRIES_MAX) {
            report_error(s, err_set(-E2BIG, "%s has more than %d entries: not all were looked at",
                                    root->path, DATADIR_ENTRIES_MAX));
            break;
        }
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            rc = take_entry(s, root, e->d_name, memory);
    }
    (void)closedir(all);
    return rc;
}

static int in_default(const struct datadir_search *s, const char *place, const char *name,
                      bool memory)
{
    char path[DATADIR_LEAF + 16];
    uid_t owner;
    int rc = root_open(/* view= */ -1, place, name, /* own= */ false, &owner);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0) {
        report_error(s, rc);
        return 0;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", place, name);
    const struct datadir_in root = {.fd = rc, .path = path, .owner = &owner};
    rc = each_in(s, &root, memory);
    (void)close(root.fd);
    return rc;
}

/* Ours, or those of everybody. */
static int each_default(const struct datadir_search *s, const char *place, bool memory)
{
    char own[OWN_ROOTS_MAX][DATADIR_LEAF];
    uid_t uid;
    int rc = 0, n = 0;
    if (!s->all_users) {
        n = (int)datadir_own_roots(place, own, OWN_ROOTS_MAX);
        for (int i = 0; i < n && rc == 0; i++)
            rc = in_default(s, place, own[i], memory);
        return rc;
    }
    DIR *all = opendir(place);
    for (struct dirent *e; all && rc == 0 && n < DATADIR_ENTRIES_MAX && (e = readdir(all)); n++)
        if (root_name_read(e->d_name, &uid))
            rc = in_default(s, place, e->d_name, memory);
    if (all)
        (void)closedir(all);
    return rc;
}

int datadir_search(const struct datadir_search *s)
{
    int rc = 0;
    if (s->named && s->named[0] == '/') {
        struct datadir_in root = {.path = s->named};
        root.fd = open(s->named, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root.fd != -1) {
            rc = each_in(s, &root, /* memory= */ false);
            (void)close(root.fd);
        }
    }
    static const char *const places[] = DATADIR_PLACES;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && rc == 0; i++)
        rc = each_default(s, places[i], strcmp(places[i], DATADIR_SHM) == 0);
    return rc;
}
