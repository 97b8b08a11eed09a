/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/upload_socket.c - the second door: plugins come in as descriptors from a client
 * on this machine.
 *
 * Threads: control only, from its poll loop.  One message of a SOCK_SEQPACKET connection is
 *
 *     "plugin NAME"  with SCM_RIGHTS carrying one descriptor, the plugin's file
 *     "known"        likewise, a file of lines about plugins that could be loaded
 *                    (core/plugin_file/declared.h)
 *
 * and is answered by one message, "ok", "ok: NOTE" or "error: WHY".  Every descriptor that comes is
 * closed, whatever happens.  Only who may trace the process is heard (sdk/lib/proc/identity.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/rights.h"
#include "core/guest/own_descriptors.h"
#include "core/plugin_host/internal.h"

#define MESSAGE_BYTES 512
#define MESSAGE_FDS 16            /* more in one message are closed by the kernel, and refused */
#define SILENT_NS (10 * NS_PER_S) /* a peer that says nothing is shown out */

static int open_on_control(void *arg)
{
    struct host *h = arg;
    struct upload_socket *d = &h->door;
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    memcpy(at.sun_path, d->path, sizeof(at.sun_path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return err_set(-errno, "cannot make the upload socket: %s", strerror(errno));
    rights_keep();
    (void)unlink(d->path);
    /* The directory is private, so nobody gets in between bind and chmod. */
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) == -1 || chmod(d->path, 0600) == -1 ||
        listen(fd, HOST_UPLOAD_CLIENTS) == -1) {
        int e = errno;
        (void)close(fd);
        return err_set(-e, "cannot open the upload socket %s: %s", d->path, strerror(e));
    }
    d->listen_fd = fd;
    return 0;
}

int host_upload_socket_open(struct host *h, const char *path)
{
    if (strlen(path) >= sizeof(h->door.path))
        return err_set(-ENAMETOOLONG,
                       "a socket's path has at most %zu bytes: set a shorter PROBING_DATA_DIR; "
                       "'%.80s...' has %zu",
                       sizeof(h->door.path) - 1, path, strlen(path));
    if (h->door.listen_fd != -1)
        return err_set(-EALREADY, "the upload socket is open");
    (void)snprintf(h->door.path, sizeof(h->door.path), "%s", path);
    return host_on_control(h, open_on_control, h);
}

void upload_socket_close(struct host *h)
{
    struct upload_socket *d = &h->door;
    if (d->listen_fd == -1)
        return;
    for (int i = 0; i < HOST_UPLOAD_CLIENTS; i++) {
        if (d->peers[i] != -1)
            (void)close(d->peers[i]);
        d->peers[i] = -1;
    }
    (void)close(d->listen_fd);
    d->listen_fd = -1;
    (void)unlink(d->path);
}

/* The program has closed it. */
void upload_socket_open_again(struct host *h)
{
    if (h->door.listen_fd == -1)
        return;
    upload_socket_close(h);
    if (open_on_control(h) < 0)
        host_log(h, PROBING_ERROR, "no plugin can be loaded any more: %s", err_text());
}

/* List what the control thread waits for beside its own wakening. */
uint32_t upload_socket_poll(struct host *h, struct pollfd *fds, uint32_t max)
{
    struct upload_socket *d = &h->door;
    uint32_t n = 0;
    bool room = false;

    if (d->listen_fd == -1)
        return 0;
    fds[n++] = (struct pollfd){.fd = d->listen_fd, .events = POLLIN};
    for (int i = 0; i < HOST_UPLOAD_CLIENTS; i++) {
        room = room || d->peers[i] == -1;
        if (d->peers[i] != -1 && n < max)
            fds[n++] = (struct pollfd){.fd = d->peers[i], .events = POLLIN};
    }
    if (!room)
        fds[0].events = 0; /* they wait in the kernel's queue */
    return n;
}

/* As the ids of the process are now.  What is wrong is logged once a second at most. */
static enum identity_refusal judge_peer(struct host *h, const struct identity_peer *peer)
{
    uint64_t now = clock_now();
    enum identity_refusal refusal = identity_own_answer(peer);
    if (refusal && now - h->door.refused_ns >= NS_PER_S) {
        h->door.refused_ns = now;
        host_log(h, PROBING_WARN, "pid %d of uid %u (door) was turned away: %s", (int)peer->pid,
                 peer->uid, identity_why(refusal));
    }
    return refusal;
}

/* A peer of this user that may not ask is told so when it asks. */
static void let_in(struct host *h)
{
    struct upload_socket *d = &h->door;
    struct identity_peer peer;
    int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd == -1)
        return;
    bool known = identity_peer_of(fd, &peer) == 0 && judge_peer(h, &peer) != IDENTITY_OTHER_USER;
    for (int i = 0; known && i < HOST_UPLOAD_CLIENTS; i++) {
        if (d->peers[i] == -1) {
            d->peers[i] = fd;
            d->who[i] = peer;
            d->since[i] = clock_now();
            return;
        }
    }
    (void)close(fd);
}

static void send_answer(int fd, int code, const char *note)
{
    char line[ERR_TEXT_BYTES + 16];
    int n = code < 0 ? snprintf(line, sizeof(line), "error: %s", err_why(code))
                     : snprintf(line, sizeof(line), "ok%s%.900s", note[0] ? ": " : "", note);
    (void)!send(fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT); /* gone: nobody to tell */
}

/* Loading is a worker's: it waits for the control thread, which must stay free to answer. */
struct load_job {
    struct job job;               /* first */
    char name[MESSAGE_BYTES + 1]; /* "": it is no plugin, but what is known of some */
    int fd, peer;
};

static void load_upload(struct host *h, struct job *j)
{
    struct load_job *l = (struct load_job *)j;
    struct buf note;

    buf_init(&note, 4096);
    int r = l->name[0] ? host_plugin_load(h, l->name, NULL, l->fd) : declared_told(h, l->fd);
    if (r == -EAGAIN && settings_start_with(h, l->name)) {
        (void)buf_addf(&note, "%s; it waits for that", err_text());
        r = 0;
    } else if (l->name[0]) {
        host_plugin_note(h, l->name, &note);
    }
    send_answer(l->peer, r, buf_text(&note));
    buf_done(&note);
    (void)close(l->peer);
    (void)close(l->fd);
    free(l);
}

static void tell_who(struct host *h, const char *name, int peer)
{
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t size = sizeof(who);
    (void)getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &size);
    host_log(h, PROBING_INFO, "pid %d of uid %u (door): plugin load %.64s from a file it has open",
             (int)who.pid, who.uid, name);
}

static int load_later(struct host *h, const char *name, int fd, int peer)
{
    struct load_job *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(-ENOMEM, "no memory to load plugin '%.64s'", name);
    l->job.run = load_upload;
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    l->peer = fcntl(peer, F_DUPFD_CLOEXEC, 0);
    int rc =
        l->fd == -1 || l->peer == -1
            ? err_set(-errno, "no descriptor to load plugin '%.64s': %s", name, strerror(errno))
            : workers_add(h, &l->job, /* ret_out= */ NULL);
    if (rc == 0 && name[0])
        tell_who(h, name, peer);
    if (rc == 0)
        return 1;
    if (l->fd != -1)
        (void)close(l->fd);
    if (l->peer != -1)
        (void)close(l->peer);
    free(l);
    return rc;
}

/* 1: the answer comes later. */
static int obey_message(struct host *h, const char *text, const int *fds, uint32_t n_fds, int peer)
{
    static const char word[] = "plugin ";
    bool known = strcmp(text, "known") == 0;
    if (!known && (strncmp(text, word, sizeof(word) - 1) != 0 || !text[sizeof(word) - 1]))
        return err_set(-EINVAL, "the upload socket accepts only 'plugin NAME' with one descriptor");
    if (n_fds != 1)
        return err_set(-EINVAL, "the upload socket needs one descriptor with 'plugin NAME', not %u",
                       n_fds);
    return load_later(h, known ? "" : text + sizeof(word) - 1, fds[0], peer);
}

static uint32_t take_fds(struct msghdr *m, int fds[MESSAGE_FDS])
{
    uint32_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && n < MESSAGE_FDS; i++)
            memcpy(&fds[n++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    return n;
}

/* false: the connection is over. */
static bool listen_to(struct host *h, int peer)
{
    char text[MESSAGE_BYTES + 1];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
    struct iovec part = {.iov_base = text, .iov_len = MESSAGE_BYTES};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    int fds[MESSAGE_FDS], fd = h->door.peers[peer];

    descriptor_begin();
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    uint32_t n_fds = n > 0 ? take_fds(&m, fds) : 0;
    for (uint32_t i = 0; i < n_fds; i++)
        descriptor_note(fds[i]);
    descriptor_end_low();
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    err_clear();
    enum identity_refusal refusal = judge_peer(h, &h->door.who[peer]);
    int rc = m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)
                 ? err_set(-E2BIG, "the message to the upload socket is too long")
             : refusal ? err_set(-EACCES, "%s", identity_why(refusal))
                       : obey_message(h, text, fds, n_fds, fd);
    for (uint32_t i = 0; i < n_fds; i++)
        (void)close(fds[i]);
    if (rc <= 0)
        send_answer(fd, rc, "");
    return refusal == IDENTITY_MAY_ASK;
}

void upload_socket_serve(struct host *h, const struct pollfd *fds, uint32_t n)
{
    struct upload_socket *d = &h->door;
    uint64_t now = clock_now();

    for (uint32_t i = 1; i < n; i++) {
        for (int k = 0; k < HOST_UPLOAD_CLIENTS; k++) {
            if (d->peers[k] != fds[i].fd)
                continue;
            bool stays = fds[i].revents ? listen_to(h, k) : now - d->since[k] < SILENT_NS;
            if (fds[i].revents)
                d->since[k] = now;
            if (!stays) {
                (void)close(d->peers[k]);
                d->peers[k] = -1;
            }
            break;
        }
    }
    if (n > 0 && (fds[0].revents & POLLIN))
        let_in(h);
}
