/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/job_report.c - see job_report.h.
 *
 * One thread.
 */
#include "cli/cluster/job_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster.h"
#include "cli/cluster/torch_store.h"
#include "cli/link/link.h"
#include "cli/many/many.h"
#include "cli/report/report.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define TARGET_BYTES ((size_t)8 << 20) /* of HOSTS_MAX hosts */

/* Behind `cluster` words of ours are no names of commands, so none is taken. */
static bool is_taken_by_none(const char *word)
{
    (void)word;
    return false;
}

/* Options of `cluster` that say whose ranks are meant, and how they are asked: others are the
 * report's. */
static const struct cli_command asking = {.name = "cluster",
                                          .options = {{"--job", "-j", "NAME", NULL},
                                                      {"--hosts", "-H", "HOSTS", NULL},
                                                      {"--store", NULL, "HOST:PORT", NULL},
                                                      {"--rsh", "-e", "COMMAND", NULL},
                                                      {"--remote-probing", NULL, "COMMAND", NULL},
                                                      {"--at-once", NULL, "N", NULL},
                                                      {"--timeout", NULL, "TIME", NULL}}};

const struct cli_command *job_report_of(int argc, char **argv, bool (*is_ours)(const char *word))
{
    bool with_value;
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++)
        i += cli_option_of(&asking, argv[i], &with_value) && with_value;
    if (i >= argc || !text_is_name(argv[i]) || is_ours(argv[i]))
        return NULL;
    for (const struct cli_command *c = report_commands(is_taken_by_none); c->name != NULL; c++)
        if (c->whole_job && strcmp(c->name, argv[i]) == 0)
            return c;
    return NULL;
}

/* The words of the report, its name first, and those that are ours.  An option that the report has,
 * too, is the report's behind its name. */
struct split_words {
    char **report, **ours;
    int n_report, n_ours;
};

static int split_words(const struct cli_command *c, int argc, char **argv, struct split_words *ret)
{
    bool named = false, with_value, other;

    *ret = (struct split_words){.report = calloc((size_t)argc + 1, sizeof(char *)),
                                .ours = calloc((size_t)argc + 1, sizeof(char *))};
    if (ret->report == NULL || ret->ours == NULL)
        return err_set(-ENOMEM, "no memory for the arguments");
    ret->report[ret->n_report++] = (char *)(uintptr_t)c->name;
    ret->ours[ret->n_ours++] = argv[0];
    for (int i = 1; i < argc; i++)
        if (cli_option_of(&asking, argv[i], &with_value) &&
            !(named && cli_option_of(c, argv[i], &other))) {
            ret->ours[ret->n_ours++] = argv[i];
            if (with_value && i + 1 < argc)
                ret->ours[ret->n_ours++] = argv[++i];
        } else if (named || strcmp(argv[i], c->name) != 0) {
            ret->report[ret->n_report++] = argv[i];
        } else {
            named = true;
        }
    return 0;
}

/* Find the job where nobody has named one: the only one here. */
static int find_job(char *ret, size_t size)
{
    struct ranks ranks;
    struct buf dead;
    int rc = job_find_ranks(NULL, &ranks);

    if (rc < 0)
        return rc;
    rc = ranks_check_one_job(&ranks);
    buf_init(&dead, ERR_TEXT_BYTES / 2);
    if (rc == 0 && ranks.n == 0) {
        job_list_ended(&dead);
        rc = err_set(-ENOENT,
                     "no rank of a job runs on this machine that you may look at: name it "
                     "(--job NAME), or processes (`probing -t TARGETS cluster REPORT`)%s",
                     buf_text(&dead));
    }
    buf_done(&dead);
    if (rc == 0)
        (void)snprintf(ret, size, "%s", ranks.list[0].job);
    ranks_done(&ranks);
    return rc;
}

/* "job:NAME,ssh:n1/job:NAME": this machine where it is one of them and has ranks of the job. */
static int name_targets(const struct cluster_options *o, const char *job, struct buf *ret)
{
    struct hosts hosts = {.n = 0};
    struct ranks ranks = {.n = 0};
    bool here;
    int rc = cluster_hosts(o, &hosts, &here);

    if (rc == 0 && here && o->hosts != NULL) {
        rc = job_find_ranks(job, &ranks);
        here = ranks.n > 0 || hosts.n == 0;
    }
    if (rc == 0 && here)
        job_add_target(ret, job);
    for (uint32_t i = 0; rc == 0 && i < hosts.n; i++) {
        (void)buf_addf(ret, "%sssh:%s/", ret->size > 0 ? "," : "", hosts.list[i]);
        job_add_target(ret, job);
    }
    ranks_done(&ranks);
    hosts_done(&hosts);
    return rc < 0 ? rc : ret->failed;
}

static int run_on(const struct cli_command *c, const char *targets, const struct cluster_options *o,
                  const struct split_words *words)
{
    const struct many_options many = {.at_once = o->at_once, .timeout_ns = o->timeout_ns};
    struct cluster_options named = *o;
    struct buf text;
    char job[JOB_NAME_BYTES];
    int rc = 0;

    named.timeout_ns = o->timeout_ns > 0 ? o->timeout_ns : TORCH_STORE_TIMEOUT_NS;
    buf_init(&text, TARGET_BYTES);
    if (targets != NULL && (o->job != NULL || o->hosts != NULL))
        rc = cli_misuse(
            err_set(-EINVAL, "cluster %s takes targets (-t), or a job (--job, --hosts)", c->name));
    else if (targets == NULL && o->job == NULL)
        rc = find_job(job, sizeof(job));
    else if (targets == NULL)
        (void)snprintf(job, sizeof(job), "%s", o->job);
    if (rc == 0 && targets == NULL)
        rc = name_targets(&named, job, &text);
    if (rc == 0)
        rc = many_run(targets != NULL ? targets : buf_text(&text), &many, c, words->n_report,
                      words->report);
    buf_done(&text);
    return rc;
}

int job_report_run(const struct cli_command *c, const char *targets, int argc, char **argv)
{
    struct cluster_options o = {.at_once = 0};
    struct split_words words;
    int rc = split_words(c, argc, argv, &words);

    cli_args_of(&asking);
    if (rc == 0)
        rc = cli_parse(words.n_ours, words.ours, cluster_parse_option, &o);
    if (rc == 0) {
        link_configure(o.rsh, o.program, /* degree= */ 0);
        rc = run_on(c, targets, &o, &words);
    }
    free(words.report);
    free(words.ours);
    return rc;
}

const char *job_reports(char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = '\0';
    for (const struct cli_command *c = report_commands(is_taken_by_none); c->name != NULL; c++)
        if (c->whole_job && used + strlen(c->name) + 24 < size)
            used += (size_t)snprintf(ret + used, size - used, "%s%s",
                                     used == 0 ? " or, of plugins, " : ", ", c->name);
    return ret;
}

void job_report_words(void (*fn)(void *arg, const char *word, const char *doc), void *arg)
{
    for (const struct cli_command *c = report_commands(is_taken_by_none); c->name != NULL; c++)
        if (c->whole_job)
            fn(arg, c->name, c->doc);
}
