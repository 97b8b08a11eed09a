/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay_port.c - see relay_port.h.
 *
 * One thread.  Who has not shown the token yet waits here (pending_clients.h), for a short time,
 * and costs no process.  Who has shown it gets one of its own, and is put out by nobody: what one
 * does costs no other a thing, and all of them end with this one.  What comes of strangers is said
 * here, some lines a minute: they fill no disk either.
 */
#include "cli/relay/relay_port.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/link/frame.h"
#include "cli/link/token.h"
#include "cli/relay/pending_clients.h"
#include "cli/relay/relay_session.h"
#include "cli/target/auth_token.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define SESSIONS_MAX 64          /* that have shown the token */
#define CALLER_NS (5 * NS_PER_S) /* for it to be shown */
#define BACKLOG 1024
#define ACCEPTS 64 /* in a turn: who has come earlier is heard in between */
#define TICK_MS 200
#define TOKEN_LEAST 16 /* letters: shorter ones are guessed */
#define SAY_LINES 6    /* about strangers, in */
#define SAY_NS (60 * NS_PER_S)

/* "9923", ":9923", "10.0.0.1:9923", "[::1]:9923". */
static int open_port(const char *text, int *ret)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    const char *colon = strrchr(text, ':'), *port = colon != NULL ? colon + 1 : text;
    size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    struct addrinfo *list;
    char host[128];
    const int one = 1;

    bool six = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    (void)snprintf(host, sizeof(host), "%.*s", (int)(six ? n - 2 : n), text + six);
    int rc = getaddrinfo(host[0] != '\0' ? host : "127.0.0.1", port, &hints, &list);
    if (rc != 0 || port[0] == '\0')
        return err_set(-EINVAL,
                       "--listen needs a port or ADDR:PORT with a number as address, not "
                       "'%s'",
                       text);
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd == -1 || bind(fd, list->ai_addr, list->ai_addrlen) == -1 || listen(fd, BACKLOG) == -1)
        rc = err_set(-errno, "cannot listen at %s: %s", text, strerror(errno));
    freeaddrinfo(list);
    if (rc < 0 && fd != -1)
        (void)close(fd);
    *ret = fd;
    return rc;
}

static void say_port(int fd)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    char host[80] = "", port[16] = "";

    if (getsockname(fd, (struct sockaddr *)&at, &size) == 0)
        (void)getnameinfo((struct sockaddr *)&at, size, host, sizeof(host), port, sizeof(port),
                          NI_NUMERICHOST | NI_NUMERICSERV);
    terminal_say("relay listens at %s%s%s:%s", at.ss_family == AF_INET6 ? "[" : "", host,
                 at.ss_family == AF_INET6 ? "]" : "", port);
}

/* ---- who is connected ---- */

struct visitor {
    pid_t pid; /* of the process that serves it */
};

struct port {
    int listener;
    const char *token;
    struct callers callers;
    struct visitor list[SESSIONS_MAX];
    uint32_t n;
    uint64_t minute_ns;    /* when the lines began to be counted */
    uint32_t said, unsaid; /* lines about strangers since then */
};

/* Nobody may read what we say: then it is left out, as we are not to wait for that. */
static bool may_say(struct port *p)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    bool may = p->said < SAY_LINES && poll(&err, 1, 0) == 1;

    p->said += may;
    p->unsaid += !may;
    return may;
}

static void say_unsaid(struct port *p)
{
    uint64_t now = clock_monotonic();

    if (now - p->minute_ns < SAY_NS)
        return;
    uint32_t n = p->unsaid;
    p->minute_ns = now;
    p->said = p->unsaid = 0;
    if (n > 0 && may_say(p))
        terminal_say("%u more connections ended without having shown the token", n);
}

static void look_at_visitors(struct port *p)
{
    for (uint32_t i = p->n; i-- > 0;)
        if (waitpid(p->list[i].pid, NULL, WNOHANG) > 0)
            p->list[i] = p->list[--p->n];
    say_unsaid(p);
}

/* Never returns. */
static void serve_client(const struct caller *who, const char *token, pid_t parent)
{
    const struct session_options o = {
        .in = who->fd, .out = who->fd, .heard = &who->heard, .token = token};

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int rc = getppid() == parent ? session_run(&o) : 0;
    if (rc < 0)
        terminal_say("%s: %s", who->address, err_why(rc));
    (void)fflush(stderr);
    _exit(rc < 0 ? EXIT_FAILED : EXIT_DONE);
}

/* The i-th caller gets a process. */
static int let_in(struct port *p, uint32_t i)
{
    const pid_t parent = getpid();
    const struct caller *who = &p->callers.list[i];

    (void)fflush(stderr);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(p->listener);
        for (uint32_t k = 0; k < p->callers.n; k++)
            if (k != i)
                (void)close(p->callers.list[k].fd);
        serve_client(who, p->token, parent);
    }
    if (pid > 0)
        p->list[p->n++].pid = pid;
    return pid > 0 ? 0 : -errno;
}

/* Nobody waits until it has read that. */
static void refuse_client(struct caller *who, const char *why)
{
    char text[512] = {0};
    struct wire w;
    int fd = fcntl(who->fd, F_DUPFD_CLOEXEC, 3);

    (void)snprintf(text + 4, sizeof(text) - 4, "%s", why);
    wire_begin(&w, fd, fd);
    (void)wire_put(&w, &(struct frame){.kind = FRAME_LOST,
                                       .host = who->host,
                                       .data = text,
                                       .size = (uint32_t)strlen(text + 4) + 5});
    (void)wire_flush(&w);
    wire_end(&w);
}

/* No descriptor, process or memory is left: those that callers have are taken.  false: there is
 * none. */
static bool make_room(struct port *p, int e)
{
    bool few = e == EMFILE || e == ENFILE || e == EAGAIN || e == ENOMEM || e == ENOBUFS;

    return few && callers_put_one_out(&p->callers);
}

/* The i-th caller has shown the token. */
static void admit_client(struct port *p, uint32_t i)
{
    char why[80];
    int rc = p->n < SESSIONS_MAX ? let_in(p, i) : -EBUSY;

    if (rc == -EBUSY)
        (void)snprintf(why, sizeof(why), "%d others are served there already", SESSIONS_MAX);
    else
        (void)snprintf(why, sizeof(why), "no process for it: %s", strerror(-rc));
    if (rc < 0)
        refuse_client(&p->callers.list[i], why);
}

/* false: there is one, and nothing to take it with. */
static bool accept_one(struct port *p, bool *ret_more)
{
    const int one = 1;
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    struct caller who = {
        .fd = accept4(p->listener, (struct sockaddr *)&at, &size, SOCK_CLOEXEC | SOCK_NONBLOCK)};

    *ret_more = who.fd != -1 || errno == ECONNABORTED || errno == EINTR;
    if (who.fd == -1)
        return *ret_more || errno == EAGAIN || (*ret_more = make_room(p, errno));
    (void)setsockopt(who.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(who.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    caller_name(&at, size, &who);
    callers_add(&p->callers, &who);
    return true;
}

static bool accept_some(struct port *p)
{
    bool more = true, room = true;

    for (int i = 0; i < ACCEPTS && more && room; i++)
        room = accept_one(p, &more);
    return room;
}

/* NULL: nothing is to be said. */
static const char *hear_client(struct port *p, uint32_t i, bool readable, bool *ret_stays)
{
    struct caller *c = &p->callers.list[i];
    enum caller_says says = readable ? caller_listen(c, p->token) : CALLER_WAITS;

    *ret_stays = false;
    switch (says) {
    case CALLER_TOKEN:
        admit_client(p, i);
        return NULL;
    case CALLER_OTHER:
        return "the token is wrong: PROBING_TOKEN or PROBING_TOKEN_FILE must have the relay's";
    case CALLER_STRANGE:
        return "the client is no probing";
    case CALLER_ENDED: /* who only looks whether the port is open */
        return NULL;
    case CALLER_WAITS:
        break;
    }
    *ret_stays = clock_monotonic() - c->since_ns <= CALLER_NS;
    return *ret_stays ? NULL : "no client has said who it is";
}

/* polls: of callers[0..n). */
static void hear_callers(struct port *p, const struct pollfd *polls, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) { /* from the end: who goes is replaced by the last */
        bool stays;
        const char *why = hear_client(p, i, polls[i].revents != 0, &stays);
        if (why != NULL)
            refuse_client(&p->callers.list[i], why);
        if (why != NULL && may_say(p))
            terminal_say("%s: %s", p->callers.list[i].address, why);
        if (!stays)
            callers_forget(&p->callers, i);
    }
}

/* false: there is no room for more, until the next tick. */
static bool turn_port(struct port *p, bool room)
{
    struct pollfd polls[1 + CALLERS_MAX];
    const uint32_t n = p->callers.n;

    polls[0] = (struct pollfd){.fd = room ? p->listener : -1, .events = POLLIN};
    for (uint32_t i = 0; i < n; i++)
        polls[1 + i] = (struct pollfd){.fd = p->callers.list[i].fd, .events = POLLIN};
    int ready = poll(polls, 1 + n, TICK_MS);
    look_at_visitors(p);
    if (ready <= 0)
        memset(polls, 0, sizeof(polls));
    hear_callers(p, polls + 1, n);
    return polls[0].revents == 0 || accept_some(p);
}

int relay_listen(const char *address, const char *token_file)
{
    char token[TOKEN_BYTES];
    struct port p = {.listener = -1, .token = token};
    int rc = link_token(token_file, token, sizeof(token));

    if (rc == 0 && strlen(token) < TOKEN_LEAST)
        rc = err_set(-EACCES,
                     "a relay that listens needs a token of at least %d letters: --token-file FILE "
                     "(mode 600), PROBING_TOKEN or PROBING_TOKEN_FILE",
                     TOKEN_LEAST);
    if (rc == 0)
        rc = open_port(address, &p.listener);
    if (rc < 0)
        return rc;
    say_port(p.listener);
    for (bool room = true; !cli_interrupted;)
        room = turn_port(&p, room);
    (void)close(p.listener);
    return 0;
}
