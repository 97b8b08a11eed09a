/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/stream_end.c - a stream has ended: has the process died, has its core left, or has it
 * only closed this connection?
 *
 * The end of a stream says none of these, so the process is looked at: it is known by its pid and
 * its start time from when we connected.  One thread a client.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/client/internal.h"

#define LOOK_NS (2 * NS_PER_S) /* a process that dies closes its sockets first, then is seen dead */
#define LOOK_MS 5
#define LISTENS 2    /* looks at which it still listened: then it closed the connection alone */
#define EXITING 0x4u /* PF_EXITING, of the flags in /proc/PID/stat */
#define MAPS_MAX_BYTES (64u << 20)

void client_process_of(int fd, const char *directory, const char *leaf, struct client_process *ret)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);

    *ret = (struct client_process){.pid = 0};
    (void)snprintf(ret->directory, sizeof(ret->directory), "%s", directory);
    (void)snprintf(ret->leaf, sizeof(ret->leaf), "%s", leaf);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0 &&
        proc_start_time(peer.pid, &ret->start_time) == 0)
        ret->pid = peer.pid;
}

/* Threads that /proc still shows. */
static int threads_of(pid_t pid)
{
    char path[40];
    int n = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

/* Dead, a zombie, or on its way out. */
static bool is_dead(const struct client_process *c)
{
    char path[40], text[1024];
    uint64_t start_time = 0;
    unsigned flags = 0;

    if (proc_start_time(c->pid, &start_time) < 0 || start_time != c->start_time)
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)c->pid);
    const char *at = file_peek(path, text, sizeof(text)) >= 0 ? strrchr(text, ')') : NULL;
    if (!at || strlen(at) < 3)
        return true;
    /* ") S ppid pgrp session tty tpgid flags": proc(5) */
    (void)sscanf(at + 3, "%*d %*d %*d %*d %*d %u", &flags);
    bool over = strchr("ZXx", at[2]) || flags & EXITING;
    return over && threads_of(c->pid) <= 1;
}

/* Of a living process: has it another program now?  The core's store is mapped as long as it is
 * there, and a core that leaves takes its socket away before. */
static bool has_another_program(const struct client_process *c)
{
    char path[64];
    struct buf maps;
    bool other = false;
    const char *slash = strrchr(c->directory, '/');

    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)c->pid);
    buf_init(&maps, MAPS_MAX_BYTES);
    if (slash && slash[1] >= '0' && slash[1] <= '9' && file_read(AT_FDCWD, path, &maps) == 0 &&
        maps.size > 0) {
        char store[320];
        (void)snprintf(store, sizeof(store), "%.300s/data.mdb", slash);
        other = strstr(buf_text(&maps), store) == NULL;
    }
    buf_done(&maps);
    return other;
}

/* 1: somebody listens, 0: nobody does, -ENOENT: the socket has gone. */
static int is_listening(const struct client_process *c)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int r = 0, folder = open(c->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int at = folder != -1 ? openat(folder, c->leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;

    /* A process that dies loses its view of files, the directory too, before it is seen dead. */
    if (folder != -1 && at == -1)
        r = errno == ENOENT ? -ENOENT : 0;
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", at);
    int fd = at != -1 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd != -1)
        r = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EAGAIN;
    if (fd != -1)
        (void)close(fd);
    if (at != -1)
        (void)close(at);
    if (folder != -1)
        (void)close(folder);
    return r;
}

enum client_end client_process_end(const struct client_process *c)
{
    uint64_t until = clock_monotonic() + LOOK_NS;
    int listened = 0;

    if (c->pid == 0)
        return CLIENT_UNKNOWN;
    do { /* an exec closes descriptors one after another: a socket may listen a moment longer */
        if (is_dead(c))
            return CLIENT_DIED;
        int r = is_listening(c);
        if (r == -ENOENT && !is_dead(c))
            return CLIENT_LEFT;
        listened += r == 1;
        if (listened > LISTENS)
            return CLIENT_CLOSED;
        if (r == 0 && has_another_program(c) && !is_dead(c))
            return CLIENT_REPLACED;
    } while (poll(NULL, 0, LOOK_MS) == 0 && clock_monotonic() < until);
    return CLIENT_CLOSED;
}

enum client_end client_end(struct probing_client *c)
{
    if (!c->over)
        return CLIENT_OPEN;
    if (c->end == CLIENT_OPEN)
        c->end = client_process_end(&c->process);
    return c->end;
}

/* As it can be asked afterwards: /proc shows no root of the dead. */
static const char *place_of(const struct probing_client *c)
{
    bool seen = strncmp(c->directory, "/proc/", 6) == 0;
    const char *root = seen ? strstr(c->directory, "/root/") : NULL;
    return root ? root + sizeof("/root") - 1 : c->directory;
}

int client_gone(struct probing_client *c)
{
    c->over = true;
    switch (client_end(c)) {
    case CLIENT_DIED:
        return err_set(-ECONNRESET,
                       "the process has died; its data can still be asked: probing -t %s "
                       "query \"...\"",
                       place_of(c));
    case CLIENT_LEFT:
        return err_set(-ECONNRESET,
                       "the core has left process %d, which lives on; its data can still be asked: "
                       "probing -t %s query \"...\"",
                       (int)c->process.pid, place_of(c));
    case CLIENT_REPLACED:
        return err_set(-ECONNRESET,
                       "process %d runs another program now (exec), and the core went with the "
                       "one before; enter it again: probing -t %d inject",
                       (int)c->process.pid, (int)c->process.pid);
    case CLIENT_CLOSED:
        return err_set(-ECONNRESET,
                       "the connection was closed by the core; process %d lives, ask again",
                       (int)c->process.pid);
    case CLIENT_UNKNOWN:
    case CLIENT_OPEN:
        break;
    }
    return err_set(-ECONNRESET,
                   "the connection to %s was closed; whether that process lives cannot be seen "
                   "from here",
                   c->where);
}
