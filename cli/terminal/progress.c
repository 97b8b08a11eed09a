/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/progress.c - see progress.h.
 *
 * One thread.
 */
#include "cli/terminal/progress.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define FIRST_NS (300 * NS_PER_MS)
#define LINE_BYTES 80

void progress_begin(struct progress *p, bool quiet)
{
    *p = (struct progress){.wanted = !quiet && isatty(STDERR_FILENO) == 1,
                           .began_ns = clock_monotonic()};
}

void progress_say(struct progress *p, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    if (!p->wanted || clock_monotonic() - p->began_ns < FIRST_NS)
        return;
    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    uint32_t columns = n < 0 ? 0 : n < LINE_BYTES ? (uint32_t)n : LINE_BYTES - 1;
    terminal_over();
    fprintf(stderr, "%-*s", (int)p->columns, line);
    p->columns = columns > p->columns ? columns : p->columns;
}

void progress_end(struct progress *p)
{
    if (p->columns == 0)
        return;
    terminal_over();
    fprintf(stderr, "%*s", (int)p->columns, "");
    terminal_over();
    p->columns = 0;
}

int progress_wait(uint64_t ns, const char *what)
{
    uint64_t until = clock_monotonic() + ns;
    struct progress p;

    progress_begin(&p, /* quiet= */ false);
    p.began_ns = 0;
    for (uint64_t now; !cli_interrupted && (now = clock_monotonic()) < until;) {
        uint64_t left = (until - now + NS_PER_MS - 1) / NS_PER_MS, part = left % 1000;
        progress_say(&p, "%s: %llu s left", what, (unsigned long long)((left + 999) / 1000));
        (void)poll(NULL, 0, part > 0 ? (int)part : 1000); /* to the next whole second */
    }
    progress_end(&p);
    return cli_interrupted ? err_set(-ECANCELED, "interrupted") : 0;
}
