/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/progress.h - how far it has come, on a terminal and nowhere else.
 *
 * One thread.
 */
#ifndef CLI_MANY_PROGRESS_H
#define CLI_MANY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool wanted, shown;
    uint64_t began_ns;
};

void progress_begin(struct progress *p, bool quiet);
/* Not at once: what is over in a moment needs none. */
void progress_show(struct progress *p, uint32_t done, uint32_t asked);
void progress_end(struct progress *p); /* the line is empty again; any number of times */

#endif
