/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/backtrace/backtrace_crash.c - `backtrace` of the dead: the stacks that a crash has
 * left in the data directory.
 *
 * One thread.
 */
#include "cli/commands/backtrace/backtrace_crash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "core/crash/crash.h"
#include "core/datadir/datadir.h"

#define FUNC_WIDTH 22 /* columns, as `backtrace` of the living */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void print_frame(uint32_t depth, const struct crash_frame *f)
{
    printf("%3u ", depth);
    if (f->python)
        printf("%-*s %s:%d\n", FUNC_WIDTH, f->func, f->file, f->line);
    else if (f->module[0] != '\0')
        printf("%s (%s+0x%llx)\n", f->func[0] != '\0' ? f->func : "?", base_name(f->module),
               (unsigned long long)f->offset);
    else
        printf("? (0x%llx)\n", (unsigned long long)f->ip);
}

static void print_thread(const struct crash_thread *t)
{
    printf("\nThread %d \"%s\" (%s)\n", t->tid, t->name, t->state);
    for (uint32_t i = 0; i < t->n_frames; i++)
        print_frame(i, &t->frames[i]);
    if (t->note[0] != '\0')
        printf("    (%s)\n", t->note);
}

static void print_report(const struct crash_report *c)
{
    char text[40] = "?";
    time_t seconds = (time_t)(c->utc_ns / 1000000000);
    struct tm when;

    if (gmtime_r(&seconds, &when) != NULL)
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &when);
    printf("Process %d crashed in thread %d \"%s\" at %s%s\n%s\n", c->pid, c->tid, c->thread_name,
           text, c->survived ? ", and lived on" : "", c->message);
    if (c->note[0] != '\0')
        printf("(%s)\n", c->note);
    for (uint32_t i = 0; i < c->n_threads; i++)
        print_thread(&c->threads[i]);
    if (c->registers[0] != '\0')
        printf("\nregisters: %s\n", c->registers);
}

int crash_print(const char *directory)
{
    struct crash_reports all;
    struct datadir d;
    cli_signals_back(); /* nothing is to be put in order yet */
    int rc = datadir_open(directory, DATADIR_ANY, &d);
    if (rc == 0)
        rc = crash_read(&d, &all);
    datadir_close(&d);
    cli_signals_catch();

    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < all.n; i++) {
        if (i > 0)
            putchar('\n');
        print_report(&all.list[i]);
    }
    if (all.n == 0)
        rc = err_set(-ESRCH,
                     "the process of %s has ended and left no stacks: it did not crash, or "
                     "crash.handler was off; query, tables and describe still read its data",
                     directory);
    crash_reports_done(&all);
    return rc < 0 ? rc : EXIT_DONE;
}

bool crash_of(const struct datadir *d, char *ret, size_t size)
{
    struct crash_reports all;
    const char *signal = NULL;

    if (crash_read_signals(d, &all) < 0)
        return false;
    for (uint32_t i = 0; i < all.n; i++)
        signal = all.list[i].survived ? signal : all.list[i].signal;
    if (signal != NULL)
        (void)snprintf(ret, size, "%s", signal);
    crash_reports_done(&all);
    return signal != NULL;
}
