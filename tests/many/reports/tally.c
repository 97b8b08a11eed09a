/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/many/reports/tally.c - a stranger's plugin: a table, and a report about a whole job over it
 * (PROBING_REPORT_JOB), which `probing -t job:NAME tally` and `probing cluster tally` show.
 */
#include <errno.h>
#include <report_sdk.h>
#include <stdlib.h>

/* ---- in the target ---- */

static const struct probing_host *host;

static int scan(void *self, struct probing_rows *out)
{
    const char *rank = getenv("RANK");
    const union probing_cell cells[] = {{.i = rank != NULL ? 10 * strtol(rank, NULL, 10) : -1}};
    (void)self;
    return host->emit(out, cells, 1);
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {
        {.name = "votes", .type = PROBING_I64, .doc = "of this process"}};
    static const struct probing_table_desc votes = {.size = sizeof(votes),
                                                    .column_size = sizeof(columns[0]),
                                                    .name = "votes",
                                                    .doc = "votes",
                                                    .columns = columns,
                                                    .n_columns = 1,
                                                    .scan = scan};
    struct probing_table *table;
    host = h;
    *ret_self = &host;
    return h->table(h, &votes, &table);
}

static void destroy(void *self)
{
    (void)self;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {.size = sizeof(probing_plugin_v1),
                                                                .abi = PROBING_ABI,
                                                                .name = "tally",
                                                                .version = "1",
                                                                .doc = "votes",
                                                                .init = init,
                                                                .destroy = destroy};

/* ---- in the command ---- */

struct args {
    const struct probing_report_api *api;
    bool json, call;
};

static int take(void *arg, const char *option, const char *value)
{
    struct args *w = arg;
    if (option == NULL)
        return report_fail(w->api, -EINVAL, "tally takes no '%s'", value);
    *(strcmp(option, "--json") == 0 ? &w->json : &w->call) = true;
    return 0;
}

static int show_sum(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    (void)n;
    report_printf(arg, "%lld votes of %lld\n", (long long)cell_int(&c[0]),
                  (long long)cell_int(&c[1]));
    return 0;
}

static int show_each(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    report_printf(arg, "%u columns, %lld: %lld\n", n, (long long)cell_int(&c[0]),
                  (long long)cell_int(&c[1]));
    return 0;
}

static int show_member(void *arg, const struct probing_report_member *m)
{
    report_printf(arg, "%s %s %s\n", m->rank != PROBING_NULL_I64 ? "rank" : "process", m->name,
                  m->why == NULL ? "answered" : m->why);
    return 0;
}

static int no_process(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    (void)arg;
    (void)c;
    (void)n;
    return 0;
}

static int run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    static const char *const config[] = {"config"};
    struct args w = {.api = a};
    int rc = a->parse(a, argc, argv, take, &w);
    if (rc < 0)
        return rc;
    if (a->target != PROBING_TARGET_JOB || !PROBING_REPORT_HAS(a, members))
        return report_fail(a, -EPROTO, "this is no job");
    if (w.call)
        return a->call(a, 1, config, NULL, NULL);
    (void)a->ask(a, "select 1 from global.no.such_table", no_process, NULL); /* harms nothing */
    rc = a->ask(a, "select sum(votes), count(*) from global.tally.votes", show_sum, (void *)a);
    if (rc == -ENOENT || rc == -EINVAL)
        return a->no_plugin(a);
    if (rc == 0)
        rc = a->ask(a, "select votes from tally.votes", show_each, (void *)a);
    return rc < 0 ? rc : a->members(a, show_member, (void *)a);
}

static const struct probing_report_option options[] = {
    {"--json", NULL, NULL, "nothing"}, {"--call", NULL, NULL, "a command, which it may not"}};
static const char *const examples[] = {"cluster tally"};
static const struct probing_report_command commands[] = {
    {.name = "tally",
     .arguments = "",
     .doc = "the votes of a job",
     PROBING_REPORT_LISTS(options, examples),
     .flags = PROBING_REPORT_TARGET | PROBING_REPORT_JOB,
     .run = run}};

PROBING_REPORT_ENTRY("tally", commands);
