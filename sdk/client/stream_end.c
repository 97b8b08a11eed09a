/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/stream_end.c - a stream has ended, or nobody listens where somebody did: has the
 * process died, has its core left, has it another program, or has it only closed this connection?
 *
 * The failed call says none of these, so the process is looked at: it is known by its pid and its
 * start time from when we connected, or from the name of the directory.  One thread a client.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sdk/client/internal.h"
#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/task.h"

#define LOOK_NS (2 * NS_PER_S) /* a process that dies closes its sockets first, then is seen dead */
#define LOOK_MS 5
#define ENDING_NS (30 * NS_PER_S) /* and where it is ending already: on a starved machine */
#define LISTENS 2    /* looks at which it still listened: then it closed the connection alone */
#define EXITING 0x4u /* PF_EXITING, of the flags in /proc/PID/stat */

void client_process_of(int fd, const char *directory, const char *leaf, struct client_process *ret)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);
    struct proc_stat s;

    *ret = (struct client_process){.pid = 0};
    (void)snprintf(ret->directory, sizeof(ret->directory), "%s", directory);
    (void)snprintf(ret->leaf, sizeof(ret->leaf), "%s", leaf);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0 &&
        proc_stat_of(peer.pid, 0, &s) == 0) {
        ret->pid = peer.pid;
        ret->start_time = s.start_ticks;
    }
}

/* Threads that /proc still shows. */
static int threads_of(pid_t pid)
{
    struct proc_numbers threads;
    struct proc_number one;
    int n = 0;

    (void)proc_threads_open(&threads, pid);
    while (proc_numbers_next(&threads, &one))
        n++;
    proc_numbers_close(&threads);
    return n;
}

/* Dead, a zombie, or on its way out. */
static bool is_dead(const struct client_process *c)
{
    struct proc_stat s;

    if (proc_stat_of(c->pid, 0, &s) < 0 || s.start_ticks != c->start_time)
        return true;
    bool over = strchr("ZXx", s.state) || (s.flags != PROC_UNKNOWN && s.flags & EXITING);
    return over && threads_of(c->pid) <= 1;
}

/* It has to end, or its first thread has, or an exec ends the others: which is seen later. */
static bool is_ending(const struct client_process *c)
{
    struct proc_status p;
    struct proc_stat s;

    if (proc_stat_of(c->pid, 0, &s) == 0 && s.flags != PROC_UNKNOWN && s.flags & EXITING)
        return true;
    return proc_status_of(c->pid, 0, &p) == 0 && p.pending != PROC_UNKNOWN &&
           p.shared != PROC_UNKNOWN && ((p.pending | p.shared) >> (SIGKILL - 1) & 1);
}

/* Has a living process another program now?  The core's store is mapped as long as it is there, and
 * a core that leaves takes its socket away before. */
static bool has_another_program(const struct client_process *c)
{
    char room[PROC_MAPS_ROOM], store[320];
    struct proc_lines maps;
    struct proc_mapping m;
    bool other = true, any = false;
    const char *slash = strrchr(c->directory, '/');

    if (!slash || slash[1] < '0' || slash[1] > '9')
        return false;
    (void)snprintf(store, sizeof(store), "%.300s/data.mdb", slash);
    bool opened = proc_maps_open(&maps, c->pid, room, sizeof(room)) == 0;
    while (opened && other && proc_maps_next(&maps, &m)) {
        any = true;
        other = strstr(m.path, store) == NULL;
    }
    if (opened)
        proc_lines_close(&maps);
    return opened && any && other && maps.error == 0;
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

enum probing_client_end client_process_end(const struct client_process *c)
{
    uint64_t begin = client_now_ns(), spent = 0;
    int listened = 0;

    if (c->pid == 0)
        return PROBING_CLIENT_UNKNOWN;
    do { /* an exec closes descriptors one after another: a socket may listen a moment longer */
        if (is_dead(c))
            return PROBING_CLIENT_DIED;
        int r = is_listening(c);
        if (r == -ENOENT && !is_dead(c))
            return PROBING_CLIENT_LEFT;
        listened += r == 1;
        if (listened > LISTENS)
            return PROBING_CLIENT_CLOSED;
        if (r == 0 && has_another_program(c) && !is_dead(c))
            return PROBING_CLIENT_REPLACED;
        (void)poll(NULL, 0, LOOK_MS);
        spent = client_now_ns() - begin;
    } while (spent < LOOK_NS || (spent < ENDING_NS && is_ending(c)));
    return PROBING_CLIENT_CLOSED;
}

/* Read the note of whoever holds the other end about it: it was there before the stream ended.  "":
 * nothing. */
static void read_note(struct probing_client *c, char *ret, size_t size)
{
    ssize_t n = c->note_fd != -1 ? read(c->note_fd, ret, size - 1) : 0;

    ret[n > 0 ? n : 0] = '\0';
    if (n <= 1 || ret[0] < '0' || ret[0] > '0' + PROBING_CLIENT_UNKNOWN || ret[1] != ' ') {
        ret[0] = '\0';
        return;
    }
    c->end = (enum probing_client_end)(ret[0] - '0');
    memmove(ret, ret + 2, (size_t)n - 1);
}

enum probing_client_end probing_client_end(struct probing_client *c)
{
    if (c->over && c->end == PROBING_CLIENT_OPEN)
        c->end = client_process_end(&c->process);
    return c->end;
}

/* As it can be asked afterwards: /proc shows no root of the dead. */
static const char *place_of(const struct client_process *p)
{
    bool seen = strncmp(p->directory, "/proc/", 6) == 0;
    const char *root = seen ? strstr(p->directory, "/root/") : NULL;
    return root ? root + sizeof("/root") - 1 : p->directory;
}

/* before: what our call has found, where it is not the end of a stream that says it. */
static int fail_with_end(struct probing_client *c, int code, const char *before,
                         const struct client_process *p)
{
    if (c->end == PROBING_CLIENT_DIED)
        return client_fail(c, code,
                           "%sthe process has died; its data can still be queried: probing -t %s "
                           "query \"...\"",
                           before, place_of(p));
    if (c->end == PROBING_CLIENT_LEFT)
        return client_fail(
            c, code,
            "%sthe core has left process %d, which lives on; its data can still be queried: "
            "probing -t %s query \"...\"",
            before, (int)p->pid, place_of(p));
    return client_fail(c, code,
                       "%sprocess %d runs another program now (exec), and the core went with the "
                       "one before; enter it again: probing -t %d inject",
                       before, (int)p->pid, (int)p->pid);
}

int client_gone(struct probing_client *c)
{
    char note[900];

    c->over = true;
    if (c->told) /* and nobody else looks at it from here */
        return client_fail(c, -ECONNRESET, "%s", c->error);
    read_note(c, note, sizeof(note));
    if (note[0] != '\0') {
        c->told = true;
        c->end = c->end == PROBING_CLIENT_OPEN ? PROBING_CLIENT_UNKNOWN : c->end;
        return client_fail(c, -ECONNRESET, "%s", note);
    }
    if (c->turn != TURN_NONE) /* looking takes time, and others wait: client_turns_end() */
        return client_fail(c, -ECONNRESET, "the connection was closed before the answer was whole");
    switch (probing_client_end(c)) {
    case PROBING_CLIENT_DIED:
    case PROBING_CLIENT_LEFT:
    case PROBING_CLIENT_REPLACED:
        return fail_with_end(c, -ECONNRESET, "", &c->process);
    case PROBING_CLIENT_CLOSED:
        return client_fail(c, -ECONNRESET,
                           "the connection was closed by the core; process %d lives, ask again",
                           (int)c->process.pid);
    case PROBING_CLIENT_UNKNOWN:
    case PROBING_CLIENT_OPEN:
        break;
    }
    return client_fail(c, -ECONNRESET,
                       "the connection to %s was closed; whether that process lives cannot be seen "
                       "from here",
                       c->where);
}

int client_nobody(struct probing_client *c, int code, const struct client_process *p)
{
    char before[512];

    (void)snprintf(before, sizeof(before), "nobody listens on '%.400s/%s'; ", p->directory,
                   p->leaf);
    c->end = client_process_end(p);
    switch (c->end) {
    case PROBING_CLIENT_DIED:
    case PROBING_CLIENT_LEFT:
    case PROBING_CLIENT_REPLACED:
        return fail_with_end(c, code, before, p);
    case PROBING_CLIENT_CLOSED:
        return client_fail(c, code, "%sprocess %d lives, ask again", before, (int)p->pid);
    case PROBING_CLIENT_UNKNOWN:
    case PROBING_CLIENT_OPEN:
        break;
    }
    return client_fail(c, code,
                       "%sa core that was there has gone, and what it measured can still be asked: "
                       "probing -t %s query \"...\"",
                       before, place_of(p));
}
