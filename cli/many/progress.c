/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/progress.c - see progress.h.
 *
 * One thread.
 */
#include "cli/many/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"
#include "core/base/clock.h"

#define FIRST_NS (300 * NS_PER_MS)
#define WIDTH 40 /* of the line at its longest */

void progress_begin(struct progress *p, bool quiet)
{
    *p = (struct progress){.wanted = !quiet && isatty(STDERR_FILENO) == 1,
                           .began_ns = clock_monotonic()};
}

void progress_show(struct progress *p, uint32_t done, uint32_t asked)
{
    if (!p->wanted || clock_monotonic() - p->began_ns < FIRST_NS)
        return;
    p->shown = true;
    terminal_over();
    fprintf(stderr, "%u of %u have answered", done, asked);
}

void progress_end(struct progress *p)
{
    if (!p->shown)
        return;
    terminal_over();
    fprintf(stderr, "%*s", WIDTH, "");
    terminal_over();
    p->shown = false;
}
