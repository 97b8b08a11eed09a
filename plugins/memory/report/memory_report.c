/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/memory_report.c - `probing memory`: how much memory a process has, what it
 * is made of, what grows, and of a dead one whether want of memory ended it.
 *
 * One thread.  All of it comes from the plugin's tables, of the living and the dead.
 */
#include <errno.h>

#include "report.h"

#define WINDOW_NS UINT64_C(600000000000)

void report_mb(double bytes, char ret[32])
{
    double mb = bytes / MB;
    (void)snprintf(ret, 32, !is_number(mb) ? "?" : mb < 100 ? "%.1f MB" : "%.0f MB", mb);
}

struct numbers numbers_unknown(void)
{
    return (struct numbers){{(double)NAN, (double)NAN, (double)NAN, (double)NAN}};
}

int take_numbers(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct numbers *to = arg;
    for (uint32_t i = 0; i < 4 && i < n; i++)
        to->value[i] = cell_number(&cells[i]);
    return 0;
}

/* When a process that has ended was last heard of, or freed what it had on its way out.  (Its first
 * second has no row of memory.usage yet.) */
#define LAST_HEARD                                                                             \
    "(select max(ts) from (select ts from memory.ended union all select ts from memory.usage " \
    "where not exists (select 1 from memory.ended where ts < heard_ts)) e)"

void report_since(const struct memory_args *w, uint64_t before_ns, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s - interval '%.3f seconds'",
                   w->api->target == PROBING_TARGET_LIVE ? "now()" : LAST_HEARD,
                   (double)before_ns / 1e9);
}

/* ---- words ---- */

static int take_mark(struct memory_args *w, const char *name)
{
    if (w->n_diff == 2)
        return report_fail(w->api, -EINVAL, "--diff takes two marks, and '%s' is a third", name);
    return w->diff[w->n_diff++] = name, 0;
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct memory_args *w = arg;
    static const struct {
        const char *name;
        size_t at;
    } flags[] = {{"--json", offsetof(struct memory_args, json)},
                 {"--leaks", offsetof(struct memory_args, leaks)},
                 {"--peak", offsetof(struct memory_args, peak)},
                 {"--heap", offsetof(struct memory_args, heap)},
                 {"--trim", offsetof(struct memory_args, trim)},
                 {"--gc", offsetof(struct memory_args, gc)}};
    for (size_t i = 0; option == NULL && i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(value, flags[i].name + 2) == 0)
            return report_fail(w->api, -EINVAL, "memory takes no argument '%s'; did you mean %s?",
                               value, flags[i].name);
    if (option == NULL && w->n_diff == 0)
        return report_fail(w->api, -EINVAL, "memory takes no argument '%s'", value);
    if (option == NULL)
        return take_mark(w, value);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(option, flags[i].name) == 0)
            return *(bool *)((char *)w + flags[i].at) = true, 0;
    if (strcmp(option, "--diff") == 0)
        return take_mark(w, value);
    if (strcmp(option, "--mark") == 0)
        return w->mark = value, 0;
    return w->api->parse_time(w->api, value, &w->window_ns); /* --last, --since */
}

static int take_answer(void *arg, const void *bytes, size_t n)
{
    struct memory_answer *to = arg;
    n = n < sizeof(to->text) - 1 - to->n ? n : sizeof(to->text) - 1 - to->n;
    memcpy(to->text + to->n, bytes, n);
    to->n += n;
    return 0;
}

int report_call(const struct memory_args *w, int n, const char *const *words,
                struct memory_answer *ret)
{
    *ret = (struct memory_answer){.n = 0};
    return w->api->call(w->api, n, words, take_answer, ret);
}

/* Run a command in the target; its answer is printed as it comes, or as a text of JSON. */
static int call_target(const struct memory_args *w, struct report_json *j, int n,
                       const char *const *words)
{
    struct memory_answer answer;
    if (w->api->target != PROBING_TARGET_LIVE)
        return report_fail(w->api, -EINVAL, "%s is dead: there is nobody to do that",
                           w->api->target_text);
    if (!w->json)
        return w->api->call(w->api, n, words, NULL, NULL);
    int rc = report_call(w, n, words, &answer);
    if (rc != 0)
        return rc;
    answer.text[strcspn(answer.text, "\n")] = '\0';
    if (!j->begun)
        json_open(j, '{');
    json_text(j, strcmp(words[0], "eval") == 0 ? "gc" : words[0], answer.text);
    return 0;
}

static int run_actions(const struct memory_args *w)
{
    struct report_json j = {.api = w->api};
    const char *mark[] = {"mark", w->mark};
    static const char *const trim[] = {"trim"};
    static const char *const gc[] = {
        "eval", "import gc; print('gc: %d objects were collected' % gc.collect())"};
    int rc = w->gc ? call_target(w, &j, 2, gc) : 0;
    if (rc == 0 && w->trim)
        rc = call_target(w, &j, 1, trim);
    if (rc == 0 && w->mark)
        rc = call_target(w, &j, 2, mark);
    if (j.begun)
        report_printf(w->api, "}\n");
    return rc;
}

static void show_json(const struct memory_args *w, const struct usage_report *r)
{
    struct report_json j = {.api = w->api};
    w->api->exact(w->api);
    json_open(&j, '{');
    usage_show_json(r, &j);
    stacks_show_json(w, &j);
    torch_show_json(w, &j);
    if (w->api->target == PROBING_TARGET_DEAD)
        death_show_json(w, r, &j);
    report_printf(w->api, "}\n");
}

static int show_report(const struct memory_args *w)
{
    struct usage_report r;
    int rc = usage_read(w, &r);
    if (rc != 0)
        return rc;
    if (w->json) {
        show_json(w, &r);
        return 0;
    }
    if (w->api->target == PROBING_TARGET_DEAD)
        death_show(w, &r);
    usage_show(w, &r);
    stacks_show(w, &r);
    return 0;
}

static int check_options(const struct memory_args *w)
{
    int views = w->leaks + w->peak + (w->n_diff > 0);
    bool acts = w->trim || w->gc || w->mark;
    if (w->n_diff == 1)
        return w->api->misuse(w->api, -EINVAL, "--diff wants two marks: --diff before after");
    if (views > 1 || (views && acts))
        return w->api->misuse(w->api, -EINVAL,
                              "one of --leaks, --peak, --diff; or --mark, --trim, --gc");
    return 0;
}

static int report_run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct memory_args w = {.api = a, .window_ns = WINDOW_NS};
    int rc = a->parse(a, argc, argv, parse_option, &w);
    if (rc == 0)
        rc = check_options(&w);
    if (rc < 0)
        return rc;
    if (a->target == PROBING_TARGET_BARE)
        return a->no_plugin(a);
    if (w.trim || w.gc || w.mark)
        return run_actions(&w);
    return w.leaks    ? leaks_show(&w)
           : w.peak   ? peak_show(&w)
           : w.n_diff ? diff_show(&w)
                      : show_report(&w);
}

/* ---- what the command shows of it ---- */

static const struct probing_report_option options[] = {
    {"--last", NULL, "TIME", "what has grown in this time; 10m by default"},
    {"--heap", NULL, NULL, "ask glibc what is in use, however large: who allocates waits"},
    {"--leaks", NULL, NULL, "where what is not freed comes from, and goes on coming"},
    {"--since", NULL, "TIME", "leaks: look at this much time; 10m"},
    {"--peak", NULL, NULL, "what was alive when the most was"},
    {"--mark", NULL, "NAME", "keep what is alive now under a name"},
    {"--diff", NULL, "MARK MARK", "what has grown between two of them"},
    {"--trim", NULL, NULL, "have the allocator give back what nobody uses"},
    {"--gc", NULL, NULL, "run Python's garbage collector"},
    {"--json", NULL, NULL, "the same as one line of JSON"}};

static const char *const examples[] = {"-t 4242 memory", "-t 4242 memory --leaks --since 10m",
                                       "-t 4242 memory --mark before",
                                       "-t 4242 memory --diff before after"};

static const struct probing_report_command commands[] = {
    {.name = "memory",
     .alias = "mem",
     .arguments = "",
     .doc = "memory of a process: what it is made of, where it grows, what leaks",
     .text = "Of a live process or of one that has ended; of the latter it says what is known "
             "about why. Allocations are sampled from the moment that plugin memory is loaded. "
             "What was allocated before has no stack; the report says how much that is. The memory "
             "of probing itself is shown separately.",
     PROBING_REPORT_LISTS(options, examples),
     .flags = PROBING_REPORT_TARGET,
     .run = report_run}};

PROBING_REPORT_ENTRY("memory", commands);
