/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/stack/backtrace_words.c - the words of `backtrace`.
 *
 * Any thread; nothing kept.
 */
#include "sdk/lib/stack/backtrace_words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool parse_tid(const char *text, int32_t *ret)
{
    int64_t tid = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && tid < INT32_MAX; p++)
        tid = tid * 10 + (*p - '0');
    *ret = (int32_t)tid;
    return tid > 0 && tid <= INT32_MAX && !*p;
}

int backtrace_own_words(const char *const *argv)
{
    if (strcmp(argv[0], "--interval") == 0)
        return 2;
    return strcmp(argv[0], "--external") == 0 || strcmp(argv[0], "--watch") == 0 ||
           strcmp(argv[0], "--full") == 0;
}

/* Words that stand alone.  false: it is none of these. */
static bool take_flag(const char *word, struct backtrace_words *w)
{
    const struct {
        const char *word;
        bool *flag;
    } flags[] = {{"--json", &w->json},
                 {"--locals", &w->locals},
                 {"--locals=repr", &w->repr},
                 {"--tasks", &w->tasks},
                 {"--all", &w->all}};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(word, flags[i].word) == 0)
            return *flags[i].flag = true;
    return false;
}

/* The command's own.  0, or -EINVAL: its time is missing. */
static int take_own(const char *const *argv, int left, struct backtrace_words *w)
{
    w->external = w->external || strcmp(argv[0], "--external") == 0;
    w->full = w->full || strcmp(argv[0], "--full") == 0;
    w->watch = w->watch || strcmp(argv[0], "--watch") == 0 || strcmp(argv[0], "--interval") == 0;
    if (backtrace_own_words(argv) < 2)
        return 0;
    w->interval = left > 1 ? argv[1] : NULL;
    return w->interval ? 0 : -EINVAL;
}

int backtrace_words(int argc, const char *const *argv, enum backtrace_asked asked,
                    struct backtrace_words *ret, char *why, size_t why_size)
{
    bool command = asked == BACKTRACE_COMMAND, native = false, python = false;
    struct backtrace_words w = {.external = asked == BACKTRACE_OUTSIDE};
    const char *wrong = NULL;
    *ret = (struct backtrace_words){.want = WANT_BOTH};
    for (int i = 1; i < argc && !wrong; i++) {
        int own = command ? backtrace_own_words(argv + i) : 0;
        if (own > 0) {
            if (take_own(argv + i, argc - i, &w) < 0)
                wrong = "--interval needs a time: --interval 2s";
            i += own - 1;
        } else if (strcmp(argv[i], "--native") == 0) {
            native = true;
        } else if (strcmp(argv[i], "--python") == 0) {
            python = true;
        } else if (strcmp(argv[i], "--thread") == 0) {
            if (!parse_tid(i + 1 < argc ? argv[i + 1] : "", &w.only))
                wrong = "--thread needs a thread id: --thread 1234";
            i++;
        } else if (!take_flag(argv[i], &w)) {
            (void)snprintf(why, why_size, "backtrace: unexpected argument '%.60s'; it takes %s",
                           argv[i], command ? BACKTRACE_COMMAND_USAGE : BACKTRACE_USAGE);
            return -EINVAL;
        }
    }
    if (!wrong && native && python)
        wrong = "--native and --python exclude each other";
    if (!wrong && w.external && (w.tasks || w.repr))
        wrong =
            "--tasks and --locals=repr run code in the process, which --external does not enter";
    if (wrong) {
        (void)snprintf(why, why_size, "backtrace: %s", wrong);
        return -EINVAL;
    }
    w.want = native ? WANT_NATIVE : python ? WANT_PYTHON : WANT_BOTH;
    *ret = w;
    return 0;
}
