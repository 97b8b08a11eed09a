/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target.c - from what the user wrote after -t to a process that answers, or to files.
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
#include "sdk/client/client.h"

#define MAPS_MAX_BYTES (64u << 20) /* a process with 500,000 mappings */

/* ---- data directories ---- */

int target_info(const char *directory, const char *key, char *ret, size_t size)
{
    struct buf text;
    int dirfd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dirfd == -1)
        return err_set(-errno, "cannot open %s: %s", directory, strerror(errno));
    int r = info_read(dirfd, "info", &text);
    bool found = info_get(&text, key, ret, size);
    buf_done(&text);
    (void)close(dirfd);
    if (r == -EBADMSG)
        return err_set(-EBADMSG, "%s/info is damaged", directory);
    return found ? 0 : err_set(-ENOENT, "%s/info has no line '%s'", directory, key);
}

/* "<pid>-<start time>", as a core calls its directory: what cannot be damaged. */
static bool is_named(const char *directory, uint64_t *ret_pid, uint64_t *ret_started)
{
    const char *slash = strrchr(directory, '/'), *name = slash != NULL ? slash + 1 : directory;
    char number[2][24] = {"", ""}, more[2] = "";

    return sscanf(name, "%20[0-9]-%20[0-9]%1[^.]", number[0], number[1], more) == 2 &&
           parse_u64(number[0], ret_pid) == 0 && parse_u64(number[1], ret_started) == 0;
}

/* Which process wrote it: by its name, and of a copy with another name by its info. */
static bool identity_of(const char *directory, uint64_t *ret_pid, uint64_t *ret_started)
{
    char pid[64], started[64];

    if (is_named(directory, ret_pid, ret_started))
        return true;
    return target_info(directory, "pid", pid, sizeof pid) == 0 && parse_u64(pid, ret_pid) == 0 &&
           target_info(directory, "start_time", started, sizeof started) == 0 &&
           parse_u64(started, ret_started) == 0;
}

bool target_held(const char *directory)
{
    char path[4200];

    (void)snprintf(path, sizeof path, "%s/held", directory);
    return file_is_locked(path);
}

bool target_alive(const char *directory, pid_t *ret_pid)
{
    char path[4200];
    uint64_t pid = 0, started = 0, now = 0;

    *ret_pid = 0;
    if (!identity_of(directory, &pid, &started) || pid > INT32_MAX)
        return false;
    *ret_pid = (pid_t)pid;
    if (proc_start_time((pid_t)pid, &now) < 0 || now != started)
        return false;
    (void)snprintf(path, sizeof path, "%s/sock", directory);
    return access(path, F_OK) == 0; /* ejected: the process lives, its core does not */
}

static int each_in(const char *root, int (*fn)(void *arg, const char *directory), void *arg)
{
    DIR *d = opendir(root);
    int r = 0;

    if (d == NULL)
        return 0;
    for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
        char path[4096];
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", root, e->d_name) < sizeof path)
            r = fn(arg, path);
    }
    (void)closedir(d);
    return r;
}

int target_each_directory(int (*fn)(void *arg, const char *directory), void *arg)
{
    const char *own = getenv("PROBING_DATA_DIR");
    int r = 0;

    if (own != NULL && own[0] == '/')
        r = each_in(own, fn, arg);
    DIR *d = r == 0 ? opendir("/tmp")
                    : NULL; /* default root: /tmp/probing-<uid> of every user we may read */
    if (d == NULL)
        return r;
    for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
        char root[300];
        struct stat st;
        if (strncmp(e->d_name, "probing-", 8) != 0)
            continue;
        (void)snprintf(root, sizeof root, "/tmp/%s", e->d_name);
        if (lstat(root, &st) == 0 && S_ISDIR(st.st_mode) &&
            (geteuid() == 0 || st.st_uid == geteuid()))
            r = each_in(root, fn, arg);
    }
    (void)closedir(d);
    return r;
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

int target_directory_of(pid_t pid, char *ret, size_t size)
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

struct newest {
    pid_t pid;
    uint64_t start; /* 0: of any process that had this pid */
    char path[4096];
    struct timespec time;
    uint32_t n; /* directories that were looked at */
};

static int keep_newest(void *arg, const char *directory)
{
    struct newest *best = arg;
    const char *name = strrchr(directory, '/') + 1;
    struct stat st;
    char prefix[64];
    int n = snprintf(prefix, sizeof prefix, "%d-", (int)best->pid);

    if (best->start != 0)
        n += snprintf(prefix + n, sizeof prefix - (size_t)n, "%llu",
                      (unsigned long long)best->start);
    if (strncmp(name, prefix, (size_t)n) != 0 || stat(directory, &st) == -1 ||
        (best->start != 0 && name[n] != '\0' && name[n] != '.'))
        return 0;
    best->n++;
    if (best->path[0] == '\0' || st.st_mtim.tv_sec > best->time.tv_sec ||
        (st.st_mtim.tv_sec == best->time.tv_sec && st.st_mtim.tv_nsec > best->time.tv_nsec)) {
        (void)snprintf(best->path, sizeof best->path, "%s", directory);
        best->time = st.st_mtim;
    }
    return 0;
}

/* ---- resolving ---- */

/* The core answers its own user and root; to a process in another user namespace our root is
 * nobody, so root connects as the one who made the socket.  Gives who we were. */
uid_t target_become(const char *sock)
{
    struct stat st;
    uid_t uid = geteuid();

    if (uid == 0 && stat(sock, &st) == 0 && st.st_uid != 0)
        (void)!seteuid(st.st_uid);
    return uid;
}

void target_become_again(uid_t uid)
{
    if (geteuid() != uid)
        (void)!seteuid(uid);
}

static int connect_unix(const char *directory, struct probing_client **ret)
{
    char path[64];
    /* Through /proc/self/fd: a socket's path may have 107 bytes only, a directory's many more. */
    int dirfd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dirfd == -1)
        return err_set(-errno, "cannot open %s: %s", directory, strerror(errno));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/sock", dirfd);
    uid_t uid = target_become(path);
    int r = client_connect_unix(path, /* timeout_ns= */ 0, ret);
    target_become_again(uid);
    (void)close(dirfd);
    return r;
}

/* Has the core of a living process gone from this directory: left in good order, or with an exec?
 * (One that is just starting has not opened its socket yet.) */
static bool is_over(const char *directory)
{
    char left[16];
    struct probing_client *c = NULL;

    if (target_info(directory, "left", left, sizeof left) == 0)
        return true;
    int r = connect_unix(directory, &c);
    client_close(c);
    /* Reset: the process is just dying; its memory has gone before its sockets. */
    return r == -ECONNREFUSED || r == -ECONNRESET;
}

/* Of a process that cannot be seen from here (another pid namespace, a directory that both see)? */
static bool lives_elsewhere(const char *directory)
{
    pid_t pid;

    return !target_alive(directory, &pid) && target_held(directory) && !is_over(directory);
}

static char process_state(pid_t pid)
{
    char path[64], *close_paren;
    struct buf stat_text;
    char state = '?';

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    buf_init(&stat_text, 4096);
    if (file_read(AT_FDCWD, path, &stat_text) == 0 &&
        (close_paren = strrchr(stat_text.data, ')')) != NULL && close_paren[1] == ' ')
        state = close_paren[2];
    buf_done(&stat_text);
    return state;
}

/* A zombie whose other threads run on has lost its first one only. */
static bool is_zombie(pid_t pid)
{
    return process_state(pid) == 'Z' && !inject_runs_on(pid);
}

static int resolve_pid(pid_t pid, struct target *ret)
{
    char path[64];
    struct newest old = {.pid = pid};

    ret->pid = pid;
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    if (access(path, F_OK) == 0 && !is_zombie(pid)) {
        int r = target_directory_of(pid, ret->directory, sizeof ret->directory);
        if (r == 0) {
            char state = process_state(pid);
            ret->stopped = state == 'T' || state == 't';
            ret->kind = ret->stopped ? TARGET_FILES : TARGET_LIVE;
            return 0;
        }
        if (r != -ENOENT)
            return r;
        ret->kind = TARGET_BARE;
        if (proc_start_time(pid, &old.start) == 0 && old.start != 0)
            (void)target_each_directory(keep_newest, &old);
        bool starts = ret->directory[0] != '\0'; /* mapped, and no socket yet */
        ret->directory[0] = '\0';
        if (!starts && old.path[0] != '\0' && is_over(old.path))
            (void)snprintf(ret->directory, sizeof ret->directory, "%s", old.path);
        ret->directories = old.n;
        return 0;
    }
    (void)target_each_directory(keep_newest, &old);
    if (old.path[0] == '\0')
        return err_set(
            -ESRCH,
            "no process %d, and no data of a dead one with that pid; `probing list --dead` "
            "shows what there is",
            (int)pid);
    (void)snprintf(ret->directory, sizeof ret->directory, "%s", old.path);
    ret->directories = old.n;
    ret->kind = lives_elsewhere(old.path) ? TARGET_LIVE : TARGET_FILES;
    return 0;
}

static int resolve_path(const char *text, struct target *ret)
{
    struct stat st;
    char path[4200];

    if (stat(text, &st) == -1)
        return err_set(-errno, "cannot use %s as a target: %s", text, strerror(errno));
    if (S_ISSOCK(st.st_mode)) {
        const char *slash = strrchr(text, '/');
        (void)snprintf(ret->directory, sizeof ret->directory, "%.*s",
                       slash != NULL ? (int)(slash - text) : 1, slash != NULL ? text : ".");
        ret->kind = TARGET_LIVE;
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(-EINVAL, "%s is neither a data directory nor a socket", text);
    (void)snprintf(path, sizeof path, "%s/data.mdb", text);
    if (access(path, F_OK) == -1) {
        (void)snprintf(path, sizeof path, "%s/rings", text);
        if (access(path, F_OK) == -1)
            return err_set(-EINVAL, "%s is no data directory: it has neither data.mdb nor rings",
                           text);
    }
    if (target_alive(text, &ret->pid) && !is_over(text)) {
        char state = process_state(ret->pid);
        ret->stopped = state == 'T' || state == 't';
        if (!ret->stopped)
            return err_set(-EBUSY,
                           "%s belongs to process %d, which lives; ask it: probing -t %d ...", text,
                           (int)ret->pid, (int)ret->pid);
    }
    (void)snprintf(ret->directory, sizeof ret->directory, "%s", text);
    ret->kind = lives_elsewhere(text) ? TARGET_LIVE : TARGET_FILES;
    return 0;
}

static int resolve_network(const char *text, struct target *ret)
{
    const char *colon = strrchr(text, ':'), *host = text;
    size_t n = strlen(text);
    uint64_t port = DEFAULT_PORT;

    if (text[0] == '[') {
        const char *close_bracket = strchr(text, ']');
        if (close_bracket == NULL || (close_bracket[1] != '\0' && close_bracket[1] != ':'))
            return err_set(-EINVAL, "'%s': an IPv6 target is written [address]:port", text);
        host = text + 1;
        n = (size_t)(close_bracket - host);
        colon = close_bracket[1] == ':' ? close_bracket + 1 : NULL;
    } else if (colon != NULL) {
        n = (size_t)(colon - text);
    }
    if (colon != NULL && (parse_u64(colon + 1, &port) < 0 || port == 0 || port > 65535))
        return err_set(-EINVAL, "'%s': the port must be a number from 1 to 65535", text);
    if (n == 0 || n >= sizeof ret->host)
        return err_set(-EINVAL, "'%s' is no target: a pid, host:port, a socket or a data directory",
                       text);
    (void)snprintf(ret->host, sizeof ret->host, "%.*s", (int)n, host);
    ret->port = (uint16_t)port;
    ret->kind = TARGET_LIVE;
    return 0;
}

int target_resolve(const char *text, struct target *ret)
{
    uint64_t pid;

    *ret = (struct target){.text = text};
    if (text[0] >= '0' && text[0] <= '9' && text[strspn(text, "0123456789")] == '\0') {
        if (parse_u64(text, &pid) < 0 || pid == 0 || pid > INT32_MAX)
            return err_set(-EINVAL, "'%s' is no pid", text);
        return resolve_pid((pid_t)pid, ret);
    }
    if (strchr(text, '/') != NULL || access(text, F_OK) == 0)
        return resolve_path(text, ret);
    return resolve_network(text, ret);
}

bool target_is_files(const struct target *t)
{
    return t->kind == TARGET_FILES || (t->kind == TARGET_BARE && t->directory[0] != '\0');
}

/* ---- connecting ---- */

int target_connect(const struct target *t, struct probing_client **ret)
{
    char token[TOKEN_BYTES];

    switch (t->kind) {
    case TARGET_LIVE:
        if (t->host[0] != '\0')
            return client_connect_tcp(t->host, t->port, token_for(t, token), /* timeout_ns= */ 0,
                                      ret);
        return connect_unix(t->directory, ret);
    case TARGET_BARE:
        return err_set(-ENOENT,
                       "process %d has no probing core in it; enter it with: probing -t %d inject",
                       (int)t->pid, (int)t->pid);
    case TARGET_FILES:
        if (t->stopped)
            return err_set(-EAGAIN,
                           "process %d is stopped and cannot answer (its data can be asked: query, "
                           "tables, describe); continue it with: kill -CONT %d",
                           (int)t->pid, (int)t->pid);
        return err_set(-ESRCH,
                       "the process of %s is dead; what its data can be asked: query, tables, "
                       "describe, export, backtrace (of a crash), flamegraph, torch",
                       t->directory);
    case TARGET_NONE:
        break;
    }
    return err_set(-EINVAL, "no target given");
}
