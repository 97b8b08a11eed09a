/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/remote_target.c - targets of other machines: "ssh:HOST/PID", "relay:HOST:PORT/PID".
 *
 * One thread.
 */
#include "cli/target/remote_target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/link/remote_shell.h"
#include "cli/link/run_many.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define LIST_BYTES ((size_t)1 << 20) /* of what a host says of one process */
#define LIST_NS (60 * NS_PER_S)
#define COMMAND_WORDS 16

bool remote_name_read(const char *text, struct remote_name *ret)
{
    static const char SSH[] = "ssh:", RELAY[] = "relay:";
    bool listens = strncmp(text, RELAY, sizeof(RELAY) - 1) == 0;

    if (!listens && strncmp(text, SSH, sizeof(SSH) - 1) != 0)
        return false;
    const char *host = text + (listens ? sizeof(RELAY) : sizeof(SSH)) - 1;
    size_t n = strcspn(host, "/");
    *ret = (struct remote_name){.listens = listens, .what = host + n + (host[n] == '/')};
    (void)snprintf(ret->host, sizeof(ret->host), "%.*s", (int)n, host);
    return true;
}

static int check_listener(const char *host)
{
    const char *colon = strrchr(host, ':');
    uint64_t port;

    if (colon == NULL || strchr(host, ']') > colon)
        return err_set(-EINVAL, "'%s' has no port: relay:HOST:PORT", host);
    if (parse_u64(colon + 1, &port) < 0 || port == 0 || port > 65535)
        return err_set(-EINVAL, "'%s': the port must be a number from 1 to 65535", host);
    return colon > host ? 0 : err_set(-EINVAL, "'%s': a host is missing before its port", host);
}

int remote_name_check(const struct remote_name *r)
{
    if (r->host[0] == '\0')
        return cli_misuse(
            err_set(-EINVAL, "a host is missing behind '%s:'", r->listens ? "relay" : "ssh"));
    if (!host_is_name(r->host))
        return cli_misuse(err_set(-EINVAL, "'%s' is no name of a host", r->host));
    return r->listens ? cli_misuse(check_listener(r->host)) : 0;
}

bool remote_name_is_one(const struct remote_name *r)
{
    return r->what[0] == '/' ||
           (r->what[0] != '\0' && r->what[strspn(r->what, "0123456789")] == '\0');
}

int remote_host(const struct remote_name *r, uint32_t *ret)
{
    const char *const names[] = {r->host};

    if (link_known(r->host, r->listens, ret) == 0)
        return 0;
    return r->listens ? link_listener(r->host, ret) : link_hosts(names, 1, ret);
}

void remote_list_words(const char *what, const char *ret[REMOTE_LIST_WORDS])
{
    ret[0] = "relay";
    ret[1] = "--list";
    ret[2] = what[0] != '\0' ? what : "all";
}

/* ---- its files, by a query that runs there ---- */

struct passed {
    int (*fn)(void *arg, const char *data, size_t size);
    void *arg;
    struct buf said; /* on its stderr, as much as is kept */
};

static int pass_output(void *arg, bool error, const char *data, size_t size)
{
    struct passed *p = arg;

    if (!error)
        return p->fn(p->arg, data, size);
    if (p->said.size + size < LIST_BYTES)
        (void)buf_add(&p->said, data, size);
    return 0;
}

/* Its reason is ours, in its own words: the lines after the first without their indent. */
static int fail_as(const struct target *t, const char *reason)
{
    char mended[4096], why[4096];
    size_t n = 0;

    link_hints(t->there->host, reason + sizeof("probing: ") - 1, mended, sizeof(mended));
    for (const char *at = mended; *at != '\0'; at++) {
        why[n++] = *at;
        at += *at == '\n' ? strspn(at + 1, " ") : 0;
    }
    while (n > 0 && why[n - 1] == '\n')
        n--;
    why[n] = '\0';
    return err_set(-EIO, "%s", why);
}

static int answer_there(const struct target *t, const struct answer_ask *ask,
                        int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    struct answer_words words = {.list = {"-t", t->there->what}, .n = 2};
    struct passed p = {.fn = fn, .arg = arg};
    int n = answer_words(ask, /* width= */ false, &words);

    buf_init(&p.said, LIST_BYTES);
    int rc = link_run_all(t->there->host, n, words.list, pass_output, &p);
    const char *text = buf_text(&p.said), *reason = rc > 0 ? terminal_last_said(text) : NULL;
    if (rc == 0 && ask->reader != NULL && arrow_reader_has_note(ask->reader))
        reason = terminal_last_said(text); /* which its reader knows */
    size_t before = reason != NULL ? (size_t)(reason - text) : strlen(text);
    if (before > 0)
        (void)link_print_words(t->there->host, text, before);
    if (rc > 0)
        rc = reason != NULL ? fail_as(t, reason)
                            : err_set(-EIO,
                                      "the query failed on %s, and it did not say why (exit "
                                      "code %d)",
                                      t->host, rc);
    buf_done(&p.said);
    return rc;
}

/* ---- another command there ---- */

static int keep_errors(void *arg, bool error, const char *data, size_t size)
{
    struct buf *said = arg;

    if (error && said->size + size < LIST_BYTES)
        (void)buf_add(said, data, size);
    return 0;
}

int remote_command(const struct target *t, int n, const char *const *words)
{
    const char *all[COMMAND_WORDS] = {"-t", t->there->what};
    struct buf said;

    for (int i = 0; i < n && i + 2 < COMMAND_WORDS; i++)
        all[i + 2] = words[i];
    buf_init(&said, LIST_BYTES);
    int rc = link_run_all(t->there->host, n + 2, all, keep_errors, &said);
    if (rc > 0) {
        const char *why = terminal_last_said(buf_text(&said));
        why = why != NULL ? why + sizeof("probing: ") - 1 : "it did not say why";
        rc = err_set(-EIO, "%s: %s %s: %.*s", t->host, words[0], words[1], (int)strcspn(why, "\n"),
                     why);
    }
    buf_done(&said);
    return rc;
}

void remote_target(const char *text, const struct remote_name *r, const struct link_member *m,
                   struct target *ret)
{
    *ret = (struct target){.kind = m->alive ? TARGET_LIVE : TARGET_THERE, .text = text, .there = m};
    (void)snprintf(ret->host, sizeof(ret->host), "%.255s", r->host);
    if (!m->alive)
        ret->answer = answer_there;
}

bool remote_died(const struct target *t, struct target *ret)
{
    if (t->there == NULL)
        return false;
    *ret = *t;
    ret->kind = TARGET_THERE;
    ret->answer = answer_there;
    return true;
}

/* ---- one process ---- */

/* Set the error to the last message of probing there, without its name. */
static int take_reason(const struct remote_name *r, struct remote_run *run)
{
    const char *last = terminal_last_said(buf_text(&run->err));

    if (last == NULL)
        return err_set(-EIO, "%s: `probing relay --list` ended with code %d there", r->host,
                       run->status);
    last += sizeof("probing: ") - 1;
    return err_set(-ESRCH, "%s: %.*s", r->host, (int)strcspn(last, "\n"), last);
}

static int take_line(const struct remote_name *r, struct remote_run *run,
                     const struct link_member **ret)
{
    if (run->error < 0)
        return err_set(run->error, "%s: %s", r->host, run->why);
    if (run->status != 0)
        return take_reason(r, run);
    int rc =
        link_member_read(run->host, buf_text(&run->out), strcspn(buf_text(&run->out), "\n"), ret);
    return rc == 0 && (*ret)->why[0] != '\0' ? err_set(-ESRCH, "%s: %s", r->host, (*ret)->why) : rc;
}

int remote_resolve(const char *text, const struct remote_name *r, struct target *ret)
{
    const struct remote_limits limits = {.at_once = 1,
                                         .timeout_ns = link_timeout(LIST_NS),
                                         .bytes = LIST_BYTES,
                                         .all_bytes = 2 * LIST_BYTES};
    const char *words[REMOTE_LIST_WORDS];
    const struct link_member *m = NULL;
    struct remote_run run = {.argc = REMOTE_LIST_WORDS, .argv = words};
    int rc = remote_name_check(r);

    if (rc == 0)
        rc = remote_name_is_one(r) ? remote_host(r, &run.host)
                                   : err_set(-EINVAL,
                                             "'%s' names several processes, and this takes "
                                             "one: %s:%s/PID",
                                             text, r->listens ? "relay" : "ssh", r->host);
    if (rc < 0)
        return rc;
    remote_list_words(r->what, words);
    rc = remote_runs(&run, 1, &limits);
    if (rc == 0)
        rc = take_line(r, &run, &m);
    if (rc == 0)
        remote_target(text, r, m, ret);
    remote_run_done(&run);
    return rc;
}
