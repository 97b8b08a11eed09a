/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/ask_hosts.c - `probing cluster ACTION --json` on other machines, by their relays.
 *
 * One thread.  Outputs are bounded; whoever asked reads them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster.h"
#include "cli/link/run_many.h"
#include "cli/many/child.h"
#include "cli/many/query_members.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define WORDS_MAX 64
#define WHO_BYTES ((size_t)1 << 20)
#define HOST_BYTES ((size_t)16 << 20) /* of what one says: what is more ends it */
#define ALL_BYTES ((size_t)512 << 20) /* of what all hosts say */

/* ---- the words ---- */

struct remote_words {
    char timeout[TEXT_AMOUNT_BYTES], interval[TEXT_AMOUNT_BYTES], at_once[16], looks[16];
    const char *words[WORDS_MAX];
    int n;
};

static void add_words(struct remote_words *w, const char *name, const char *value)
{
    w->words[w->n++] = name;
    if (value != NULL)
        w->words[w->n++] = value;
}

/* who: for -t there; "": --job says it. */
static void make_words(const struct cluster_options *o, const char *who, struct remote_words *w)
{
    enum cluster_action action = o->action == CLUSTER_NODES ? CLUSTER_STATUS : o->action;

    w->n = 0;
    text_ns((int64_t)o->timeout_ns, w->timeout);
    text_ns((int64_t)o->interval_ns, w->interval);
    (void)snprintf(w->at_once, sizeof(w->at_once), "%u", o->at_once);
    (void)snprintf(w->looks, sizeof(w->looks), "%u", o->looks);
    if (who[0] != '\0')
        add_words(w, "-t", who);
    add_words(w, "cluster", cluster_action_name(action));
    add_words(w, "--json", NULL);
    add_words(w, "--timeout", w->timeout);
    add_words(w, "--at-once", w->at_once);
    if (o->job != NULL)
        add_words(w, "--job", o->job);
    for (uint32_t i = 0; i < o->n_plugins; i++)
        add_words(w, "--plugin", o->plugins[i]);
    if (o->action == CLUSTER_HANG) {
        add_words(w, "--looks", w->looks);
        add_words(w, "--interval", w->interval);
    }
    if (o->action == CLUSTER_HANG && o->threads)
        add_words(w, "--threads", NULL);
    if (o->action == CLUSTER_DIFF)
        add_words(w, "--all", NULL);
}

/* ---- the hosts ---- */

struct asked_host {
    struct remote_words words;
    char name[300];
    struct buf who; /* "4242,job:x", as -t takes them there; empty: --job says it */
};

struct asked_hosts {
    struct asked_host *list;
    struct remote_run *runs; /* [n] */
    uint32_t n;
};

/* NULL: no memory, err_set() done. */
static struct asked_host *add_host(struct asked_hosts *h, const char *name,
                                   const struct remote_run *run)
{
    void *list = realloc(h->list, (h->n + 1) * sizeof(*h->list));

    h->list = list != NULL ? list : h->list;
    void *runs = list != NULL ? realloc(h->runs, (h->n + 1) * sizeof(*h->runs)) : NULL;
    if (runs == NULL) {
        (void)err_set(-ENOMEM, "no memory for %u hosts", h->n + 1);
        return NULL;
    }
    h->runs = runs;
    h->runs[h->n] = *run;
    struct asked_host *one = &h->list[h->n++];
    buf_init(&one->who, WHO_BYTES);
    (void)snprintf(one->name, sizeof(one->name), "%s", name);
    return one;
}

/* "": it did what it was to do. */
static void write_why(struct remote_run *run, char *ret, size_t size)
{
    ret[0] = '\0';
    if (run->error == 0 && run->status != 0)
        child_last_words(&run->err, ret, size);
    if (ret[0] == '\0' && (run->error < 0 || run->status != 0))
        (void)snprintf(ret, size, "%s", run->error < 0 ? run->why : "it did not say why");
}

/* fn gets what became of each. */
static int run_all(const struct cluster_options *o, struct asked_hosts *h,
                   int (*fn)(void *arg, const char *host, const struct remote_run *run,
                             const char *why),
                   void *arg)
{
    bool changes = o->action == CLUSTER_ATTACH || o->action == CLUSTER_DETACH;
    /* A command that only looks asks all at once: a silent host keeps no other waiting. */
    const struct remote_limits limits = {.at_once = changes ? o->at_once : members_at_once(h->n),
                                         /* ssh's own, the look there, and all of its ranks */
                                         .timeout_ns =
                                             3 * o->timeout_ns + o->looks * o->interval_ns,
                                         .bytes = HOST_BYTES,
                                         .all_bytes = ALL_BYTES};

    for (uint32_t i = 0; i < h->n; i++) {
        struct remote_words *w = &h->list[i].words;
        make_words(o, buf_text(&h->list[i].who), w);
        h->runs[i].argc = w->n;
        h->runs[i].argv = w->words;
    }
    int rc = h->n > 0 ? remote_runs(h->runs, h->n, &limits) : 0;
    for (uint32_t i = 0; i < h->n; i++) {
        char why[LINK_WHY];
        write_why(&h->runs[i], why, sizeof(why));
        child_say_left_out(h->list[i].name, &h->runs[i].err);
        rc = rc == 0 ? fn(arg, h->list[i].name, &h->runs[i], why) : rc;
        remote_run_done(&h->runs[i]);
    }
    return rc;
}

static void free_hosts(struct asked_hosts *h)
{
    for (uint32_t i = 0; i < h->n; i++)
        buf_done(&h->list[i].who);
    free(h->list);
    free(h->runs);
}

int cluster_ask_hosts(const struct cluster_options *o, const struct hosts *hosts,
                      int (*fn)(void *arg, const char *host, const struct remote_run *run,
                                const char *why),
                      void *arg)
{
    const char **names = calloc(hosts->n + 1, sizeof(char *));
    struct asked_hosts h = {.n = 0};
    uint32_t first = 0;
    int rc = names == NULL ? err_set(-ENOMEM, "no memory for %u hosts", hosts->n) : 0;

    for (uint32_t i = 0; rc == 0 && i < hosts->n; i++)
        names[i] = hosts->list[i];
    link_configure(o->rsh, o->program, /* degree= */ 0);
    if (rc == 0)
        rc = link_hosts(names, hosts->n, &first);
    for (uint32_t i = 0; rc == 0 && i < hosts->n; i++) {
        const struct remote_run run = {.host = first + i};
        rc = add_host(&h, names[i], &run) != NULL ? 0 : -ENOMEM;
    }
    if (rc == 0)
        rc = run_all(o, &h, fn, arg);
    free_hosts(&h);
    free(names);
    return rc;
}

static int add_there(void *arg, const struct members_there *t)
{
    struct asked_hosts *h = arg;
    struct remote_run run = {.host = t->host, .error = t->error};
    uint32_t at = 0;

    if (strncmp(t->name.what, "ssh:", 4) == 0 || strncmp(t->name.what, "relay:", 6) == 0)
        return cli_misuse(err_set(-EINVAL, "a relay speaks for its own machine: '%s' names another",
                                  t->name.what));
    while (at < h->n && (t->error < 0 || h->runs[at].error < 0 || h->runs[at].host != t->host))
        at++;
    (void)snprintf(run.why, sizeof(run.why), "%s", t->why);
    struct asked_host *one = at < h->n ? &h->list[at] : add_host(h, t->name.host, &run);
    if (one == NULL)
        return -ENOMEM;
    int rc = buf_addf(&one->who, "%s%s", one->who.size > 0 ? "," : "",
                      t->name.what[0] != '\0' ? t->name.what : "all");
    return rc < 0 ? err_set(rc, "too many processes of %s", t->name.host) : 0;
}

int cluster_ask_targets(const struct cluster_options *o, struct members *ret_here,
                        int (*fn)(void *arg, const char *host, const struct remote_run *run,
                                  const char *why),
                        void *arg)
{
    struct asked_hosts h = {.n = 0};
    int rc = members_find_here(o->targets, add_there, &h, ret_here);

    if (rc == 0)
        rc = run_all(o, &h, fn, arg);
    free_hosts(&h);
    return rc;
}
