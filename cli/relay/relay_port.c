/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay_port.c - see relay_port.h.
 *
 * One thread.  Each connection has a process of its own: what one does costs no other a thing, and
 * all of them end with this one.
 */
#include "cli/relay/relay_port.h"

#include <errno.h>
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
#include "core/base/err.h"

#define SESSIONS_MAX 64
#define BACKLOG 64
#define TICK_MS 200
#define TOKEN_LEAST 16 /* letters: shorter ones are guessed */

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

/* Never returns. */
static void serve(int fd, const char *token, pid_t parent)
{
    const struct session_options o = {.in = fd, .out = fd, .token = token};

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int rc = getppid() == parent ? session_run(&o) : 0;
    if (rc < 0)
        terminal_say("%s", err_why(rc));
    (void)fflush(stderr);
    _exit(rc < 0 ? EXIT_FAILED : EXIT_DONE);
}

static int accept_one(int listener, const char *token, int *sessions)
{
    const int one = 1;
    const pid_t parent = getpid();
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd == -1)
        return 0;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)fflush(stderr);
    pid_t pid = *sessions < SESSIONS_MAX ? fork() : -1;
    if (pid == 0) {
        (void)close(listener);
        serve(fd, token, parent);
    }
    *sessions += pid > 0;
    (void)close(fd);
    return 0;
}

int relay_listen(const char *address, const char *token_file)
{
    char token[TOKEN_BYTES];
    int fd = -1, sessions = 0, rc = link_token(token_file, token, sizeof(token));

    if (rc == 0 && strlen(token) < TOKEN_LEAST)
        rc = err_set(-EACCES,
                     "a relay that listens needs a token of at least %d letters: --token-file FILE "
                     "(mode 600), PROBING_TOKEN or PROBING_TOKEN_FILE",
                     TOKEN_LEAST);
    if (rc == 0)
        rc = open_port(address, &fd);
    if (rc < 0)
        return rc;
    say_port(fd);
    while (!cli_interrupted) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, TICK_MS) > 0)
            (void)accept_one(fd, token, &sessions);
        while (sessions > 0 && waitpid(-1, NULL, WNOHANG) > 0)
            sessions--;
    }
    (void)close(fd);
    return 0;
}
