/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/prompt.h - lines of input, and the session that is made of them: edited, with
 * history and completion, where there is a terminal and libedit is installed; read as they come
 * elsewhere.
 *
 * One thread; one prompt at a time.
 */
#ifndef CLI_TERMINAL_PROMPT_H
#define CLI_TERMINAL_PROMPT_H

#include <stdbool.h>
#include <stddef.h>

#include "sdk/lib/buf.h"

struct prompt;

#define PROMPT_LEAVE 1 /* what take() gives when the session is to end */

/* All functions are called with `arg`. */
struct prompt_options {
    void *arg;
    /* Adds what `word`, the end of the line `before` the cursor, may become, one a line; lines that
     * do not begin with it are dropped, so that a Tab deletes nothing.  PROMPT_FILES: it is a
     * file's name; PROMPT_TAB: the key is a blank of pasted text.  NULL: nothing is completed. */
    int (*complete)(void *arg, const char *before, const char *word, struct buf *ret);
    const char *word_breaks; /* characters at which such a piece begins */
    const char *history; /* the name of its file in ~/.local/state/probing; NULL: none is kept */
    const char *welcome; /* shown first to a person; NULL: nothing */
    const char *(*text)(void *arg); /* what to show before the next line */
    /* A line without its end, borrowed; NULL: the input has ended.  0: go on; PROMPT_LEAVE; -errno
     * with err_set(): the session cannot go on. */
    int (*take)(void *arg, struct prompt *p, const char *line);
    void (*forget)(void *arg); /* Ctrl-C at the prompt: what was begun is dropped */
    /* Called each second while a line is awaited, on another thread; NULL: nothing is to be done
     * meanwhile. */
    void (*tend)(void *arg);
};
#define PROMPT_FILES 1
#define PROMPT_TAB 2

/* Read lines to the end.  0, or what take() gave below 0; then lines that a person has typed ahead
 * are dropped, which would go to the shell as commands.  -ECANCELED: SIGTERM. */
int prompt_run(const struct prompt_options *o);

bool prompt_is_person(void); /* somebody types, and sees what is printed */
bool prompt_has_more(void);  /* more was typed, or pasted, and not read yet */
/* Put what was typed into the history. */
void prompt_remember(struct prompt *p, const char *line);

#endif
