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

#include "cli/cluster/local_ranks.h"
#include "cli/many/many.h"
#include "cli/report/report.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define TARGET_BYTES 400

/* Behind `cluster` words of ours are no names of commands, so none is taken. */
static bool is_taken_by_none(const char *word)
{
    (void)word;
    return false;
}

static bool is_job_option(const char *word)
{
    return strcmp(word, "--job") == 0 || strcmp(word, "-j") == 0;
}

const struct cli_command *job_report_of(int argc, char **argv, bool (*is_ours)(const char *word))
{
    int i = 1;

    while (i < argc && argv[i][0] == '-')
        i += is_job_option(argv[i]) ? 2 : 1;
    if (i >= argc || !text_is_name(argv[i]) || is_ours(argv[i]))
        return NULL;
    for (const struct cli_command *c = report_commands(is_taken_by_none); c->name != NULL; c++)
        if (c->whole_job && strcmp(c->name, argv[i]) == 0)
            return c;
    return NULL;
}

/* The words of the report: its name first, without --job. */
static int take_words(const struct cli_command *c, int argc, char **argv, char **ret,
                      const char **ret_job)
{
    bool named = false;
    int n = 0;

    ret[n++] = (char *)(uintptr_t)c->name;
    for (int i = 1; i < argc; i++) {
        if (is_job_option(argv[i]) && i + 1 == argc)
            return err_set(-EINVAL, "option %s needs a value: --job NAME", argv[i]);
        if (strncmp(argv[i], "--hosts", 7) == 0)
            return err_set(-EINVAL,
                           "`cluster %s` asks the ranks of this machine; those of others it asks "
                           "by relays: probing -t 'ssh:node[1-8]/job:NAME' %s",
                           c->name, c->name);
        if (is_job_option(argv[i]))
            *ret_job = argv[++i];
        else if (strncmp(argv[i], "--job=", 6) == 0)
            *ret_job = argv[i] + 6;
        else if (!named && strcmp(argv[i], c->name) == 0)
            named = true;
        else
            ret[n++] = argv[i];
    }
    ret[n] = NULL;
    return n;
}

/* Whose job it is where nobody has said: the only one here. */
static int find_job(char *ret, size_t size)
{
    struct local_ranks ranks;
    int rc = local_ranks_find(NULL, &ranks);

    if (rc < 0)
        return rc;
    rc = local_ranks_of_one_job(&ranks);
    if (rc == 0 && ranks.n == 0)
        rc = err_set(-ENOENT, "no rank of a job runs on this machine that you may look at; "
                              "`probing -t TARGETS` names processes otherwise");
    if (rc == 0)
        (void)snprintf(ret, size, "job:%s", ranks.list[0].tags.job);
    local_ranks_done(&ranks);
    return rc;
}

int job_report_run(const struct cli_command *c, int argc, char **argv)
{
    const struct many_options options = {.at_once = 0};
    const char *job = NULL;
    char target[TARGET_BYTES];
    char **words = calloc((size_t)argc + 1, sizeof(*words));

    if (words == NULL)
        return err_set(-ENOMEM, "no memory for the arguments");
    int n = take_words(c, argc, argv, words, &job);
    int rc = n < 0 ? cli_misuse(n) : 0;
    if (rc == 0 && job != NULL)
        (void)snprintf(target, sizeof(target), "job:%s", job);
    else if (rc == 0)
        rc = find_job(target, sizeof(target));
    if (rc == 0)
        rc = many_run(target, &options, c, n, words);
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
