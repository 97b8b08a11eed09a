/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/status.c - the state of each rank: of this machine's by this program run for each, of
 * others' by this program run there.
 *
 * One thread.  What comes from another machine may be anything: each line is checked, is bounded,
 * and is of the host that was asked, whatever it says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cluster/cluster.h"
#include "cli/link/run_many.h"
#include "cli/many/child.h"
#include "cli/many/query_members.h"
#include "cli/many/run_each.h"
#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define WORDS_MAX 64
#define WHO_BYTES ((size_t)1 << 20)

/* ---- of this machine ---- */

static void set_why(struct rank *r, enum rank_state state, const char *why)
{
    r->state = state;
    (void)snprintf(r->why, sizeof(r->why), "%s", why);
}

/* Set the state that is seen from here, before anybody is asked. */
static void look_at(struct rank *r)
{
    char directory[4096], why[sizeof(struct target_halt) + 16];
    struct target_halt halt;
    int rc = directory_of((pid_t)r->pid, directory, sizeof(directory));

    if (rc == -ENOENT)
        set_why(r, RANK_NOT_ENTERED, "");
    else if (rc < 0)
        set_why(r, RANK_SILENT, err_why(rc));
    else if (!target_halted((pid_t)r->pid, &halt))
        set_why(r, RANK_ENTERED, "");
    else {
        (void)snprintf(why, sizeof(why), "it is %s; %s", halt.is, halt.remedy);
        set_why(r, RANK_STOPPED, why);
    }
}

/* In a child for one rank: `probing -t PID info`, inject or eject. */
static int run_anew(struct target *t, int argc, char **argv)
{
    const char *words[WORDS_MAX] = {child_own_program(), "-t", t->text};

    memcpy(words + 3, argv, (size_t)argc * sizeof(*words));
    cli_signals_back();
    (void)execvp(words[0], (char *const *)(uintptr_t)words);
    return err_set(-errno, "cannot run %s: %s", words[0], strerror(errno));
}

/* A command for each rank in some state. */
struct errand {
    struct ranks *ranks;
    enum rank_state state;
    char timeout[TEXT_AMOUNT_BYTES];
    const char *words[WORDS_MAX];
    int n_words;
};

static void make_errand(const struct cluster_options *o, const char *verb, struct errand *e)
{
    e->words[e->n_words++] = verb;
    if (strcmp(verb, "inject") != 0)
        return;
    text_ns((int64_t)o->timeout_ns, e->timeout);
    e->words[e->n_words++] = "--wait"; /* somebody else may be entering it */
    e->words[e->n_words++] = "--timeout";
    e->words[e->n_words++] = e->timeout;
    for (uint32_t i = 0; i < o->n_plugins; i++) {
        e->words[e->n_words++] = "--plugin";
        e->words[e->n_words++] = o->plugins[i];
    }
}

/* Keep why it failed, and the version where it has said one. */
static int take_answer(void *arg, const struct member *m, struct buf *out)
{
    static const char KEY[] = "\nversion: ";
    const struct errand *e = arg;
    struct rank *r = NULL;

    for (uint32_t i = 0; i < e->ranks->n && r == NULL; i++)
        r = strtoll(m->name, NULL, 10) == e->ranks->list[i].pid ? &e->ranks->list[i] : NULL;
    if (r == NULL)
        return 0;
    if (m->result.state != MEMBER_ANSWERED) {
        (void)snprintf(r->why, sizeof(r->why), "%s", m->result.why);
        return 0;
    }
    const char *at = strstr(buf_text(out), KEY);
    if (at != NULL)
        (void)snprintf(r->version, sizeof(r->version), "%.*s",
                       (int)strcspn(at + sizeof(KEY) - 1, "\n"), at + sizeof(KEY) - 1);
    return 0;
}

static int run_errand(const struct cluster_options *o, const char *verb, struct ranks *r,
                      enum rank_state state)
{
    static const struct cli_command command = {.name = "cluster", .run = run_anew};
    struct errand e = {.ranks = r, .state = state};
    struct members m = {.n = 0};
    struct buf pids;
    int rc = 0;

    buf_init(&pids, WHO_BYTES);
    for (uint32_t i = 0; rc == 0 && i < r->n; i++)
        if (r->list[i].state == state)
            rc = buf_addf(&pids, "%s%" PRId64, pids.size > 0 ? "," : "", r->list[i].pid);
    make_errand(o, verb, &e);
    if (rc == 0 && pids.size > 0)
        rc = members_find(buf_text(&pids), &m);
    /* The command has a limit of its own, and says more than we can: it comes first. */
    const struct each_run run = {.command = &command,
                                 .argc = e.n_words,
                                 .argv = (char **)(uintptr_t)e.words,
                                 .at_once = o->at_once,
                                 .timeout_ns = o->timeout_ns + o->timeout_ns / 2,
                                 .done = take_answer,
                                 .arg = &e};
    if (rc == 0 && m.n > 0)
        rc = each_member(&m, &run);
    for (uint32_t i = 0; rc == 0 && i < m.n; i++)
        if (m.list[i].error < 0)
            rc = take_answer(&e, &m.list[i], /* out= */ NULL);
    members_done(&m);
    buf_done(&pids);
    return rc;
}

/* Do `verb` to those in that state, then look at all of them again, but keep why it failed. */
static int change_ranks(const struct cluster_options *o, struct ranks *r, const char *verb,
                        enum rank_state state)
{
    char why[sizeof(r->list->why)];
    int rc = run_errand(o, verb, r, state);

    for (uint32_t i = 0; rc == 0 && i < r->n; i++) {
        struct rank *one = &r->list[i];
        if (one->state != state)
            continue;
        (void)snprintf(why, sizeof(why), "%s", one->why);
        look_at(one);
        if (why[0] != '\0')
            (void)snprintf(one->why, sizeof(one->why), "%s", why);
    }
    return rc;
}

/* A rank that does not answer what version it has is silent. */
static int ask_versions(const struct cluster_options *o, struct ranks *r)
{
    int rc = run_errand(o, "info", r, RANK_ENTERED);

    for (uint32_t i = 0; i < r->n; i++)
        if (r->list[i].state == RANK_ENTERED && r->list[i].version[0] == '\0' &&
            r->list[i].why[0] != '\0')
            r->list[i].state = RANK_SILENT;
    return rc;
}

int cluster_local(const struct cluster_options *o, struct ranks *ret)
{
    bool changes = o->action == CLUSTER_ATTACH || o->action == CLUSTER_DETACH;
    int rc = job_find_ranks(o->job, ret);

    if (rc == 0 && changes && o->job == NULL)
        rc = ranks_check_one_job(ret);
    for (uint32_t i = 0; rc == 0 && i < ret->n; i++)
        look_at(&ret->list[i]);
    if (rc == 0 && o->action == CLUSTER_ATTACH)
        rc = change_ranks(o, ret, "inject", RANK_NOT_ENTERED);
    if (rc == 0 && o->action == CLUSTER_DETACH)
        rc = change_ranks(o, ret, "eject", RANK_ENTERED);
    if (rc == 0 && o->action != CLUSTER_NODES)
        rc = ask_versions(o, ret);
    if (rc == 0 && o->action == CLUSTER_STATUS)
        rc = cluster_dead(o->job, ret);
    return rc;
}

/* ---- of other machines ---- */

/* Set the clock that was measured here, whatever the host says of it. */
static void set_clock(uint32_t host, struct rank *r, uint32_t n)
{
    struct link_host h;
    bool known = n > 0 && link_host_of(host, &h) == 0 && h.error_ns != LINK_UNKNOWN;

    for (uint32_t i = 0; known && i < n; i++) {
        r[i].clock_error_ns = h.error_ns;
        r[i].clock_offset_ns = h.offset_ns;
    }
}

/* The lines of one host.  A line that is none makes the host one that could not be asked. */
static int take_host(void *arg, const char *host, const struct remote_run *run, const char *why)
{
    struct ranks *ret = arg;
    uint32_t before = ret->n;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < run->out.size;) {
        const char *line = run->out.data + at, *end = memchr(line, '\n', run->out.size - at);
        size_t n = end != NULL ? (size_t)(end - line) : run->out.size - at;
        struct rank *r = ranks_add(ret);
        rc = r == NULL     ? -ENOMEM
             : end == NULL ? err_set(-EBADMSG, "its answer ends in the middle of a line")
                           : rank_read_line(line, n, r);
        if (r != NULL)
            (void)snprintf(r->host, sizeof(r->host), "%s", host);
        at += n + 1;
    }
    if (rc < 0 && rc != -EBADMSG)
        return rc;
    if (rc == 0 && run->error == 0 &&
        (why[0] == '\0' || ret->n > before)) { /* 1: one is not well */
        set_clock(run->host, ret->list + before, ret->n - before);
        return 0;
    }
    ret->n = before;
    if (cluster_has_none(run, why))
        return ranks_add_host(ret, host, RANK_NONE, "");
    return ranks_add_host(ret, host, RANK_UNREACHED, rc < 0 && run->error == 0 ? err_text() : why);
}

int cluster_remote(const struct cluster_options *o, const struct hosts *hosts, struct ranks *ret)
{
    return cluster_ask_hosts(o, hosts, take_host, ret);
}
