/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/e2e/reports/shifts.c - a stranger's plugin: a table, a command in the process, and a report
 * over them that `probing shifts` shows.
 *
 * The plugin's half runs in the target, the report's half in the command; they share nothing but
 * the names of tables and commands.
 */
#include <errno.h>
#include <math.h>
#include <probing/report.h>
#include <stdio.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof(array)[0])

/* ---- in the target ---- */

static const struct probing_host *host;

static int scan(void *self, struct probing_rows *out)
{
    static const char *const names[] = {"early", "late", "night, of which nobody has ever spoken"};
    (void)self;
    for (int i = 0; i < 3; i++) {
        const union probing_cell cells[] = {{.s = names[i]}, {.i = 8 * (i + 1)}, {.f = i / 2.0}};
        int r = host->emit(out, cells, 3);
        if (r < 0)
            return r;
    }
    return 0;
}

static int say_after_us(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self;
    for (int i = 1; i < argc; i++)
        if (host->reply(out, argv[i], strlen(argv[i])) < 0)
            return -EPIPE;
    return host->reply(out, "\n", 1);
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {
        {.name = "name", .type = PROBING_STR, .doc = "of the shift"},
        {.name = "hours", .type = PROBING_I64, .doc = "of work"},
        {.name = "share", .type = PROBING_F64, .doc = "of all"}};
    static const struct probing_table_desc rota = {.size = sizeof(rota),
                                                   .column_size = sizeof(columns[0]),
                                                   .name = "rota",
                                                   .doc = "who works when",
                                                   .columns = columns,
                                                   .n_columns = 3,
                                                   .scan = scan};
    static const struct probing_table_desc kept = {.size = sizeof(kept),
                                                   .column_size = sizeof(columns[0]),
                                                   .name = "kept",
                                                   .doc = "what outlives the process",
                                                   .columns = columns + 1,
                                                   .n_columns = 1};
    static const struct probing_command command = {.size = sizeof(command),
                                                   .name = "shifts_say",
                                                   .usage = "WORD...",
                                                   .doc = "the words",
                                                   .run = say_after_us};
    struct probing_table *table;
    const union probing_cell cell = {.i = 40};
    host = h;
    *ret_self = &host;
    int r = h->table(h, &rota, &table);
    r = r < 0 ? r : h->table(h, &kept, &table);
    r = r < 0 ? r : h->append(table, h->now(), &cell, 1, NULL, 0);
    return r < 0 ? r : h->command(h, &command);
}

static void destroy(void *self)
{
    (void)self;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {.size = sizeof(probing_plugin_v1),
                                                                .abi = PROBING_ABI,
                                                                .name = "shifts",
                                                                .version = "1",
                                                                .doc = "shifts",
                                                                .init = init,
                                                                .destroy = destroy};

/* ---- in the command ---- */

struct args {
    const struct probing_report_api *api;
    const char *say, *path, *word;
    uint64_t least, pause_ns;
    int json, everywhere, crash, returned;
    uint64_t rows;
};

static int take(void *arg, const char *option, const char *value)
{
    struct args *w = arg;
    if (option == NULL)
        w->word = value;
    else if (strcmp(option, "--say") == 0)
        w->say = value;
    else if (strcmp(option, "--output") == 0)
        w->path = value;
    else if (strcmp(option, "--least") == 0)
        return w->api->parse_count(w->api, value, &w->least);
    else if (strcmp(option, "--pause") == 0)
        return w->api->parse_time(w->api, value, &w->pause_ns);
    else if (strcmp(option, "--json") == 0)
        w->json = 1;
    else if (strcmp(option, "--everywhere") == 0)
        w->everywhere = 1;
    else if (strcmp(option, "--crash") == 0)
        w->crash = 1;
    return 0;
}

static int show_row(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct args *w = arg;
    const struct probing_report_api *a = w->api;
    char cell[64], line[128];
    if (n != 4 || cells[0].type != PROBING_STR || cells[1].type != PROBING_I64 ||
        cells[2].type != PROBING_F64 || cells[3].type != 0 || cells[0].value.s[cells[0].size] != 0)
        return a->fail(a, -EPROTO, "the cells have other types than asked for");
    w->rows++;
    if (cells[1].value.i < (int64_t)w->least)
        return 0;
    (void)a->fit(a, cells[0].value.s, cells[0].size, 12, PROBING_FIT_MIDDLE | PROBING_FIT_FILL,
                 cell, sizeof(cell));
    (void)snprintf(line, sizeof(line), "%s|%3lld h\n", cell, (long long)cells[1].value.i);
    return a->print(a, line, strlen(line));
}

static int json_row(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    const struct probing_report_api *a = ((struct args *)arg)->api;
    (void)n;
    (void)a->print(a, "{\"name\":", 8);
    (void)a->print_json_text(a, cells[0].value.s, cells[0].size);
    (void)a->print(a, ",\"share\":", 9);
    (void)a->print_json_number(a, cells[2].value.f);
    (void)a->print(a, ",\"none\":", 8);
    (void)a->print_json_number(a, (double)NAN);
    return a->print(a, "}\n", 2);
}

static int one_number(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    if (n == 1 && cells[0].type == PROBING_I64)
        *(int64_t *)arg = cells[0].value.i;
    return 0;
}

static int show_process(void *arg, int64_t pid)
{
    const struct probing_report_api *a = arg;
    int64_t hours = -1;
    char line[80];
    if (a->ask_process(a, pid, "select sum(hours) from shifts.rota", one_number, &hours) < 0)
        hours = -1;
    (void)snprintf(line, sizeof(line), "%lld: %lld%s\n", (long long)pid, (long long)hours,
                   pid == a->target_pid ? ", the target" : "");
    return a->print(a, line, strlen(line));
}

struct sink {
    const struct probing_report_api *api;
    struct probing_report_file *file;
};

static int to_file(void *arg, const void *bytes, size_t n)
{
    const struct sink *s = arg;
    return s->api->file_write(s->file, bytes, n);
}

static int say(const struct args *w)
{
    const struct probing_report_api *a = w->api;
    const char *const argv[] = {"shifts_say", w->say};
    struct sink s = {.api = a};
    if (w->path == NULL)
        return a->call(a, 2, argv, NULL, NULL);
    int r = a->file_open(a, w->path, &s.file);
    return r < 0 ? r : a->file_close(s.file, a->call(a, 2, argv, to_file, &s));
}

/* The dead have the table that was stored. */
static int show_dead(const struct probing_report_api *a)
{
    int64_t hours = -1;
    char line[64];
    int r = a->ask(a, "select sum(hours) from shifts.kept", one_number, &hours);
    (void)snprintf(line, sizeof(line), "kept: %lld h\n", (long long)hours);
    return r < 0 ? r : a->print(a, line, strlen(line));
}

static int run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    static const char text[] = "a sentence that is long enough to be wrapped where somebody looks "
                               "at a terminal, and told as it is where nobody does";
    struct args w = {.api = a};
    int r = a->parse(a, argc, argv, take, &w);
    if (r < 0)
        return r;
    if (w.word != NULL && strcmp(w.word, "late") != 0)
        return a->misuse(a, -EINVAL, "shifts takes late, or nothing");
    if (w.crash)
        *(volatile int *)(uintptr_t)argc = 1;
    if (a->target == PROBING_TARGET_BARE)
        return a->no_plugin(a);
    if (a->target == PROBING_TARGET_DEAD)
        return show_dead(a);
    if (w.say != NULL)
        return say(&w);
    if (w.everywhere)
        return a->processes(a, show_process, (void *)(uintptr_t)a);
    if (w.json)
        a->exact(a);
    r = a->ask(a, "select name, hours, share, null from shifts.rota order by hours",
               w.json ? json_row : show_row, &w);
    if (r == -ENOENT || r == -EINVAL)
        return a->no_plugin(a);
    if (r == 0 && !w.json) {
        a->print_wrapped(a, "  ", text, sizeof(text) - 1);
        a->say(a, "that is all");
    }
    return r < 0 ? r : w.word != NULL ? 7 : a->flush(a);
}

static const struct probing_report_option options[] = {
    {"--least", "-l", "HOURS", "shifts of at least so many hours"},
    {"--pause", NULL, "TIME", "is looked at only"},
    {"--json", NULL, NULL, "a line of JSON for each shift"},
    {"--say", NULL, "WORD", "have the process say it"},
    {"--output", "-o", "FILE", "what it says goes here"},
    {"--everywhere", NULL, NULL, "hours of all processes here"},
    {"--crash", NULL, NULL, "follow a pointer that leads nowhere"}};

static const char *const examples[] = {"-t 4242 shifts", "-t 4242 shifts --least 10"};

static const struct probing_report_command commands[] = {
    {.name = "shifts",
     .alias = "sh",
     .arguments = "late | early",
     .doc = "who works when",
     .text = "Of plugin shifts, which tests bring.",
     .options = options,
     .examples = examples,
     .n_options = N(options),
     .option_size = sizeof(options[0]),
     .n_examples = N(examples),
     .flags = PROBING_REPORT_TARGET,
     .run = run}};

PROBING_EXPORT const struct probing_report probing_report_v1 = {
    .size = sizeof(probing_report_v1),
    .abi = PROBING_REPORT_ABI,
    .name = "shifts",
    .commands = commands,
    .n_commands = N(commands),
    .command_size = sizeof(commands[0]),
};
