/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/remote_target.c - targets of other machines: "ssh:HOST/PID", "relay:HOST:PORT/PID".
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/link/link.h"
#include "cli/target/query_client.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define LIST_BYTES ((size_t)1 << 20) /* of what a host says of one process */

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
};

static int pass(void *arg, bool error, const char *data, size_t size)
{
    const struct passed *p = arg;

    if (!error)
        return p->fn(p->arg, data, size);
    return fwrite(data, 1, size, stderr) == size ? 0 : -EPIPE;
}

static int answer_there(const struct target *t, const struct answer_ask *ask,
                        int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    char numbers[3][32];
    const char *words[14] = {"-t", t->there->what, "query", "--format", ask->format};
    const struct {
        const char *option, *unit;
        uint64_t value;
    } more[] = {{"--width", "", ask->width},
                {"--limit", "", ask->limit},
                {"--timeout", "ns", ask->timeout_ns}};
    struct passed p = {fn, arg};
    int n = 5;

    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        if (more[i].value == 0 || i == 0)
            continue;
        (void)snprintf(numbers[i], sizeof(numbers[i]), "%llu%s", (unsigned long long)more[i].value,
                       more[i].unit);
        words[n++] = more[i].option;
        words[n++] = numbers[i];
    }
    words[n++] = ask->statement;
    int rc = link_run_all(t->there->host, n, words, pass, &p);
    return rc > 0 ? err_set(-EIO, "the query failed on %s", t->host) : rc;
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

struct said {
    struct buf out, err;
};

static int keep(void *arg, bool error, const char *data, size_t size)
{
    struct said *s = arg;

    return buf_add(error ? &s->err : &s->out, data, size) == 0
               ? 0
               : err_set(-EMSGSIZE, "its host says more than can be of one process");
}

/* What probing there has said last, without its name. */
static int said_why(const struct remote_name *r, struct said *s, int rc)
{
    const char *text = buf_text(&s->err), *last = text;

    for (const char *at = text; (at = strstr(at, "probing: ")) != NULL; at++)
        last = at + sizeof("probing: ") - 1;
    if (last[0] == '\0')
        return err_set(-EIO, "%s: `probing relay --list` ended with code %d there", r->host, rc);
    return err_set(-ESRCH, "%s: %.*s", r->host, (int)strcspn(last, "\n"), last);
}

int remote_resolve(const char *text, const struct remote_name *r, struct target *ret)
{
    const char *words[REMOTE_LIST_WORDS];
    const struct link_member *m = NULL;
    char why[ERR_TEXT_BYTES];
    struct said s;
    uint32_t host;
    int rc = remote_name_is_one(r) ? remote_host(r, &host)
                                   : err_set(-EINVAL,
                                             "'%s' names several processes, and this takes "
                                             "one: %s:%s/PID",
                                             text, r->listens ? "relay" : "ssh", r->host);

    if (rc < 0)
        return rc;
    buf_init(&s.out, LIST_BYTES);
    buf_init(&s.err, LIST_BYTES);
    remote_list_words(r->what, words);
    rc = link_run_all(host, REMOTE_LIST_WORDS, words, keep, &s);
    if (rc < 0 && rc != -ECANCELED) {
        (void)snprintf(why, sizeof(why), "%s", err_why(rc));
        rc = err_set(rc, "%s: %s", r->host, why);
    } else if (rc > 0) {
        rc = said_why(r, &s, rc);
    } else if (rc == 0) {
        rc = link_member_read(host, buf_text(&s.out), strcspn(buf_text(&s.out), "\n"), &m);
        if (rc == 0 && m->why[0] != '\0')
            rc = err_set(-ESRCH, "%s: %s", r->host, m->why);
    }
    if (rc == 0)
        remote_target(text, r, m, ret);
    buf_done(&s.out);
    buf_done(&s.err);
    return rc;
}
