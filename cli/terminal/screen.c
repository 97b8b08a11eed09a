/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/screen.c - see screen.h.
 *
 * The few control sequences are those that xterm, screen, tmux, the Linux console and what calls
 * itself like them share (ECMA-48 and DEC's private modes), so no terminfo is needed.
 */
#include "cli/terminal/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/terminal/fit_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* another screen, no cursor, lines do not wrap */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"
#define HOME "\033[H"
#define EMPTY_LINE "\033[2K" /* before the text: the cursor stays on a last column */
#define END_OF_SCREEN "\033[J"
#define DRAW_BYTES ((size_t)1 << 20)

static struct { /* one thread */
    bool open, keys;
    struct termios before;
    struct sigaction resized, suspended; /* as they were */
} screen;
static volatile sig_atomic_t changed, suspend;

static void on_resize(int signo)
{
    (void)signo;
    changed = 1;
}

static void on_suspend(int signo)
{
    (void)signo;
    suspend = 1;
}

int screen_open(void)
{
    struct sigaction resize = {.sa_handler = on_resize}, stop = {.sa_handler = on_suspend};
    struct termios raw;

    if (screen.open)
        return 0;
    screen.keys = tcgetattr(STDIN_FILENO, &screen.before) == 0;
    if (screen.keys) {
        raw = screen.before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        raw.c_cc[VQUIT] = _POSIX_VDISABLE; /* or it would leave the terminal like this */
        if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) == -1)
            return err_set(-errno, "the terminal cannot be set up: %s", strerror(errno));
    }
    (void)sigaction(SIGWINCH, &resize, &screen.resized);
    (void)sigaction(SIGTSTP, &stop, &screen.suspended);
    terminal_put(ENTER, sizeof(ENTER) - 1);
    screen.open = true;
    return 0;
}

void screen_close(void)
{
    if (!screen.open)
        return;
    terminal_put(LEAVE, sizeof(LEAVE) - 1);
    (void)sigaction(SIGWINCH, &screen.resized, NULL);
    (void)sigaction(SIGTSTP, &screen.suspended, NULL);
    if (screen.keys)
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &screen.before);
    screen.open = false;
}

/* Add at most `most` columns of text.  Gives how many they are. */
static uint32_t add_clean(struct buf *b, const char *text, size_t size, uint32_t most)
{
    uint32_t used = 0, columns;

    for (size_t at = 0; at < size;) {
        size_t n = fit_letter(text + at, size - at, &columns);
        bool bad = n == 0;
        columns = bad ? 1 : columns;
        if (used + columns > most)
            break;
        if (bad)
            (void)buf_addc(b, '?');
        else
            (void)buf_add(b, text + at, n);
        for (at += bad ? 1 : n; bad && at < size && (text[at] & 0xc0) == 0x80;)
            at++; /* one mark for a letter that is not shown */
        used += columns;
    }
    return used;
}

static bool is_style(char c)
{
    return c >= SCREEN_PLAIN && c <= SCREEN_CYAN;
}

void screen_add(struct buf *b, const char *text, uint32_t width, bool right)
{
    struct buf cell;
    buf_init(&cell, DRAW_BYTES);
    uint32_t used = add_clean(&cell, text, strlen(text), width > 0 ? width : UINT32_MAX);
    for (uint32_t i = used; right && i < width; i++)
        (void)buf_addc(b, ' ');
    (void)buf_add(b, buf_text(&cell), cell.size);
    for (uint32_t i = used; !right && i < width; i++)
        (void)buf_addc(b, ' ');
    buf_done(&cell);
}

/* One line, in at most so many columns, with or without its styles. */
static void paint_line(struct buf *out, const char *text, size_t size, uint32_t most, bool colours)
{
    static const char *const looks[] = {
        [SCREEN_PLAIN] = "\033[0m", [SCREEN_BOLD] = "\033[1m",   [SCREEN_DIM] = "\033[2m",
        [SCREEN_HEAD] = "\033[7m",  [SCREEN_GREEN] = "\033[32m", [SCREEN_YELLOW] = "\033[33m",
        [SCREEN_RED] = "\033[31m",  [SCREEN_CYAN] = "\033[36m"};
    bool styled = false;

    for (size_t at = 0; at < size;) {
        size_t n = 0;
        while (at + n < size && !is_style(text[at + n]))
            n++;
        most -= add_clean(out, text + at, n, most);
        at += n;
        if (at < size && colours) {
            (void)buf_adds(out, looks[(unsigned char)text[at]]);
            styled = text[at] != SCREEN_PLAIN;
        }
        at += at < size;
    }
    if (styled)
        (void)buf_adds(out, looks[SCREEN_PLAIN]);
}

void screen_paint(const struct buf *lines, bool colours, struct buf *ret)
{
    const char *at = lines->size > 0 ? lines->data : "", *end = at + lines->size;
    uint32_t columns = cli_width() > 0 ? cli_width() : UINT32_MAX;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        paint_line(ret, at, (size_t)(stop - at), columns, colours);
        (void)buf_addc(ret, '\n');
        at = stop + (stop < end);
    }
}

void screen_draw(const struct buf *lines, bool colours)
{
    uint32_t rows = cli_rows(), columns = cli_width();
    struct buf out;

    buf_init(&out, DRAW_BYTES);
    (void)buf_adds(&out, HOME);
    const char *at = lines->size > 0 ? lines->data : "", *end = at + lines->size;
    uint32_t row = 0;
    for (; row < rows && at < end; row++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        (void)buf_adds(&out, row > 0 ? "\r\n" EMPTY_LINE : EMPTY_LINE);
        paint_line(&out, at, (size_t)(stop - at), columns > 0 ? columns : 80, colours);
        at = stop + (stop < end);
    }
    if (row < rows)
        (void)buf_adds(&out, "\r\n" END_OF_SCREEN);
    terminal_put(out.data, out.size);
    buf_done(&out);
}

/* Ctrl-Z: the shell finds its terminal as it was, and we find ours again. */
static int step_aside(void)
{
    suspend = 0;
    screen_close();
    (void)kill(getpid(), SIGSTOP);
    int rc = screen_open();
    return rc < 0 ? rc : -EAGAIN;
}

int screen_key(uint64_t ns)
{
    struct pollfd p = {.fd = screen.keys ? STDIN_FILENO : -1, .events = POLLIN};
    uint64_t end = clock_monotonic() + ns;
    unsigned char key;

    for (;;) {
        uint64_t now = clock_monotonic();
        if (cli_interrupted)
            return -EINTR;
        if (suspend)
            return step_aside();
        if (changed) {
            changed = 0;
            return -EAGAIN;
        }
        if (now >= end)
            return 0;
        int n = poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1);
        if (n == -1 && errno != EINTR)
            return err_set(-errno, "poll: %s", strerror(errno));
        if (n == 1 && read(STDIN_FILENO, &key, 1) == 1)
            return key;
        if (n == 1 && p.revents & (POLLHUP | POLLERR))
            return -EINTR; /* nobody looks any more */
    }
}
