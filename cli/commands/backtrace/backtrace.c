/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/backtrace/backtrace.c - `backtrace`: of the living by their core, from outside, of
 * the dead by what they left; once, or again and again.
 *
 * One thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands/backtrace/backtrace_crash.h"
#include "cli/commands/backtrace/backtrace_external.h"
#include "cli/commands/commands.h"
#include "cli/target/live_run.h"
#include "cli/target/no_core.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/stack_view.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/stack/backtrace_words.h"

#define WORDS_MAX 32
#define WATCH_NS UINT64_C(1000000000)

/* The request, and the words that are for the one who looks. */
struct args {
    struct backtrace_words asked;
    char *rest[WORDS_MAX + 1];
    int n;
    uint64_t interval_ns;
};

/* Wrong words are refused before anybody is asked: alike for the living, the dead and those outside
 * of which we stay. */
static int parse_words(int argc, char **argv, struct args *w)
{
    char why[300];
    const char *const *words = (const char *const *)argv;

    *w = (struct args){.interval_ns = WATCH_NS};
    int rc = backtrace_words(argc, words, BACKTRACE_COMMAND, &w->asked, why, sizeof(why));
    if (rc < 0)
        return err_set(rc, "%s", why);
    for (int i = 0, own; i<argc; i += own> 0 ? own : 1) {
        own = i > 0 ? backtrace_own_words(words + i) : 0;
        if (own == 0 && w->n == WORDS_MAX)
            return err_set(-EINVAL, "too many arguments: '%s'", argv[i]);
        if (own == 0)
            w->rest[w->n++] = argv[i];
    }
    return w->asked.interval != NULL
               ? cli_take_time("--interval", w->asked.interval, &w->interval_ns)
               : 0;
}

static int snapshot_once(struct target *t, struct args *w)
{
    const int pid = (int)t->pid;
    if (!w->asked.external && t->kind == TARGET_BARE) {
        lack_note(t->pid, /* plugin= */ "");
        return err_set(-ENOENT,
                       "process %d has no probing core in it; enter it with: probing -t %d inject; "
                       "or look from outside: probing -t %d backtrace --external",
                       pid, pid, pid);
    }
    struct target_halt halt;
    if (!w->asked.external && t->stopped && target_halted(t->pid, &halt))
        return err_set(-EAGAIN,
                       "process %d is %s and cannot answer; look from outside: probing -t %d "
                       "backtrace --external; or %s",
                       pid, halt.is, pid, halt.remedy);
    if (t->kind != TARGET_FILES || t->stopped)
        return w->asked.external ? external_backtrace(t, w->n, w->rest)
                                 : live_run(t, w->n, (const char *const *)w->rest);
    if (w->asked.external || w->asked.watch || w->n > 1)
        return err_set(-EINVAL,
                       "the process is dead: its backtrace takes no '%s'; select what you "
                       "want from crash.frames",
                       w->n > 1            ? w->rest[1]
                       : w->asked.external ? "--external"
                                           : "--watch");
    return crash_print(t->directory);
}

/* Between two looks: on a terminal a fresh screen, elsewhere a line that says when. */
static void begin_snapshot(const struct args *w)
{
    char text[40] = "?";
    time_t now = time(NULL);
    struct tm when;

    terminal_clear();
    if (w->asked.json)
        return;
    if (localtime_r(&now, &when) != NULL)
        (void)strftime(text, sizeof(text), "%H:%M:%S", &when);
    printf("-- %s\n", text);
}

static int watch_stacks(struct target *t, struct args *w)
{
    while (!cli_interrupted) {
        begin_snapshot(w);
        int r = snapshot_once(t, w);
        terminal_fit_end();
        if (r != EXIT_DONE)
            return cli_interrupted ? EXIT_DONE : r;
        if (fflush(stdout) != 0)
            return EXIT_DONE; /* nobody reads any more */
        (void)poll(NULL, 0, (int)(w->interval_ns / 1000000));
    }
    return EXIT_DONE;
}

int command_backtrace(struct target *t, int argc, char **argv)
{
    struct args w;
    int rc = parse_words(argc, argv, &w);

    if (rc < 0)
        return cli_misuse(rc);
    if (w.asked.json)
        terminal_exact();
    if (!w.asked.watch && (w.asked.external || t->kind != TARGET_BARE))
        pager_begin();
    if (!w.asked.json)
        terminal_fit(stack_view(w.asked.full, terminal_colours("auto") > 0));
    if (w.asked.watch)
        return watch_stacks(t, &w);
    rc = snapshot_once(t, &w);
    terminal_fit_end();
    return rc;
}
