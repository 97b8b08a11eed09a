/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_scan.h - where statements end in text that holds several: at a `;` that stands in
 * no text, quoted name or comment.
 *
 * One thread.  Text is given in pieces that end where lines do; what a line leaves open is kept.
 * The engine finds the errors in a statement; this finds only its end.
 */
#ifndef CLI_SHELL_SQL_SCAN_H
#define CLI_SHELL_SQL_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SQL_TAG_BYTES 64 /* of "$tag$": a longer one opens no text here */

struct sql_scan { /* zeros: at the beginning */
    enum {
        SCAN_PLAIN,
        SCAN_COMMENT, /* which may hold others */
        SCAN_QUOTED,  /* 'text', "name", `name` */
        SCAN_ESCAPED, /* e'text' */
        SCAN_DOLLARS  /* $tag$text$tag$ */
    } in;
    char quote;
    uint32_t depth; /* of comments */
    char tag[SQL_TAG_BYTES];
    bool begun; /* there was more than blanks and comments */
};

/* The place of the next `;`, or of a backslash, which begins a command; `size`: there is none.  Go
 * on behind it with the rest. */
size_t sql_scan_next(struct sql_scan *s, const char *text, size_t size);
/* Give the mark of what stands open: a quote, '*' of a comment, '$'; '\0': nothing. */
char sql_scan_open(const struct sql_scan *s);

#endif
