/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/text_protocol.c - the plain text protocol: a line is a command, its answer ends with
 * a dot.
 *
 * Loop only.  One command at a time; lines that came early wait.  On TCP the first line is
 * "token T".  A line of an answer that begins with '.' gets one more, so that "." alone is the end.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/printable.h"
#include "core/server/internal.h"
#include "core/server/message.h"
#include "sdk/lib/arena.h"

static void say_error(struct connection *p, const char *why)
{
    (void)buf_adds(&p->out, "error: ");
    for (size_t n; *why != '\0'; why += n + (why[n] != '\0')) { /* one line, whatever was in it */
        n = strcspn(why, "\r\n");
        (void)printable_add(&p->out, why, n, PRINTABLE_LINE);
        if (why[n] != '\0')
            (void)buf_addc(&p->out, ' ');
    }
    (void)buf_addc(&p->out, '\n');
}

static int take_token(struct connection *p, const char *line, size_t n)
{
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    bool shown = n > 6 && memcmp(line, "token ", 6) == 0;
    enum access access = shown ? server_token_access(p->server, line + 6, n - 6) : ACCESS_NONE;
    if (access && server_connection_admit(p, access) == 0)
        return buf_adds(&p->out, ".\n");
    if (access) {
        server_log_refusal(p, SERVER_FULL);
        say_error(p, SERVER_FULL);
        p->closing = true;
        return 0;
    }
    server_log_refusal(p, shown ? "a wrong token" : "no token");
    say_error(p, "the first line must be: token T   (T: what the process printed, or wrote into "
                 "its data directory)");
    p->closing = true;
    return 0;
}

static int run_line(struct connection *p, const char *line, size_t n)
{
    const char *words[MESSAGE_ARGS];
    struct arena a;
    if (server_connection_may_ask(p) < 0) {
        say_error(p, err_text());
        p->closing = true;
        return 0;
    }
    if (!p->access)
        return take_token(p, line, n);
    arena_init(&a, 4 * SERVER_BODY_BYTES);
    int count = server_args_split(&a, line, n, words, MESSAGE_ARGS);
    if (count < 0) {
        say_error(p, err_why(count));
    } else if (count == 1 && (strcmp(words[0], "quit") == 0 || strcmp(words[0], "exit") == 0)) {
        p->closing = true;
    } else if (count > 0) {
        server_job_run(p, &(struct job_request){.argc = count, .argv = words});
    }
    arena_done(&a);
    return 0;
}

int server_text_receive(struct connection *p)
{
    int code;
    if (p->told && !p->closing) {
        say_error(p, server_connection_why(p, &code));
        p->closing = true;
    }
    while (!p->jobs && !p->closing && p->in.size > 0) {
        const char *end = memchr(p->in.data, '\n', p->in.size);
        if (!end && !p->eof) {
            if (p->in.size <= SERVER_BODY_BYTES)
                return 0;
            say_error(p, "the line is longer than 1 MiB");
            p->closing = true;
            return 0;
        }
        size_t n = end ? (size_t)(end - p->in.data) : p->in.size;
        size_t used = n + (end ? 1 : 0);
        if (n > 0 && p->in.data[n - 1] == '\r')
            n--;
        int rc = run_line(p, p->in.data, n);
        server_raw_used(p, used);
        if (rc < 0 || p->out.size > SERVER_CHUNK_BYTES)
            return rc; /* the rest when this much was sent */
    }
    return 0;
}

static void add_lines(struct connection *p, struct job *j, const char *text, size_t n)
{
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t line = end ? (size_t)(end + 1 - text) : n;
        if (j->line_start && *text == '.')
            (void)buf_addc(&p->out, '.');
        (void)printable_add(&p->out, text, line, PRINTABLE_TEXT);
        j->line_start = end != NULL;
        text += line;
        n -= line;
    }
}

/* At the other end sits nc in a terminal: what would steer it is escaped, as the command does. */
static void add_text(struct connection *p, struct job *j, const char *text, size_t n, bool last)
{
    struct buf all;
    j->shown = j->shown || n > 0;
    buf_init(&all, n + sizeof(j->tail) + 1);
    (void)buf_add(&all, j->tail, j->tail_size);
    (void)buf_add(&all, text, n);
    j->tail_size =
        last || all.failed || all.size == 0 ? 0 : (uint32_t)printable_open_end(all.data, all.size);
    size_t whole = all.size - j->tail_size;
    if (j->tail_size > 0)
        memcpy(j->tail, all.data + whole, j->tail_size);
    add_lines(p, j, all.data, whole);
    if (all.failed)
        p->out.failed = all.failed;
    buf_done(&all);
}

void server_text_encode(struct connection *p, struct chunk *piece)
{
    struct job *j = piece->job;
    if (piece->kind == CHUNK_ERROR || !j) {
        (void)buf_adds(&p->out, "error: ");
        (void)printable_add(&p->out, piece->data, piece->size, PRINTABLE_LINE);
        (void)buf_addc(&p->out, '\n');
        return;
    }
    if (piece->kind != CHUNK_DONE) {
        add_text(p, j, piece->data, piece->size, /* last= */ false);
        return;
    }
    if (j->tail_size > 0)
        add_text(p, j, "", 0, /* last= */ true);
    if (j->shown && !j->line_start)
        (void)buf_addc(&p->out, '\n');
    if (piece->status < 0) {
        char why[ERR_TEXT_BYTES];
        size_t n = piece->size < sizeof(why) - 1 ? piece->size : sizeof(why) - 1;
        memcpy(why, piece->data, n);
        why[n] = 0;
        say_error(p, why);
    } else if (piece->status > 0) {
        (void)buf_addf(&p->out, "error: the command ended with status %d\n", piece->status);
    } else {
        (void)buf_adds(&p->out, piece->size > 0 ? ". " : ".");
        (void)printable_add(&p->out, piece->data, piece->size, PRINTABLE_LINE);
        (void)buf_addc(&p->out, '\n');
    }
    server_job_remove(j);
}
