/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/many.c - see many.h: which way a command goes to many members.
 *
 * One thread.
 */
#include "cli/many/many.h"

#include <errno.h>
#include <probing/report.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/link.h"
#include "cli/many/global_query.h"
#include "cli/many/one_table.h"
#include "cli/many/run_each.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/limits.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/distribute/distribute.h"

#define AT_ONCE_MAX 16384

struct many {
    struct members members;
    struct members_ask how;
    struct member_result *results; /* [members.n] of all that a report has asked */
    bool answered;                 /* one of its questions has been, by somebody */
};

/* ---- options ---- */

static int take_option(const char *name, const char *value, struct many_options *ret)
{
    uint64_t n;

    if (value == NULL)
        return err_set(-EINVAL, "option %s needs a value", name);
    if (strcmp(name, "--timeout") == 0)
        return cli_take_time(name, value, &ret->timeout_ns);
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

    if (ask->from_row > 0 || ask->to_row > 0)
        return cli_misuse(err_set(-EINVAL, "--from-row and --to-row take one process: rows have "
                                           "their numbers in its own table"));
    if (sql_is_global(ask->statement, strlen(ask->statement)))
        return members_global(&many->members, &many->how, ask, fn, arg);
    return members_table(&many->members, &many->how, ask, fn, arg);
}

static bool asks_for_rows(const struct cli_command *c)
{
    return c != NULL && c->reads_rows && !c->whole_job && c->run_many == NULL;
}

bool many_asks_all(const struct cli_command *c, int argc, char *const *argv)
{
    char table[400];

    for (int i = 1; i < argc && asks_for_rows(c); i++) {
        (void)snprintf(table, sizeof(table), "describe %.300s", argv[i]); /* export global.x */
        if (sql_is_global(argv[i], strlen(argv[i])) ||
            (strcmp(c->name, "query") != 0 && sql_is_global(table, strlen(table))))
            return true;
    }
    return false;
}

/* Has one of them failed, or could not be asked? */
static bool may_be_theirs(const struct members *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->list[i].result.state == MEMBER_FAILED || m->list[i].error < 0)
            return true;
    return false;
}

/* Say which members of a job have ended, as that is no part of what they answer. */
static void say_dead(const struct members *m)
{
    bool *dead = calloc(m->n + 1, sizeof(*dead));
    uint32_t n = 0;
    struct buf names;

    buf_init(&names, 1u << 20);
    for (uint32_t i = 0; dead != NULL && i < m->n; i++) {
        const struct target *t = &m->list[i].target;
        bool files = t->there != NULL ? t->there->dead : t->kind == TARGET_FILES && !t->stopped;
        dead[i] = m->list[i].error == 0 && m->list[i].tags.job[0] != '\0' && files;
        n += dead[i];
    }
    if (n > 0) {
        members_list(m, dead, &names);
        terminal_say("%s %s %s ended, and left %s data",
                     m->ranked ? n == 1 ? "rank" : "ranks"
                     : n == 1  ? "process"
                               : "processes",
                     buf_text(&names), n == 1 ? "has" : "have", n == 1 ? "its" : "their");
    }
    buf_done(&names);
    free(dead);
}

/* Find who is there now. */
static int find_members(struct many *many, const char *text, const struct many_options *o)
{
    int rc = members_find(text, &many->members);

    if (rc < 0)
        return rc;
    rc = members_identify(&many->members, o->timeout_ns, o->at_once);
    if (rc == 0)
        say_dead(&many->members);
    return rc;
}

/* The last line, and the exit code.  What went wrong here, not there, is main()'s to say. */
static int finish_command(const struct many *many, int rc)
{
    const struct members *m = &many->members;
    bool ours = rc < 0 && rc != -ECANCELED && (members_answered(m) > 0 || !may_be_theirs(m));

    if (cli_is_misused() || rc == -EPIPE || ours)
        return rc;
    (void)fflush(stdout);
    bool all = members_say_missing(m);
    return rc == -ECANCELED || all ? rc : EXIT_FAILED;
}

int many_answer(const struct target *t, const struct answer_ask *ask,
                int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    static const struct many_options none;
    const struct many_options *o = t->many != NULL ? t->many : &none;
    struct many many = {.how = {.at_once = o->at_once, .timeout_ns = o->timeout_ns}};
    const struct target members = {.kind = TARGET_MANY, .text = t->text, .many = &many};
    int rc = find_members(&many, t->text, o);

    if (rc == 0)
        rc = answer_all(&members, ask, fn, arg);
    if (!ask->quiet)
        rc = finish_command(&many, rc);
    members_done(&many.members);
    return rc;
}

static int run_rows(struct many *many, const char *text, const struct each_run *run)
{
    struct target t = {.kind = TARGET_MANY, .text = text, .answer = answer_all, .many = many};

    cli_args_of(run->command);
    if (run->command->pages)
        pager_begin();
    return finish_command(many, run->command->run(&t, run->argc, run->argv));
}

/* It may ask for more than one statement: each is for whoever is there then. */
static int run_query(const char *text, const struct many_options *o, const struct each_run *run)
{
    struct target t = {.kind = TARGET_MANY,
                       .text = text,
                       .answer = many_answer,
                       .answer_global = many_answer,
                       .many = (void *)(uintptr_t)o};

    cli_args_of(run->command);
    if (run->command->pages)
        pager_begin();
    return run->command->run(&t, run->argc, run->argv);
}

/* ---- reports about a whole job ---- */

/* One question of several, of which some are about tables that not all of them have: a report knows
 * that.  Who did not answer for another reason is told at the end, and who lacks the table of the
 * first question that anybody could answer: that is what the report is about. */
static void keep_results(struct many *many)
{
    bool main_one = !many->answered && members_answered(&many->members) > 0;

    many->answered = many->answered || main_one;
    for (uint32_t i = 0; i < many->members.n; i++) {
        const struct member *m = &many->members.list[i];
        const struct member_result *now = &m->result;
        struct member_result *kept = &many->results[i];
        bool there = m->error == 0 && m->target.kind != TARGET_BARE;
        bool lacks = there && !main_one && (now->error == -ENOENT || now->error == -EINVAL);
        if (kept->state == MEMBER_FAILED)
            continue;
        if (now->state == MEMBER_FAILED && !lacks)
            *kept = *now;
        else if (now->state == MEMBER_ANSWERED || /* that it lacks something is an answer, too */
                 (now->state == MEMBER_FAILED && kept->state == MEMBER_NOT_ASKED))
            kept->state = MEMBER_ANSWERED;
    }
}

static int answer_report(const struct target *t, const struct answer_ask *ask,
                         int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    struct many *many = t->many;
    int rc = answer_all(t, ask, fn, arg);

    keep_results(many);
    return rc;
}

static int64_t null_or(int64_t number)
{
    return number != MEMBER_UNKNOWN ? number : PROBING_NULL_I64;
}

static int each_for_report(const struct target *t,
                           int (*fn)(void *arg, const struct probing_report_member *m), void *arg)
{
    const struct members *all = &((struct many *)t->many)->members;
    int rc = 0;

    for (uint32_t i = 0; i < all->n && rc >= 0; i++) {
        const struct member *m = &all->list[i];
        const struct probing_report_member told = {
            .name = m->name,
            .host = m->tags.host,
            .role = m->tags.role,
            .why = m->result.state == MEMBER_ANSWERED ? NULL : m->result.why,
            .pid = m->target.pid != 0 ? m->target.pid : PROBING_NULL_I64,
            .rank = null_or(m->tags.rank),
            .node_rank = null_or(m->tags.node_rank),
            .local_rank = null_or(m->tags.local_rank)};
        rc = fn(arg, &told);
    }
    return rc < 0 ? rc : 0;
}

/* Has it asked anybody anything? */
static bool has_asked(const struct many *many)
{
    for (uint32_t i = 0; i < many->members.n; i++)
        if (many->results[i].state != MEMBER_NOT_ASKED)
            return true;
    return false;
}

static int run_report(struct many *many, const char *text, const struct each_run *run)
{
    struct target t = {.kind = TARGET_MANY,
                       .text = text,
                       .answer = answer_report,
                       .each = each_for_report,
                       .many = many};

    many->results = calloc(many->members.n, sizeof(*many->results));
    if (many->results == NULL)
        return err_set(-ENOMEM, "no memory for %u members", many->members.n);
    cli_args_of(run->command);
    int rc = run->command->run(&t, run->argc, run->argv);
    bool asked = has_asked(many) && !cli_is_misused() && rc != -EPIPE;
    for (uint32_t i = 0; asked && i < many->members.n; i++)
        if (many->results[i].state != MEMBER_NOT_ASKED)
            many->members.list[i].result = many->results[i];
    (void)fflush(stdout);
    bool all = !asked || members_say_missing(&many->members);
    free(many->results);
    return rc < 0 || all ? rc : rc > EXIT_FAILED ? rc : EXIT_FAILED;
}

static int run_each(struct many *many, const struct each_run *run)
{
    bool flows = each_flows(run);

    if (run->command != NULL && run->command->pages)
        pager_begin();
    bool own = run->command != NULL && run->command->run_many != NULL;
    int rc = own ? run->command->run_many(&many->members, run) : each_member(&many->members, run);
    /* Whoever ends a stream by Ctrl-C knows who was there. */
    return flows && rc < 0 ? rc : finish_command(many, rc);
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
    bool report = c != NULL && c->whole_job;
    int rc = report || asks_for_rows(c) ? 0 : cli_misuse(each_check(&run));
    link_set_timeout(o->timeout_ns);
    if (rc == 0)
        rc = cli_check_files();
    if (rc == 0 && c != NULL && c->finds_again)
        return run_query(text, o, &run);
    if (rc == 0)
        rc = find_members(&many, text, o);
    if (rc == 0)
        rc = report             ? run_report(&many, text, &run)
             : asks_for_rows(c) ? run_rows(&many, text, &run)
                                : run_each(&many, &run);
    members_done(&many.members);
    return rc;
}
