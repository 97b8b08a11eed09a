/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/broker.c - see broker.h: what our side asks for becomes frames, and what comes back
 * goes to the descriptors that came with the question.
 *
 * One thread, in a process of its own, which ends with those who ask.  A relay that sends more than
 * it may, or what nobody asked for, costs its own hosts.
 */
#include "cli/link/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/link/host_clock.h"
#include "cli/link/relay_tree.h"
#include "cli/link/spawn.h"
#include "cli/link/stream.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"

#define SLOTS 65536                       /* streams at a time: the low half of their ids */
#define GENERATIONS 32768                 /* ids above are for what relays ask themselves */
#define UNASKED_BYTES (UINT64_C(1) << 30) /* 4,000 streams that were given up as they flowed */
#define ALIVE_NS (15 * NS_PER_S)          /* between two signs of life */
#define SILENT_NS (60 * NS_PER_S)

/* A request of one of us. */
struct request {
    struct stream stream;
    enum frame_kind kind; /* FRAME_OPEN, FRAME_RUN, FRAME_MERGE */
    struct buf ask;       /* its payload, until it is sent */
    bool sent, closed;
    int polled; /* how many of the polls are its own */
    int end;    /* gets the last words */
};

struct answer_wait {
    uint32_t host;
    int fd;
};

struct exchange {
    int control;
    struct tree tree;
    struct tree_how how;
    struct buf rsh, program, names;
    struct peer *peers;
    uint32_t n_peers, room_peers;
    struct request **slots;
    uint32_t n_slots, generation;
    struct answer_wait *waits;
    uint32_t n_waits;
    struct pollfd *polls;
    uint32_t room_polls;
    struct wire up; /* frames on their way down, which tree_send() takes */
};

/* ---- requests ---- */

static void request_free(struct exchange *x, struct request *r)
{
    uint32_t slot = r->stream.id % SLOTS;

    x->slots[slot] = NULL;
    while (x->n_slots > 0 && x->slots[x->n_slots - 1] == NULL)
        x->n_slots--;
    stream_end(&r->stream);
    if (r->end != -1)
        (void)close(r->end);
    buf_done(&r->ask);
    free(r);
}

static void send_down(struct exchange *x, const struct frame *f)
{
    (void)tree_send(&x->tree, f);
}

/* Its last words; its bytes may still be on their way to who asked. */
static void request_close(struct request *r, int32_t status, uint32_t end, const char *why,
                          size_t size)
{
    char text[LINK_WHY + 32];
    int n = snprintf(text, sizeof(text), "%d %.*s", r->kind != FRAME_OPEN ? status : (int32_t)end,
                     (int)(size < LINK_WHY ? size : LINK_WHY - 1), why);

    r->closed = true;
    for (int i = 0; i < 2; i++)
        if (r->stream.from[i] != -1 && r->stream.from[i] != r->stream.to[i])
            (void)close(r->stream.from[i]);
    r->stream.from[0] = r->stream.from[1] = -1;
    if (r->end != -1 && n > 0)
        (void)write(r->end, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static void request_fail(struct request *r, const char *why)
{
    request_close(r, -EHOSTUNREACH, 0, why, strlen(why));
}

static void request_send(struct exchange *x, struct request *r)
{
    r->sent = true;
    send_down(x, &(struct frame){.kind = r->kind,
                                 .host = r->stream.host,
                                 .stream = r->stream.id,
                                 .data = r->ask.data,
                                 .size = (uint32_t)r->ask.size});
    buf_done(&r->ask);
}

static struct request *find_request(struct exchange *x, uint32_t host, uint32_t id)
{
    struct request *r = id % SLOTS < x->n_slots ? x->slots[id % SLOTS] : NULL;

    return r != NULL && r->stream.id == id && r->stream.host == host ? r : NULL;
}

static struct peer *add_peer(struct exchange *x)
{
    struct peer *list =
        array_grow(x->peers, x->n_peers, &x->room_peers, sizeof(*list), 2 * TREE_HOSTS_MAX);
    if (list == NULL)
        return NULL;
    x->peers = list;
    struct peer *p = &x->peers[x->n_peers++];
    *p = (struct peer){.told = {.error_ns = LINK_UNKNOWN}};
    return p;
}

static void tell_waiting(struct exchange *x, uint64_t now)
{
    for (uint32_t i = x->n_waits; i-- > 0;) {
        const struct peer *p = &x->peers[x->waits[i].host];
        if (!peer_is_known(p, now))
            continue;
        struct link_host told = p->told;
        told.awaited = p->state == PEER_AWAITED;
        told.first = tree_first(&x->tree, x->waits[i].host);
        (void)write(x->waits[i].fd, &told, sizeof(told));
        (void)close(x->waits[i].fd);
        x->waits[i] = x->waits[--x->n_waits];
    }
}

static void ping(struct exchange *x, uint32_t host)
{
    char data[8];

    x->peers[host].asked_ns = clock_monotonic();
    store_le64(data, x->peers[host].asked_ns);
    send_down(
        x, &(struct frame){.kind = FRAME_PING, .host = host, .data = data, .size = sizeof(data)});
}

static void take_reached(struct exchange *x, uint32_t host, const struct frame *f)
{
    struct peer *p = &x->peers[host];
    struct frame_hello h;

    if (p->state != PEER_AWAITED || frame_hello_read(f, &h) < 0)
        return;
    peer_reached(p, &h, clock_monotonic());
    for (uint32_t i = 0; i < x->n_slots; i++)
        if (x->slots[i] != NULL && x->slots[i]->stream.host == host && !x->slots[i]->sent)
            request_send(x, x->slots[i]);
    ping(x, host);
}

static void lose(struct exchange *x, uint32_t host, const char *why)
{
    struct peer *p = &x->peers[host];

    if (p->state == PEER_LOST)
        return;
    p->state = PEER_LOST;
    p->told.reached = false;
    (void)snprintf(p->told.why, sizeof(p->told.why), "%s", why);
    for (uint32_t i = 0; i < x->n_slots; i++)
        if (x->slots[i] != NULL && x->slots[i]->stream.host == host && !x->slots[i]->closed)
            request_fail(x->slots[i], p->told.why);
}

static void take_lost(struct exchange *x, uint32_t host, const struct frame *f)
{
    char why[LINK_WHY];

    peer_words(why, sizeof(why), f->data + 4, f->size - 4);
    lose(x, host, why);
}

/* The wall clock first: what comes between the two makes the round trip longer, and is in the
 * error. */
static void take_pong(struct exchange *x, uint32_t host, const struct frame *f)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_REALTIME, &t);
    int64_t utc_ns = (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
    if (peer_take_pong(&x->peers[host], f, clock_monotonic(), utc_ns))
        ping(x, host);
}

/* Signs of life are asked for, also so that relays know that we live. */
static void look_after(struct exchange *x, uint64_t now)
{
    for (uint32_t i = 0; i < x->n_peers; i++) {
        struct peer *p = &x->peers[i];
        if (p->state != PEER_REACHED)
            continue;
        if (p->asked_ns != 0 && now - p->asked_ns > SILENT_NS && now - p->heard_ns > SILENT_NS)
            lose(x, i, "no sign of life from its relay for 60 s");
        else if (p->asked_ns == 0 && now - p->heard_ns > ALIVE_NS)
            ping(x, i);
    }
}

/* ---- what relays say ---- */

static void take_close(struct request *r, const struct frame *f)
{
    if (f->size < 9 || f->data[f->size - 1] != '\0')
        request_fail(r, "its relay has ended this without saying why");
    else {
        char why[LINK_WHY];
        peer_words(why, sizeof(why), f->data + 8, strlen(f->data + 8));
        request_close(r, (int32_t)load_le32(f->data), load_le32(f->data + 4), why, strlen(why));
    }
}

static void take_stream(struct exchange *x, const struct frame *f)
{
    struct request *r = find_request(x, f->host, f->stream);

    if (r == NULL || r->closed || !r->sent) { /* it was given up, and the relay may not know yet */
        struct peer *p = &x->peers[f->host];
        p->unasked += f->size;
        if (p->unasked > UNASKED_BYTES) {
            lose(x, f->host, "its relay goes on sending what nobody asks for");
            tree_cut(&x->tree, f->host);
        }
        return;
    }
    if (f->kind == FRAME_CLOSE)
        take_close(r, f);
    else if (stream_receive(&r->stream, f) < 0)
        request_fail(r, "its relay sends more than it may");
    else if (f->kind == FRAME_DATA && stream_write(&r->stream, &x->up) < 0)
        request_fail(r, "no memory");
}

static int on_frame(void *arg, const struct frame *f)
{
    struct exchange *x = arg;

    if (f->host >= x->n_peers)
        return 0;
    x->peers[f->host].heard_ns = clock_monotonic();
    switch (f->kind) {
    case FRAME_REACHED:
        take_reached(x, f->host, f);
        break;
    case FRAME_LOST:
        take_lost(x, f->host, f);
        break;
    case FRAME_PONG:
        take_pong(x, f->host, f);
        break;
    case FRAME_DATA:
    case FRAME_CREDIT:
    case FRAME_CLOSE:
        take_stream(x, f);
        break;
    case FRAME_OPENED:
    case FRAME_HELLO:
    case FRAME_TREE:
    case FRAME_OPEN:
    case FRAME_RUN:
    case FRAME_MERGE:
    case FRAME_PING:
    case FRAME_KINDS:
        break;
    }
    return 0;
}

static bool always(void *arg)
{
    (void)arg;
    return true; /* streams have room for what their relays may send */
}

/* ---- what we are asked for ---- */

static void reply_number(int fd, uint32_t n)
{
    (void)write(fd, &n, sizeof(n));
}

static void start_hosts(struct exchange *x, int fd)
{
    uint32_t first = x->n_peers;

    for (size_t at = 0; at < x->names.size; at += strlen(x->names.data + at) + 1)
        (void)add_peer(x);
    x->how.rsh = buf_text(&x->rsh);
    x->how.program = buf_text(&x->program);
    (void)tree_start(&x->tree, &x->how, first, x->names.data, x->names.size);
    for (uint32_t i = first; i < x->n_peers; i++)
        if (!tree_has(&x->tree, i))
            lose(x, i, err_text());
    buf_reset(&x->names);
    reply_number(fd, first);
}

static void connect_host(struct exchange *x, const char *text, size_t size, int fd)
{
    const char *end = memchr(text, '\0', size);
    uint32_t number = x->n_peers;

    if (end == NULL || add_peer(x) == NULL)
        return;
    const char *token = end + 1 < text + size ? end + 1 : "";
    if (tree_connect(&x->tree, number, text, token[0] != '\0' ? token : NULL) < 0)
        lose(x, number, err_text());
    reply_number(fd, number);
}

static void wait_for_host(struct exchange *x, uint32_t host, int fd)
{
    struct answer_wait *list = realloc(x->waits, (x->n_waits + 1) * sizeof(*list));

    if (list != NULL)
        x->waits = list;
    if (list == NULL || host >= x->n_peers)
        (void)close(fd);
    else
        x->waits[x->n_waits++] = (struct answer_wait){host, fd};
}

static struct request *request_new(struct exchange *x, uint32_t host)
{
    uint32_t slot = 0;

    while (slot < x->n_slots && x->slots[slot] != NULL)
        slot++;
    struct request *r = slot < SLOTS ? calloc(1, sizeof(*r)) : NULL;
    if (r == NULL)
        return NULL;
    x->slots[slot] = r;
    x->n_slots = slot + 1 > x->n_slots ? slot + 1 : x->n_slots;
    x->generation = (x->generation + 1) % GENERATIONS;
    stream_begin(&r->stream, host, slot + SLOTS * x->generation);
    buf_init(&r->ask, ASK_BYTES);
    return r;
}

/* fds: of a stream and its note, or output, error and end. */
static void add_request(struct exchange *x, enum frame_kind kind, uint32_t host, const char *data,
                        size_t size, int fds[ASK_FDS])
{
    const bool run = kind != FRAME_OPEN;
    struct request *r = host < x->n_peers ? request_new(x, host) : NULL;

    if (r == NULL)
        return; /* whose descriptors are closed: who asks sees that */
    r->kind = kind;
    r->end = fds[run ? 2 : 1];
    (void)fcntl(r->end, F_SETFL, O_NONBLOCK);
    if (run) {
        stream_take(&r->stream, 0, -1, fds[0]);
        stream_take(&r->stream, 1, -1, fds[1]);
    } else {
        stream_take(&r->stream, 0, fds[0], fds[0]);
    }
    for (int i = 0; i < ASK_FDS; i++)
        fds[i] = -1;
    if (x->peers[host].state == PEER_LOST)
        request_fail(r, x->peers[host].told.why);
    else if (buf_add(&r->ask, data, size) < 0)
        request_fail(r, "no memory");
    else if (x->peers[host].state == PEER_REACHED)
        request_send(x, r);
}

static void take_ask(struct exchange *x, const char *data, size_t size, int fds[ASK_FDS])
{
    uint32_t n = size >= 5 ? load_le32(data + 1) : 0;

    switch ((enum ask_kind)data[0]) {
    case ASK_HOW:
        buf_reset(&x->rsh);
        buf_reset(&x->program);
        x->how.degree = n;
        (void)buf_adds(&x->rsh, data + 5);
        (void)buf_adds(&x->program, data + 5 + strlen(data + 5) + 1);
        return;
    case ASK_NAMES:
        (void)buf_add(&x->names, data + 1, size - 1);
        return;
    case ASK_START:
        start_hosts(x, fds[0]);
        return;
    case ASK_CONNECT:
        connect_host(x, data + 1, size - 1, fds[0]);
        return;
    case ASK_HOST:
        wait_for_host(x, n, fds[0]);
        fds[0] = -1;
        return;
    case ASK_OPEN:
    case ASK_RUN:
    case ASK_MERGE:
        if (size > 5)
            add_request(x,
                        data[0] == ASK_RUN    ? FRAME_RUN
                        : data[0] == ASK_OPEN ? FRAME_OPEN
                                              : FRAME_MERGE,
                        n, data + 5, size - 5, fds);
        return;
    }
}

/* 0, or -EPIPE: nobody asks any more. */
static int take_message(struct exchange *x, char *room)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(ASK_FDS * sizeof(int))];
    } rights;
    struct iovec part = {room, ASK_BYTES};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = rights.bytes,
                       .msg_controllen = sizeof(rights.bytes)};
    int fds[ASK_FDS] = {-1, -1, -1};
    ssize_t n = recvmsg(x->control, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (n <= 0)
        return -EPIPE;
    room[n] = '\0';
    room[n + 1] = '\0';
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c != NULL && c->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    take_ask(x, room, (size_t)n, fds);
    for (int i = 0; i < ASK_FDS; i++)
        if (fds[i] != -1)
            (void)close(fds[i]);
    return 0;
}

/* ---- its loop ---- */

/* Its descriptors here, and what they have; gone: who asked has no more use for it. */
static void serve_request(struct exchange *x, struct request *r)
{
    bool ended = false;
    int rc = stream_write(&r->stream, &x->up);

    if (rc == 0 && r->sent && !r->closed)
        rc = stream_send(&r->stream, &x->up, &ended);
    bool gone = r->stream.dead || (ended && r->kind == FRAME_OPEN) || rc < 0;
    if (gone && r->sent && !r->closed)
        send_down(x, &(struct frame){
                         .kind = FRAME_CLOSE, .host = r->stream.host, .stream = r->stream.id});
    if (gone || (r->closed && stream_is_written(&r->stream)))
        request_free(x, r);
}

/* Frames that streams have put behind each other: each to its branch. */
static void send_all(struct exchange *x)
{
    struct frame f;
    size_t at = x->up.sent;

    for (int64_t n = 1; n > 0; at += (size_t)(n > 0 ? n : 0)) {
        n = frame_read(x->up.output.data + at, x->up.output.size - at, &f);
        if (n > 0)
            send_down(x, &f);
    }
    buf_reset(&x->up.output);
    x->up.sent = 0;
}

/* Gone at the other end, though there is nothing to write: a RUN whose asker has died. */
static int poll_request(const struct request *r, struct pollfd *ret)
{
    int n = stream_polls(&r->stream, r->sent && !r->closed, ret);

    if (n == 0 && r->stream.to[0] != -1)
        ret[n++] = (struct pollfd){.fd = r->stream.to[0], .events = 0};
    return n;
}

static bool make_room(struct exchange *x, uint32_t n)
{
    if (n <= x->room_polls)
        return true;
    struct pollfd *list = realloc(x->polls, 2 * n * sizeof(*list));
    if (list == NULL)
        return false;
    x->polls = list;
    x->room_polls = 2 * n;
    return true;
}

static int wait_some(struct exchange *x, uint32_t *ret_branches)
{
    uint32_t n = 1 + TREE_POLLS * x->tree.n;
    uint64_t now = clock_monotonic(), until = now + NS_PER_S;

    if (!make_room(x, n + 2 * x->n_slots))
        return -ENOMEM;
    x->polls[0] = (struct pollfd){.fd = x->control, .events = POLLIN};
    tree_polls(&x->tree, x->polls + 1);
    *ret_branches = x->tree.n;
    for (uint32_t i = 0; i < x->n_slots; i++)
        if (x->slots[i] != NULL) {
            x->slots[i]->polled = poll_request(x->slots[i], x->polls + n);
            n += (uint32_t)x->slots[i]->polled;
        }
    uint64_t deadline = tree_deadline(&x->tree);
    until = deadline != 0 && deadline < until ? deadline : until;
    until = x->n_waits > 0 && now + 50 * NS_PER_MS < until ? now + 50 * NS_PER_MS : until;
    int ms = until > now ? (int)((until - now) / NS_PER_MS) + 1 : 0;
    (void)poll(x->polls, n, ms);
    uint32_t at = 1 + TREE_POLLS * *ret_branches;
    for (uint32_t i = 0; i < x->n_slots; i++)
        if (x->slots[i] != NULL) {
            stream_polled(&x->slots[i]->stream, x->polls + at, x->slots[i]->polled);
            at += (uint32_t)x->slots[i]->polled;
        }
    for (uint32_t i = 1 + TREE_POLLS * *ret_branches; i < n; i++) /* a pipe without a reader */
        for (uint32_t k = 0; (x->polls[i].revents & (POLLERR | POLLHUP)) &&
                             x->polls[i].events == 0 && k < x->n_slots;
             k++)
            if (x->slots[k] != NULL && x->slots[k]->stream.to[0] == x->polls[i].fd)
                x->slots[k]->stream.dead = true;
    return 0;
}

static int serve(struct exchange *x)
{
    char *room = malloc(ASK_BYTES + 2);
    uint32_t branches = 0;
    int rc = room != NULL ? 0 : -ENOMEM;

    while (rc == 0 && (rc = wait_some(x, &branches)) == 0) {
        struct pollfd asked = x->polls[0];
        rc = tree_turn(&x->tree, x->polls + 1, branches);
        while (rc == 0 && asked.revents != 0)
            rc = take_message(x, room);
        rc = rc == -EAGAIN ? 0 : rc;
        for (uint32_t i = 0; i < x->n_slots; i++)
            if (x->slots[i] != NULL)
                serve_request(x, x->slots[i]);
        send_all(x);
        uint64_t now = clock_monotonic();
        look_after(x, now);
        tell_waiting(x, now);
    }
    free(room);
    return rc;
}

void exchange_run(int control)
{
    struct exchange x = {.control = control, .tree = {.up = on_frame, .room = always}};

    (void)setpgid(0, 0); /* Ctrl-C is for who asks */
    spawn_leave_behind(control);
    x.tree.arg = &x;
    x.slots = calloc(SLOTS, sizeof(struct request *));
    buf_init(&x.rsh, 4096);
    buf_init(&x.program, 4096);
    buf_init(&x.names, FRAME_MAX);
    x.up = (struct wire){.in = -1, .out = -1};
    buf_init(&x.up.output, WIRE_OUT_MAX + FRAME_MAX);
    int rc = x.slots != NULL ? serve(&x) : -ENOMEM;
    tree_end(&x.tree);
    _exit(rc == -EPIPE ? 0 : -rc);
}
