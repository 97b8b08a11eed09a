/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/own_dir.c - the process's directory, its info file, and where plugins are looked
 * for.
 *
 * Threads: the core's main thread, while it starts.
 */
#include "core/datadir/own_dir.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/job_variables.h"
#include "sdk/lib/proc/environ_now.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/proc_file.h"

/* With less, the eighth that each of rings and strings may have (headroom.h) holds too little. */
#define FAST_MIN_BYTES ((uint64_t)256 << 20)
#define TMPFS 0x01021994                    /* f_type of a tmpfs, statfs(2) */
#define AGAIN_MAX 10000                     /* times a process may be entered */
#define FOREIGN_MAX 8                       /* names that others have, until we choose oddly */
#define ROOM_BYTES ((off_t)64 << 10)        /* without so much no life begins */
#define DATADIR_NAME_BYTES 32               /* of a file of ours */
#define ENVIRONMENT_BYTES ((size_t)8 << 20) /* Linux gives a program 6 MiB at most */
#define VARIABLE_BYTES 200                  /* of a name and a value; longer ones are left out */
#define SOCKET_PATH_MAX 107                 /* bytes of sun_path, and a NUL */
#define SOCKET_LEAF_LEAST 9                 /* of "/1-1/sock": what a root is followed by */

int own_dir_path(const struct own_dir *p, const char *name, char ret[DATADIR_PATH_BYTES])
{
    int n = snprintf(ret, DATADIR_PATH_BYTES, "%s/%s", p->directory, name);
    return n < DATADIR_PATH_BYTES
               ? 0
               : err_set(-ENAMETOOLONG,
                         "the data directory's path is too long: set a shorter PROBING_DATA_DIR");
}

static int too_long(const char *root)
{
    return err_set(-ENAMETOOLONG,
                   "a socket's path has at most %d bytes: set a shorter PROBING_DATA_DIR than "
                   "'%.80s%s', of %zu",
                   SOCKET_PATH_MAX, root, strlen(root) > 80 ? "..." : "", strlen(root));
}

/* A root that the user named may be open to others (our own directory in it is not); it is made
 * when it is not there.  It is an explicit wish: no other is taken in its place. */
static int root_named(const char *named, char ret[DATADIR_PATH_BYTES])
{
    struct stat st;
    if (named[0] != '/')
        return err_set(-EINVAL, "PROBING_DATA_DIR needs an absolute path, not '%.200s'", named);
    if (strlen(named) + SOCKET_LEAF_LEAST > SOCKET_PATH_MAX) /* before it is made */
        return too_long(named);
    (void)snprintf(ret, DATADIR_PATH_BYTES, "%s", named);
    if (stat(named, &st) == -1)
        return file_private_dir(named);
    int fd = datadir_root(named);
    if (fd >= 0)
        (void)close(fd);
    return fd < 0 ? fd : 0;
}

/* The same name below /dev/shm when that is a memory file system with room: a ring on disk would
 * stall its writer whenever the kernel writes the page back. */
static void fast_make(const char *root, const char *leaf, char ret[DATADIR_PATH_BYTES])
{
    static const char shm[] = DATADIR_SHM "/";
    struct statfs fs;
    char fast[256], note[8];

    ret[0] = '\0';
    if (strncmp(root, shm, sizeof(shm) - 1) == 0) /* all is in memory as it is */
        return;
    if (statfs(DATADIR_SHM, &fs) == -1 || fs.f_type != TMPFS ||
        (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < FAST_MIN_BYTES)
        return;
    if (datadir_root_make(DATADIR_SHM, fast, sizeof(fast), note, sizeof(note)) < 0)
        return;
    int n = snprintf(ret, DATADIR_PATH_BYTES, "%s/%s", fast, leaf);
    if (n >= DATADIR_PATH_BYTES || (mkdir(ret, 0700) == -1 && errno != EEXIST))
        ret[0] = '\0';
}

/* Another data directory may have led to the same name below /dev/shm: then there is none. */
static bool fast_is_empty(const char *fast)
{
    char path[DATADIR_PATH_BYTES + 16];
    (void)snprintf(path, sizeof(path), "%s/rings", fast);
    return fast[0] && access(path, F_OK) == -1;
}

static int name_directory(struct own_dir *p, const char *root, int again, char leaf[64])
{
    int n = snprintf(leaf, 64, "%d-%llu", (int)getpid(), (unsigned long long)p->start_time);
    if (again > 1)
        (void)snprintf(leaf + n, 64 - (size_t)n, ".%d", again);
    if (snprintf(p->directory, DATADIR_PATH_BYTES, "%s/%s", root, leaf) + 8 > SOCKET_PATH_MAX)
        return too_long(root);
    return 0;
}

/* The last directory of an earlier life, when it may be gone on with. */
static bool find_earlier(struct own_dir *p, const char *root, const char *version, char leaf[64])
{
    int last = 0;
    struct stat st;
    while (last + 1 < AGAIN_MAX && name_directory(p, root, last + 1, leaf) == 0 &&
           lstat(p->directory, &st) == 0)
        last++;
    /* It is touched first: `gc` leaves alone what a living process has changed a moment ago. */
    return last > 0 && name_directory(p, root, last, leaf) == 0 &&
           utimensat(AT_FDCWD, p->directory, NULL, AT_SYMLINK_NOFOLLOW) == 0 &&
           resume_can(p->directory, version);
}

bool own_dir_is_gone(const struct own_dir *p)
{
    char path[DATADIR_PATH_BYTES];
    struct stat st;
    return own_dir_path(p, "sock", path) == 0 && lstat(path, &st) == -1 && errno == ENOENT;
}

/* Is it a directory of somebody else's that bars our way? */
static bool is_foreign(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != identity_own_owner());
}

/* Another directory that is there belongs to another life in this process; its files stay.  In a
 * root that others may write to, they may have taken the names that were to be expected. */
static int directory_make(struct own_dir *p, const char *root, char leaf[64])
{
    for (int again = 1, foreign = 0;; again++) {
        int number = foreign < FOREIGN_MAX ? again : AGAIN_MAX + (int)(clock_now() % INT32_MAX / 2);
        int rc = again < AGAIN_MAX ? name_directory(p, root, number, leaf)
                                   : err_set(-EEXIST,
                                             "%s holds %d directories of this process; "
                                             "probing gc removes old ones",
                                             root, AGAIN_MAX);
        if (rc < 0 || mkdir(p->directory, 0700) == 0)
            return rc;
        if (errno != EEXIST)
            return err_set(-errno, "cannot make %s: %s", p->directory, strerror(errno));
        foreign += is_foreign(p->directory) ? 1 : 0;
    }
}

/* A disk without room, or with none for us, is not found out by making a directory. */
static int has_room(const struct own_dir *p)
{
    static const char piece[4096];
    char path[DATADIR_PATH_BYTES];
    int rc = own_dir_path(p, "room", path);
    int fd = rc < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (rc == 0 && fd == -1)
        rc = err_set(-errno, "%s takes no data: %s", p->directory, strerror(errno));
    for (off_t at = 0; rc == 0 && at < ROOM_BYTES; at += (off_t)sizeof(piece)) {
        ssize_t n = pwrite(fd, piece, sizeof(piece), at);
        if (n != (ssize_t)sizeof(piece))
            rc = err_set(n < 0 ? -errno : -ENOSPC, "%s takes no data: %s", p->directory,
                         strerror(n < 0 ? errno : ENOSPC));
    }
    if (fd != -1) {
        (void)close(fd);
        (void)unlink(path);
    }
    return rc;
}

/* In this root: an earlier life's directory, or one of its own. */
static int own_dir_in(struct own_dir *p, const char *root, const char *resume, char leaf[64])
{
    p->resumed = resume && find_earlier(p, root, resume, leaf);
    int rc = p->resumed ? 0 : directory_make(p, root, leaf);
    if (rc < 0)
        p->directory[0] = '\0';
    return rc;
}

/* The first place of all users' that takes our data; what is wrong with better ones is noted. */
static int own_dir_default(struct own_dir *p, const char *resume, char root[DATADIR_PATH_BYTES],
                           char leaf[64])
{
    static const char *const places[] = DATADIR_PLACES;
    char why[ERR_TEXT_BYTES] = "", note[sizeof(p->note)];
    int rc = -ENOENT;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && rc < 0; i++) {
        rc = datadir_root_make(places[i], root, DATADIR_PATH_BYTES, note, sizeof(note));
        if (rc == 0)
            rc = own_dir_in(p, root, resume, leaf);
        if (rc == 0 && !p->resumed && (rc = has_room(p)) < 0)
            (void)rmdir(p->directory);
        if (rc < 0)
            (void)snprintf(note, sizeof(note), "%s", err_why(rc));
        size_t n = strlen(why);
        (void)snprintf(why + n, sizeof(why) - n, "%s%s", n && note[0] ? "; " : "", note);
    }
    (void)snprintf(p->note, sizeof(p->note), "%.511s", why);
    return rc < 0
               ? err_set(
                     rc,
                     "there is no place for data: %s; set PROBING_DATA_DIR to a directory of yours",
                     why)
               : 0;
}

int own_dir_make(const char *data_dir, const char *resume, struct own_dir *ret)
{
    char root[DATADIR_PATH_BYTES], leaf[64];
    struct own_dir p = {.start_time = 0};

    int rc = proc_start_time(getpid(), &p.start_time);
    if (rc == 0 && data_dir && data_dir[0]) {
        rc = root_named(data_dir, root);
        rc = rc < 0 ? err_set(rc, "PROBING_DATA_DIR: %s", err_why(rc))
                    : own_dir_in(&p, root, resume, leaf);
    } else if (rc == 0) {
        rc = own_dir_default(&p, resume, root, leaf);
    }
    if (rc < 0)
        return rc;
    fast_make(root, leaf, p.fast);
    if (!fast_is_empty(p.fast))
        p.fast[0] = '\0';
    if (p.resumed) {
        resume_names(&p);
        resume_instance_id(&p);
    } else if (file_peek("/proc/sys/kernel/random/uuid", p.instance_id, sizeof(p.instance_id)) == 0)
        p.instance_id[strcspn(p.instance_id, "\n")] = '\0';
    *ret = p;
    return 0;
}

int own_dir_link(const struct own_dir *p)
{
    static const char *const names[] = {"rings", "strings"};
    char from[DATADIR_PATH_BYTES], to[DATADIR_PATH_BYTES + 16];

    for (size_t i = 0; i < 2 && p->fast[0]; i++) {
        int rc = own_dir_path(p, names[i], from);
        if (rc < 0)
            return rc;
        (void)snprintf(to, sizeof(to), "%s/%s", p->fast, names[i]);
        if (symlink(to, from) == -1 && errno != EEXIST)
            return err_set(-errno, "cannot link %s to %s: %s", from, to, strerror(errno));
    }
    return 0;
}

/* Copy what is not zero; the rest of the target is a hole.  A rings file is hundreds of MB long and
 * has a few pages in it. */
static int copy_sparse(int from, int to)
{
    static const char zeros[4096];
    char block[4096];
    struct stat st;
    off_t at = 0;

    if (fstat(from, &st) == -1 || ftruncate(to, st.st_size) == -1)
        return -errno;
    while ((at = lseek(from, at, SEEK_DATA)) != -1) {
        at &= ~(off_t)(sizeof(block) - 1);
        ssize_t n = pread(from, block, sizeof(block), at);
        if (n <= 0)
            return n < 0 ? -errno : 0;
        if (memcmp(block, zeros, (size_t)n) != 0 && pwrite(to, block, (size_t)n, at) != n)
            return -EIO;
        at += n;
    }
    return errno == ENXIO ? 0 : -errno; /* ENXIO: nothing but a hole behind */
}

int own_dir_copy(const struct datadir *from_dir, const struct datadir *to_dir, const char *name)
{
    char part[DATADIR_NAME_BYTES];
    int rc = -EIO;

    (void)snprintf(part, sizeof(part), "%s.part", name);
    int from = datadir_file(from_dir, name, /* st= */ NULL);
    if (from < 0)
        return from;
    (void)unlinkat(to_dir->fd, part, 0); /* of a copy that broke off */
    int to = openat(to_dir->fd, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (to != -1)
        rc = copy_sparse(from, to);
    if (to != -1 && close(to) == -1)
        rc = -errno;
    (void)close(from);
    if (rc == 0 && renameat(to_dir->fd, part, to_dir->fd, name) == -1)
        rc = -errno;
    if (rc < 0 && to != -1)
        (void)unlinkat(to_dir->fd, part, 0);
    return rc;
}

void own_dir_bring(const struct datadir *fast, const struct datadir *home)
{
    static const char *const names[] = {"rings", "strings"};
    bool all = true;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool done = own_dir_copy(fast, home, names[i]) == 0;
        if (done)
            (void)unlinkat(fast->fd, names[i], 0);
        all = all && done;
    }
    if (!all)
        return;
    (void)unlinkat(fast->fd, "home", 0);
    (void)unlinkat(fast->fd, "lock.mdb", 0);
    (void)unlinkat(home->fd, "lock.mdb", 0); /* a link to it; of no use to anybody */
    (void)unlinkat(fast->parent, fast->leaf, AT_REMOVEDIR);
}

void own_dir_settle(const struct own_dir *p)
{
    struct datadir fast = DATADIR_NONE, home = DATADIR_NONE;

    if (p->fast[0] && datadir_open(p->fast, DATADIR_OWN, &fast) == 0 &&
        datadir_open(p->directory, DATADIR_OWN, &home) == 0)
        own_dir_bring(&fast, &home);
    datadir_close(&fast);
    datadir_close(&home);
}

/* One line of text: control characters (the NULs between arguments too) become blanks. */
static void add_line(struct buf *b, const char *key, const char *text, size_t n)
{
    while (n > 0 && (unsigned char)text[n - 1] < ' ')
        n--;
    (void)buf_addf(b, "%s: ", key);
    for (size_t i = 0; i < n; i++)
        (void)buf_addc(b, (unsigned char)text[i] < ' ' ? ' ' : text[i]);
    (void)buf_addc(b, '\n');
}

static void add_file(struct buf *b, const char *key, const char *path)
{
    struct buf text;
    buf_init(&text, (size_t)1 << 20);
    if (file_read(AT_FDCWD, path, &text) == 0)
        add_line(b, key, text.data ? text.data : "", text.size);
    buf_done(&text);
}

static void add_link(struct buf *b, const char *key, const char *path)
{
    char to[4096];
    ssize_t n = readlink(path, to, sizeof(to));
    add_line(b, key, to, n > 0 ? (size_t)n : 0);
}

/* Which rank of which job it is, as its environment said when it began, or has come to say. */
static void add_job(struct buf *b)
{
    char line[VARIABLE_BYTES];
    struct buf text;

    if (!identity_own_believes_environment())
        return;
    buf_init(&text, ENVIRONMENT_BYTES);
    if (proc_environ_own(&text) == 0 && text.size > 0) {
        for (size_t i = 0; i < JOB_VARIABLES_N; i++) {
            const char *value = proc_environ_find(text.data, text.size - 1, job_variables[i]);
            int n =
                value != NULL ? snprintf(line, sizeof(line), "%s=%s", job_variables[i], value) : 0;
            if (n > 0 && (size_t)n < sizeof(line)) /* half a name is another's */
                add_line(b, "variable", line, (size_t)n);
        }
    }
    buf_done(&text);
}

int own_dir_info_text(const struct own_dir *p, struct buf *text)
{
    char path[DATADIR_PATH_BYTES];
    int rc = own_dir_path(p, "info", path);
    (void)info_commit_sum(text);
    if (rc == 0 && text->failed)
        rc = err_set(text->failed, "no memory for %s", path);
    return rc < 0 ? rc : file_write(AT_FDCWD, path, text->data, text->size, 0600);
}

int own_dir_info(const struct own_dir *p, const char *version, int64_t utc_offset)
{
    struct buf b;

    buf_init(&b, INFO_MAX_BYTES);
    (void)buf_addf(&b, "pid: %d\nstart_time: %llu\nuid: %u\nparent: %d\n", (int)getpid(),
                   (unsigned long long)p->start_time, (unsigned)identity_own_owner(),
                   (int)getppid());
    add_file(&b, "boot_id", "/proc/sys/kernel/random/boot_id");
    if (p->instance_id[0])
        add_line(&b, "instance_id", p->instance_id, strlen(p->instance_id));
    add_link(&b, "time_namespace", "/proc/self/ns/time"); /* whose CLOCK_MONOTONIC it counts */
    add_link(&b, "executable", "/proc/self/exe");
    add_file(&b, "command", "/proc/self/cmdline");
    add_job(&b);
    if (p->note[0])
        add_line(&b, "note", p->note, strlen(p->note));
    (void)buf_addf(&b, "version: %s\nutc_offset: %lld\n", version, (long long)utc_offset);
    int rc = own_dir_info_text(p, &b);
    buf_done(&b);
    return rc;
}

void own_dir_failed(const struct own_dir *p, const char *why)
{
    char path[DATADIR_PATH_BYTES], line[ERR_TEXT_BYTES + 2];
    int n = snprintf(line, sizeof(line), "%s\n", why);
    if (p->directory[0] && own_dir_path(p, "failed", path) == 0)
        (void)file_write(AT_FDCWD, path, line, (size_t)n, 0600); /* nobody else could be told */
}
