/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/check_lines.h - a report of lines, a word and a text each, for eyes or as JSON.
 *
 * One thread.  A text that begins with NO says what does not work.
 */
#ifndef CLI_TERMINAL_CHECK_LINES_H
#define CLI_TERMINAL_CHECK_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

struct lines {
    struct buf *json; /* NULL: they are printed at once */
    bool open;        /* of JSON, an object */
    char what[16];    /* of the line before */
};

/* what: "": it belongs to the line before. */
void lines_add(struct lines *l, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* How to mend what the line before says. */
void lines_mend(struct lines *l, const char *text);
void lines_end(struct lines *l);

#endif
