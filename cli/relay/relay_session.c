/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay_session.c - see relay_session.h.
 *
 * One thread.  It holds nothing of what passes but what streams may have under way: where who asks
 * reads slowly, processes and relays below wait.
 */
#include "cli/relay/relay_session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/link/broker.h"
#include "cli/link/link.h"
#include "cli/link/token.h"
#include "cli/many/query_members.h"
#include "cli/relay/merge_answers.h"
#include "cli/relay/stream_server.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/version.h"

#define SERVED_MAX 4096
#define RUNS_MAX 256
#define WORDS_MAX 128
#define GREET_NS (20 * NS_PER_S)   /* for who asks to say who it is */
#define SILENT_NS (120 * NS_PER_S) /* it gives a sign of life each 15 s */
#define LEAVE_NS (3 * NS_PER_S)    /* for commands to end, when nobody asks any more */
#define TICK_MS 1000
#define CHILD_TICK_MS 20 /* a child that ends is not seen otherwise */
#define END_TICK_MS 2    /* one that has closed its output, and is soon gone */
#define TURN_FRAMES 256

struct session {
    const struct session_options *o;
    struct wire up;
    struct broker below; /* the relays that this one has started, and what its children ask them */
    struct served **list;
    uint32_t n, runs;
    uint32_t me;
    bool greeted, over;
    int passed[2]; /* connections of children */
    uint64_t began_ns, heard_ns;
    struct pollfd *polls;
    uint32_t room_polls;
};

/* ---- what goes up ---- */

static int put_frame(struct session *s, const struct frame *f)
{
    int rc = wire_put(&s->up, f);

    return rc == -ENOBUFS ? err_set(rc, "the client does not read its answers") : rc;
}

static int put_close(struct session *s, uint32_t stream, int32_t status,
                     enum probing_client_end end, const char *why)
{
    char text[1024];

    store_le32(text, (uint32_t)status);
    store_le32(text + 4, (uint32_t)end);
    (void)snprintf(text + 8, sizeof(text) - 8, "%s", why);
    return put_frame(s, &(struct frame){.kind = FRAME_CLOSE,
                                        .host = s->me,
                                        .stream = stream,
                                        .data = text,
                                        .size = (uint32_t)strlen(text + 8) + 9});
}

static int pass_up(void *arg, const struct frame *f)
{
    return put_frame(arg, f);
}

static bool has_room(void *arg)
{
    return wire_has_room(&((struct session *)arg)->up);
}

/* ---- streams ---- */

static struct served *find_stream(struct session *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i]->stream.id == id && s->list[i]->state != SERVED_OVER)
            return s->list[i];
    return NULL;
}

/* The i-th is no more. */
static void forget_stream(struct session *s, uint32_t i)
{
    struct served *one = s->list[i];

    s->runs -= one->runs;
    served_done(one);
    free(one);
    s->list[i] = s->list[--s->n];
}

static struct served *add_stream(struct session *s, uint32_t id)
{
    struct served *one =
        s->n < SERVED_MAX && find_stream(s, id) == NULL ? calloc(1, sizeof(*one)) : NULL;

    if (one == NULL)
        return NULL;
    stream_begin(&one->stream, s->me, id);
    one->child = (struct child){.fds = {-1, -1}};
    s->list[s->n++] = one;
    return one;
}

static int start_run(struct session *s, struct served *one, const struct frame *f)
{
    const char *words[WORDS_MAX + 2] = {child_own_program()};
    uint32_t n = 1, at = 0;

    if (s->runs >= RUNS_MAX)
        return err_set(-EAGAIN, "%d commands run there already", RUNS_MAX);
    for (const char *word; (word = frame_text(f, &at)) != NULL; words[n++] = word)
        if (n > WORDS_MAX)
            return err_set(-E2BIG, "a command has at most %d words", WORDS_MAX);
    if (at != f->size)
        return err_set(-EBADMSG, "a word has no end");
    int rc = served_run(one, words);
    one->runs = rc == 0;
    s->runs += one->runs;
    return rc;
}

static int start_merge(struct session *s, struct served *one, const struct frame *f)
{
    struct relay_question q = {.data = f->data, .size = f->size, .host = s->me};
    int rc = s->runs < RUNS_MAX ? served_answer(one, &q)
                                : err_set(-EAGAIN, "%d commands run there already", RUNS_MAX);

    one->runs = rc == 0;
    s->runs += one->runs;
    return rc;
}

static int start_stream(struct session *s, const struct frame *f)
{
    struct served *one = add_stream(s, f->stream);
    uint32_t at = 0;

    if (one == NULL)
        return put_close(s, f->stream, -EAGAIN, PROBING_CLIENT_OPEN,
                         "its relay has too many connections");
    const char *place = frame_text(f, &at);
    int rc = f->kind == FRAME_RUN     ? start_run(s, one, f)
             : f->kind == FRAME_MERGE ? start_merge(s, one, f)
             : place != NULL          ? served_open(one, place, s->passed[1])
                                      : err_set(-EBADMSG, "that is no place of a process");
    if (rc == 0)
        return 0;
    forget_stream(s, s->n - 1);
    return put_close(s, f->stream, rc, PROBING_CLIENT_OPEN, err_why(rc));
}

static void stop_stream(struct session *s, uint32_t id)
{
    struct served *one = find_stream(s, id);

    if (one != NULL && served_stop(one, clock_monotonic()))
        one->state = SERVED_OVER;
}

/* A child has connected to a process. */
static int take_passed(struct session *s)
{
    uint32_t id;
    int fd = served_passed(s->passed[0], &id);
    struct served *one = fd != -1 ? find_stream(s, id) : NULL;

    if (one != NULL && one->state == SERVED_CONNECTS) {
        one->state = SERVED_OPEN;
        stream_take(&one->stream, 0, fd, fd);
    } else if (fd != -1) {
        (void)close(fd); /* nobody wants it any more */
    }
    return 0;
}

/* ---- frames of who asks ---- */

static int take_hello(struct session *s, const struct frame *f)
{
    char name[256] = "";
    struct frame_hello h;
    struct buf hello;

    if (f->kind != FRAME_HELLO || frame_hello_read(f, &h) < 0)
        return err_set(-EBADMSG, "the client is no probing");
    if (s->o->token != NULL && !token_is(s->o->token, h.text))
        return err_set(-EACCES, "the token is wrong: PROBING_TOKEN or PROBING_TOKEN_FILE must have "
                                "the relay's");
    s->me = f->host;
    s->greeted = true;
    (void)gethostname(name, sizeof(name) - 1);
    buf_init(&hello, 8192);
    frame_hello_write(probing_build, name, &hello);
    int rc = put_frame(s, &(struct frame){.kind = FRAME_HELLO,
                                          .host = s->me,
                                          .data = hello.data,
                                          .size = (uint32_t)hello.size});
    buf_done(&hello);
    return rc;
}

/* Children that answer questions ask the hosts below over a socket of their own. */
static int begin_below(struct session *s)
{
    int ends[2];

    if (s->below.control != -1)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == -1)
        return err_set(-errno, "no socket: %s", strerror(errno));
    s->below.control = ends[0];
    link_adopt(ends[1]);
    return 0;
}

/* A relay that listens starts no others: whoever has its token is let in here, not further. */
static int take_tree(struct session *s, const struct frame *f)
{
    struct tree_how how = {.degree = load_le32(f->data + 4)};
    uint32_t at = 8, first = load_le32(f->data);

    how.rsh = frame_text(f, &at);
    how.program = how.rsh != NULL ? frame_text(f, &at) : NULL;
    if (how.program == NULL || how.degree == 0 || s->o->token != NULL || at >= f->size ||
        f->data[f->size - 1] != '\0' || first != s->me + 1)
        return err_set(-EBADMSG, "that is no list of hosts");
    int rc = begin_below(s);
    uint32_t n = 0;
    for (uint32_t i = at; i < f->size; i++)
        n += f->data[i] == '\0';
    if (rc == 0)
        rc = broker_add_hosts(&s->below, first, n);
    return rc == 0 ? tree_start(&s->below.tree, &how, first, f->data + at, f->size - at) : rc;
}

static int take_ping(struct session *s, const struct frame *f)
{
    struct timespec t;
    char data[16];

    memcpy(data, f->data, 8);
    (void)clock_gettime(CLOCK_REALTIME, &t);
    store_le64(data + 8, (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec);
    return put_frame(
        s, &(struct frame){.kind = FRAME_PONG, .host = s->me, .data = data, .size = sizeof(data)});
}

static int take_piece(struct session *s, const struct frame *f)
{
    struct served *one = find_stream(s, f->stream);

    if (one == NULL)
        return 0; /* it has ended, and who asks does not know yet */
    if (stream_receive(&one->stream, f) < 0)
        return err_set(-EBADMSG, "the client sends more than it may");
    return 0;
}

static int take_frame(struct session *s, const struct frame *f)
{
    if (!s->greeted)
        return take_hello(s, f);
    if (f->host != s->me) {
        (void)tree_send(&s->below.tree, f); /* one that is lost has been named */
        return 0;
    }
    switch (f->kind) {
    case FRAME_TREE:
        return take_tree(s, f);
    case FRAME_OPEN:
    case FRAME_RUN:
    case FRAME_MERGE:
        return start_stream(s, f);
    case FRAME_DATA:
    case FRAME_CREDIT:
        return take_piece(s, f);
    case FRAME_CLOSE:
        stop_stream(s, f->stream);
        return 0;
    case FRAME_PING:
        return take_ping(s, f);
    case FRAME_HELLO:
    case FRAME_REACHED:
    case FRAME_LOST:
    case FRAME_PONG:
    case FRAME_KINDS:
        break;
    }
    return err_set(-EBADMSG, "the client sends what only relays may send");
}

static int take_frames(struct session *s)
{
    struct frame f;
    int rc = wire_read(&s->up), next = 1;

    if (rc == -EPIPE)
        s->over = true;
    else if (rc < 0)
        return err_set(rc, "the connection to the client has ended: %s", strerror(-rc));
    s->heard_ns = clock_monotonic();
    for (rc = 0; rc == 0 && next == 1;) {
        next = wire_next(&s->up, &f);
        if (next < 0)
            rc = err_set(next, "the client is no probing");
        else if (next == 1)
            rc = take_frame(s, &f);
    }
    return rc;
}

/* ---- its loop ---- */

/* A command has ended when its outputs have, or itself, whoever may keep them. */
static int serve_run(struct session *s, struct served *one, bool ended)
{
    struct child *c = &one->child;

    if (one->told_ns != 0) { /* nobody asks any more */
        if (served_stop(one, clock_monotonic()))
            one->state = SERVED_OVER;
        return 0;
    }
    if (!child_ended(c))
        return 0;
    struct pollfd p[2];
    if (!ended && one->stream.credit == 0)
        return 0; /* there may be more */
    int n = ended ? 0 : stream_polls(&one->stream, /* room= */ true, p);
    if (n > 0 && poll(p, (nfds_t)n, 0) > 0)
        return 0;
    one->state = SERVED_OVER;
    bool by_signal = (c->status & 0x7f) != 0;
    return by_signal ? put_close(s, one->stream.id, -EIO, PROBING_CLIENT_OPEN,
                                 "what ran there was ended by a signal")
                     : put_close(s, one->stream.id, c->status >> 8, PROBING_CLIENT_OPEN, "");
}

/* A connection that has ended, or that is not there yet: its child says why when it ends. */
static int serve_end(struct session *s, struct served *one)
{
    char why[700];

    if (!child_ended(&one->child))
        return 0;
    if (one->state == SERVED_CONNECTS) /* it may have passed the connection since */
        (void)take_passed(s);
    if (one->state == SERVED_OPEN)
        return 0;
    enum probing_client_end end = served_end(one, why, sizeof(why));
    one->state = SERVED_OVER;
    return put_close(s, one->stream.id, end == PROBING_CLIENT_OPEN ? -EIO : 0, end, why);
}

static int serve_one(struct session *s, struct served *one)
{
    bool ended = false;

    int rc = stream_write(&one->stream, &s->up);

    if (rc == 0 && one->told_ns == 0 && (one->state == SERVED_OPEN || one->state == SERVED_RUNS))
        rc = stream_send(&one->stream, &s->up, &ended);
    if (rc == 0 && one->state == SERVED_RUNS)
        return serve_run(s, one, ended);
    if (rc == 0 && one->state == SERVED_OPEN && (ended || one->stream.dead))
        one->state = SERVED_ENDS;
    return rc == 0 && one->state != SERVED_OPEN ? serve_end(s, one) : rc;
}

static bool make_room(struct session *s, uint32_t n)
{
    if (n <= s->room_polls)
        return true;
    struct pollfd *list = realloc(s->polls, 2 * n * sizeof(*list));
    if (list == NULL)
        return false;
    s->polls = list;
    s->room_polls = 2 * n;
    return true;
}

/* A child has closed its output or its connection, and is not gone yet. */
static bool is_about_to_end(const struct session *s)
{
    bool soon = false;

    for (uint32_t i = 0; i < s->n && !soon; i++) {
        const struct served *one = s->list[i];
        soon =
            one->state == SERVED_ENDS || (one->state == SERVED_RUNS && one->stream.from[0] == -1);
    }
    return soon;
}

/* A child may end at any time, and only a look says so. */
static bool awaits_child(const struct session *s)
{
    bool any = false;

    for (uint32_t i = 0; i < s->n && !any; i++)
        any = s->list[i]->state == SERVED_RUNS || s->list[i]->state == SERVED_CONNECTS;
    return any;
}

#define OWN_POLLS 3 /* of the wire, and of `passed` */

static int wait_some(struct session *s)
{
    uint64_t until = broker_until(&s->below), now = clock_monotonic();
    int ms = awaits_child(s) ? CHILD_TICK_MS : TICK_MS;
    bool room = wire_has_room(&s->up);

    if (!make_room(s, OWN_POLLS + broker_poll_room(&s->below) + 2 * s->n))
        return err_set(-ENOMEM, "no memory for connections");
    s->polls[0] = (struct pollfd){.fd = s->up.in, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = wire_wants_out(&s->up) ? s->up.out : -1, .events = POLLOUT};
    s->polls[2] = (struct pollfd){.fd = s->passed[0], .events = POLLIN};
    uint32_t n = OWN_POLLS + broker_polls(&s->below, s->polls + OWN_POLLS), first = n;
    for (uint32_t i = 0; i < s->n; i++) {
        s->list[i]->polled = stream_polls(&s->list[i]->stream, room, s->polls + n);
        n += (uint32_t)s->list[i]->polled;
    }
    ms = is_about_to_end(s) ? END_TICK_MS : ms;
    ms = until <= now ? 0 : (until - now) / NS_PER_MS < (uint64_t)ms ? 1 : ms;
    if (poll(s->polls, n, ms) == -1 && errno != EINTR)
        return err_set(-errno, "poll: %s", strerror(errno));
    for (uint32_t i = 0; i < s->n; i++) {
        stream_polled(&s->list[i]->stream, s->polls + first, s->list[i]->polled);
        first += (uint32_t)s->list[i]->polled;
    }
    return 0;
}

static int check_life(const struct session *s)
{
    uint64_t now = clock_monotonic();

    if (!s->greeted && now - s->began_ns > GREET_NS)
        return err_set(-ETIMEDOUT, "no client has said who it is");
    if (now - s->heard_ns > SILENT_NS)
        return err_set(-ETIMEDOUT, "no sign of life from the client for 120 s");
    return 0;
}

static int turn_session(struct session *s)
{
    int rc = wait_some(s);

    if (rc == 0)
        rc = broker_turn(&s->below, s->polls + OWN_POLLS);
    if (rc == 0 && s->polls[0].revents != 0)
        rc = take_frames(s);
    if (rc == 0 && s->polls[2].revents != 0)
        rc = take_passed(s);
    for (uint32_t i = s->n; i-- > 0 && rc == 0;) {
        rc = serve_one(s, s->list[i]);
        if (s->list[i]->state == SERVED_OVER)
            forget_stream(s, i);
    }
    if (rc == 0)
        rc = wire_flush(&s->up);
    return rc == 0 ? check_life(s) : rc;
}

/* Nobody asks any more: commands are told to end, and ended. */
static void leave_session(struct session *s)
{
    uint64_t until = clock_monotonic() + LEAVE_NS;
    bool any = true;

    wire_end(&s->up);
    while (any && clock_monotonic() < until) {
        any = false;
        for (uint32_t i = 0; i < s->n; i++)
            any = !served_stop(s->list[i], clock_monotonic()) || any;
        if (any)
            (void)poll(NULL, 0, CHILD_TICK_MS);
    }
    while (s->n > 0)
        forget_stream(s, s->n - 1);
    broker_end(&s->below);
    free(s->list);
    free(s->polls);
}

/* Its last words, as far as they go now. */
static void say_why(struct session *s, int rc, const char *why)
{
    char text[1024], kept[ERR_TEXT_BYTES];

    (void)snprintf(kept, sizeof(kept), "%s", why);
    store_le32(text, 0);
    (void)snprintf(text + 4, sizeof(text) - 4, "%.1000s", kept);
    (void)put_frame(s, &(struct frame){.kind = FRAME_LOST,
                                       .host = s->me,
                                       .data = text,
                                       .size = (uint32_t)strlen(text + 4) + 5});
    (void)wire_flush(&s->up);
    (void)err_set(rc, "%s", kept);
}

int session_run(const struct session_options *o)
{
    struct session s = {.o = o,
                        .below = {.control = -1, .pass = pass_up, .has_room = has_room},
                        .passed = {-1, -1}};
    int rc = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s.passed) == -1
                 ? err_set(-errno, "no socket: %s", strerror(errno))
                 : 0;

    (void)members_at_once(SERVED_MAX); /* as many open files as may be */
    s.below.arg = &s;
    if (rc == 0)
        rc = broker_begin(&s.below);
    s.began_ns = s.heard_ns = clock_monotonic();
    wire_begin(&s.up, o->in, o->out);
    if (rc == 0 && o->heard != NULL)
        rc = buf_add(&s.up.input, o->heard->data, o->heard->size);
    s.list = calloc(SERVED_MAX, sizeof(struct served *));
    if (rc == 0 && s.list == NULL)
        rc = err_set(-ENOMEM, "no memory for connections");
    if (rc == 0 && o->heard != NULL)
        rc = take_frames(&s);
    while (rc == 0 && !s.over && !cli_interrupted)
        rc = turn_session(&s);
    if (rc < 0 && !s.over)
        say_why(&s, rc, err_why(rc));
    leave_session(&s);
    return rc;
}
