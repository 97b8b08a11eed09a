/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/run_each.c - see run_each.h.
 *
 * One thread.
 */
#include "cli/many/run_each.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/many/child.h"
#include "cli/many/group_output.h"
#include "cli/many/query_members.h"
#include "cli/many/run_there.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define AT_ONCE 32                 /* children: each is a copy of us that mostly waits */
#define FLOWS_AT_ONCE 512          /* those that go on must all be there at once */
#define TIMEOUT_NS (60 * NS_PER_S) /* of a command that says no time limit itself */
#define GRACE_NS (5 * NS_PER_S)    /* for a child that was told to end: it puts things right */
#define ENDS_NS (200 * NS_PER_MS)  /* for the last words of a process that is ending */
#define TICK_NS (100 * NS_PER_MS)
#define OUT_BYTES ((size_t)16 << 20)  /* of what one prints */
#define ALL_BYTES ((size_t)256 << 20) /* and of what all print: it is shown when all have ended */
#define ERR_BYTES ((size_t)256 << 10)
#define READ_BYTES ((size_t)64 << 10)

/* A member whose child runs. */
struct running {
    struct member *m;
    struct printed *printed;
    struct child child;
    uint64_t began_ns, deadline_ns, told_ns; /* told: to end, since then; 0 */
    const char *ends;                        /* target_ends(), since ends_ns; NULL */
    uint64_t ends_ns;
    bool late, header_seen;
    int full; /* it printed too much */
};

struct each {
    struct members *all;
    const struct each_run *run;
    struct printed *printed;
    struct running *open;
    struct pollfd *polls;
    uint32_t n_open, at_once, next, done;
    uint64_t timeout_ns;
    size_t kept; /* of what they print */
    bool flows;
    struct lines lines;
    struct progress progress;
};

/* ---- which commands ---- */

static const char *word_behind(const struct each_run *r, const char *name, const char *letter)
{
    size_t n = strlen(name);

    for (int i = 1; i < r->argc; i++) {
        if (strncmp(r->argv[i], name, n) == 0 && r->argv[i][n] == '=')
            return r->argv[i] + n + 1;
        if (i + 1 < r->argc &&
            (strcmp(r->argv[i], name) == 0 || (letter != NULL && strcmp(r->argv[i], letter) == 0)))
            return r->argv[i + 1];
    }
    return NULL;
}

int each_check(const struct each_run *r)
{
    const struct cli_command *c = r->command;

    if (c == NULL || !cli_words_meet(c, c->one_process, r->argc, r->argv))
        return 0;
    return err_set(-EINVAL, "%s takes one process at a time: %s", r->argv[0], c->one_process_why);
}

bool each_flows(const struct each_run *r)
{
    return r->command != NULL && cli_words_meet(r->command, r->command->endless, r->argc, r->argv);
}

static uint64_t limit_of(const struct each_run *r)
{
    const char *own = word_behind(r, "--timeout", NULL);
    uint64_t ns, usual = r->command != NULL ? r->command->timeout_ns : 0;

    if (r->timeout_ns > 0)
        return r->timeout_ns;
    if (own != NULL && parse_ns(own, &ns) == 0)
        return ns + GRACE_NS; /* the command gives up by itself, in better words */
    return usual > 0 ? usual : TIMEOUT_NS;
}

static enum line_form form_of(const struct each_run *r, bool flows)
{
    const char *format = flows ? word_behind(r, "--format", "-f") : NULL;

    return format == NULL                 ? LINES_PLAIN
           : strcmp(format, "jsonl") == 0 ? LINES_JSON
           : strcmp(format, "csv") == 0   ? LINES_CSV
                                          : LINES_PLAIN;
}

/* ---- a child ---- */

struct in_child {
    const struct each_run *run;
    struct target *target;
};

static int run_command(void *arg)
{
    const struct in_child *in = arg;
    const struct each_run *r = in->run;

    target_say_whose(in->target);
    if (runs_there(in->target, r->command, r->argc, r->argv))
        return run_there(in->target, r->argc, r->argv);
    if (r->command == NULL)
        return live_run(in->target, r->argc, (const char *const *)r->argv);
    cli_args_of(r->command);
    int rc = r->command->run(in->target, r->argc, r->argv);
    if (rc >= 0 || !cli_is_misused())
        return rc;
    terminal_say("%s", err_why(rc));
    return EXIT_USAGE;
}

static int open_one(struct each *e, uint32_t i)
{
    struct running *r = &e->open[e->n_open];
    struct member *m = &e->all->list[i];
    struct in_child in = {.run = e->run, .target = &m->target};

    m->result = (struct member_result){.state = MEMBER_ASKED};
    *r = (struct running){.m = m, .printed = &e->printed[i], .began_ns = clock_monotonic()};
    r->deadline_ns = e->flows ? UINT64_MAX : r->began_ns + e->timeout_ns;
    int rc = child_start(&r->child, run_command, &in);
    if (rc == 0) {
        e->n_open++;
        return 0;
    }
    if (rc == -EAGAIN && e->n_open > 0 && !e->flows) { /* so many are possible, and no more */
        e->at_once = e->n_open;
        e->next = i;
        m->result = (struct member_result){.state = MEMBER_NOT_ASKED};
        return 0;
    }
    member_failed(m, MEMBER_FAILED, rc);
    e->done++;
    return e->run->done != NULL ? e->run->done(e->run->arg, m, &e->printed[i].out) : 0;
}

static int open_more(struct each *e)
{
    int rc = 0;

    while (rc == 0 && e->next < e->all->n && e->n_open < e->at_once) {
        uint32_t i = e->next++;
        bool meant = e->run->only == NULL || e->run->only[i];
        if (e->all->list[i].error == 0 && meant)
            rc = open_one(e, i);
        else
            e->done++;
    }
    return rc;
}

/* ---- what it prints ---- */

static void take_output(struct each *e, struct running *r)
{
    struct buf *to[2] = {&r->printed->out, &r->printed->err};
    size_t before = to[0]->size + to[1]->size;

    for (int i = 0; i < 2; i++)
        for (int k = 0, rc = 1; k < 8 && rc == 1; k++) {
            rc = child_read(&r->child, i, to[i], READ_BYTES);
            if (rc == -ENOBUFS || rc == -ENOMEM)
                r->full = rc;
        }
    if (e->flows)
        (void)printed_lines(e->all, r->m, &e->lines, to[0], &r->header_seen, /* last= */ false);
    e->kept += to[0]->size + to[1]->size - before;
    if (e->kept > ALL_BYTES)
        r->full = -ENOBUFS;
}

static void take_reason(const struct running *r, struct member_result *ret)
{
    child_last_words(&r->printed->err, ret->why, sizeof(ret->why));
    if (ret->why[0] == '\0')
        (void)snprintf(ret->why, sizeof(ret->why), "exit code %d%s", r->printed->status,
                       r->printed->out.size > 0 ? ", and the output above" : "");
}

static void take_end(struct each *e, struct running *r)
{
    struct member_result *ret = &r->m->result;
    int status = r->child.status;
    char limit[TEXT_AMOUNT_BYTES];

    ret->elapsed_ns = clock_monotonic() - r->began_ns;
    ret->bytes = r->printed->out.size;
    r->printed->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ret->state =
        r->printed->status == 0 && !r->late && r->full == 0 ? MEMBER_ANSWERED : MEMBER_FAILED;
    if (ret->state == MEMBER_ANSWERED)
        return;
    ret->error = -EIO;
    text_ns((int64_t)e->timeout_ns, limit);
    if (r->full != 0)
        (void)snprintf(ret->why, sizeof(ret->why), "it printed more than %zu MB%s, and was ended",
                       (e->kept > ALL_BYTES ? ALL_BYTES : OUT_BYTES) >> 20,
                       e->kept > ALL_BYTES ? " with the others" : "");
    else if (r->ends != NULL && r->told_ns != 0)
        (void)snprintf(ret->why, sizeof(ret->why), "%s", r->ends);
    else if (r->late)
        (void)snprintf(ret->why, sizeof(ret->why), "no end within %s", limit);
    else if (cli_interrupted && !e->flows)
        (void)snprintf(ret->why, sizeof(ret->why), "it had not answered when it was interrupted");
    else if (r->printed->status == -1)
        (void)snprintf(ret->why, sizeof(ret->why), "what asked it was ended by signal %d",
                       WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    else
        take_reason(r, ret);
}

/* To whoever wants it: then it is not kept. */
static int give_away(struct each *e, struct running *r)
{
    struct buf *out = &r->printed->out, *err = &r->printed->err;

    if (e->run->done == NULL)
        return 0;
    int rc = e->run->done(e->run->arg, r->m, out);
    e->kept -= out->size + err->size;
    buf_done(out);
    buf_done(err);
    return rc;
}

static int close_one(struct each *e, uint32_t i)
{
    struct running *r = &e->open[i];

    take_output(e, r);
    if (e->flows)
        (void)printed_lines(e->all, r->m, &e->lines, &r->printed->out, &r->header_seen,
                            /* last= */ true);
    struct child ended = r->child;
    child_end(&r->child);
    r->child.status = ended.status;
    take_end(e, r);
    int rc = give_away(e, r);
    e->open[i] = e->open[--e->n_open];
    e->done++;
    return rc;
}

/* A process that is ending has its socket open for as long as its memory takes: who asks it waits
 * in vain.  Not at once: what it has said last may be on its way. */
static bool waits_in_vain(struct running *r, uint64_t now)
{
    const struct target *t = &r->m->target;

    if (t->kind != TARGET_LIVE || t->host[0] != '\0')
        return false;
    r->ends = target_ends(t->pid);
    if (r->ends == NULL)
        r->ends_ns = 0;
    else if (r->ends_ns == 0)
        r->ends_ns = now;
    return r->ends != NULL && now - r->ends_ns > ENDS_NS;
}

/* Told to end, and ended when it does not. */
static void end_late(struct running *r, uint64_t now)
{
    bool wrong = cli_interrupted || r->full != 0 || now > r->deadline_ns || r->told_ns != 0 ||
                 waits_in_vain(r, now);

    if (!wrong)
        return;
    if (r->told_ns == 0) {
        r->late = now > r->deadline_ns && !cli_interrupted && r->full == 0;
        r->told_ns = now;
        child_interrupt(&r->child);
    } else if (now - r->told_ns > GRACE_NS) {
        child_kill(&r->child);
    }
}

static bool is_over(struct running *r)
{
    return r->child.fds[0] == -1 && r->child.fds[1] == -1 && child_ended(&r->child);
}

static int go_round(struct each *e)
{
    bool closing = false;
    int rc = 0;

    for (uint32_t i = 0; i < e->n_open; i++)
        for (int k = 0; k < 2; k++) {
            e->polls[2 * i + k] = (struct pollfd){.fd = e->open[i].child.fds[k], .events = POLLIN};
            closing = closing || (e->open[i].child.fds[0] == -1 && e->open[i].child.fds[1] == -1);
        }
    if (poll(e->polls, 2 * e->n_open, closing ? 1 : (int)(TICK_NS / NS_PER_MS)) == -1 &&
        errno != EINTR)
        return err_set(-errno, "poll: %s", strerror(errno));
    uint64_t now = clock_monotonic();
    for (uint32_t i = e->n_open; i-- > 0;) {
        struct running *r = &e->open[i];
        if (r->full == 0)
            take_output(e, r);
        end_late(r, now);
        int closed = is_over(r) || r->full != 0 ? close_one(e, i) : 0;
        rc = rc < 0 ? rc : closed;
    }
    return rc == 0 && ferror(stdout) ? -EPIPE : rc;
}

/* ---- all of them ---- */

static int run_all(struct each *e)
{
    int rc = 0;

    while (rc == 0 && (e->n_open > 0 || (e->next < e->all->n && !cli_interrupted))) {
        if (!cli_interrupted)
            rc = open_more(e);
        if (rc == 0 && e->n_open > 0)
            rc = go_round(e);
        if (!e->flows)
            progress_say(&e->progress, "%u of %u have answered", e->done, e->all->n);
    }
    while (e->n_open > 0) {
        child_end(&e->open[e->n_open - 1].child);
        e->n_open--;
    }
    progress_end(&e->progress);
    return rc;
}

/* The words were wrong for all: said once, as for one. */
static bool is_misuse(const struct members *m, const struct printed *all)
{
    bool misuse = m->n > 0;

    for (uint32_t i = 0; i < m->n && misuse; i++)
        misuse = m->list[i].result.state == MEMBER_FAILED && all[i].status == EXIT_USAGE;
    return misuse;
}

static int make_room(struct each *e)
{
    uint32_t n = e->all->n;

    e->printed = calloc(n, sizeof(*e->printed));
    e->open = calloc(e->at_once, sizeof(*e->open));
    e->polls = calloc(e->at_once, 2 * sizeof(*e->polls));
    if (e->printed == NULL || e->open == NULL || e->polls == NULL)
        return err_set(-ENOMEM, "no memory for %u children", e->at_once);
    for (uint32_t i = 0; i < n; i++) {
        buf_init(&e->printed[i].out, OUT_BYTES + READ_BYTES);
        buf_init(&e->printed[i].err, ERR_BYTES + READ_BYTES);
    }
    return 0;
}

static void free_all(struct each *e)
{
    for (uint32_t i = 0; e->printed != NULL && i < e->all->n; i++) {
        buf_done(&e->printed[i].out);
        buf_done(&e->printed[i].err);
    }
    free(e->printed);
    free(e->open);
    free(e->polls);
}

int each_member(struct members *m, const struct each_run *run)
{
    struct each e = {.all = m, .run = run, .flows = each_flows(run)};
    bool as_json = cli_words_meet(run->command, "--json", run->argc, run->argv);
    uint32_t most = e.flows ? FLOWS_AT_ONCE : AT_ONCE;

    e.lines.form = form_of(run, e.flows);
    e.timeout_ns = limit_of(run);
    e.at_once = members_at_once(run->at_once > 0 ? run->at_once : m->n < most ? m->n : most);
    if (e.flows && e.at_once < m->n)
        return err_set(
            -EINVAL,
            "%s goes on until it is stopped, so all %u processes must be asked at once, "
            "and these are %u: --at-once %u, and ulimit -n must allow twice as many files",
            run->argv[0], m->n, e.at_once, m->n);
    int rc = make_room(&e);
    progress_begin(&e.progress, e.flows);
    if (e.lines.form != LINES_PLAIN || as_json)
        terminal_exact();
    if (rc == 0)
        rc = run_all(&e);
    if (rc == 0 && is_misuse(m, e.printed)) {
        rc = cli_misuse(err_set(-EINVAL, "%s", m->list[0].result.why));
    } else if (rc == 0 && !e.flows && run->done == NULL) {
        if (as_json)
            printed_json(m, e.printed);
        else
            printed_show(m, e.printed);
    }
    free_all(&e);
    return rc == 0 && cli_interrupted ? err_set(-ECANCELED, "interrupted") : rc;
}
