/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/backtrace.c - `backtrace`: of the living by their core, from outside, of the dead by
 * what they left; once, or again and again.
 *
 * One thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/ui/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define WORDS_MAX 32
#define WATCH_NS UINT64_C(1000000000)

/* What is ours of the words; the rest is for who looks. */
struct words {
    char *rest[WORDS_MAX + 1];
    int n;
    bool external, watch, json;
    uint64_t interval_ns;
};

static int take_words(int argc, char **argv, struct words *w)
{
    *w = (struct words){.interval_ns = WATCH_NS};
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--external") == 0) {
            w->external = true;
        } else if (strcmp(argv[i], "--watch") == 0) {
            w->watch = true;
        } else if (strcmp(argv[i], "--interval") == 0) {
            int r = i + 1 < argc ? parse_ns(argv[++i], &w->interval_ns)
                                 : err_set(-EINVAL, "--interval needs a time: --interval 2s");
            if (r < 0)
                return r;
            w->watch = true;
        } else if (w->n == WORDS_MAX) {
            return err_set(-EINVAL, "too many words: '%s'", argv[i]);
        } else {
            w->json = w->json || strcmp(argv[i], "--json") == 0;
            w->rest[w->n++] = argv[i];
        }
    }
    return 0;
}

static int look_once(struct target *t, struct words *w)
{
    const int pid = (int)t->pid;
    if (!w->external && t->kind == TARGET_BARE)
        return err_set(-ENOENT,
                       "process %d has no probing core in it; enter it with: probing -t %d inject; "
                       "or look from outside: probing -t %d backtrace --external",
                       pid, pid, pid);
    if (!w->external && t->stopped)
        return err_set(-EAGAIN,
                       "process %d is stopped and cannot answer; look from outside: probing -t %d "
                       "backtrace --external; or continue it with: kill -CONT %d",
                       pid, pid, pid);
    if (t->kind != TARGET_FILES || t->stopped)
        return w->external ? external_backtrace(t, w->n, w->rest)
                           : command_forward(t, w->n, w->rest);
    if (w->external || w->watch || w->n > 1)
        return err_set(-EINVAL,
                       "the process is dead: its backtrace takes no '%s'; select what you "
                       "want from crash.frames",
                       w->n > 1      ? w->rest[1]
                       : w->external ? "--external"
                                     : "--watch");
    return crash_print(t->directory);
}

/* Between two looks: on a terminal a fresh screen, elsewhere a line that says when. */
static void begin_look(const struct words *w)
{
    char text[40] = "?";
    time_t now = time(NULL);
    struct tm when;

    terminal_clear();
    if (w->json)
        return;
    if (localtime_r(&now, &when) != NULL)
        (void)strftime(text, sizeof text, "%H:%M:%S", &when);
    printf("-- %s\n", text);
}

static int watch(struct target *t, struct words *w)
{
    while (!cli_interrupted) {
        begin_look(w);
        int r = look_once(t, w);
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
    struct words w;
    int r = take_words(argc, argv, &w);

    if (r < 0)
        return r;
    if (w.json)
        terminal_exact();
    else
        terminal_fit();
    if (w.watch)
        return watch(t, &w);
    pager_begin();
    return look_once(t, &w);
}
