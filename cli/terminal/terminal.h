/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/terminal.h - the one way out: all that the command says passes here, and what a
 * process, a file or a plugin has in it can steer no terminal.
 *
 * One thread.  From terminal_begin() on `stdout` and `stderr` are streams that write escapes for
 * what core/base/printable.h names; so whoever prints is safe without knowing of it.  Control
 * sequences of our own come by the functions below and by nothing else.
 */
#ifndef CLI_TERMINAL_TERMINAL_H
#define CLI_TERMINAL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct buf;

int terminal_begin(void); /* 0, or -errno with err_set() */
void terminal_raw(void);  /* --raw was given: everything is written as it is */
/* Output on stdout from here on is for a program (csv, json, arrow, prints of evaluated code): its
 * bytes are kept, unless a terminal or our pager reads them. */
void terminal_exact(void);
/* Is a format of answers for people, "table" or "expanded"?  What follows in any other is exact. */
bool terminal_format(const char *format);

/* From here on stdout carries lines for a person, shown by `view` where he has a terminal; NULL:
 * lines wider than it lose their middle.  A line is written when its end has come.
 * terminal_fit_end(): an answer has ended, and another one may follow. */
struct fit_view; /* fit_text.h */
void terminal_fit(const struct fit_view *view);
void terminal_fit_end(void);

/* Why stdout could not be written, the first time: an errno; 0: it could.  Flushes it. */
int terminal_failed(void);
/* A pager was left before it had read all: what follows goes to the terminal again. */
void terminal_pager_left(void);

/* Cursor home and all erased, when stdout is a terminal. */
void terminal_clear(void);
/* Are colours wanted?  when: "always", "never", or "auto": on a terminal that knows them, unless
 * NO_COLOR is there (no-color.org).  -EINVAL: it is none of these. */
int terminal_colours(const char *when);
/* To the start of the line, on stderr: what is said next is written over it. */
void terminal_over(void);
/* Our own bytes to the terminal, as they are: screen.c's pictures, made of escaped text. */
void terminal_put(const char *bytes, size_t size);

/* "probing: TEXT" on stderr.  Lines after the first are indented: none looks like one of ours. */
void terminal_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Is a person there who can be asked?  And yes or no; by_default: what Enter alone means. */
bool terminal_may_ask(void);
bool terminal_agrees(const char *question, bool by_default);

/* The last sentence of another probing's stderr, which begins with "probing: "; a line that it
 * quotes is indented.  NULL: there is none. */
const char *terminal_last_said(const char *text);

/* A name in one line of several: what would begin another one is escaped, too.  Gives room. */
const char *terminal_field(char *room, size_t size, const char *text);

/* A stream that escapes, over a descriptor that is the stream's from now on: a visitor's. */
FILE *terminal_open(int fd);
/* The original stdout, on which libedit draws its line.  Flush stdout first. */
FILE *terminal_drawn(void);

#endif
