/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/terminal.c - see terminal.h.
 *
 * glibc lets stdout and stderr be set (its manual: "these are variables that you can set"), and
 * makes streams of functions (fopencookie): all that anybody prints ends in put_text().
 */
#include "cli/terminal/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/fit_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "core/base/err.h"
#include "core/base/printable.h"
#include "sdk/lib/buf.h"

#define CLEAR_SCREEN "\033[H\033[J" /* ECMA-48: cursor home, erase to the end */
#define LETTER_BYTES 4
#define PIECE_BYTES ((size_t)64 << 10) /* of one write: escapes make at most six bytes of one */
#define SAY_BYTES ((size_t)1 << 20)
#define SAY_CUT_BYTES 2048

struct stream {
    int fd;
    bool exact, seen; /* seen: a terminal reads it */
    bool owned, fits;
    int failed;              /* errno of the first write that failed */
    char tail[LETTER_BYTES]; /* the beginning of a letter */
    size_t n_tail;
    const struct fit_view *view; /* of one that fits; NULL: lines are only cut */
    struct buf line;             /* of one that fits: a line whose end has not come */
};

/* One thread: the command's own streams. */
static struct {
    struct stream out, err;
    FILE *drawn;
    bool raw;
} terminal;

/* until_told: Ctrl-C ends it, where a pipe is full and nobody reads. */
static int write_all(int fd, const char *bytes, size_t size, bool until_told)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};

    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n == -1 && errno == EAGAIN && poll(&room, 1, -1) >= 0)
            continue;
        if (n == -1 && (errno != EINTR || (until_told && cli_interrupted)))
            return -errno;
        bytes += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int put_fitting(struct stream *s, const struct buf *text, bool last)
{
    struct buf fitting;

    buf_init(&fitting, SIZE_MAX / 2);
    int rc = fit_lines(s->view, &s->line, text->data, text->size, last, &fitting);
    if (rc == 0)
        rc = write_all(s->fd, fitting.data, fitting.size, true);
    buf_done(&fitting);
    if (last)
        buf_done(&s->line);
    return rc;
}

static int put_escaped(struct stream *s, const char *text, size_t n, bool last)
{
    struct buf in, out;

    buf_init(&in, SIZE_MAX / 2);
    buf_init(&out, SIZE_MAX / 2);
    (void)buf_add(&in, s->tail, s->n_tail);
    (void)buf_add(&in, text, n);
    size_t open = in.failed || last || in.size == 0 ? 0 : printable_open_end(in.data, in.size);
    if (!in.failed && in.size > 0)
        (void)printable_add(&out, in.data, in.size - open, PRINTABLE_TEXT);
    int rc = in.failed < 0 ? in.failed : out.failed;
    if (rc == 0 && s->fits)
        rc = put_fitting(s, &out, last);
    else if (rc == 0)
        rc = write_all(s->fd, out.data, out.size, true);
    if (rc == 0 && open > 0)
        memcpy(s->tail, in.data + in.size - open, open);
    s->n_tail = rc == 0 ? open : 0;
    buf_done(&in);
    buf_done(&out);
    return rc;
}

/* Write without escapes, as no memory is left for them: bytes other than plain ASCII become '?'. */
static int put_plainly(const struct stream *s, const char *text, size_t size)
{
    char piece[512];
    int rc = 0;

    for (size_t at = 0, n; at < size && rc == 0; at += n) {
        n = size - at < sizeof(piece) ? size - at : sizeof(piece);
        for (size_t i = 0; i < n; i++) {
            char c = text[at + i];
            piece[i] = c == '\n' || (c >= ' ' && c < 127) ? c : '?';
        }
        rc = write_all(s->fd, piece, n, true);
    }
    return rc;
}

static ssize_t put_text(void *cookie, const char *text, size_t size)
{
    struct stream *s = cookie;
    bool as_it_is = terminal.raw || (s->exact && !s->seen);
    int r = 0;

    if (as_it_is)
        r = write_all(s->fd, text, size, true);
    for (size_t at = 0; !as_it_is && r == 0 && at < size; at += PIECE_BYTES)
        r = put_escaped(s, text + at, size - at < PIECE_BYTES ? size - at : PIECE_BYTES, false);
    if (r == -ENOMEM && s == &terminal.err)
        r = put_plainly(s, text, size);
    if (r == 0)
        return (ssize_t)size;
    s->failed = s->failed != 0 ? s->failed : -r;
    errno = -r;
    return 0; /* what a cookie's function gives for an error */
}

static int end_stream(void *cookie)
{
    struct stream *s = cookie;
    int rc = put_escaped(s, NULL, 0, true);

    if (!s->owned)
        return rc;
    (void)close(s->fd);
    free(s);
    return rc;
}

static FILE *make_stream(struct stream *s)
{
    const cookie_io_functions_t functions = {.write = put_text, .close = end_stream};

    return fopencookie(s, "w", functions);
}

static void at_exit(void)
{
    (void)fflush(stdout);
    (void)put_escaped(&terminal.out, NULL, 0, true);
    (void)put_escaped(&terminal.err, NULL, 0, true);
}

/* A place of these that is free would be that of the next descriptor of ours, and what is printed
 * would go into that: a connection, or the other end of a pipe.  Nothing can be read from or
 * written to this one, and programs that we become get the place free. */
static int keep_places(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/", O_PATH | O_CLOEXEC) != fd)
            return err_set(-EBADF, "descriptor %d is closed, and cannot be opened: %s", fd,
                           strerror(errno));
    return 0;
}

int terminal_begin(void)
{
    int rc = keep_places();

    if (rc < 0)
        return rc;
    terminal.out = (struct stream){.fd = STDOUT_FILENO, .seen = isatty(STDOUT_FILENO) == 1};
    terminal.err = (struct stream){.fd = STDERR_FILENO, .seen = isatty(STDERR_FILENO) == 1};
    FILE *out = make_stream(&terminal.out), *err = make_stream(&terminal.err);
    if (out == NULL || err == NULL) {
        if (out != NULL)
            (void)fclose(out);
        return err_set(-ENOMEM, "no memory for the output");
    }
    (void)setvbuf(out, NULL, terminal.out.seen ? _IOLBF : _IOFBF, BUFSIZ);
    (void)setvbuf(err, NULL, _IONBF, 0);
    terminal.drawn = stdout;
    stdout = out;
    stderr = err;
    (void)atexit(at_exit);
    return 0;
}

void terminal_raw(void)
{
    terminal.raw = true;
}

void terminal_exact(void)
{
    (void)fflush(stdout);
    terminal.out.exact = true;
}

void terminal_fit(const struct fit_view *view)
{
    (void)fflush(stdout);
    if (cli_width() == 0 || terminal.out.fits)
        return;
    buf_init(&terminal.out.line, SIZE_MAX / 2);
    terminal.out.fits = true;
    terminal.out.view = view;
}

void terminal_fit_end(void)
{
    struct buf none;

    (void)fflush(stdout);
    buf_init(&none, 1);
    if (terminal.out.fits && terminal.out.failed == 0)
        (void)put_fitting(&terminal.out, &none, /* last= */ true);
    buf_done(&none);
}

int terminal_failed(void)
{
    (void)fflush(stdout);
    return terminal.out.failed;
}

void terminal_pager_left(void)
{
    __fpurge(stdout); /* what nobody has read */
    clearerr(stdout);
    terminal.out.failed = terminal.out.failed == EPIPE ? 0 : terminal.out.failed;
}

bool terminal_format(const char *format)
{
    bool people = strcmp(format, "table") == 0 || strcmp(format, "expanded") == 0;

    if (!people)
        terminal_exact();
    return people;
}

void terminal_put(const char *bytes, size_t size)
{
    (void)fflush(stdout);
    (void)write_all(STDOUT_FILENO, bytes, size, false); /* has it gone, the next key says so */
}

void terminal_clear(void)
{
    if (isatty(STDOUT_FILENO) == 1)
        terminal_put(CLEAR_SCREEN, sizeof(CLEAR_SCREEN) - 1);
}

int terminal_colours(const char *when)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (strcmp(when, "always") == 0)
        return 1;
    if (strcmp(when, "never") == 0)
        return 0;
    if (strcmp(when, "auto") != 0)
        return err_set(-EINVAL, "--color is auto, always or never, not '%s'", when);
    return cli_width() != 0 && pager_colours() && (no == NULL || no[0] == '\0') && term != NULL &&
           strcmp(term, "dumb") != 0;
}

void terminal_over(void)
{
    (void)fflush(stderr);
    (void)write_all(STDERR_FILENO, "\r", 1, false);
}

static const char SAYS[] = "probing: ";

const char *terminal_last_said(const char *text)
{
    const char *last = NULL;

    for (const char *at = text; (at = strstr(at, SAYS)) != NULL; at += sizeof(SAYS) - 1)
        if (at == text || at[-1] == '\n')
            last = at;
    return last;
}

void terminal_say(const char *format, ...)
{
    char cut[SAY_CUT_BYTES]; /* its beginning, where there is no memory for the whole */
    struct buf text;
    va_list args;

    buf_init(&text, SAY_BYTES);
    va_start(args, format);
    (void)buf_vaddf(&text, format, args);
    va_end(args);
    va_start(args, format);
    (void)vsnprintf(cut, sizeof(cut), format, args);
    va_end(args);
    const char *at = text.failed ? cut : buf_text(&text);
    (void)fflush(stdout);
    fputs(SAYS, stderr);
    for (size_t n = strcspn(at, "\n"); at[n] != '\0'; at += n + 1, n = strcspn(at, "\n"))
        fprintf(stderr, "%.*s\n  ", (int)n, at);
    fprintf(stderr, "%s\n", at);
    buf_done(&text);
}

/* A job in the background would be stopped when it reads. */
bool terminal_may_ask(void)
{
    pid_t front = tcgetpgrp(STDIN_FILENO); /* -1: it is nobody's */

    return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1 &&
           (front == -1 || front == getpgid(0));
}

bool terminal_agrees(const char *question, bool by_default)
{
    char answer[16];

    (void)fflush(stdout);
    fprintf(stderr, "%s%s [%s] ", SAYS, question, by_default ? "Y/n" : "y/N");
    if (fgets(answer, sizeof(answer), stdin) == NULL) {
        fputc('\n', stderr);
        return false;
    }
    return answer[0] == '\n' ? by_default : answer[0] == 'y' || answer[0] == 'Y';
}

const char *terminal_field(char *room, size_t size, const char *text)
{
    struct buf shown;

    buf_init(&shown, SAY_BYTES);
    (void)printable_add(&shown, text, strlen(text), PRINTABLE_LINE);
    (void)snprintf(room, size, "%s", buf_text(&shown));
    buf_done(&shown);
    return room;
}

FILE *terminal_open(int fd)
{
    struct stream *s = malloc(sizeof(*s));

    if (s == NULL)
        return NULL;
    *s = (struct stream){.fd = fd, .seen = true, .owned = true};
    FILE *f = make_stream(s);
    if (f == NULL)
        free(s);
    return f;
}

FILE *terminal_drawn(void)
{
    return terminal.drawn;
}
