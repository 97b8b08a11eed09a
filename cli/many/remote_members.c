/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/remote_members.c - members of other machines: 'ssh:node[1-8]', "ssh:HOST/job:NAME",
 * "relay:HOST:PORT".
 *
 * One thread.  All hosts are reached at once, as a tree of relays, and each says who is there.  One
 * that cannot be reached, or says what cannot be, is a member with the reason.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/host_list.h"
#include "cli/link/run_many.h"
#include "cli/many/child.h"
#include "cli/many/find.h"
#include "cli/many/query_members.h"
#include "cli/target/remote_target.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"

#define LIST_BYTES ((size_t)8 << 20)    /* of what one host says: some thousand processes */
#define LISTS_BYTES ((size_t)128 << 20) /* and all of them */
#define LIST_NS (60 * NS_PER_S) /* for all hosts: a relay that does not answer is given up */

/* A host, and who is meant there. */
struct find_remote {
    struct remote_name name; /* `what` is the list's */
    uint32_t host;
    const char *words[REMOTE_LIST_WORDS];
    int error; /* it cannot even be tried */
    char why[200];
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

    struct remote_name name = {.listens = e->listens};

    (void)snprintf(name.host, sizeof(name.host), "%s", host);
    int rc = remote_name_check(&name);
    if (rc < 0 || f->n_remote == MEMBERS_MAX)
        return rc < 0 ? rc : -E2BIG;
    struct find_remote *list = realloc(f->remote, (f->n_remote + 1) * sizeof(*list));
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for hosts");
    f->remote = list;
    struct find_remote *r = &list[f->n_remote];
    *r = (struct find_remote){.name = name};
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
    const char *hosts = strchr(text, ':') + 1; /* r.host has room for one */
    if (strchr(r.host, '[') == NULL || r.host[0] == '[')
        return add_host(&e, r.host);
    hosts = arena_text(&f->found->mem, hosts, strcspn(hosts, "/"));
    return hosts != NULL ? find_each_of_range(f, hosts, add_host, &e)
                         : err_set(-ENOMEM, "no memory for hosts");
}

/* ---- reaching all of them ---- */

struct named_host {
    const char *name;
    uint32_t at; /* in the list */
};

static int compare_names(const void *one, const void *two)
{
    const struct named_host *a = one, *b = two;
    int order = strcmp(a->name, b->name);

    return order != 0 ? order : a->at < b->at ? -1 : 1;
}

static int compare_places(const void *one, const void *two)
{
    const struct named_host *a = one, *b = two;

    return a->at < b->at ? -1 : 1;
}

/* List the hosts that are new, or were lost since somebody looked, each once and in the order in
 * which they were named. */
static uint32_t list_new_hosts(const struct find *f, struct named_host *ret)
{
    uint32_t n = 0, kept = 0, number;

    for (uint32_t i = 0; i < f->n_remote; i++) {
        const struct remote_name *r = &f->remote[i].name;
        bool known = link_known(r->host, r->listens, &number) == 0;
        if (!r->listens && (!known || link_is_due(r->host, false)))
            ret[n++] = (struct named_host){r->host, i};
    }
    if (n > 0)
        qsort(ret, n, sizeof(*ret), compare_names);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(ret[kept - 1].name, ret[i].name) != 0)
            ret[kept++] = ret[i];
    if (kept > 0)
        qsort(ret, kept, sizeof(*ret), compare_places);
    return kept;
}

/* Reach them as one tree. */
static int connect_ssh_hosts(struct find *f)
{
    struct named_host *hosts = calloc(f->n_remote, sizeof(*hosts));
    const char **names = calloc(f->n_remote, sizeof(char *));
    uint32_t first = 0, number;
    int rc = hosts == NULL || names == NULL
                 ? err_set(-ENOMEM, "no memory for %u hosts", f->n_remote)
                 : 0;

    uint32_t n = rc == 0 ? list_new_hosts(f, hosts) : 0;
    for (uint32_t i = 0; i < n; i++)
        names[i] = hosts[i].name;
    if (n > 0)
        rc = link_hosts(names, n, &first);
    for (uint32_t i = 0; rc == 0 && i < f->n_remote; i++) {
        const struct remote_name *r = &f->remote[i].name;
        if (r->listens && link_known(r->host, true, &number) == 0 && link_is_due(r->host, true))
            (void)link_listener(r->host, &number);
    }
    free(names);
    free(hosts);
    return rc;
}

static int reach_all(struct find *f)
{
    int rc = connect_ssh_hosts(f);

    for (uint32_t i = 0; rc == 0 && i < f->n_remote; i++) {
        struct find_remote *r = &f->remote[i];
        r->error = remote_host(&r->name, &r->host);
        (void)snprintf(r->why, sizeof(r->why), "%s", r->error < 0 ? err_why(r->error) : "");
        rc = r->error == -ECANCELED || r->error == -EPIPE ? r->error : 0;
    }
    return rc;
}

/* ---- what they say ---- */

static int add_lost(struct find *f, const struct find_remote *r, int rc, const char *why)
{
    char name[700];

    (void)snprintf(name, sizeof(name), "%s:%s%s%.300s", r->name.listens ? "relay" : "ssh",
                   r->name.host, r->name.what[0] != '\0' ? "/" : "", r->name.what);
    struct member *m = find_grow(f, name);
    if (m == NULL)
        return -ENOMEM;
    (void)snprintf(m->tags.host, sizeof(m->tags.host), "%.255s", r->name.host);
    m->error = err_set(rc, "%s", why);
    member_failed(m, MEMBER_NOT_ASKED, rc);
    f->found->n++;
    return 0;
}

/* Makes a text one line on a terminal, whatever was in it. */
static void make_plain(char *text)
{
    for (; *text != '\0'; text++)
        *text = (unsigned char)*text < ' ' || *text == 127 ? ' ' : *text;
}

static int add_member(struct find *f, const struct find_remote *r, const struct link_member *one,
                      const char *line, size_t size)
{
    char name[5000];

    (void)snprintf(name, sizeof(name), "%s:%s/%s", r->name.listens ? "relay" : "ssh", r->name.host,
                   one->what);
    struct member *m = find_grow(f, name);
    if (m == NULL)
        return -ENOMEM;
    remote_target(m->name, &r->name, one, &m->target);
    int has = find_has(f, &m->target);
    if (has != 0)
        return has < 0 ? has : 0;
    (void)rank_read_line(line, size, &m->tags); /* its state is the target's */
    make_plain(m->tags.role);
    make_plain(m->tags.job);
    (void)snprintf(m->tags.host, sizeof(m->tags.host), "%.255s", r->name.host);
    if (one->why[0] != '\0') {
        m->error = err_set(-EIO, "%s", one->why);
        member_failed(m, MEMBER_NOT_ASKED, m->error);
    }
    f->found->n++;
    return 0;
}

/* A line each.  One that is none makes the host one that could not be asked. */
static int take_lines(struct find *f, const struct find_remote *r, const struct buf *out)
{
    uint32_t before = f->found->n;

    for (size_t at = 0; at < out->size;) {
        const char *line = out->data + at, *end = memchr(line, '\n', out->size - at);
        const struct link_member *one = NULL;
        int rc = end == NULL ? err_set(-EBADMSG, "what its relay says ends in the middle")
                             : link_member_read(r->host, line, (size_t)(end - line), &one);
        if (rc < 0) {
            f->found->n = before;
            return add_lost(f, r, rc, err_text());
        }
        rc = add_member(f, r, one, line, (size_t)(end - line));
        if (rc < 0)
            return rc;
        at += (size_t)(end - line) + 1;
    }
    return 0;
}

static int take_answer(struct find *f, const struct find_remote *r, struct remote_run *run)
{
    char line[MEMBER_WHY_BYTES];

    if (run->error < 0)
        return add_lost(f, r, run->error, run->why);
    if (run->status == 0) {
        child_say_left_out(r->name.host, &run->err);
        return take_lines(f, r, &run->out);
    }
    child_last_words(&run->err, line, sizeof(line));
    return add_lost(f, r, -ESRCH, line[0] != '\0' ? line : "its relay did not say who is there");
}

static int ask_all(struct find *f, struct remote_run *runs)
{
    const struct remote_limits limits = {.at_once = members_at_once(ASK_AT_ONCE) / 2 + 1,
                                         .timeout_ns = link_timeout(LIST_NS),
                                         .bytes = LIST_BYTES,
                                         .all_bytes = LISTS_BYTES};
    int rc;

    for (uint32_t i = 0; i < f->n_remote; i++) {
        const struct find_remote *r = &f->remote[i];
        remote_list_words(r->name.what, f->remote[i].words);
        runs[i] = (struct remote_run){
            .host = r->host, .argc = REMOTE_LIST_WORDS, .argv = r->words, .error = r->error};
        (void)snprintf(runs[i].why, sizeof(runs[i].why), "%s", r->why);
    }
    rc = remote_runs(runs, f->n_remote, &limits);
    for (uint32_t i = 0; i < f->n_remote; i++) {
        rc = rc == 0 ? take_answer(f, &f->remote[i], &runs[i]) : rc;
        remote_run_done(&runs[i]);
    }
    return rc;
}

/* Which process it says that it is, and of what machine. */
struct identity {
    const char *machine;
    int64_t pid, start_time;
    uint32_t host; /* UINT32_MAX: of this machine */
    uint32_t at;   /* in the list */
};

static bool identity_of(const struct member *m, uint32_t at, struct identity *ret)
{
    const struct link_member *there = m->target.there;

    *ret = (struct identity){.machine = there != NULL ? there->host_name : m->tags.host,
                             .pid = there != NULL ? there->pid : m->target.pid,
                             .start_time =
                                 there != NULL ? there->start_time : (int64_t)m->target.start_time,
                             .host = there != NULL ? there->host : UINT32_MAX,
                             .at = at};
    return (there != NULL || m->target.host[0] == '\0') && ret->pid > 0 && ret->start_time > 0;
}

static int compare_processes(const struct identity *a, const struct identity *b)
{
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    if (a->start_time != b->start_time)
        return a->start_time < b->start_time ? -1 : 1;
    return strcmp(a->machine, b->machine);
}

static int compare_identities(const void *one, const void *two)
{
    const struct identity *a = one, *b = two;
    int order = compare_processes(a, b);

    return order != 0 ? order : a->at < b->at ? -1 : 1;
}

/* A machine that has two names says the same of its processes under both, and so does this one that
 * is named as another.  They stay two: who says so could be lying, and would hide another's. */
static uint32_t count_twice(const struct identity *list, uint32_t n, uint32_t ret_pair[2])
{
    uint32_t found = 0, first = 0;

    for (uint32_t i = 1; i < n; i++) {
        if (compare_processes(&list[first], &list[i]) != 0) {
            first = i;
        } else if (list[first].host != list[i].host) {
            if (found++ == 0 || list[i].at < ret_pair[1]) {
                ret_pair[0] = list[first].at;
                ret_pair[1] = list[i].at;
            }
        }
    }
    return found;
}

static void say_twice(const struct members *m)
{
    static bool said; /* of those that look again and again */
    struct identity *list = calloc(m->n + 1, sizeof(*list));
    uint32_t n = 0, pair[2] = {0, 0};
    char one[700], other[700];

    for (uint32_t i = 0; list != NULL && i < m->n; i++)
        n += identity_of(&m->list[i], i, &list[n]);
    if (n > 0)
        qsort(list, n, sizeof(*list), compare_identities);
    n = list != NULL && !said ? count_twice(list, n, pair) : 0;
    free(list);
    if (n == 0)
        return;
    said = true;
    terminal_say("%s and %s say that they are the same process, as of one machine with two names; "
                 "%u %s asked and counted twice",
                 terminal_field(one, sizeof(one), m->list[pair[0]].name),
                 terminal_field(other, sizeof(other), m->list[pair[1]].name), n,
                 n == 1 ? "process is" : "processes are");
}

int find_tell_remote(struct find *f, int (*fn)(void *arg, const struct members_there *t), void *arg)
{
    int rc = reach_all(f);

    for (uint32_t i = 0; rc == 0 && i < f->n_remote; i++) {
        const struct find_remote *r = &f->remote[i];
        const struct members_there t = {r->name, r->host, r->error, r->why};
        rc = fn(arg, &t);
    }
    return rc;
}

int find_ask_remote(struct find *f)
{
    if (f->n_remote == 0)
        return 0;
    struct remote_run *runs = calloc(f->n_remote, sizeof(*runs));
    int rc = runs == NULL ? err_set(-ENOMEM, "no memory for %u hosts", f->n_remote) : reach_all(f);
    if (rc == 0)
        rc = ask_all(f, runs);
    if (rc == 0)
        say_twice(f->found);
    free(runs);
    free(f->remote);
    f->remote = NULL;
    f->n_remote = 0;
    return rc;
}
