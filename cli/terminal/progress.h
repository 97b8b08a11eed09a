/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/progress.h - how far it has come: a line on stderr that is written over and goes
 * again, on a terminal and nowhere else.
 *
 * One thread.
 */
#ifndef CLI_TERMINAL_PROGRESS_H
#define CLI_TERMINAL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool wanted;
    uint32_t columns; /* of the line that is there; 0: none */
    uint64_t began_ns;
};

void progress_begin(struct progress *p, bool quiet);
/* Not at once: what is over in a moment needs none. */
void progress_say(struct progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void progress_end(struct progress *p); /* the line is empty again; any number of times */

/* Wait, and count down: "sampling: 7 s left".  -ECANCELED: Ctrl-C. */
int progress_wait(uint64_t ns, const char *what);

#endif
