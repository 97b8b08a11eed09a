/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/many.c - see many.h: which way a command goes to many members.
 *
 * One thread.
 */
#include "cli/many/many.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/many/each.h"
#include "cli/many/global_query.h"
#include "cli/many/one_table.h"
#include "cli/target/query_client.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/distribute/distribute.h"

#define AT_ONCE_MAX 16384

struct many {
    struct members members;
    struct members_ask how;
};

/* ---- options ---- */

static int take_option(const char *name, const char *value, struct many_options *ret)
{
    uint64_t n;

    if (value == NULL)
        return err_set(-EINVAL, "option %s needs a value", name);
    if (strcmp(name, "--timeout") == 0)
        return parse_ns(value, &ret->timeout_ns);
    if (parse_u64(value, &n) < 0 || n == 0 || n > AT_ONCE_MAX)
        return err_set(-EINVAL, "--at-once must be a number from 1 to %d, not '%s'", AT_ONCE_MAX,
                       value);
    ret->at_once = (uint32_t)n;
    return 0;
}

int many_options_take(int *argc, char ***argv, struct many_options *ret)
{
    static const char *const names[] = {"--at-once", "--timeout"};
    int rc = 0;

    *ret = (struct many_options){.at_once = 0};
    for (bool found = true; found && *argc > 0 && rc == 0;) {
        found = false;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++) {
            const char *word = (*argv)[0];
            size_t n = strlen(names[i]);
            if (strncmp(word, names[i], n) != 0 || (word[n] != '\0' && word[n] != '='))
                continue;
            int words = word[n] == '=' ? 1 : 2;
            found = true;
            rc = take_option(names[i],
                             words == 1   ? word + n + 1
                             : *argc >= 2 ? (*argv)[1]
                                          : NULL,
                             ret);
            *argc -= words <= *argc ? words : *argc;
            *argv += words;
        }
    }
    return cli_misuse(rc);
}

/* ---- commands that ask for rows: one table ---- */

static int answer_all(const struct target *t, const struct answer_ask *ask,
                      int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    struct many *many = t->many;

    if (sql_is_global(ask->statement, strlen(ask->statement)))
        return members_global(&many->members, &many->how, ask, fn, arg);
    return members_table(&many->members, &many->how, ask, fn, arg);
}

static bool asks_for_rows(const struct cli_command *c)
{
    return c != NULL && (c->run == command_query || c->run == command_export);
}

/* Has one of them failed, or could not be asked? */
static bool may_be_theirs(const struct members *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->list[i].result.state == MEMBER_FAILED || m->list[i].error < 0)
            return true;
    return false;
}

/* The last line, and the exit code.  What went wrong here, not there, is main()'s to say. */
static int finish(const struct many *many, int rc)
{
    const struct members *m = &many->members;
    bool ours = rc < 0 && rc != -ECANCELED && (members_answered(m) > 0 || !may_be_theirs(m));

    if (cli_is_misused() || rc == -EPIPE || ours)
        return rc;
    (void)fflush(stdout);
    bool all = members_say_missing(m);
    return rc == -ECANCELED || all ? rc : EXIT_FAILED;
}

static int run_rows(struct many *many, const char *text, const struct each_run *run)
{
    struct target t = {.kind = TARGET_MANY, .text = text, .answer = answer_all, .many = many};

    cli_args_of(run->command);
    if (run->command->pages)
        pager_begin();
    return finish(many, run->command->run(&t, run->argc, run->argv));
}

static int run_each(struct many *many, const struct each_run *run)
{
    bool flows = each_flows(run);

    if (run->command != NULL && run->command->pages)
        pager_begin();
    int rc = each_member(&many->members, run);
    /* Whoever ends a stream by Ctrl-C knows who was there. */
    return flows && rc < 0 ? rc : finish(many, rc);
}

int many_run(const char *text, const struct many_options *o, const struct cli_command *c, int argc,
             char **argv)
{
    struct many many = {.how = {.at_once = o->at_once, .timeout_ns = o->timeout_ns}};
    const struct each_run run = {.command = c,
                                 .argc = argc,
                                 .argv = argv,
                                 .at_once = o->at_once,
                                 .timeout_ns = o->timeout_ns};

    if (c != NULL)
        argv[0] = (char *)(uintptr_t)c->name; /* an alias stands for its name */
    int rc = asks_for_rows(c) ? 0 : cli_misuse(each_check(&run));
    if (rc == 0)
        rc = members_find(text, &many.members);
    if (rc < 0)
        return rc;
    rc = members_identify(&many.members, o->timeout_ns, o->at_once);
    if (rc == 0)
        rc = asks_for_rows(c) ? run_rows(&many, text, &run) : run_each(&many, &run);
    members_done(&many.members);
    return rc;
}
