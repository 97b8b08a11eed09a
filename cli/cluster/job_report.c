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

/* Options of `cluster`: whose ranks are meant, and how they are asked.  Others are the report's. */
static const struct {
    const char *name, *letter, *value;
} options[] = {{"--job", "-j", "NAME"},
               {"--hosts", "-H", "HOSTS"},
               {"--store", NULL, "HOST:PORT"},
               {"--rsh", "-e", "COMMAND"},
               {"--remote-probing", NULL, "COMMAND"},
               {"--at-once", NULL, "N"},
               {"--timeout", NULL, "TIME"}};
#define OPTIONS_N (sizeof(options) / sizeof(options[0]))

/* Which one a word is, OPTIONS_N: none; *ret_value: behind "=", NULL: it is the next word. */
static size_t option_of(const char *word, const char **ret_value)
{
    size_t i = 0;

    *ret_value = NULL;
    for (; i < OPTIONS_N; i++) {
        size_t n = strlen(options[i].name);
        if (strcmp(word, options[i].name) == 0 ||
            (options[i].letter != NULL && strcmp(word, options[i].letter) == 0))
            break;
        if (strncmp(word, options[i].name, n) == 0 && word[n] == '=') {
            *ret_value = word + n + 1;
            break;
        }
    }
    return i;
}

const struct cli_command *job_report_of(int argc, char **argv, bool (*is_ours)(const char *word))
{
    int i = 1;

    for (const char *value; i < argc && argv[i][0] == '-'; i++)
        i += option_of(argv[i], &value) < OPTIONS_N && value == NULL;
    if (i >= argc || !text_is_name(argv[i]) || is_ours(argv[i]))
        return NULL;
    for (const struct cli_command *c = report_commands(is_taken_by_none); c->name != NULL; c++)
        if (c->whole_job && strcmp(c->name, argv[i]) == 0)
            return c;
    return NULL;
}

/* The options given to `cluster` about whom it asks. */
struct asked {
    struct cluster_options o;
    struct many_options many;
};

static int take_many_option(const char *name, const char *value, struct many_options *ret)
{
    char *words[] = {(char *)(uintptr_t)name, (char *)(uintptr_t)value, NULL}, **argv = words;
    struct many_options one;
    int argc = 2;
    int rc = many_options_take(&argc, &argv, &one);

    ret->at_once = one.at_once > 0 ? one.at_once : ret->at_once;
    ret->timeout_ns = one.timeout_ns > 0 ? one.timeout_ns : ret->timeout_ns;
    return rc;
}

static int take_option(size_t which, const char *value, struct asked *ret)
{
    const char **texts[] = {&ret->o.job, &ret->o.hosts, &ret->o.store, &ret->o.rsh,
                            &ret->o.program};

    if (which >= sizeof(texts) / sizeof(texts[0]))
        return take_many_option(options[which].name, value, &ret->many);
    *texts[which] = value;
    return 0;
}

/* The words of the report: its name first, without those that are ours.  An option that the report
 * has, too, is the report's behind its name. */
static int take_words(const struct cli_command *c, int argc, char **argv, char **ret,
                      struct asked *ret_asked)
{
    bool named = false, with_value;
    int n = 0;

    ret[n++] = (char *)(uintptr_t)c->name;
    for (int i = 1; i < argc; i++) {
        const char *value;
        size_t which = option_of(argv[i], &value);
        if (which == OPTIONS_N || (named && cli_option_of(c, argv[i], &with_value))) {
            if (named || strcmp(argv[i], c->name) != 0)
                ret[n++] = argv[i];
            else
                named = true;
            continue;
        }
        if (value == NULL && i + 1 == argc)
            return err_set(-EINVAL, "option %s needs a value: %s %s", argv[i], options[which].name,
                           options[which].value);
        int rc = take_option(which, value != NULL ? value : argv[++i], ret_asked);
        if (rc < 0)
            return rc;
    }
    ret[n] = NULL;
    return n;
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
static int name_targets(const struct asked *asked, const char *job, struct buf *ret)
{
    struct hosts hosts = {.n = 0};
    struct ranks ranks = {.n = 0};
    bool here;
    int rc = cluster_hosts(&asked->o, &hosts, &here);

    if (rc == 0 && here && asked->o.hosts != NULL) {
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

static int run_on(const struct cli_command *c, const char *targets, const struct asked *asked,
                  int n, char **words)
{
    struct buf text;
    char job[JOB_NAME_BYTES];
    int rc = 0;

    buf_init(&text, TARGET_BYTES);
    if (targets != NULL && (asked->o.job != NULL || asked->o.hosts != NULL))
        rc = cli_misuse(
            err_set(-EINVAL, "cluster %s takes targets (-t), or a job (--job, --hosts)", c->name));
    else if (targets == NULL && asked->o.job == NULL)
        rc = find_job(job, sizeof(job));
    else if (targets == NULL)
        (void)snprintf(job, sizeof(job), "%s", asked->o.job);
    if (rc == 0 && targets == NULL)
        rc = name_targets(asked, job, &text);
    if (rc == 0)
        rc = many_run(targets != NULL ? targets : buf_text(&text), &asked->many, c, n, words);
    buf_done(&text);
    return rc;
}

int job_report_run(const struct cli_command *c, const char *targets, int argc, char **argv)
{
    struct asked asked = {.o = {.at_once = 0}};
    char **words = calloc((size_t)argc + 1, sizeof(*words));

    if (words == NULL)
        return err_set(-ENOMEM, "no memory for the arguments");
    int n = take_words(c, argc, argv, words, &asked);
    int rc = n < 0 ? cli_misuse(n) : 0;
    asked.o.timeout_ns = asked.many.timeout_ns > 0 ? asked.many.timeout_ns : TORCH_STORE_TIMEOUT_NS;
    if (rc == 0) {
        link_configure(asked.o.rsh, asked.o.program, /* degree= */ 0);
        rc = run_on(c, targets, &asked, n, words);
    }
    free(words);
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
