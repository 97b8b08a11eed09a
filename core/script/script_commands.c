/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script_commands.c - `script run`, `stop`, `reload`, `list`, `help`, `check`, and the
 * table probing.scripts.
 *
 * Threads: workers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"

#define QUESTION_NS NS_PER_S
#define WORDS_MAX_BYTES 16384

/* Read the words "limit=5" behind a script's name and source. */
static int read_words(int argc, const char *const *argv, struct buf *ret)
{
    for (int i = 0; i < argc; i++) {
        char name[SCRIPT_NAME_BYTES];
        size_t n = strcspn(argv[i], "=");
        bool good = argv[i][n] == '=' && n < sizeof(name);
        if (good)
            (void)snprintf(name, sizeof(name), "%.*s", (int)n, argv[i]);
        if (!good || !text_is_name(name))
            return err_set(-EINVAL, "'%.80s' is no parameter: NAME=VALUE", argv[i]);
        (void)buf_add(ret, argv[i], strlen(argv[i]) + 1);
    }
    (void)buf_addc(ret, '\0');
    return ret->failed ? err_set(-E2BIG, "the parameters have more than %d bytes", WORDS_MAX_BYTES)
                       : 0;
}

static int start_script(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct buf words;
    if (argc < 3)
        return err_set(-EINVAL, "usage: script run NAME SOURCE [PARAMETER=VALUE ...]; the source "
                                "is one argument, the text of the program");
    struct script_start start = {
        .name = argv[1], .source = argv[2], .size = strlen(argv[2]), .limit_ns = SCRIPT_LOAD_NS};
    buf_init(&words, WORDS_MAX_BYTES);
    int rc = read_words(argc - 3, argv + 3, &words);
    start.words = words.data;
    start.words_size = words.size;
    if (rc == 0)
        rc = scripts_start(self, &start);
    buf_done(&words);
    return rc < 0 ? rc : host_replyf(out, "script %s runs\n", argv[1]);
}

static int stop_script(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    if (argc != 2)
        return err_set(-EINVAL, "script stop NAME; script list shows them");
    int rc = scripts_stop(self, argv[1]);
    const char *unheard =
        rc == 1 ? "; its at_stop did not run, as it was in the middle of something" : "";
    return rc < 0 ? rc : host_replyf(out, "script %s has stopped%s\n", argv[1], unheard);
}

static int reload_script(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct buf words;
    if (argc < 2)
        return err_set(-EINVAL, "usage: script reload NAME [SOURCE [PARAMETER=VALUE ...]]");
    struct script_start start = {.name = argv[1], .limit_ns = SCRIPT_LOAD_NS};
    if (argc > 2) {
        start.source = argv[2];
        start.size = strlen(argv[2]);
    }
    buf_init(&words, WORDS_MAX_BYTES);
    int rc = argc > 3 ? read_words(argc - 3, argv + 3, &words) : 0;
    start.words = words.data;
    start.words_size = words.size;
    if (rc == 0)
        rc = scripts_reload(self, &start);
    buf_done(&words);
    const char *lost =
        rc == 1 ? "; its probing.state is lost, as it was in the middle of something" : "";
    return rc < 0 ? rc : host_replyf(out, "script %s runs anew%s\n", argv[1], lost);
}

/* Have a source looked at: the one given, or that of a script that was started. */
static int reply_about(struct scripts *all, const char *question, int argc, const char *const *argv,
                       char **ret)
{
    struct script_start start = {.name = argv[1], .limit_ns = QUESTION_NS};
    char *copy = NULL;

    if (argc == 3) {
        start.source = argv[2];
        start.size = strlen(argv[2]);
        return scripts_ask(all, question, &start, ret);
    }
    int rc = scripts_source(all, argv[1], &copy, &start.size);
    start.source = copy;
    if (rc == 0)
        rc = scripts_ask(all, question, &start, ret);
    free(copy);
    return rc;
}

static int help_script(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    char *text = NULL;
    if (argc < 2 || argc > 3)
        return err_set(-EINVAL, "usage: script help NAME [SOURCE]");
    int rc = reply_about(self, "help", argc, argv, &text);
    if (rc == 0)
        rc = host_replyf(out, "%s\n", text ? text : "");
    free(text);
    return rc;
}

static int check_script(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    char *text = NULL;
    if (argc < 2 || argc > 3)
        return err_set(-EINVAL, "usage: script check NAME [SOURCE]");
    int rc = reply_about(self, "check", argc, argv, &text);
    if (rc == 0 && text)
        rc = err_set(-EINVAL, "%s", text);
    else if (rc == 0)
        rc = host_replyf(out, "script %s: nothing found\n", argv[1]);
    free(text);
    return rc;
}

/* An eject waits for who is inside before it frees what they touch (scripts_free()). */
static int run_counted(struct scripts *all,
                       int (*fn)(void *self, int argc, const char *const *argv,
                                 struct probing_reply *out),
                       int argc, const char *const *argv, struct probing_reply *out)
{
    (void)atomic_fetch_add_explicit(&all->n_commands, 1, memory_order_acq_rel);
    int rc = fn(all, argc, argv, out);
    (void)atomic_fetch_sub_explicit(&all->n_commands, 1, memory_order_acq_rel);
    return rc;
}

static int run_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return run_counted(self, start_script, argc, argv, out);
}

static int run_stop(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return run_counted(self, stop_script, argc, argv, out);
}

static int run_reload(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return run_counted(self, reload_script, argc, argv, out);
}

static int run_help(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return run_counted(self, help_script, argc, argv, out);
}

static int run_check(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return run_counted(self, check_script, argc, argv, out);
}

struct listing {
    struct probing_reply *out;
    uint32_t n;
};

static int list_line(void *arg, const struct script_view *v)
{
    struct listing *l = arg;
    l->n++;
    return host_replyf(
        l->out, "%-24s %-8s %8llu rows  cpu %.2f s, throttled %.2f s, %.1f MB, %llu errors%s%s\n",
        v->name, script_state_name(v->state), (unsigned long long)v->rows, (double)v->cpu_ns / 1e9,
        (double)v->throttled_ns / 1e9, (double)v->memory_bytes / 1e6, (unsigned long long)v->errors,
        v->error[0] ? ", the last: " : "", v->error);
}

static int run_list(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)argv;
    if (argc != 1)
        return err_set(-EINVAL, "script list takes no arguments");
    struct listing l = {.out = out};
    int rc = scripts_each(self, list_line, &l);
    return rc == 0 && l.n == 0
               ? host_replyf(out, "no script was started here; script run FILE.lua starts one\n")
               : rc;
}

static int table_row(void *arg, const struct script_view *v)
{
    struct probing_rows *out = arg;
    const union probing_cell row[] = {{.s = v->name},
                                      {.s = script_state_name(v->state)},
                                      {.i = (int64_t)v->started},
                                      {.s = v->error[0] ? v->error : NULL},
                                      {.i = (int64_t)v->rows},
                                      {.i = (int64_t)v->cpu_ns},
                                      {.i = (int64_t)v->throttled_ns},
                                      {.i = (int64_t)v->memory_bytes},
                                      {.i = (int64_t)v->errors},
                                      {.i = (int64_t)v->dropped}};
    return out->row(out, row, sizeof(row) / sizeof(row[0]));
}

static int scan_scripts(void *self, struct probing_rows *out)
{
    return scripts_each(self, table_row, out);
}

static const struct probing_column columns[] = {
    {.name = "name", .type = PROBING_STR, .doc = "as script run named it"},
    {.name = "state", .type = PROBING_STR, .doc = "running, ended, failed or stopped"},
    {.name = "started_at", .type = PROBING_TIME, .unit = PROBING_NS, .doc = "when it was started"},
    {.name = "error", .type = PROBING_STR, .doc = "Lua's message of its last error"},
    {.name = "rows", .type = PROBING_I64, .unit = PROBING_COUNT, .doc = "rows it added to tables"},
    {.name = "cpu_ns",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .doc = "processor time of its thread and of what ran for it, such as queries"},
    {.name = "throttled_ns",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .doc = "time it waited because it had used its share of a processor"},
    {.name = "memory_bytes",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .doc = "memory of its Lua state"},
    {.name = "errors", .type = PROBING_I64, .unit = PROBING_COUNT, .doc = "errors so far"},
    {.name = "dropped",
     .type = PROBING_I64,
     .unit = PROBING_COUNT,
     .doc = "rows that came faster than its functions of probing.on took them"}};
static const struct probing_table_desc desc = {.size = sizeof(desc),
                                               .column_size = sizeof(columns[0]),
                                               .name = "probing.scripts",
                                               .doc = "Lua scripts in this process",
                                               .columns = columns,
                                               .n_columns = sizeof(columns) / sizeof(columns[0]),
                                               .scan = scan_scripts};

static const struct probing_command commands[] = {
    {.size = sizeof(struct probing_command),
     .flags = PROBING_WRITES,
     .name = "script run",
     .usage = "NAME SOURCE [PARAMETER=VALUE ...]",
     .doc = "start a Lua script from its text",
     .run = run_run},
    {.size = sizeof(struct probing_command),
     .flags = PROBING_WRITES,
     .name = "script reload",
     .usage = "NAME [SOURCE [PARAMETER=VALUE ...]]",
     .doc = "start a script that runs anew, with its probing.state",
     .run = run_reload},
    {.size = sizeof(struct probing_command),
     .flags = PROBING_WRITES, /* it runs what stands in the source's parameters */
     .name = "script help",
     .usage = "NAME [SOURCE]",
     .doc = "what a script does, and its parameters, without running it",
     .run = run_help},
    {.size = sizeof(struct probing_command),
     .flags = PROBING_WRITES,
     .name = "script check",
     .usage = "NAME [SOURCE]",
     .doc = "find unknown names, wrong arguments and syntax errors, without running it",
     .run = run_check},
    {.size = sizeof(struct probing_command),
     .flags = PROBING_WRITES | HOST_URGENT | HOST_LASTS,
     .name = "script stop",
     .usage = "NAME",
     .doc = "stop a script; its rows stay",
     .run = run_stop},
    {.size = sizeof(struct probing_command),
     .flags = HOST_URGENT | HOST_LASTS,
     .name = "script list",
     .usage = "",
     .doc = "scripts and their states",
     .run = run_list}};

int script_commands_add(struct scripts *all)
{
    int rc = host_table_add(all->host, &desc, all);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && rc == 0; i++)
        rc = host_command_add(all->host, "script", &commands[i], all);
    return rc;
}
