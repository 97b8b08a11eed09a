/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/relay_tree.c - see relay_tree.h.
 *
 * One thread.  A branch is not believed: it may say things of its own hosts only.
 */
#include "cli/link/relay_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/link/remote_shell.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/version.h"

#define GREET_NS (30 * NS_PER_S) /* from when a relay is started until it says so */
#define TRY_NS (3 * NS_PER_S)    /* for an address to be connected to, where there are others */
/* A relay that takes so many times as long as the first that came, and this at least, is not waited
 * for by those behind it; where none has come, all may be slow, and a third of GREET_NS counts. */
#define SLOW_TIMES 4
#define SLOW_NS (3 * NS_PER_S)
#define TURN_FRAMES 256
#define TURN_READS 8

/* ---- one branch ---- */

static void branch_free(struct branch *b)
{
    spawn_end(b->pid);
    wire_end(&b->wire);
    if (b->said_fd != -1)
        (void)close(b->said_fd);
    buf_done(&b->said);
    free(b->names);
    free(b->rsh);
    free(b->program);
    if (b->token != NULL)
        memset(b->token, 0, strlen(b->token));
    free(b->token);
    if (b->addresses != NULL)
        freeaddrinfo(b->addresses);
    free(b);
}

static struct branch *branch_new(struct tree *t, uint32_t first, const char *names, size_t size)
{
    struct branch **list = realloc(t->list, (t->n + 1) * sizeof(struct branch *));
    struct branch *b = calloc(1, sizeof(*b));

    if (list != NULL)
        t->list = list;
    if (b != NULL) {
        *b = (struct branch){.first = first, .said_fd = -1, .wire = {.in = -1, .out = -1}};
        buf_init(&b->said, TREE_SAYS);
        b->names = malloc(size > 0 ? size : 1);
        b->names_size = size;
        b->began_ns = clock_monotonic();
        b->deadline_ns = b->began_ns + GREET_NS;
    }
    if (list == NULL || b == NULL || b->names == NULL) {
        free(b != NULL ? b->names : NULL);
        free(b);
        return NULL;
    }
    memcpy(b->names, names, size);
    for (size_t i = 0; i < size; i++)
        b->n += names[i] == '\0';
    t->list[t->n++] = b;
    return b;
}

static int put_hello(struct branch *b)
{
    struct buf hello;

    buf_init(&hello, 8192);
    frame_hello_write(probing_build, b->token != NULL ? b->token : "", &hello);
    int rc = wire_put(&b->wire, &(struct frame){.kind = FRAME_HELLO,
                                                .host = b->first,
                                                .data = hello.data,
                                                .size = (uint32_t)hello.size});
    buf_done(&hello);
    return rc;
}

/* The first relay starts the hosts behind it itself. */
static int put_tree(struct branch *b)
{
    size_t own = strlen(b->names) + 1;
    char numbers[8];
    struct buf text;

    if (b->n < 2)
        return 0;
    buf_init(&text, FRAME_MAX);
    store_le32(numbers, b->first + 1);
    store_le32(numbers + 4, b->degree);
    (void)buf_add(&text, numbers, sizeof(numbers));
    (void)buf_add(&text, b->rsh, strlen(b->rsh) + 1);
    (void)buf_add(&text, b->program, strlen(b->program) + 1);
    int rc = buf_add(&text, b->names + own, b->names_size - own);
    if (rc == 0)
        rc = wire_put(&b->wire, &(struct frame){.kind = FRAME_TREE,
                                                .host = b->first,
                                                .data = text.data,
                                                .size = (uint32_t)text.size});
    buf_done(&text);
    return rc;
}

static void say_up(struct tree *t, const struct frame *f)
{
    int rc = t->up(t->arg, f);

    if (rc < 0 && t->error == 0)
        t->error = rc;
}

static void say_lost(struct tree *t, uint32_t host, const char *why)
{
    char text[1024] = {0};
    size_t n = (size_t)snprintf(text + 4, sizeof(text) - 4, "%s", why);

    n = n < sizeof(text) - 5 ? n : sizeof(text) - 5;
    say_up(t, &(struct frame){
                  .kind = FRAME_LOST, .host = host, .data = text, .size = (uint32_t)n + 5});
}

/* ---- starting ---- */

static int branch_run(struct branch *b)
{
    struct spawn s = {.rsh = b->rsh, .program = b->program, .host = b->names};
    int rc = spawn_relay(&s);

    if (rc < 0)
        return rc;
    b->pid = s.pid;
    b->said_fd = s.err;
    wire_begin(&b->wire, s.out, s.in);
    return put_hello(b);
}

static int start_part(struct tree *t, const struct tree_how *how, uint32_t first, const char *names,
                      size_t size)
{
    struct branch *b = branch_new(t, first, names, size);
    int rc = b == NULL ? -ENOMEM : 0;

    if (rc == 0) {
        b->rsh = strdup(how->rsh);
        b->program = strdup(how->program);
        b->degree = how->degree;
        rc = b->rsh == NULL || b->program == NULL ? -ENOMEM : branch_run(b);
    }
    if (b != NULL && rc < 0) { /* its turn says why */
        (void)buf_addf(&b->said, "%s", err_why(rc));
        b->deadline_ns = 1;
    }
    return b == NULL ? err_set(-ENOMEM, "no memory for relays") : 0;
}

static int start_parts(struct tree *t, const struct tree_how *how, uint32_t parts, uint32_t first,
                       const char *names, size_t names_size)
{
    uint32_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < names_size; i++)
        n += names[i] == '\0';
    for (uint32_t part = 0, done = 0; rc == 0 && part < parts && done < n; part++) {
        uint32_t count = (n - done + parts - part - 1) / (parts - part);
        size_t size = 0;
        for (uint32_t i = 0; i < count; i++)
            size += strlen(names + size) + 1;
        rc = start_part(t, how, first + done, names, size);
        names += size;
        done += count;
    }
    return rc;
}

int tree_start(struct tree *t, const struct tree_how *how, uint32_t first, const char *names,
               size_t names_size)
{
    return start_parts(t, how, how->degree > 0 ? how->degree : TREE_DEGREE, first, names,
                       names_size);
}

/* host: cut at its port. */
static int find_addresses(char *host, struct addrinfo **ret)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char *colon = strrchr(host, ':');

    if (colon == NULL || strchr(host, ']') > colon)
        return err_set(-EINVAL, "'%s' has no port: relay:HOST:PORT", host);
    *colon = '\0';
    bool bare = host[0] == '[' && colon > host && colon[-1] == ']';
    if (bare)
        colon[-1] = '\0';
    int rc = getaddrinfo(host + bare, colon + 1, &hints, ret);
    if (rc != 0)
        return err_set(-ENOENT, "no machine '%s': %s", host + bare, gai_strerror(rc));
    return 0;
}

/* A name may have several addresses, as of both kinds, and the relay listens at one of them: they
 * are tried in turn, each for TRY_NS but the last. */
static int connect_next(struct branch *b)
{
    const int one = 1;
    int rc = -ENOENT;

    while (b->untried != NULL && rc < 0) {
        const struct addrinfo *a = b->untried;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        rc = fd == -1 ? -errno : 0;
        b->untried = a->ai_next;
        if (rc == 0 && connect(fd, a->ai_addr, a->ai_addrlen) == -1 && errno != EINPROGRESS)
            rc = -errno;
        if (rc < 0 && fd != -1)
            (void)close(fd);
        if (rc < 0)
            continue;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        wire_end(&b->wire);
        wire_begin(&b->wire, fd, fd);
    }
    if (rc < 0)
        return err_set(rc, "%s", strerror(-rc));
    b->deadline_ns = clock_monotonic() + (b->untried != NULL ? TRY_NS : GREET_NS);
    return put_hello(b);
}

/* It has failed so: is there another address to try?  One that is connected to stays. */
static bool connects_again(struct branch *b, int rc)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    bool refused = rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ENETUNREACH;

    if (b->untried == NULL || !(refused || rc == -ETIMEDOUT))
        return false;
    if (refused || getpeername(b->wire.in, (struct sockaddr *)&at, &size) == -1)
        return connect_next(b) == 0;
    b->untried = NULL;
    b->deadline_ns = clock_monotonic() + GREET_NS;
    return true;
}

int tree_connect(struct tree *t, uint32_t number, const char *name, const char *token)
{
    char host[300];
    struct branch *b = branch_new(t, number, name, strlen(name) + 1);

    if (b == NULL)
        return err_set(-ENOMEM, "no memory for a relay");
    b->tcp = true;
    b->token = token != NULL ? strdup(token) : NULL;
    (void)snprintf(host, sizeof(host), "%s", name);
    int rc = find_addresses(host, &b->addresses);
    b->untried = b->addresses;
    if (rc == 0)
        rc = connect_next(b);
    if (rc < 0) {
        (void)buf_addf(&b->said, "%s", err_why(rc));
        b->deadline_ns = 1;
    }
    return 0;
}

/* ---- the end of one ---- */

/* The last line of what it has said: of a shell, or ssh; of probing without its name. */
static void last_line(struct branch *b, char *ret, size_t size)
{
    const char *text = buf_text(&b->said);
    size_t end = b->said.size, begin;

    while (end > 0 && strchr(" \r\n", text[end - 1]) != NULL)
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    if (strncmp(text + begin, "probing: ", 9) == 0)
        begin += 9;
    (void)snprintf(ret, size, "%.*s", (int)(end - begin > 500 ? 500 : end - begin), text + begin);
}

static void branch_reason(struct branch *b, int rc, char *ret, size_t size)
{
    char line[520];
    int status = spawn_status(&b->pid); /* -1: it runs */

    last_line(b, line, sizeof(line));
    if (rc == -ETIMEDOUT)
        (void)snprintf(ret, size, "no %s within %d s%s%s",
                       b->wire.synced ? "more than its first line (srun: -u)" : "relay answered",
                       (int)(GREET_NS / NS_PER_S), line[0] != '\0' ? ": " : "", line);
    else if (rc == -EPROTONOSUPPORT)
        (void)snprintf(ret, size, "its relay is of another version%s%s",
                       line[0] != '\0' ? ": " : "", line);
    else if (rc == -EBADMSG)
        (void)snprintf(ret, size, "what answers there is no relay, or a wrong one");
    else if (rc == -ENOBUFS)
        (void)snprintf(ret, size, "its relay takes nothing any more");
    else if (line[0] != '\0')
        (void)snprintf(ret, size, "%s%s", b->greeted ? "its relay has ended: " : "", line);
    else if (!b->wire.synced && b->wire.input.size > b->wire.used)
        (void)snprintf(ret, size, "what answers there is no relay");
    else if (b->tcp && rc == -ECONNREFUSED)
        (void)snprintf(ret, size, "no relay listens there (probing relay --listen ADDR:PORT)");
    else if (b->tcp)
        (void)snprintf(ret, size, "%s",
                       rc == -EPIPE ? "the relay has closed the connection" : strerror(-rc));
    else if (status > 0 && WIFEXITED(status))
        (void)snprintf(ret, size, "the remote shell ended with code %d and did not say why",
                       WEXITSTATUS(status));
    else if (status > 0 && WIFSIGNALED(status))
        (void)snprintf(ret, size, "the remote shell was ended by signal %d", WTERMSIG(status));
    else
        (void)snprintf(ret, size, "its relay has ended");
}

/* A branch is over.  Who was never reached costs itself only; the others of its part get another
 * relay. */
static void branch_lost(struct tree *t, struct branch *b, int rc)
{
    const struct tree_how how = {.rsh = b->rsh, .program = b->program, .degree = b->degree};
    char why[700], behind[1000];
    const char *name = b->names;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->list[i] == b)
            t->list[i] = t->list[--t->n];
    branch_reason(b, rc, why, sizeof(why));
    say_lost(t, b->first, why);
    if (b->n > 1 && !b->greeted) {
        size_t own = strlen(name) + 1;
        (void)start_part(t, &how, b->first + 1, name + own, b->names_size - own);
    }
    (void)snprintf(behind, sizeof(behind), "the relay on %s, behind which it is, is lost: %s", name,
                   why);
    for (uint32_t i = 1; b->greeted && i < b->n; i++)
        say_lost(t, b->first + i, behind);
    branch_free(b);
}

/* When those behind one that says nothing get relays of their own; 0: never. */
static uint64_t slow_at(const struct tree *t, const struct branch *b)
{
    uint64_t slow = t->quickest_ns == 0 ? GREET_NS / 3 : SLOW_TIMES * t->quickest_ns;

    return b->greeted || b->n < 2 ? 0 : b->began_ns + (slow > SLOW_NS ? slow : SLOW_NS);
}

/* In two parts: where many are silent it takes few steps to come to one that is not. */
static void branch_part(struct tree *t, struct branch *b)
{
    const struct tree_how how = {.rsh = b->rsh, .program = b->program, .degree = b->degree};
    size_t own = strlen(b->names) + 1;

    (void)start_parts(t, &how, 2, b->first + 1, b->names + own, b->names_size - own);
    b->n = 1;
}

/* ---- frames ---- */

static struct branch *branch_of(const struct tree *t, uint32_t host)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (host - t->list[i]->first < t->list[i]->n)
            return t->list[i];
    return NULL;
}

void tree_cut(struct tree *t, uint32_t host)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->list[i]->first == host)
            t->list[i]->deadline_ns = 1;
}

uint32_t tree_first(const struct tree *t, uint32_t host)
{
    const struct branch *b = branch_of(t, host);

    return b != NULL ? b->first : TREE_NOBODY;
}

bool tree_has(const struct tree *t, uint32_t host)
{
    return branch_of(t, host) != NULL;
}

int tree_send(struct tree *t, const struct frame *f)
{
    struct branch *b = branch_of(t, f->host);

    if (b == NULL)
        return -ENOENT;
    if (wire_put(&b->wire, f) < 0)
        b->deadline_ns = 2; /* its next turn ends it */
    return 0;
}

static void keep_words(struct branch *b, const struct frame *f)
{
    buf_reset(&b->said);
    (void)buf_add(&b->said, f->data + 4, f->size - 4);
    for (size_t i = 0; i < b->said.size; i++)
        b->said.data[i] = (unsigned char)b->said.data[i] < ' ' ? ' ' : b->said.data[i];
}

/* The first thing it says is who it is. */
static int take_hello(struct tree *t, struct branch *b, const struct frame *f)
{
    struct frame_hello h;
    struct frame reached = *f;

    if (f->kind == FRAME_LOST) { /* it does not let us in */
        keep_words(b, f);
        return -EIO;
    }
    if (f->kind != FRAME_HELLO || frame_hello_read(f, &h) < 0)
        return -EBADMSG;
    if (h.version != FRAME_VERSION) {
        buf_reset(&b->said);
        (void)buf_addf(&b->said, "it is probing %.60s, this one %s", h.build, probing_build);
        return -EPROTONOSUPPORT;
    }
    if (t->quickest_ns == 0)
        t->quickest_ns = clock_monotonic() - b->began_ns;
    b->greeted = true;
    b->deadline_ns = 0;
    reached.kind = FRAME_REACHED;
    reached.host = b->first;
    int rc = put_tree(b);
    say_up(t, &reached);
    return rc;
}

static int take_frame(struct tree *t, struct branch *b, const struct frame *f)
{
    if (!b->greeted)
        return take_hello(t, b, f);
    switch (f->kind) {
    case FRAME_REACHED:
    case FRAME_LOST:
        if (f->host == b->first && f->kind == FRAME_LOST) {
            keep_words(b, f);
            return -EIO;
        }
        if (f->host == b->first)
            return -EBADMSG; /* that is for us to say */
        break;
    case FRAME_DATA:
    case FRAME_CREDIT:
    case FRAME_CLOSE:
    case FRAME_PONG:
        break;
    case FRAME_HELLO:
    case FRAME_TREE:
    case FRAME_OPEN:
    case FRAME_RUN:
    case FRAME_MERGE:
    case FRAME_PING:
    case FRAME_KINDS:
        return -EBADMSG;
    }
    if (f->host - b->first >= b->n)
        return -EBADMSG;
    say_up(t, f);
    return 0;
}

static int take_frames(struct tree *t, struct branch *b)
{
    struct frame f;
    int rc = 1;

    for (int i = 0; rc == 1 && i < TURN_FRAMES && t->room(t->arg); i++) {
        rc = wire_next(&b->wire, &f);
        if (rc == 1) {
            int bad = take_frame(t, b, &f);
            rc = bad < 0 ? bad : rc;
        }
    }
    return rc;
}

static void hear_words(struct branch *b)
{
    char piece[1024];
    ssize_t n = read(b->said_fd, piece, sizeof(piece));

    if (n == 0) {
        (void)close(b->said_fd);
        b->said_fd = -1;
    }
    if (n <= 0)
        return;
    if (b->said.size + (size_t)n > TREE_SAYS) /* the last is what counts */
        buf_reset(&b->said);
    (void)buf_add(&b->said, piece, (size_t)n);
}

static int branch_turn(struct tree *t, struct branch *b, const struct pollfd *p)
{
    int rc = 0, ended = 0;

    if (b->said_fd != -1 && p[2].revents != 0)
        hear_words(b);
    if (b->deadline_ns != 0 && clock_monotonic() > b->deadline_ns)
        return b->deadline_ns == 2 ? -ENOBUFS : b->deadline_ns == 1 ? -EIO : -ETIMEDOUT;
    if (wire_wants_out(&b->wire))
        ended = wire_flush(&b->wire); /* what it has said before that is read first */
    if (p[0].revents != 0)
        rc = wire_read(&b->wire);
    int taken = take_frames(t, b);
    if (taken < 0)
        return taken;
    rc = rc < 0 && (ended == 0 || ended == -EPIPE) ? rc : ended;
    return taken == 1 && rc < 0 ? 0 : rc; /* there are frames left: then its end */
}

/* ---- all of them ---- */

void tree_polls(const struct tree *t, struct pollfd *ret)
{
    bool room = t->room(t->arg);

    for (uint32_t i = 0; i < t->n; i++) {
        const struct branch *b = t->list[i];
        struct pollfd *p = ret + TREE_POLLS * i;
        p[0] = (struct pollfd){.fd = room ? b->wire.in : -1, .events = POLLIN};
        p[1] =
            (struct pollfd){.fd = wire_wants_out(&b->wire) ? b->wire.out : -1, .events = POLLOUT};
        p[2] = (struct pollfd){.fd = b->said_fd, .events = POLLIN};
    }
}

uint64_t tree_deadline(const struct tree *t)
{
    uint64_t first = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t at = t->list[i]->deadline_ns, slow = slow_at(t, t->list[i]);
        first = at != 0 && (first == 0 || at < first) ? at : first;
        first = slow != 0 && (first == 0 || slow < first) ? slow : first;
    }
    return first;
}

/* Hear what it has said before it ended, which may not have come yet. */
static void hear_last_words(struct branch *b)
{
    struct pollfd p = {.fd = b->said_fd, .events = POLLIN};

    for (int i = 0; i < 64 && b->said_fd != -1 && poll(&p, 1, i == 0 ? 100 : 0) == 1; i++)
        hear_words(b);
}

int tree_turn(struct tree *t, const struct pollfd *polls, uint32_t n)
{
    for (uint32_t i = n < t->n ? n : t->n; i-- > 0;) { /* who goes is replaced by the last */
        struct branch *b = t->list[i];
        int rc = branch_turn(t, b, polls + TREE_POLLS * i);
        uint64_t slow = rc == 0 ? slow_at(t, b) : 0;
        if (slow != 0 && clock_monotonic() > slow)
            branch_part(t, b);
        if (rc == 0 || connects_again(b, rc))
            continue;
        if (rc == -EPIPE)
            hear_last_words(b);
        branch_lost(t, b, rc);
    }
    return t->error;
}

void tree_end(struct tree *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        branch_free(t->list[i]);
    free(t->list);
    t->list = NULL;
    t->n = 0;
}
