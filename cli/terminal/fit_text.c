/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/fit_text.c - see fit_text.h.
 */
#include "cli/terminal/fit_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/printable.h"

#define DOTS "..."
#define PICTURE_BYTES ((size_t)16 << 20) /* of one screen */
#define LEAST_WIDTH 20                   /* columns: a narrower terminal wraps by itself */

/* Two columns for East Asian ones and pictures, as far as one look can tell. */
size_t fit_letter(const char *text, size_t size, uint32_t *ret_columns)
{
    bool plain = false;
    if (printable_letter(text, size, &plain) == 0 || !plain)
        return 0;
    const unsigned char *p = (const unsigned char *)text;
    size_t n = *p < 0x80 ? 1 : *p < 0xc0 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf8 ? 4 : 0;
    uint32_t code = n < 2 ? *p : *p & (0xffu >> (n + 1));

    for (size_t i = 1; i < n; i++)
        code = code << 6 | (p[i] & 0x3fu);
    bool wide = (code >= 0x1100 && code < 0x1160) || (code >= 0x2e80 && code < 0xa4d0) ||
                (code >= 0xac00 && code < 0xd7a4) || (code >= 0xf900 && code < 0xfb00) ||
                (code >= 0xfe30 && code < 0xfe70) || (code >= 0xff00 && code < 0xff61) ||
                (code >= 0x1f300 && code < 0x1fb00) || (code >= 0x20000 && code < 0x40000);
    *ret_columns = wide ? 2 : 1;
    return n;
}

/* Bytes of the letter at `at`, which need not be one, and its columns. */
static size_t next_letter(const char *at, size_t left, uint32_t *ret_columns)
{
    size_t n = fit_letter(at, left, ret_columns);
    if (n == 0)
        *ret_columns = 1;
    return n == 0 ? 1 : n;
}

uint32_t fit_columns(const char *text, size_t size)
{
    uint32_t sum = 0, columns;
    for (size_t at = 0; at < size; sum += columns)
        at += next_letter(text + at, size - at, &columns);
    return sum;
}

/* Bytes at the beginning that take at most so many columns. */
static size_t head_of(const char *text, size_t size, uint32_t most)
{
    uint32_t used = 0, columns;
    size_t at = 0;
    while (at < size) {
        size_t n = next_letter(text + at, size - at, &columns);
        if (used + columns > most)
            break;
        used += columns;
        at += n;
    }
    return at;
}

/* The start of the longest end that takes at most so many columns. */
static size_t tail_of(const char *text, size_t size, uint32_t most)
{
    uint32_t all = fit_columns(text, size), columns;
    size_t at = 0;
    while (all > most && at < size) {
        at += next_letter(text + at, size - at, &columns);
        all -= columns;
    }
    return at;
}

void fit_add(struct buf *b, const char *text, size_t size, uint32_t width, enum fit_cut cut)
{
    const uint32_t dots = sizeof(DOTS) - 1;
    uint32_t room = width > dots ? width - dots : 0, front = 0;

    if (width == 0 || fit_columns(text, size) <= width) {
        (void)buf_add(b, text, size);
        return;
    }
    if (cut != FIT_FRONT)
        front = cut == FIT_END ? room : room / 2;
    size_t head = head_of(text, size, front);
    size_t tail = cut == FIT_END ? size : tail_of(text, size, room - front);
    (void)buf_add(b, text, head);
    (void)buf_add(b, DOTS, width < dots ? width : dots);
    (void)buf_add(b, text + tail, size - tail);
}

void fit_say(const char *indent, const char *text, size_t size)
{
    uint32_t wide = cli_width(), margin = (uint32_t)strlen(indent), deeper = 0;

    while (size > 0) {
        bool wraps = wide >= LEAST_WIDTH && margin + deeper + fit_columns(text, size) > wide;
        size_t n = wraps ? head_of(text, size, wide - margin - deeper) : size, end = n;
        while (wraps && end > 0 && text[end] != ' ')
            end--;
        if (wraps && end > 0) /* else a word is longer than a line */
            n = end;
        printf("%s%*s%.*s\n", indent, (int)deeper, "", (int)n, text);
        text += n;
        size -= n;
        while (size > 0 && *text == ' ') {
            text++;
            size--;
        }
        deeper = 2;
    }
}

static void add_cut_line(const char *line, size_t size, struct buf *ret)
{
    if (line == NULL)
        return;
    fit_add(ret, line, size, cli_width(), FIT_MIDDLE);
    (void)buf_addc(ret, '\n');
}

int fit_lines(const struct fit_view *view, struct buf *open, const char *text, size_t size,
              bool last, struct buf *ret)
{
    static const struct fit_view cut = {add_cut_line};

    view = view != NULL ? view : &cut;
    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        size_t n = end != NULL ? (size_t)(end - text) : size;
        (void)buf_add(open, text, n);
        if (end != NULL) {
            view->line(buf_text(open), open->size, ret);
            buf_reset(open);
        }
        text += n + (end != NULL);
        size -= n + (end != NULL);
    }
    if (last && open->size > 0) /* the end of a line is never ours to add */
        fit_add(ret, buf_text(open), open->size, cli_width(), FIT_MIDDLE);
    else if (last)
        view->line(NULL, 0, ret);
    return open->failed ? open->failed : ret->failed;
}

/* ---- a screen ---- */

int fit_screen(const char *text, size_t size)
{
    uint32_t wide = cli_width(), rows = cli_rows(), n = 0, left = 0;
    struct buf picture;

    if (wide == 0)
        return fwrite(text, 1, size, stdout) == size ? 0 : -EPIPE;
    buf_init(&picture, PICTURE_BYTES);
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\n';
    for (uint32_t row = 0; size > 0; row++) { /* the last line stays free, or it would scroll */
        const char *end = memchr(text, '\n', size);
        size_t bytes = end != NULL ? (size_t)(end - text) : size;
        if (n >= rows && rows > 2 && row + 2 >= rows) {
            left++;
        } else {
            fit_add(&picture, text, bytes, wide, FIT_END);
            (void)buf_addc(&picture, '\n');
        }
        text += bytes + (end != NULL);
        size -= bytes + (end != NULL);
    }
    if (left > 0) {
        char more[80];
        int bytes_of_more = snprintf(more, sizeof(more), "(%u more lines: add a limit)", left);
        fit_add(&picture, more, (size_t)bytes_of_more, wide, FIT_END);
        (void)buf_addc(&picture, '\n');
    }
    terminal_clear();
    int rc = picture.failed;
    if (rc == 0 && fwrite(picture.data, 1, picture.size, stdout) != picture.size)
        rc = -EPIPE;
    buf_done(&picture);
    return rc;
}
