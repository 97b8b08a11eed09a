/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/debug.c - `debug`: stacks, pdb in the process' main thread, debugpy for an editor.
 *
 * One thread, and one that answers pings while a line is awaited.  A pdb session has two
 * connections: one says "paused" and stays open as long as we live, so that the program goes on
 * when we die; the other takes a line at a time to it.  With --address we listen there and hand the
 * lines of one visitor on; the process itself opens nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <probing/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/prompt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/client/door.h"
#include "sdk/lib/buf.h"

#define MORE 2              /* what `debug --input` answers when it wants another line */
#define PROMPT "(Pdb) "     /* what pdb ends its output with when it waits */
#define LINE_MAX_BYTES 4096 /* that a visitor may send */
#define LOOK_MS 500         /* a visitor is waited for in pieces: Ctrl-C */
#define SECRET_BYTES 12
#define TOKEN_NS (10 * NS_PER_S) /* for the token: who is silent keeps others waiting */

struct debug {
    bool dump, pause, dap, open;
    const char *address, *debugpy;
    struct probing_client *holds, *lines;
    FILE *out; /* the terminal, or the visitor */
    struct buf text;
    bool asks; /* pdb waits for a line */
};

/* ---- talking to pdb ---- */

/* Write what came, without the prompt at its end; remembers whether it was there. */
static int put_text(struct debug *d)
{
    size_t n = d->text.size, p = strlen(PROMPT);
    const char *text = buf_text(&d->text);

    d->asks = n >= p && memcmp(text + n - p, PROMPT, p) == 0;
    if (d->asks)
        n -= p;
    bool good = fwrite(text, 1, n, d->out) == n && fflush(d->out) == 0;
    buf_done(&d->text);
    buf_init(&d->text, 4u << 20);
    return good ? 0 : -EPIPE;
}

/* The one that holds the session: until the first prompt. */
static int on_pause(void *arg, const struct probing_client_event *e)
{
    struct debug *d = arg;

    if (e->kind == PROBING_CLIENT_DATA) {
        int rc = buf_add(&d->text, e->text, e->size);
        if (rc == 0)
            rc = put_text(d);
        return rc < 0 ? rc : d->asks ? 1 : 0;
    }
    if (e->kind == PROBING_CLIENT_DONE && e->status < 0)
        return err_set(e->status, "%s", e->text);
    return 0;
}

static int on_input(void *arg, const struct probing_client_event *e)
{
    struct debug *d = arg;

    if (e->kind == PROBING_CLIENT_DATA)
        return buf_add(&d->text, e->text, e->size);
    if (e->kind == PROBING_CLIENT_DONE)
        d->asks = e->status == MORE;
    if (e->kind == PROBING_CLIENT_DONE && e->status < 0)
        return err_set(e->status, "%s", e->text);
    return 0;
}

/* One line to pdb, NULL: only wait for its prompt.  Ctrl-C stops a program that runs. */
static int send_line(struct debug *d, const char *line)
{
    static const volatile sig_atomic_t *const stop = &cli_interrupted;
    const char *words[] = {"debug", "--input", line};
    int64_t id =
        probing_client_start_run(d->lines, line != NULL ? 3 : 2, words, /* timeout_ns= */ 0);
    int rc =
        id < 0 ? (int)id : probing_client_stream(d->lines, on_input, d, /* timeout_ns= */ 0, stop);

    if (rc == -ECANCELED && cli_interrupted) {
        cli_interrupt_over();
        (void)probing_client_cancel(d->lines, id);
        (void)probing_client_stream(d->lines, on_input, d, /* timeout_ns= */ 0, stop);
        return send_line(d, NULL);
    }
    bool asks = d->asks;
    if (rc >= 0)
        rc = put_text(d);
    d->asks = asks;
    return rc;
}

/* ---- at this terminal ---- */

static const char *prompt_text(void *arg)
{
    (void)arg;
    return PROMPT;
}

static int run_line(void *arg, struct prompt *p, const char *line)
{
    struct debug *d = arg;

    if (line != NULL && line[0] != '\0')
        prompt_remember(p, line);
    int rc = send_line(d, line != NULL ? line : "detach");
    return rc != 0 || d->asks ? rc : PROMPT_LEAVE;
}

static void forget_line(void *arg)
{
    (void)arg; /* a line of pdb's is whole by itself */
}

/* A person may think for longer than a process keeps a connection that says nothing, and with
 * `holds` the session would end. */
static void keep_alive(void *arg)
{
    struct debug *d = arg;

    client_tend(d->holds);
    client_tend(d->lines);
}

static int talk_here(struct debug *d)
{
    const struct prompt_options o = {.arg = d,
                                     .word_breaks = " \t",
                                     .text = prompt_text,
                                     .take = run_line,
                                     .forget = forget_line,
                                     .tend = keep_alive};

    return d->asks ? prompt_run(&o) : 0;
}

/* ---- for a visitor ---- */

/* "127.0.0.1:9922", "[::1]:9922", "9922" -> a socket that listens. */
static int open_endpoint(const char *address, char *host, size_t host_size, char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *all = NULL;
    const char *colon = strrchr(address, ':');
    uint64_t number;
    int fd = -1, one = 1;

    (void)snprintf(port, 8, "%.7s", colon != NULL ? colon + 1 : address);
    (void)snprintf(host, host_size, "%.*s", colon != NULL ? (int)(colon - address) : 9,
                   colon != NULL ? address : "127.0.0.1");
    if (parse_u64(port, &number) < 0 || number == 0 || number > UINT16_MAX)
        return err_set(-EINVAL, "'%s' is not an address; give HOST:PORT, such as 127.0.0.1:9922",
                       address);
    const char *bare = host[0] == '[' ? host + 1 : host;
    char name[256];
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(bare, "]"), bare);
    int e = getaddrinfo(name, port, &hints, &all);
    if (e != 0)
        return err_set(-EINVAL, "cannot listen on %s: %s", address, gai_strerror(e));
    fd = socket(all->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd != -1)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd == -1 || bind(fd, all->ai_addr, all->ai_addrlen) == -1 || listen(fd, 1) == -1) {
        e = errno;
        if (fd != -1)
            (void)close(fd);
        fd = err_set(-e, "cannot listen on %s: %s", address, strerror(e));
    }
    freeaddrinfo(all);
    return fd;
}

/* A line from the visitor, without its end.  -ECONNRESET: they have gone, or it did not come until
 * then (CLOCK_MONOTONIC). */
static int visitor_line(struct debug *d, int fd, char *line, uint64_t until_ns)
{
    size_t n = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char c;
        if (cli_interrupted)
            return -ECANCELED;
        if (clock_monotonic() > until_ns)
            return -ECONNRESET;
        if (poll(&p, 1, LOOK_MS) <= 0) {
            keep_alive(d);
            continue;
        }
        if (recv(fd, &c, 1, 0) != 1 || n + 1 >= LINE_MAX_BYTES)
            return -ECONNRESET;
        if (c == '\n')
            break;
        if (c != '\r')
            line[n++] = c;
    }
    line[n] = '\0';
    return 0;
}

/* In a time that does not tell how much of it was right. */
static bool same_secret(const char *a, const char *b)
{
    size_t n = strlen(b);
    unsigned char difference = 0;

    if (strlen(a) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return difference == 0;
}

/* One visitor: token, then lines.  1: the session is over. */
static int serve_visitor(struct debug *d, int fd, const char *secret)
{
    char line[LINE_MAX_BYTES];
    int rc = visitor_line(d, fd, line, clock_monotonic() + TOKEN_NS);

    if (rc == 0 && !same_secret(line, secret)) {
        fputs("the token is wrong\n", d->out);
        return -EACCES;
    }
    if (rc == 0)
        rc = send_line(d, "where");
    while (rc == 0 && d->asks) {
        fputs(PROMPT, d->out);
        if (fflush(d->out) != 0)
            return -ECONNRESET;
        rc = visitor_line(d, fd, line, UINT64_MAX);
        if (rc == 0)
            rc = send_line(d, line);
    }
    return rc == 0 ? 1 : rc;
}

static int make_secret(char *ret)
{
    unsigned char bytes[SECRET_BYTES];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return err_set(-EIO, "cannot get random numbers for a token");
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static int talk_there(struct debug *d)
{
    char host[256], port[8], secret[2 * SECRET_BYTES + 1];
    int rc = make_secret(secret),
        door = rc < 0 ? rc : open_endpoint(d->address, host, sizeof(host), port);

    if (door < 0)
        return door;
    printf("Paused. Connect with `nc %s %s` and send this line first:\n%s\n"
           "Ctrl-C here lets the program go on.\n",
           host, port, secret);
    (void)fflush(stdout);
    for (rc = 0; rc != 1 && rc != -ECANCELED && !cli_interrupted;) {
        struct pollfd p = {.fd = door, .events = POLLIN};
        if (poll(&p, 1, LOOK_MS) <= 0) {
            keep_alive(d);
            continue;
        }
        int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        d->out = fd != -1 ? terminal_open(fd) : NULL;
        if (d->out == NULL) {
            if (fd != -1)
                (void)close(fd);
            continue;
        }
        rc = serve_visitor(d, fd, secret);
        (void)fclose(d->out);
        d->out = stdout;
    }
    (void)close(door);
    return rc == 1 ? 0 : rc;
}

/* ---- the command ---- */

static int pause_process(struct target *t, struct debug *d)
{
    static const volatile sig_atomic_t *const stop = &cli_interrupted;
    const char *words[] = {"debug", "--pause"};
    int rc = target_connect(t, &d->holds);

    if (rc == 0)
        rc = target_connect(t, &d->lines);
    if (rc == 0) {
        int64_t id = probing_client_start_run(d->holds, 2, words, /* timeout_ns= */ 0);
        rc = id < 0 ? (int)id
                    : probing_client_stream(d->holds, on_pause, d, /* timeout_ns= */ 0, stop);
    }
    if (rc >= 0 && !d->asks)
        rc = EXIT_FAILED; /* what came instead of a prompt says why */
    else if (rc >= 0)
        rc = d->address != NULL ? talk_there(d) : talk_here(d);
    probing_client_free(d->lines);
    probing_client_free(d->holds); /* from here on the program runs, whatever happened */
    return rc;
}

static int ask_for_dap(struct target *t, const struct debug *d)
{
    const char *words[8] = {"debug", "--dap"};
    int n = 2;

    if (d->address != NULL) {
        words[n++] = "--address";
        words[n++] = d->address;
    }
    if (d->debugpy != NULL) {
        words[n++] = "--debugpy";
        words[n++] = d->debugpy;
    }
    if (d->open)
        words[n++] = "--open";
    return live_run(t, n, words);
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct debug *d = arg;

    if (option == NULL)
        return err_set(-EINVAL, "debug takes no argument '%s'; `probing help debug`", value);
    if (strcmp(option, "--dump") == 0)
        d->dump = true;
    else if (strcmp(option, "--pause") == 0)
        d->pause = true;
    else if (strcmp(option, "--dap") == 0)
        d->dap = true;
    else if (strcmp(option, "--open") == 0)
        d->open = true;
    else if (strcmp(option, "--address") == 0)
        d->address = value;
    else
        d->debugpy = value;
    return 0;
}

int command_debug(struct target *t, int argc, char **argv)
{
    struct debug d = {.out = stdout};
    int rc = cli_parse(argc, argv, parse_option, &d);

    if (rc == 0 && d.dump + d.pause + d.dap != 1)
        rc = err_set(-EINVAL, "debug needs one of --dump, --pause, --dap");
    if (rc < 0)
        return rc;
    if (d.dump) {
        char *words[] = {(char *)(uintptr_t) "backtrace", NULL};
        return command_backtrace(t, 1, words);
    }
    if (d.dap)
        return ask_for_dap(t, &d);
    buf_init(&d.text, 4u << 20);
    rc = pause_process(t, &d);
    buf_done(&d.text);
    return rc;
}
