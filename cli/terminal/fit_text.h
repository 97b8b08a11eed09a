/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/fit_text.h - text made to fit the terminal: names and lines that are cut, sentences
 * that are wrapped.
 *
 * One thread.  The width is cli_width()'s (pager.h): of the terminal as it is now, 0 where nobody
 * looks at one; then nothing is cut and nothing is wrapped.
 */
#ifndef CLI_TERMINAL_FIT_TEXT_H
#define CLI_TERMINAL_FIT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

/* The bytes of the letter that these begin with (0: none, or one that steers terminals), and the
 * columns it takes. */
size_t fit_letter(const char *text, size_t size, uint32_t *ret_columns);
uint32_t fit_columns(const char *text, size_t size);

enum fit_cut { FIT_END, FIT_FRONT, FIT_MIDDLE }; /* what goes, and leaves "..." */
/* Add text in at most `width` columns; 0: all of it. */
void fit_add(struct buf *b, const char *text, size_t size, uint32_t width, enum fit_cut cut);

/* A sentence on stdout, and further lines of it two blanks deeper than its first. */
void fit_say(const char *indent, const char *text, size_t size);

/* How lines are shown: adds to ret what stands for one, with its end, or nothing.  line: without
 * its end, but with a NUL; NULL: the answer has ended. */
struct fit_view {
    void (*line)(const char *line, size_t size, struct buf *ret);
};

/* Lines as they come, in pieces of any size.  view: NULL, what is too long loses its middle,
 * because both ends say what it is (a function and its file's line).  open: the beginning of a line
 * whose end has not come; last: none comes any more.  0, or -errno. */
int fit_lines(const struct fit_view *view, struct buf *open, const char *text, size_t size,
              bool last, struct buf *ret);

/* A whole answer in place of the one before, on a terminal: what is beyond its last line is left
 * out, and counted there.  Elsewhere it is printed.  0, or -errno. */
int fit_screen(const char *text, size_t size);

#endif
