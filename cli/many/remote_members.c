/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/remote_members.c - members of other machines: 'ssh:node[1-8]', "ssh:HOST/job:NAME",
 * "relay:HOST:PORT".
 *
 * One thread.  All hosts are reached at once, as a tree of relays, and each says who is there.  One
 * that cannot be reached, or says what cannot be, is a member with the reason.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/link.h"
#include "cli/many/ask.h"
#include "cli/many/child.h"
#include "cli/many/find.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/host_list.h"

#define LIST_BYTES ((size_t)8 << 20) /* of what one host says: some thousand processes */
#define ERR_BYTES ((size_t)64 << 10)
#define LOOK_MS 100
#define LIST_NS (60 * NS_PER_S) /* for all hosts: a relay that does not answer is given up */
#define ASK_POLLS 3

/* A host, and who is meant there. */
struct find_remote {
    struct remote_name name; /* `what` is the list's */
    uint32_t host;
    int error;
    struct link_run run;
    struct buf out, err;
    bool running;
};

/* ---- who is meant ---- */

struct expanding {
    struct find *find;
    bool listens;
    const char *what;
};

static int add_host(void *arg, const char *host)
{
    const struct expanding *e = arg;
    struct find *f = e->find;

    if (f->n_remote == MEMBERS_MAX)
        return -E2BIG;
    struct find_remote *list = realloc(f->remote, (f->n_remote + 1) * sizeof(*list));
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for hosts");
    f->remote = list;
    struct find_remote *r = &list[f->n_remote];
    *r = (struct find_remote){.name = {.listens = e->listens}};
    (void)snprintf(r->name.host, sizeof(r->name.host), "%s", host);
    r->name.what = arena_text(&f->found->mem, e->what, strlen(e->what));
    if (r->name.what == NULL)
        return err_set(-ENOMEM, "no memory for hosts");
    f->n_remote++;
    return 0;
}

/* "[::1]:9922" is no range; "node[1-8]:9922" is one. */
int find_add_remote(struct find *f, const char *text)
{
    struct remote_name r;

    if (!remote_name_read(text, &r))
        return -EINVAL;
    struct expanding e = {.find = f, .listens = r.listens, .what = r.what};
    if (r.host[0] == '\0')
        return err_set(-EINVAL, "'%s': a host is missing behind the colon", text);
    if (strchr(r.host, '[') == NULL || r.host[0] == '[')
        return add_host(&e, r.host);
    return find_each_of_range(f, r.host, add_host, &e);
}

/* ---- reaching all of them ---- */

/* Those that are new, as one tree. */
static int reach_shells(struct find *f)
{
    const char **names = calloc(f->n_remote, sizeof(char *));
    uint32_t n = 0, first = 0, number;

    if (names == NULL)
        return err_set(-ENOMEM, "no memory for %u hosts", f->n_remote);
    for (uint32_t i = 0; i < f->n_remote; i++) {
        const struct remote_name *r = &f->remote[i].name;
        bool twice = r->listens || link_known(r->host, false, &number) == 0;
        for (uint32_t k = 0; k < n && !twice; k++)
            twice = strcmp(names[k], r->host) == 0;
        if (!twice)
            names[n++] = r->host;
    }
    int rc = n > 0 ? link_hosts(names, n, &first) : 0;
    free(names);
    return rc;
}

static int reach_all(struct find *f)
{
    int rc = reach_shells(f);

    for (uint32_t i = 0; rc == 0 && i < f->n_remote; i++) {
        struct find_remote *r = &f->remote[i];
        r->error = remote_host(&r->name, &r->host);
        rc = r->error == -ECANCELED || r->error == -EPIPE ? r->error : 0;
    }
    return rc;
}

/* ---- what they say ---- */

static int keep(void *arg, bool error, const char *data, size_t size)
{
    struct find_remote *r = arg;
    int rc = buf_add(error ? &r->err : &r->out, data, size);

    return rc < 0 ? err_set(-EMSGSIZE, "what its relay says of its processes is more than %zu MB",
                            LIST_BYTES >> 20)
                  : 0;
}

static int begin_list(struct find_remote *r)
{
    const char *words[REMOTE_LIST_WORDS];

    buf_init(&r->out, LIST_BYTES);
    buf_init(&r->err, ERR_BYTES);
    remote_list_words(r->name.what, words);
    int rc = link_run_begin(r->host, REMOTE_LIST_WORDS, words, &r->run);
    r->running = rc == 0;
    return rc;
}

static int add_lost(struct find *f, const struct find_remote *r, int rc)
{
    char name[700], why[ERR_TEXT_BYTES];

    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    (void)snprintf(name, sizeof(name), "%s:%s%s%.300s", r->name.listens ? "relay" : "ssh",
                   r->name.host, r->name.what[0] != '\0' ? "/" : "", r->name.what);
    struct member *m = find_grow(f, name);
    if (m == NULL)
        return -ENOMEM;
    (void)snprintf(m->tags.host, sizeof(m->tags.host), "%.63s", r->name.host);
    m->error = err_set(rc, "%s", why);
    member_failed(m, MEMBER_NOT_ASKED, rc);
    f->found->n++;
    return 0;
}

static int add_member(struct find *f, const struct find_remote *r, const struct link_member *one)
{
    char name[5000];

    (void)snprintf(name, sizeof(name), "%s:%s/%s", r->name.listens ? "relay" : "ssh", r->name.host,
                   one->what);
    struct member *m = find_grow(f, name);
    if (m == NULL)
        return -ENOMEM;
    remote_target(m->name, &r->name, one, &m->target);
    if (find_has(f, &m->target))
        return 0;
    (void)snprintf(m->tags.host, sizeof(m->tags.host), "%.63s", r->name.host);
    (void)snprintf(m->tags.role, sizeof(m->tags.role), "%s", one->role);
    (void)snprintf(m->tags.job, sizeof(m->tags.job), "%s", one->job);
    m->tags.rank = one->rank;
    m->tags.node_rank = one->node_rank;
    m->tags.local_rank = one->local_rank;
    if (one->why[0] != '\0') {
        m->error = err_set(-EIO, "%s", one->why);
        member_failed(m, MEMBER_NOT_ASKED, m->error);
    }
    f->found->n++;
    return 0;
}

/* A line each.  One that is none makes the host one that could not be asked. */
static int take_lines(struct find *f, const struct find_remote *r)
{
    uint32_t before = f->found->n;

    for (size_t at = 0; at < r->out.size;) {
        const char *line = r->out.data + at, *end = memchr(line, '\n', r->out.size - at);
        const struct link_member *one = NULL;
        int rc = end == NULL ? err_set(-EBADMSG, "what its relay says ends in the middle")
                             : link_member_read(r->host, line, (size_t)(end - line), &one);
        if (rc < 0) {
            f->found->n = before;
            return add_lost(f, r, rc);
        }
        rc = add_member(f, r, one);
        if (rc < 0)
            return rc;
        at += (size_t)(end - line) + 1;
    }
    return 0;
}

static int end_list(struct find *f, struct find_remote *r, int rc)
{
    char line[MEMBER_WHY_BYTES];

    r->running = false;
    if (rc == 1 && r->run.status == 0) {
        rc = take_lines(f, r);
    } else if (rc == 1 && r->run.status < 0) {
        rc = add_lost(f, r, err_set(r->run.status, "%s", r->run.why));
    } else if (rc == 1) {
        child_last_words(&r->err, line, sizeof(line));
        rc = add_lost(f, r, err_set(-ESRCH, "%s", line[0] != '\0' ? line : "nobody is there"));
    } else {
        rc = add_lost(f, r, rc);
    }
    link_run_end(&r->run);
    buf_done(&r->out);
    buf_done(&r->err);
    return rc;
}

static int turn(struct find *f, uint32_t begun, struct pollfd *polls)
{
    int rc = 0;

    for (uint32_t i = 0; i < begun && rc == 0; i++) {
        struct find_remote *r = &f->remote[i];
        int got = r->running ? link_run_turn(&r->run, polls + ASK_POLLS * i, keep, r) : 0;
        if (got != 0)
            rc = end_list(f, r, got);
    }
    return rc;
}

static int ask_all(struct find *f, struct pollfd *polls)
{
    const uint32_t at_once = members_at_once(ASK_AT_ONCE) / 2 + 1;
    const uint64_t deadline = clock_monotonic() + LIST_NS;
    uint32_t begun = 0, running = 1;
    int rc = 0;

    for (running = 0; rc == 0 && (begun < f->n_remote || running > 0) && !cli_interrupted;) {
        for (; rc == 0 && begun < f->n_remote && running < at_once; begun++) {
            struct find_remote *r = &f->remote[begun];
            int bad = r->error < 0 ? err_set(r->error, "%s", err_why(r->error)) : begin_list(r);
            running += bad == 0;
            rc = bad < 0 ? add_lost(f, r, bad) : 0;
        }
        for (uint32_t i = 0; i < begun; i++)
            for (uint32_t k = 0; k < ASK_POLLS; k++)
                polls[ASK_POLLS * i + k].fd = -1;
        for (uint32_t i = 0; i < begun; i++)
            if (f->remote[i].running)
                link_run_polls(&f->remote[i].run, polls + ASK_POLLS * i);
        (void)poll(polls, ASK_POLLS * begun, LOOK_MS);
        if (rc == 0)
            rc = turn(f, begun, polls);
        running = 0;
        for (uint32_t i = 0; i < begun; i++) {
            struct find_remote *r = &f->remote[i];
            if (r->running && clock_monotonic() > deadline && rc == 0)
                rc = end_list(f, r,
                              err_set(-ETIMEDOUT, "its relay did not say within %d s who is there",
                                      (int)(LIST_NS / NS_PER_S)));
            running += r->running;
        }
    }
    return rc;
}

int find_ask_remote(struct find *f)
{
    if (f->n_remote == 0)
        return 0;
    struct pollfd *polls = calloc(f->n_remote, ASK_POLLS * sizeof(*polls));
    int rc = polls == NULL ? err_set(-ENOMEM, "no memory for %u hosts", f->n_remote) : reach_all(f);
    if (rc == 0)
        rc = ask_all(f, polls);
    for (uint32_t i = 0; i < f->n_remote; i++) {
        struct find_remote *r = &f->remote[i];
        if (!r->running)
            continue;
        link_run_end(&r->run);
        buf_done(&r->out);
        buf_done(&r->err);
    }
    free(polls);
    free(f->remote);
    f->remote = NULL;
    f->n_remote = 0;
    return rc;
}
