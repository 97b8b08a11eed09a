/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay.c - `probing relay`: what runs on another machine when somebody asks its
 * processes from afar.
 *
 * One thread.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/link/token.h"
#include "cli/many/members.h"
#include "cli/relay/relay_port.h"
#include "cli/relay/relay_session.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define LINE_BYTES ((size_t)64 << 10)

struct words {
    bool stdio, list;
    const char *listen, *token_file, *what;
};

static int parse_option(void *arg, const char *option, const char *value)
{
    struct words *w = arg;

    if (option == NULL && (!w->list || w->what != NULL))
        return err_set(-EINVAL, "unexpected argument '%s'", value);
    if (option == NULL)
        w->what = value;
    else if (strcmp(option, "--stdio") == 0)
        w->stdio = true;
    else if (strcmp(option, "--list") == 0)
        w->list = true;
    else if (strcmp(option, "--listen") == 0)
        w->listen = value;
    else
        w->token_file = value;
    return 0;
}

/* ---- --list: who is here, a line of JSON each (cli/link/member.c reads it) ---- */

static int print_member(const struct member *m)
{
    const struct target *t = &m->target;
    const bool files = t->kind == TARGET_FILES && !t->stopped;
    char pid[24];
    int64_t step;
    struct rank rank = m->tags;
    struct buf b;

    rank.pid = t->pid > 0 ? t->pid : MEMBER_UNKNOWN;
    (void)snprintf(rank.why, sizeof(rank.why), "%s", m->error < 0 ? m->result.why : "");
    (void)snprintf(pid, sizeof(pid), "%d", (int)t->pid);
    buf_init(&b, LINE_BYTES);
    (void)buf_addc(&b, '{');
    json_add_member_text(&b, "what", t->pid > 0 && !files ? pid : files ? t->directory : m->name);
    json_add_member_text(&b, "directory", t->kind == TARGET_LIVE ? t->directory : "");
    json_add_member_int(&b, "start_time",
                        t->start_time > 0 ? (int64_t)t->start_time : (int64_t)MEMBER_UNKNOWN,
                        MEMBER_UNKNOWN);
    rank_write(&rank, &b);
    if (member_clock_step(t, &step) == 0)
        (void)buf_addf(&b, "\"clock_step_ns\": %lld, ", (long long)step);
    (void)buf_addf(&b, "\"state\": \"%s\"}\n",
                   t->kind == TARGET_LIVE                   ? "alive"
                   : t->kind == TARGET_FILES && !t->stopped ? "dead"
                                                            : "not alive");
    int rc = b.failed ? err_set(b.failed, "a process's line is too long")
             : fwrite(buf_text(&b), 1, b.size, stdout) == b.size ? 0
                                                                 : -EPIPE;
    buf_done(&b);
    return rc;
}

/* Others' machines are asked by who asks. */
static int check_what(const char *what)
{
    return strstr(what, "ssh:") != NULL || strstr(what, "relay:") != NULL
               ? err_set(-EINVAL, "a relay speaks for its own machine: '%s' names another", what)
               : 0;
}

static int list_members(const char *what)
{
    struct members m = {.n = 0};
    int rc = check_what(what);

    if (rc == 0)
        rc = members_find(what, &m);
    for (uint32_t i = 0; rc == 0 && i < m.n; i++)
        rc = print_member(&m.list[i]);
    members_done(&m);
    return rc;
}

/* ---- the command ---- */

/* The asker is at our standard input and output, which nobody else writes to from now on. */
static int serve_stdio(void)
{
    struct session_options o = {.in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3),
                                .out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)};
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (o.in == -1 || o.out == -1 || nothing == -1 || dup2(nothing, STDIN_FILENO) == -1 ||
        dup2(nothing, STDOUT_FILENO) == -1)
        return err_set(-errno, "no standard input and output: %s", strerror(errno));
    return session_run(&o);
}

int command_relay(struct target *t, int argc, char **argv)
{
    struct words w = {.stdio = false};
    int rc = cli_parse(argc, argv, parse_option, &w);

    (void)t;
    if (rc == 0 && w.stdio + w.list + (w.listen != NULL) != 1)
        rc = cli_misuse(err_set(-EINVAL, "relay needs one of --stdio, --listen ADDR and --list"));
    if (rc == 0 && w.token_file != NULL && w.listen == NULL)
        rc = cli_misuse(err_set(-EINVAL, "--token-file is for --listen"));
    if (rc < 0)
        return rc;
    if (w.list)
        return list_members(w.what != NULL ? w.what : "all");
    return w.stdio ? serve_stdio() : relay_listen(w.listen, w.token_file);
}
