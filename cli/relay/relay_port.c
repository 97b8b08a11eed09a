/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay_port.c - see relay_port.h.
 *
 * One thread.  Each connection has a process of its own: what one does costs no other a thing, and
 * all of them end with this one.  Who has not shown the token yet has a short time for it, and of
 * too many such the oldest is put out: strangers keep nobody out who has it.  What comes of them is
 * said by this one, some lines a minute: they fill no disk either.
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

#include "cli/cli.h"
#include "cli/link/token.h"
#include "cli/relay/relay_session.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define SESSIONS_MAX 64            /* that have shown the token */
#define STRANGERS_MAX 32           /* that have not, and */
#define STRANGER_NS (5 * NS_PER_S) /* have so long for it */
#define VISITORS_MAX (SESSIONS_MAX + STRANGERS_MAX)
#define BACKLOG 64
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
    pid_t pid;       /* of the process that serves it */
    int told;        /* a pipe: a NUL comes when it has shown the token, or why it ended
                      * without; -1: it has */
    uint64_t number; /* counted up: the oldest has the lowest */
    char address[64];
};

struct port {
    int listener;
    const char *token;
    struct visitor list[VISITORS_MAX];
    uint32_t n;
    uint64_t last;
    uint64_t minute_ns;    /* when the lines began to be counted */
    uint32_t said, unsaid; /* lines about strangers since then */
};

static bool is_stranger(const struct visitor *v)
{
    return v->told != -1;
}

static uint32_t count(const struct port *p, bool strangers, const char *address)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += is_stranger(&p->list[i]) == strangers &&
             (address == NULL || strcmp(address, p->list[i].address) == 0);
    return n;
}

/* Of the address that has most of them the oldest: who floods puts out himself. */
static struct visitor *one_too_many(struct port *p)
{
    struct visitor *worst = NULL;
    uint32_t most = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        struct visitor *v = &p->list[i];
        uint32_t n = is_stranger(v) ? count(p, true, v->address) : 0;
        if (n > most || (n > 0 && n == most && v->number < worst->number)) {
            most = n;
            worst = v;
        }
    }
    return worst;
}

static void forget(struct port *p, struct visitor *v)
{
    if (v->told != -1)
        (void)close(v->told);
    *v = p->list[--p->n];
}

static void put_out(struct port *p, struct visitor *v)
{
    (void)kill(v->pid, SIGKILL);
    while (waitpid(v->pid, NULL, 0) == -1 && errno == EINTR)
        ;
    forget(p, v);
}

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

/* Those that have shown the token, and those that have ended. */
static void look_at_visitors(struct port *p)
{
    for (uint32_t i = p->n; i-- > 0;) {
        struct visitor *v = &p->list[i];
        char text[ERR_TEXT_BYTES];
        bool ended = waitpid(v->pid, NULL, WNOHANG) > 0;
        ssize_t n = v->told != -1 ? read(v->told, text, sizeof(text) - 1) : 0;
        if (n > 0 && text[0] == '\0') {
            (void)close(v->told);
            v->told = -1;
        } else if (n > 0 && may_say(p)) {
            terminal_say("%s: %.*s", v->address, (int)n, text);
        }
        if (ended)
            forget(p, v);
    }
    say_unsaid(p);
}

/* Never returns. */
static void serve(int fd, int tell, const struct visitor *who, const char *token, pid_t parent)
{
    const struct session_options o = {
        .in = fd, .out = fd, .token = token, .greet_ns = STRANGER_NS, .tell = tell};
    bool shown = false;

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int rc = getppid() == parent ? session_run(&o, &shown) : 0;
    const char *why = rc < 0 ? err_why(rc) : "";
    if (rc < 0 && shown)
        terminal_say("%s: %s", who->address, why);
    else if (rc < 0)
        (void)write(tell, why, strlen(why));
    (void)fflush(stderr);
    _exit(rc < 0 ? EXIT_FAILED : EXIT_DONE);
}

static void name_address(const struct sockaddr_storage *at, socklen_t size, char *ret, size_t n)
{
    if (getnameinfo((const struct sockaddr *)at, size, ret, (socklen_t)n, NULL, 0,
                    NI_NUMERICHOST) != 0)
        ret[0] = '\0';
}

static int let_in(struct port *p, int fd, const struct visitor *who)
{
    const pid_t parent = getpid();
    struct visitor *v = &p->list[p->n];
    int told[2];

    if (pipe2(told, O_CLOEXEC | O_NONBLOCK) == -1)
        return -errno;
    (void)fflush(stderr);
    *v = *who;
    v->told = told[0];
    v->number = p->last++;
    v->pid = fork();
    if (v->pid == 0) {
        (void)close(p->listener);
        for (uint32_t i = 0; i <= p->n; i++)
            if (p->list[i].told != -1)
                (void)close(p->list[i].told);
        serve(fd, told[1], who, p->token, parent);
    }
    int e = v->pid > 0 ? 0 : errno;
    (void)close(told[1]);
    if (e == 0)
        p->n++;
    else
        (void)close(told[0]);
    return -e;
}

/* No descriptor, process or memory is left: the strangers' are taken.  false: there is none. */
static bool make_room(struct port *p, int e)
{
    struct visitor *v = e == EMFILE || e == ENFILE || e == EAGAIN || e == ENOMEM || e == ENOBUFS
                            ? one_too_many(p)
                            : NULL;

    if (v != NULL)
        put_out(p, v);
    return v != NULL;
}

/* false: there is one, and nothing to take it with. */
static bool accept_one(struct port *p)
{
    const int one = 1;
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    struct visitor who = {.pid = 0};
    int fd = accept4(p->listener, (struct sockaddr *)&at, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd == -1)
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED || make_room(p, errno);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    name_address(&at, size, who.address, sizeof(who.address));
    if (count(p, true, NULL) >= STRANGERS_MAX)
        put_out(p, one_too_many(p));
    int rc = count(p, false, NULL) < SESSIONS_MAX ? let_in(p, fd, &who) : 0;
    while (rc < 0 && make_room(p, -rc))
        rc = let_in(p, fd, &who);
    (void)close(fd);
    return true;
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
    for (bool room = true; !cli_interrupted;) {
        struct pollfd listener = {.fd = room ? p.listener : -1, .events = POLLIN};
        int ready = poll(&listener, 1, TICK_MS);
        look_at_visitors(&p);
        room = ready <= 0 || accept_one(&p); /* where there is none it waits for a tick */
    }
    (void)close(p.listener);
    return 0;
}
