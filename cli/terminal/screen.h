/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/screen.h - the whole terminal for a picture that is drawn again and again, and keys;
 * given back as it was.
 *
 * One thread; one screen at a time.
 */
#ifndef CLI_TERMINAL_SCREEN_H
#define CLI_TERMINAL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

int screen_open(void);
void screen_close(void); /* also when it is not open */

/* Bytes in a picture that say how what follows looks, to the end of its line at most.  They take no
 * column.  What screen_add() adds has none. */
enum screen_style {
    SCREEN_PLAIN = 1,
    SCREEN_BOLD,
    SCREEN_DIM,
    SCREEN_HEAD,
    SCREEN_GREEN,
    SCREEN_YELLOW,
    SCREEN_RED,
    SCREEN_CYAN /* before \t */
};

/* Show these lines, cut at the terminal's size, whatever that is now; control characters in them
 * become '?'. */
void screen_draw(const struct buf *lines, bool colours);
/* The same lines as bytes, all of them, cut at the width where there is one. */
void screen_paint(const struct buf *lines, bool colours, struct buf *ret);

/* Wait for a key, at most `ns`.  0: none came; -EINTR: Ctrl-C; -EAGAIN: draw again (another size,
 * or back from Ctrl-Z). */
int screen_key(uint64_t ns);

/* Add text of the process to `b`, in exactly `width` columns when it is not 0: control characters
 * become '?', what is longer is cut, what is shorter is filled, on the left when `right`. */
void screen_add(struct buf *b, const char *text, uint32_t width, bool right);

#endif
