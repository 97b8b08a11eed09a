/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/directory.c - data directories: whose they are, where those of a process lie, and the way in
 * where it lives.
 *
 * One thread.  It only looks: nothing is entered, removed or changed here.
 */
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/inject/inject.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/client/client.h"

#define MAPS_MAX_BYTES (64u << 20) /* a process with 500,000 mappings */

int directory_info(const struct datadir *d, const char *key, char *ret, size_t size)
{
    struct buf text;
    int r = datadir_info(d, &text);
    bool found = info_get(&text, key, ret, size);

    buf_done(&text);
    if (r == -EBADMSG)
        return err_set(-EBADMSG, "%s/info is damaged", d->path);
    return found ? 0 : r < 0 ? r : err_set(-ENOENT, "%s/info has no line '%s'", d->path, key);
}

/* "<pid>-<start time>", as a core calls its directory: what cannot be damaged. */
static bool is_named(const struct datadir *d, uint64_t *ret_pid, uint64_t *ret_started)
{
    char number[2][24] = {"", ""}, more[2] = "";

    return sscanf(d->leaf, "%20[0-9]-%20[0-9]%1[^.]", number[0], number[1], more) == 2 &&
           parse_u64(number[0], ret_pid) == 0 && parse_u64(number[1], ret_started) == 0;
}

/* Which process wrote it: by its name, and of a copy with another name by its info. */
static bool identity_of(const struct datadir *d, uint64_t *ret_pid, uint64_t *ret_started)
{
    char pid[64], started[64];

    if (is_named(d, ret_pid, ret_started))
        return true;
    return directory_info(d, "pid", pid, sizeof pid) == 0 && parse_u64(pid, ret_pid) == 0 &&
           directory_info(d, "start_time", started, sizeof started) == 0 &&
           parse_u64(started, ret_started) == 0;
}

bool directory_held(const struct datadir *d)
{
    return datadir_locked(d, "held");
}

bool directory_alive(const struct datadir *d, pid_t *ret_pid)
{
    uint64_t pid = 0, started = 0, now = 0;
    struct stat st;

    *ret_pid = 0;
    if (!identity_of(d, &pid, &started) || pid > INT32_MAX)
        return false;
    *ret_pid = (pid_t)pid;
    if (proc_start_time((pid_t)pid, &now) < 0 || now != started)
        return false;
    /* None: ejected.  The process lives, its core does not. */
    return datadir_has(d, "sock", &st) && S_ISSOCK(st.st_mode);
}

static void say_refused(void *arg, const char *why)
{
    (void)arg;
    fprintf(stderr, "probing: %s\n", why);
}

struct each {
    int (*fn)(void *arg, const struct datadir *d);
    void *arg;
};

static int each_one(void *arg, const struct datadir *d)
{
    const struct each *e = arg;
    return cli_interrupted ? -ECANCELED : e->fn(e->arg, d);
}

int directory_each(int (*fn)(void *arg, const struct datadir *d), void *arg)
{
    struct each e = {.fn = fn, .arg = arg};
    const struct datadir_search all = {.named = getenv("PROBING_DATA_DIR"),
                                       .all_users = geteuid() == 0,
                                       .found = each_one,
                                       .refused = say_refused,
                                       .arg = &e};
    return datadir_search(&all);
}

/* A path that /proc/PID/maps shows, as the process itself sees it, which may live in a chroot. */
static const char *inside_root(pid_t pid, const char *file)
{
    char path[64], root[4096];

    (void)snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
    ssize_t n = readlink(path, root, sizeof root - 1);
    return n > 1 && strncmp(file, root, (size_t)n) == 0 && file[n] == '/' ? file + n : file;
}

/* The process's pid as it sees itself: directories are called so. */
static uint64_t own_pid_of(pid_t pid)
{
    char path[64];
    struct buf text;
    uint64_t own = (uint64_t)pid, n;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    buf_init(&text, 65536);
    char *at = file_read(AT_FDCWD, path, &text) == 0 && buf_addc(&text, '\0') == 0
                   ? strstr(text.data, "\nNSpid:")
                   : NULL;
    if (at != NULL) {
        at += strlen("\nNSpid:");
        at[strcspn(at, "\n")] = '\0';
        char *last = strrchr(at, '\t'); /* of the innermost namespace */
        if (last != NULL && parse_u64(last + 1, &n) == 0)
            own = n;
    }
    buf_done(&text);
    return own;
}

/* ".../<pid>-<start time>": a forked child still has its parent's file mapped. */
static bool is_named_after(const char *directory, uint64_t pid)
{
    char prefix[32];
    const char *slash = strrchr(directory, '/');
    int n = snprintf(prefix, sizeof prefix, "/%llu-", (unsigned long long)pid);
    return slash != NULL && strncmp(slash, prefix, (size_t)n) == 0;
}

int directory_of(pid_t pid, char *ret, size_t size)
{
    static const char LEAF[] = "/data.mdb";
    char path[64];
    struct buf maps;
    uint64_t own = own_pid_of(pid);
    int r = -ENOENT;

    ret[0] = '\0';
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    buf_init(&maps, MAPS_MAX_BYTES);
    int e = file_read(AT_FDCWD, path, &maps);
    if (e < 0) {
        buf_done(&maps);
        if (e == -ENOENT || e == -ESRCH)
            return err_set(-ESRCH, "no process %d", (int)pid);
        return inject_no_permission(pid, e);
    }
    /* The store's data file is mapped as long as the core runs, wherever its directory is. */
    for (char *line = maps.data; line != NULL && r < 0;) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        char *file = strchr(line, '/');
        size_t n = file != NULL ? strlen(file) : 0;
        if (n > sizeof LEAF && strcmp(file + n - (sizeof LEAF - 1), LEAF) == 0) {
            file[n - (sizeof LEAF - 1)] = '\0';
            char sock[4200];
            if (is_named_after(file, own)) {
                (void)snprintf(ret, size, "/proc/%d/root%s", (int)pid, inside_root(pid, file));
                (void)snprintf(sock, sizeof sock, "%s/sock", ret);
                r = access(sock, F_OK) == 0 ? 0 : -ENOENT;
            }
        }
        line = end != NULL ? end + 1 : NULL;
    }
    buf_done(&maps);
    return r < 0 ? err_set(
                       -ENOENT,
                       "process %d has no probing core in it; enter it with: probing -t %d inject",
                       (int)pid, (int)pid)
                 : 0;
}

/* The newest of them so far? */
static bool is_newer(const struct datadir *d, const char *path, const struct timespec *time)
{
    return path[0] == '\0' || d->changed.tv_sec > time->tv_sec ||
           (d->changed.tv_sec == time->tv_sec && d->changed.tv_nsec > time->tv_nsec);
}

static int keep_newest(void *arg, const struct datadir *d)
{
    struct directory_newest *best = arg;
    uint64_t pid, started;
    bool wanted = false;

    if (!is_named(d, &pid, &started) || pid != (uint64_t)best->pid ||
        (best->start_time != 0 && started != best->start_time))
        return 0;
    for (size_t i = 0; i < sizeof best->owners / sizeof best->owners[0]; i++)
        wanted = wanted || d->owner == best->owners[i];
    if (wanted) {
        best->n++;
        if (is_newer(d, best->path, &best->time)) {
            (void)snprintf(best->path, sizeof best->path, "%s", d->path);
            best->time = d->changed;
        }
    } else {
        best->others++;
        if (is_newer(d, best->other, &best->other_time)) {
            (void)snprintf(best->other, sizeof best->other, "%s", d->path);
            best->other_owner = d->owner;
            best->other_time = d->changed;
        }
    }
    return 0;
}

void directory_newest(struct directory_newest *ret)
{
    (void)directory_each(keep_newest, ret);
}

/* ---- the way in ---- */

/* The core answers its own user and root; to a process in another user namespace our root is
 * nobody, so root connects as the one who made the socket.  Gives who we were. */
uid_t directory_become(const char *sock)
{
    struct stat st;
    uid_t uid = geteuid();

    if (uid == 0 && stat(sock, &st) == 0 && st.st_uid != 0)
        (void)!seteuid(st.st_uid);
    return uid;
}

void directory_become_again(uid_t uid)
{
    if (geteuid() != uid)
        (void)!seteuid(uid);
}

int directory_connect(const char *directory, struct probing_client **ret)
{
    char path[64];
    /* Through /proc/self/fd: a socket's path may have 107 bytes only, a directory's many more. */
    int dirfd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dirfd == -1)
        return err_set(-errno, "cannot open %s: %s", directory, strerror(errno));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/sock", dirfd);
    uid_t uid = directory_become(path);
    int r = client_connect_unix(path, /* timeout_ns= */ 0, ret);
    directory_become_again(uid);
    (void)close(dirfd);
    return r;
}

bool directory_is_over(const char *directory)
{
    char left[16];
    struct probing_client *c = NULL;
    struct datadir d;
    bool says = datadir_open(directory, DATADIR_ANY, &d) == 0 &&
                directory_info(&d, "left", left, sizeof left) == 0;

    datadir_close(&d);
    if (says)
        return true;
    int r = directory_connect(directory, &c);
    client_close(c);
    /* Reset: the process is just dying; its memory has gone before its sockets. */
    return r == -ECONNREFUSED || r == -ECONNRESET;
}

bool directory_lives_elsewhere(const char *directory)
{
    pid_t pid;
    struct datadir d;
    bool elsewhere = datadir_open(directory, DATADIR_ANY, &d) == 0 && !directory_alive(&d, &pid) &&
                     directory_held(&d);

    datadir_close(&d);
    return elsewhere && !directory_is_over(directory);
}
