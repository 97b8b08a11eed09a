/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/prompt.h - one line of input at a time: edited, with history and completion, where
 * there is a terminal and libedit is installed; read as it comes elsewhere.
 *
 * One thread; one prompt at a time.
 */
#ifndef CLI_TERMINAL_PROMPT_H
#define CLI_TERMINAL_PROMPT_H

#include <stdbool.h>
#include <stddef.h>

#include "sdk/lib/buf.h"

struct prompt;

/* complete(arg, before, word, ret): what `word`, the end of the line `before` the cursor, may
 * become, one a line; what does not begin with it is dropped, so that a Tab deletes nothing.
 * word_breaks: characters at which such a piece begins. */
struct prompt_options {
    int (*complete)(void *arg, const char *before, const char *word, struct buf *ret);
    void *arg;
    const char *word_breaks;
    const char *history_file; /* NULL: none is kept */
};

int prompt_new(const struct prompt_options *o, struct prompt **ret);
void prompt_free(struct prompt *p);
bool prompt_edits(const struct prompt *p); /* a person is there, and lines can be edited */

/* Show `text` and give a line without its end, borrowed until the next call.  NULL: the input has
 * ended, or Ctrl-C was typed (then cli_interrupted is set). */
const char *prompt_read(struct prompt *p, const char *text);
/* Put what was typed into the history. */
void prompt_remember(struct prompt *p, const char *line);

#endif
