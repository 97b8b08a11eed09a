/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/broker.c - see broker.h: requests become frames, and what comes back goes to the
 * descriptors that came with them.
 *
 * One thread.
 */
#include "cli/link/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/link/host_clock.h"
#include "cli/link/pass_descriptors.h"
#include "cli/link/relay_tree.h"
#include "cli/link/remote_shell.h"
#include "cli/link/stream.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/version.h"
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

/* ---- requests ---- */

static void request_free(struct broker *b, struct request *r)
{
    uint32_t slot = r->stream.id % SLOTS;

    b->slots[slot] = NULL;
    while (b->n_slots > 0 && b->slots[b->n_slots - 1] == NULL)
        b->n_slots--;
    stream_end(&r->stream);
    if (r->end != -1)
        (void)close(r->end);
    buf_done(&r->ask);
    free(r);
}

static void send_down(struct broker *b, const struct frame *f)
{
    (void)tree_send(&b->tree, f);
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

static void request_send(struct broker *b, struct request *r)
{
    r->sent = true;
    send_down(b, &(struct frame){.kind = r->kind,
                                 .host = r->stream.host,
                                 .stream = r->stream.id,
                                 .data = r->ask.data,
                                 .size = (uint32_t)r->ask.size});
    buf_done(&r->ask);
}

static struct request *find_request(struct broker *b, uint32_t host, uint32_t id)
{
    struct request *r = id % SLOTS < b->n_slots ? b->slots[id % SLOTS] : NULL;

    return r != NULL && r->stream.id == id && r->stream.host == host ? r : NULL;
}

static struct peer *add_peer(struct broker *b)
{
    struct peer *list =
        array_grow(b->peers, b->n_peers, &b->room_peers, sizeof(*list), 2 * TREE_HOSTS_MAX);
    if (list == NULL)
        return NULL;
    b->peers = list;
    struct peer *p = &b->peers[b->n_peers++];
    *p = (struct peer){.told = {.error_ns = LINK_UNKNOWN}};
    return p;
}

/* NULL: nobody has started it here. */
static struct peer *find_peer(const struct broker *b, uint32_t host)
{
    return host - b->first < b->n_peers ? &b->peers[host - b->first] : NULL;
}

/* States of aggregates may look different in another build. */
static bool has_our_build(const struct broker *b, uint32_t first, uint32_t host)
{
    bool same = first >= b->first && first <= host;

    for (uint32_t i = first; same && i <= host; i++) {
        const struct peer *p = &b->peers[i - b->first];
        same = !p->told.reached || strcmp(p->told.build, probing_build) == 0;
    }
    return same;
}

static void tell_waiting(struct broker *b, uint64_t now)
{
    for (uint32_t i = b->n_waits; i-- > 0;) {
        const uint32_t host = b->waits[i].host;
        const struct peer *p = find_peer(b, host);
        if (b->pass == NULL && !peer_is_known(p, now)) /* a relay looks at no clocks */
            continue;
        struct link_host told = p->told;
        told.awaited = p->state == PEER_AWAITED;
        told.first = tree_first(&b->tree, host);
        told.merges = told.reached && has_our_build(b, told.first, host);
        (void)write(b->waits[i].fd, &told, sizeof(told));
        (void)close(b->waits[i].fd);
        b->waits[i] = b->waits[--b->n_waits];
    }
}

static void ping_host(struct broker *b, uint32_t host)
{
    char data[8];

    find_peer(b, host)->asked_ns = clock_monotonic();
    store_le64(data, find_peer(b, host)->asked_ns);
    send_down(
        b, &(struct frame){.kind = FRAME_PING, .host = host, .data = data, .size = sizeof(data)});
}

static void take_reached(struct broker *b, uint32_t host, const struct frame *f)
{
    struct peer *p = find_peer(b, host);
    struct frame_hello h;

    if (p->state != PEER_AWAITED || frame_hello_read(f, &h) < 0)
        return;
    peer_reached(p, &h, clock_monotonic());
    for (uint32_t i = 0; i < b->n_slots; i++)
        if (b->slots[i] != NULL && b->slots[i]->stream.host == host && !b->slots[i]->sent)
            request_send(b, b->slots[i]);
    if (b->pass == NULL)
        ping_host(b, host);
}

static void lose_host(struct broker *b, uint32_t host, const char *why)
{
    struct peer *p = find_peer(b, host);

    if (p->state == PEER_LOST)
        return;
    p->state = PEER_LOST;
    p->told.reached = false;
    (void)snprintf(p->told.why, sizeof(p->told.why), "%s", why);
    for (uint32_t i = 0; i < b->n_slots; i++)
        if (b->slots[i] != NULL && b->slots[i]->stream.host == host && !b->slots[i]->closed)
            request_fail(b->slots[i], p->told.why);
}

static void take_lost(struct broker *b, uint32_t host, const struct frame *f)
{
    char why[LINK_WHY];

    peer_words(why, sizeof(why), f->data + 4, f->size - 4);
    lose_host(b, host, why);
}

/* The wall clock first: what comes between the two makes the round trip longer, and is in the
 * error. */
static void take_pong(struct broker *b, uint32_t host, const struct frame *f)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_REALTIME, &t);
    int64_t utc_ns = (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
    if (peer_take_pong(find_peer(b, host), f, clock_monotonic(), utc_ns))
        ping_host(b, host);
}

/* Signs of life are asked for, also so that relays know that we live. */
static void look_after(struct broker *b, uint64_t now)
{
    for (uint32_t i = 0; i < b->n_peers; i++) {
        struct peer *p = &b->peers[i];
        if (p->state != PEER_REACHED)
            continue;
        if (p->asked_ns != 0 && now - p->asked_ns > SILENT_NS && now - p->heard_ns > SILENT_NS)
            lose_host(b, i, "no sign of life from its relay for 60 s");
        else if (p->asked_ns == 0 && now - p->heard_ns > ALIVE_NS)
            ping_host(b, i);
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

static void take_stream(struct broker *b, const struct frame *f)
{
    struct request *r = find_request(b, f->host, f->stream);

    if (r == NULL || r->closed || !r->sent) { /* it was given up, and the relay may not know yet */
        struct peer *p = find_peer(b, f->host);
        p->unasked += f->size;
        if (p->unasked > UNASKED_BYTES) {
            lose_host(b, f->host, "its relay goes on sending what nobody asks for");
            tree_cut(&b->tree, f->host);
        }
        return;
    }
    if (f->kind == FRAME_CLOSE)
        take_close(r, f);
    else if (stream_receive(&r->stream, f) < 0)
        request_fail(r, "its relay sends more than it may");
    else if (f->kind == FRAME_DATA && stream_write(&r->stream, &b->up) < 0)
        request_fail(r, "no memory");
}

/* Is it an answer to what we have asked?  A relay hears those to who is above it, too. */
static bool is_ours(const struct broker *b, const struct frame *f)
{
    return b->pass == NULL || f->stream >= RELAY_STREAMS;
}

static int on_frame(void *arg, const struct frame *f)
{
    struct broker *b = arg;
    struct peer *p = find_peer(b, f->host);

    if (p == NULL)
        return 0;
    p->heard_ns = clock_monotonic();
    switch (f->kind) {
    case FRAME_REACHED:
        take_reached(b, f->host, f);
        break;
    case FRAME_LOST:
        take_lost(b, f->host, f);
        break;
    case FRAME_PONG:
        if (b->pass == NULL)
            take_pong(b, f->host, f);
        break;
    case FRAME_DATA:
    case FRAME_CREDIT:
    case FRAME_CLOSE:
        if (is_ours(b, f)) {
            take_stream(b, f);
            return 0;
        }
        break;
    case FRAME_HELLO:
    case FRAME_TREE:
    case FRAME_OPEN:
    case FRAME_RUN:
    case FRAME_MERGE:
    case FRAME_PING:
    case FRAME_KINDS:
        break;
    }
    return b->pass != NULL ? b->pass(b->arg, f) : 0;
}

/* Streams have room for what their relays may send. */
static bool has_room(void *arg)
{
    const struct broker *b = arg;

    return b->has_room == NULL || b->has_room(b->arg);
}

/* ---- what we are asked for ---- */

static void reply_number(int fd, uint32_t n)
{
    (void)write(fd, &n, sizeof(n));
}

static void start_hosts(struct broker *b, int fd)
{
    uint32_t first = b->n_peers;

    for (size_t at = 0; at < b->names.size; at += strlen(b->names.data + at) + 1)
        (void)add_peer(b);
    b->how.rsh = buf_text(&b->rsh);
    b->how.program = buf_text(&b->program);
    (void)tree_start(&b->tree, &b->how, first, b->names.data, b->names.size);
    for (uint32_t i = first; i < b->n_peers; i++)
        if (!tree_has(&b->tree, i))
            lose_host(b, i, err_text());
    buf_reset(&b->names);
    reply_number(fd, first);
}

static void connect_host(struct broker *b, const char *text, size_t size, int fd)
{
    const char *end = memchr(text, '\0', size);
    uint32_t number = b->n_peers;

    if (end == NULL || add_peer(b) == NULL)
        return;
    const char *token = end + 1 < text + size ? end + 1 : "";
    if (tree_connect(&b->tree, number, text, token[0] != '\0' ? token : NULL) < 0)
        lose_host(b, number, err_text());
    reply_number(fd, number);
}

static void wait_for_host(struct broker *b, uint32_t host, int fd)
{
    struct answer_wait *list = realloc(b->waits, (b->n_waits + 1) * sizeof(*list));

    if (list != NULL)
        b->waits = list;
    if (list == NULL || find_peer(b, host) == NULL)
        (void)close(fd);
    else
        b->waits[b->n_waits++] = (struct answer_wait){host, fd};
}

static struct request *request_new(struct broker *b, uint32_t host)
{
    uint32_t slot = 0;

    while (slot < b->n_slots && b->slots[slot] != NULL)
        slot++;
    struct request *r = slot < SLOTS ? calloc(1, sizeof(*r)) : NULL;
    if (r == NULL)
        return NULL;
    b->slots[slot] = r;
    b->n_slots = slot + 1 > b->n_slots ? slot + 1 : b->n_slots;
    b->generation = (b->generation + 1) % GENERATIONS;
    stream_begin(&r->stream, host,
                 slot + SLOTS * b->generation + (b->pass != NULL ? RELAY_STREAMS : 0));
    buf_init(&r->ask, ASK_BYTES);
    return r;
}

/* fds: of a stream and its note, or output, error and end. */
static void add_request(struct broker *b, enum frame_kind kind, uint32_t host, const char *data,
                        size_t size, int fds[PASS_FDS_MAX])
{
    const bool run = kind != FRAME_OPEN;
    const struct peer *p = find_peer(b, host);
    struct request *r = p != NULL ? request_new(b, host) : NULL;

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
    for (int i = 0; i < PASS_FDS_MAX; i++)
        fds[i] = -1;
    if (p->state == PEER_LOST)
        request_fail(r, p->told.why);
    else if (buf_add(&r->ask, data, size) < 0)
        request_fail(r, "no memory");
    else if (p->state == PEER_REACHED)
        request_send(b, r);
}

static void take_ask(struct broker *b, const char *data, size_t size, int fds[PASS_FDS_MAX])
{
    uint32_t n = size >= 5 ? load_le32(data + 1) : 0;

    switch ((enum ask_kind)data[0]) {
    case ASK_HOW:
        buf_reset(&b->rsh);
        buf_reset(&b->program);
        b->how.degree = n;
        (void)buf_adds(&b->rsh, data + 5);
        (void)buf_adds(&b->program, data + 5 + strlen(data + 5) + 1);
        return;
    case ASK_NAMES:
        (void)buf_add(&b->names, data + 1, size - 1);
        return;
    case ASK_START:
        start_hosts(b, fds[0]);
        return;
    case ASK_CONNECT:
        connect_host(b, data + 1, size - 1, fds[0]);
        return;
    case ASK_HOST:
        wait_for_host(b, n, fds[0]);
        fds[0] = -1;
        return;
    case ASK_OPEN:
    case ASK_RUN:
    case ASK_MERGE:
        if (size > 5)
            add_request(b,
                        data[0] == ASK_RUN    ? FRAME_RUN
                        : data[0] == ASK_OPEN ? FRAME_OPEN
                                              : FRAME_MERGE,
                        n, data + 5, size - 5, fds);
        return;
    }
}

/* 0, or -EPIPE: nobody asks any more. */
static int take_message(struct broker *b, char *room)
{
    int fds[PASS_FDS_MAX];
    ssize_t n = pass_receive(b->control, room, ASK_BYTES, fds);

    if (n == -EAGAIN || n == -EINTR)
        return -EAGAIN;
    if (n <= 0)
        return -EPIPE;
    room[n] = '\0';
    room[n + 1] = '\0';
    take_ask(b, room, (size_t)n, fds);
    for (int i = 0; i < PASS_FDS_MAX; i++)
        if (fds[i] != -1)
            (void)close(fds[i]);
    return 0;
}

/* ---- its loop ---- */

/* Its descriptors here, and what they have; gone: who asked has no more use for it. */
static void serve_request(struct broker *b, struct request *r)
{
    bool ended = false;
    int rc = stream_write(&r->stream, &b->up);

    if (rc == 0 && r->sent && !r->closed)
        rc = stream_send(&r->stream, &b->up, &ended);
    bool gone = r->stream.dead || (ended && r->kind == FRAME_OPEN) || rc < 0;
    if (gone && r->sent && !r->closed)
        send_down(b, &(struct frame){
                         .kind = FRAME_CLOSE, .host = r->stream.host, .stream = r->stream.id});
    if (gone || (r->closed && stream_is_written(&r->stream)))
        request_free(b, r);
}

/* Frames that streams have put behind each other: each to its branch. */
static void send_all(struct broker *b)
{
    struct frame f;
    size_t at = b->up.sent;

    for (int64_t n = 1; n > 0; at += (size_t)(n > 0 ? n : 0)) {
        n = frame_read(b->up.output.data + at, b->up.output.size - at, &f);
        if (n > 0)
            send_down(b, &f);
    }
    buf_reset(&b->up.output);
    b->up.sent = 0;
}

/* Gone at the other end, though there is nothing to write: a RUN whose asker has died. */
static int poll_request(const struct request *r, struct pollfd *ret)
{
    int n = stream_polls(&r->stream, r->sent && !r->closed, ret);

    if (n == 0 && r->stream.to[0] != -1)
        ret[n++] = (struct pollfd){.fd = r->stream.to[0], .events = 0};
    return n;
}

int broker_begin(struct broker *b)
{
    b->tree.up = on_frame;
    b->tree.room = has_room;
    b->tree.arg = b;
    b->slots = calloc(SLOTS, sizeof(struct request *));
    buf_init(&b->rsh, 4096);
    buf_init(&b->program, 4096);
    buf_init(&b->names, FRAME_MAX);
    b->up = (struct wire){.in = -1, .out = -1};
    buf_init(&b->up.output, WIRE_OUT_MAX + FRAME_MAX);
    return b->slots != NULL ? 0 : err_set(-ENOMEM, "no memory for connections");
}

int broker_add_hosts(struct broker *b, uint32_t first, uint32_t n)
{
    b->first = b->n_peers == 0 ? first : b->first;
    while (b->n_peers < first - b->first + n)
        if (add_peer(b) == NULL)
            return err_set(-ENOMEM, "no memory for hosts");
    return 0;
}

uint32_t broker_poll_room(const struct broker *b)
{
    return 1 + TREE_POLLS * b->tree.n + 2 * b->n_slots;
}

uint32_t broker_polls(struct broker *b, struct pollfd *ret)
{
    uint32_t n = 1 + TREE_POLLS * b->tree.n;

    ret[0] = (struct pollfd){.fd = b->control, .events = POLLIN};
    tree_polls(&b->tree, ret + 1);
    b->branches = b->tree.n;
    for (uint32_t i = 0; i < b->n_slots; i++)
        if (b->slots[i] != NULL) {
            b->slots[i]->polled = poll_request(b->slots[i], ret + n);
            n += (uint32_t)b->slots[i]->polled;
        }
    return n;
}

uint64_t broker_until(const struct broker *b)
{
    uint64_t now = clock_monotonic(), until = now + NS_PER_S, deadline = tree_deadline(&b->tree);

    until = deadline != 0 && deadline < until ? deadline : until;
    return b->n_waits > 0 && now + 50 * NS_PER_MS < until ? now + 50 * NS_PER_MS : until;
}

/* Take what poll() found at the request's own polls.  A pipe without a reader is seen at one that
 * waits for nothing. */
static void take_polled(struct request *r, const struct pollfd *polls)
{
    stream_polled(&r->stream, polls, r->polled);
    for (int i = 0; i < r->polled; i++)
        if (polls[i].events == 0 && (polls[i].revents & (POLLERR | POLLHUP)))
            r->stream.dead = true;
}

int broker_turn(struct broker *b, const struct pollfd *polls)
{
    uint32_t at = 1 + TREE_POLLS * b->branches;
    char room[ASK_BYTES + 2];

    for (uint32_t i = 0; i < b->n_slots; i++)
        if (b->slots[i] != NULL) {
            take_polled(b->slots[i], polls + at);
            at += (uint32_t)b->slots[i]->polled;
        }
    int rc = tree_turn(&b->tree, polls + 1, b->branches);
    while (rc == 0 && polls[0].revents != 0)
        rc = take_message(b, room);
    rc = rc == -EAGAIN ? 0 : rc;
    for (uint32_t i = 0; i < b->n_slots; i++)
        if (b->slots[i] != NULL)
            serve_request(b, b->slots[i]);
    send_all(b);
    uint64_t now = clock_monotonic();
    if (b->pass == NULL)
        look_after(b, now);
    tell_waiting(b, now);
    return rc;
}

void broker_end(struct broker *b)
{
    for (uint32_t i = 0; b->slots != NULL && i < b->n_slots; i++)
        if (b->slots[i] != NULL)
            request_free(b, b->slots[i]);
    tree_end(&b->tree);
    if (b->control != -1)
        (void)close(b->control);
    free(b->slots);
    free(b->peers);
    free(b->waits);
    buf_done(&b->rsh);
    buf_done(&b->program);
    buf_done(&b->names);
    buf_done(&b->up.output);
}

void broker_run(int control)
{
    struct broker b = {.control = control};
    struct pollfd *polls = NULL;
    int rc = 0;

    (void)setpgid(0, 0); /* Ctrl-C is for who asks */
    spawn_leave_behind(control);
    rc = broker_begin(&b);
    for (uint32_t room = 0; rc == 0;) {
        if (broker_poll_room(&b) > room) {
            room = 2 * broker_poll_room(&b);
            free(polls);
            polls = calloc(room, sizeof(*polls));
        }
        if (polls == NULL) {
            rc = -ENOMEM;
            break;
        }
        uint32_t n = broker_polls(&b, polls);
        uint64_t now = clock_monotonic(), until = broker_until(&b);
        (void)poll(polls, n, until > now ? (int)((until - now) / NS_PER_MS) + 1 : 0);
        rc = broker_turn(&b, polls);
    }
    tree_end(&b.tree);
    _exit(rc == -EPIPE ? 0 : -rc);
}
