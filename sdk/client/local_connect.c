/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/local_connect.c - to the socket in a data directory, and the proof of who listens
 * there.
 *
 * One thread a client.  A directory's owner can put anything in it: a link to another's socket, a
 * socket of another process, one that nobody accepts at.  So the socket is opened by descriptor and
 * without following links, and the kernel says who listens (SO_PEERCRED: the process that called
 * listen(), by its number in our pid namespace) before a byte is sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "sdk/client/internal.h"
#include "sdk/lib/number.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/task.h"

#define AGAIN_MS 5 /* between two tries at a full queue: nothing tells when there is room */

/* ---- who listens ---- */

/* "<pid>-<start time>[.<n>]", the name that a core gives its directory. */
static bool read_name(int directory, uint64_t *ret_pid, uint64_t *ret_started)
{
    char link[40], path[4096], number[2][24] = {"", ""}, more[2] = "";

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", directory);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(path, '/');
    return slash && sscanf(slash, "/%20[0-9]-%20[0-9]%1[^.]", number[0], number[1], more) == 2 &&
           number_u64(number[0], strlen(number[0]), ret_pid) == 0 &&
           number_u64(number[1], strlen(number[1]), ret_started) == 0;
}

/* A process's number in the innermost pid namespace it is in. */
static uint64_t own_pid(pid_t pid)
{
    struct proc_status s;
    return proc_status_of(pid, 0, &s) == 0 && s.inner_id != PROC_UNKNOWN ? s.inner_id
                                                                         : (uint64_t)pid;
}

static bool has_started(pid_t pid, uint64_t start_time)
{
    struct proc_stat s;
    return proc_stat_of(pid, 0, &s) == 0 && s.start_ticks == start_time;
}

static int prove_pid(struct probing_client *c, const struct client_endpoint *d,
                     const struct ucred *who)
{
    if (who->pid != d->pid)
        return client_fail(
            c, -EACCES,
            "the socket in %s is not that of process %d: process %d of uid %u listens "
            "there; nothing was sent to it",
            d->path, (int)d->pid, (int)who->pid, (unsigned)who->uid);
    if (d->start_time && !has_started(d->pid, d->start_time))
        return client_fail(c, -ESRCH, "process %d has ended, and another one has its number",
                           (int)d->pid);
    return 0;
}

/* Check a directory that somebody named: its process is the one that it is called after.  One that
 * cannot be seen from here is believed when all of it is our own user's, who gains nothing. */
static int prove_name(struct probing_client *c, const struct client_endpoint *d,
                      const struct ucred *who, uid_t owner)
{
    uint64_t pid, started;
    bool named = read_name(d->directory, &pid, &started);

    if (named && who->pid > 0 && own_pid(who->pid) == pid && has_started(who->pid, started))
        return 0;
    if ((!named || who->pid == 0) && who->uid == geteuid() && owner == geteuid())
        return 0;
    if (who->pid == 0)
        return client_fail(
            c, -EACCES,
            "who listens in %s cannot be seen from here (another pid namespace), and "
            "it is of uid %u, not ours; ask as that user, or from where it is seen",
            d->path, (unsigned)who->uid);
    return client_fail(c, -EACCES,
                       "the socket in %s is not that of the process which the directory is called "
                       "after: process %d of uid %u listens there; nothing was sent to it",
                       d->path, (int)who->pid, (unsigned)who->uid);
}

static int prove_server(struct probing_client *c, int fd, const struct client_endpoint *d)
{
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t size = sizeof(who);
    struct stat st;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == -1 ||
        fstat(d->directory, &st) == -1)
        return client_fail(c, -errno, "cannot tell who listens in %s: %s", d->path,
                           strerror(errno));
    return d->pid ? prove_pid(c, d, &who) : prove_name(c, d, &who, st.st_uid);
}

/* ---- the way there ---- */

/* The socket itself, whatever its name comes to mean a moment later. */
static int open_socket(struct probing_client *c, const struct client_endpoint *d, const char *name,
                       struct stat *ret)
{
    int fd = openat(d->directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd == -1)
        return -errno;
    if (fstat(fd, ret) == 0 && S_ISSOCK(ret->st_mode))
        return fd;
    (void)close(fd);
    return client_fail(c, -ENOTSOCK, "%s/%s is not a socket%s: no core made it", d->path, name,
                       S_ISLNK(ret->st_mode) ? " but a link, which is not followed" : "");
}

/* This thread's ids only: libc's own functions would change those of all. */
static void become_user(uid_t uid, gid_t gid)
{
    if (uid == 0)
        (void)!syscall(SYS_setresuid, (uid_t)-1, uid, (uid_t)-1);
    (void)!syscall(SYS_setresgid, (gid_t)-1, gid, (gid_t)-1);
    if (uid != 0)
        (void)!syscall(SYS_setresuid, (uid_t)-1, uid, (uid_t)-1);
}

/* To a process in a user namespace below ours our root is nobody, so root connects as its user.
 * pid: who should listen, 0: that is not known. */
static int connect_once(int fd, int socket_fd, pid_t pid)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct proc_identity user;
    gid_t gid = getegid();

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", socket_fd);
    bool as_user = geteuid() == 0 && pid > 0 && identity_is_below(pid) &&
                   identity_of(pid, &user) == 0 && identity_owner(&user) != 0;
    if (as_user)
        become_user(identity_owner(&user), identity_group(&user));
    int rc = connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0 ? 0 : -errno;
    if (as_user)
        become_user(/* uid= */ 0, gid);
    return rc;
}

/* A process that is stopped, or that wants us to wait, lets its queue be full. */
static int connect_in_time(struct probing_client *c, int fd, int socket_fd, pid_t pid,
                           uint64_t deadline_ns)
{
    for (;;) {
        int rc = connect_once(fd, socket_fd, pid);
        if (rc != -EAGAIN && rc != -EINTR)
            return rc;
        if (client_is_stopped(c))
            return -ECANCELED;
        if (client_now_ns() > deadline_ns)
            return -ETIMEDOUT;
        (void)poll(NULL, 0, AGAIN_MS);
    }
}

/* Give the process that should listen; pid 0: that cannot be told from here. */
static void expected_process(const struct client_endpoint *d, const char *leaf,
                             struct client_process *ret)
{
    uint64_t pid = 0, started = 0;

    *ret = (struct client_process){.pid = d->pid, .start_time = d->start_time};
    (void)snprintf(ret->directory, sizeof(ret->directory), "%s", d->path);
    (void)snprintf(ret->leaf, sizeof(ret->leaf), "%s", leaf);
    if (d->start_time || !read_name(d->directory, &pid, &started))
        return;
    if (!d->pid && pid <= INT32_MAX && has_started((pid_t)pid, started))
        ret->pid = (pid_t)pid; /* else it is dead, or in another pid namespace */
    ret->start_time = started;
}

static int connect_words(struct probing_client *c, const struct client_endpoint *d,
                         const char *name, int rc)
{
    struct client_process who;

    if (rc == -ECONNREFUSED || rc == -ENOENT) {
        expected_process(d, name, &who);
        return client_nobody(c, rc, &who);
    }
    if (rc == -ETIMEDOUT)
        return client_fail(c, rc,
                           "'%s/%s': the process takes no connection; it may be stopped, or others "
                           "keep its queue full",
                           d->path, name);
    if (rc == -ECANCELED)
        return client_fail(c, rc, "'%s/%s': stopped while waiting to be let in", d->path, name);
    return client_fail(c, rc, "'%s/%s': %s%s", d->path, name, strerror(-rc),
                       rc == -EACCES ? "; only the user of that process and root may connect to it"
                                     : "");
}

struct dial {
    const char *name;
    int type, socket_fd;
    uint64_t deadline_ns; /* 0: one try, and -EAGAIN where another may do better */
};

/* pid: as connect_once().  A descriptor. */
static int dial_process(struct probing_client *c, const struct client_endpoint *d,
                        const struct dial *l, pid_t pid)
{
    bool once = l->deadline_ns == 0;
    int fd = socket(AF_UNIX, l->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return client_fail(c, -errno, "no socket: %s", strerror(errno));
    int rc = once ? connect_once(fd, l->socket_fd, pid)
                  : connect_in_time(c, fd, l->socket_fd, pid, l->deadline_ns);
    if (rc < 0 && !(once && (rc == -EAGAIN || rc == -EINTR)))
        rc = connect_words(c, d, l->name, rc);
    if (rc == 0)
        return fd;
    (void)close(fd);
    return rc;
}

/* The listener's user, if root has to come as that user to be known there; else 0. */
static pid_t listens_below(int fd)
{
    struct ucred who;
    socklen_t size = sizeof(who);
    bool told = geteuid() == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
    return told && who.pid > 0 && identity_is_below(who.pid) ? who.pid : 0;
}

static int dial_socket(struct probing_client *c, const struct client_endpoint *d, const char *name,
                       int type, uint64_t deadline_ns)
{
    struct stat st = {.st_mode = 0};
    struct dial l = {.name = name, .type = type, .deadline_ns = deadline_ns};
    l.socket_fd = open_socket(c, d, name, &st);
    if (l.socket_fd < 0)
        return l.socket_fd == -ENOTSOCK ? l.socket_fd : connect_words(c, d, name, l.socket_fd);
    int fd = dial_process(c, d, &l, d->pid);
    pid_t below = fd >= 0 && d->pid == 0 ? listens_below(fd) : 0;
    if (below) {
        (void)close(fd);
        fd = dial_process(c, d, &l, below);
    }
    (void)close(l.socket_fd);
    int rc = fd < 0 ? fd : prove_server(c, fd, d);
    if (rc == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return deadline_ns == 0 && rc == -EINTR ? -EAGAIN : rc;
}

int client_dial_once(struct probing_client *c, const struct client_endpoint *d, const char *name,
                     int type)
{
    return dial_socket(c, d, name, type, /* deadline_ns= */ 0);
}

int client_dial(struct probing_client *c, const struct client_endpoint *d, const char *name,
                int type)
{
    return dial_socket(c, d, name, type, client_now_ns() + client_timeout(c));
}
