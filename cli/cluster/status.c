/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/status.c - how it stands with each rank: those of this machine, by this program run
 * for each; those of others, by this program run there.
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
#include "cli/cluster/side_commands.h"
#include "cli/hang/hang_judge.h"
#include "cli/job/local_ranks.h"
#include "cli/link/run_many.h"
#include "cli/many/ask.h"
#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/array.h"
#include "sdk/lib/json.h"
#include "sdk/lib/json_text.h"

#define WORDS_MAX 64
#define WHO_BYTES ((size_t)1 << 20)
#define ALL_BYTES ((size_t)512 << 20) /* of what all hosts say */
#define RANKS_MAX (1u << 20)

static const char *const state_names[] = {
    [RANK_ENTERED] = "entered",      [RANK_NOT_ENTERED] = "not entered",
    [RANK_STOPPED] = "stopped",      [RANK_SILENT] = "no answer",
    [RANK_ENDED] = "ended",          [RANK_NONE] = "no rank",
    [RANK_UNREACHED] = "not reached"};

const char *rank_state_name(enum rank_state state)
{
    return state_names[state];
}

struct cluster_rank *cluster_rank_add(struct cluster_ranks *r)
{
    struct cluster_rank *list = array_grow(r->list, r->n, &r->room, sizeof(*list), RANKS_MAX);
    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for %u ranks", r->n + 1);
        return NULL;
    }
    r->list = list;
    struct cluster_rank *one = &r->list[r->n++];
    *one = (struct cluster_rank){.clock_offset_ns = 0};
    one->rank = one->world_size = one->node_rank = one->local_rank = one->pid = MEMBER_UNKNOWN;
    one->restarts = one->max_restarts = one->clock_error_ns = one->last_ns = MEMBER_UNKNOWN;
    return one;
}

void cluster_ranks_done(struct cluster_ranks *r)
{
    free(r->list);
    *r = (struct cluster_ranks){.n = 0};
}

/* ---- of this machine ---- */

/* One rank's command: what was done to it, then whether it answers. */
struct errand {
    struct cluster_rank *rank;
    struct side_command command;
    char pid[24], timeout[TEXT_AMOUNT_BYTES];
    const char *words[WORDS_MAX];
};

static void set_why(struct cluster_rank *r, enum rank_state state, const char *why)
{
    r->state = state;
    (void)snprintf(r->why, sizeof(r->why), "%s", why);
}

static int add_local(const struct local_rank *l, const char *host, struct cluster_ranks *ret)
{
    struct cluster_rank *r = cluster_rank_add(ret);

    if (r == NULL)
        return -ENOMEM;
    (void)snprintf(r->host, sizeof(r->host), "%s", host);
    (void)snprintf(r->job, sizeof(r->job), "%s", l->tags.job);
    (void)snprintf(r->launcher, sizeof(r->launcher), "%s", l->place.launcher);
    r->rank = l->tags.rank;
    r->world_size = l->place.world_size;
    r->node_rank = l->tags.node_rank;
    r->local_rank = l->tags.local_rank;
    r->restarts = l->place.restarts;
    r->max_restarts = l->place.max_restarts;
    r->pid = l->pid;
    return 0;
}

/* Set the state that is seen from here, before anybody is asked. */
static void look_at(struct cluster_rank *r)
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

/* `probing -t PID info`, inject or eject. */
static void errand_words(const struct cluster_options *o, const char *verb, struct errand *e)
{
    uint32_t n = 0;

    (void)snprintf(e->pid, sizeof(e->pid), "%" PRId64, e->rank->pid);
    text_ns((int64_t)o->timeout_ns, e->timeout);
    e->words[n++] = child_own_program();
    e->words[n++] = "-t";
    e->words[n++] = e->pid;
    e->words[n++] = verb;
    if (strcmp(verb, "inject") == 0) {
        e->words[n++] = "--wait"; /* somebody else may be entering it */
        e->words[n++] = "--timeout";
        e->words[n++] = e->timeout;
        for (uint32_t i = 0; i < o->n_plugins; i++) {
            e->words[n++] = "--plugin";
            e->words[n++] = o->plugins[i];
        }
    }
    e->words[n] = NULL;
    e->command.argv = (char *const *)(uintptr_t)e->words;
}

/* Run it for those ranks; fn gets each with why it failed, "" when it did not. */
static int errands_run(const struct cluster_options *o, const char *verb,
                       struct cluster_rank *const *ranks, uint32_t n,
                       void (*fn)(struct cluster_rank *r, struct buf *out, const char *why))
{
    struct errand *list = calloc(n + 1, sizeof(*list));
    struct side_command *commands = calloc(n + 1, sizeof(*commands));
    /* The command has a limit of its own, and says more than we can: it comes first. */
    uint64_t timeout_ns = o->timeout_ns + o->timeout_ns / 2;
    char why[700];
    int rc = list == NULL || commands == NULL ? err_set(-ENOMEM, "no memory for %u ranks", n) : 0;

    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        list[i].rank = ranks[i];
        errand_words(o, verb, &list[i]);
        commands[i].argv = list[i].command.argv;
    }
    if (rc == 0)
        rc = side_commands_run(commands, n, o->at_once, timeout_ns);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        side_command_why(&commands[i], timeout_ns, why, sizeof(why));
        fn(ranks[i], &commands[i].out, why);
    }
    for (uint32_t i = 0; commands != NULL && i < n; i++)
        side_command_done(&commands[i]);
    free(list);
    free(commands);
    return rc;
}

static void take_version(struct cluster_rank *r, struct buf *out, const char *why)
{
    static const char KEY[] = "\nversion: ";

    if (why[0] != '\0') {
        set_why(r, RANK_SILENT, why);
        return;
    }
    const char *at = strstr(buf_text(out), KEY);
    if (at != NULL)
        (void)snprintf(r->version, sizeof(r->version), "%.*s",
                       (int)strcspn(at + sizeof(KEY) - 1, "\n"), at + sizeof(KEY) - 1);
}

static void take_done(struct cluster_rank *r, struct buf *out, const char *why)
{
    (void)out;
    if (why[0] != '\0')
        (void)snprintf(r->why, sizeof(r->why), "%s", why);
}

/* List the ranks in a state, as pointers: the caller frees.  NULL: no memory. */
static struct cluster_rank **in_state(struct cluster_ranks *r, enum rank_state state, uint32_t *ret)
{
    struct cluster_rank **list = calloc(r->n + 1, sizeof(*list));

    *ret = 0;
    for (uint32_t i = 0; list != NULL && i < r->n; i++)
        if (r->list[i].state == state)
            list[(*ret)++] = &r->list[i];
    if (list == NULL)
        (void)err_set(-ENOMEM, "no memory for %u ranks", r->n);
    return list;
}

/* Do `verb` to those in that state, then look at all of them again, but keep why it failed. */
static int act(const struct cluster_options *o, struct cluster_ranks *r, const char *verb,
               enum rank_state state)
{
    char why[sizeof(r->list[0].why)];
    uint32_t n;
    struct cluster_rank **list = in_state(r, state, &n);
    int rc = list == NULL ? -ENOMEM : errands_run(o, verb, list, n, take_done);

    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        (void)snprintf(why, sizeof(why), "%s", list[i]->why);
        look_at(list[i]);
        if (why[0] != '\0')
            (void)snprintf(list[i]->why, sizeof(list[i]->why), "%s", why);
    }
    free(list);
    return rc;
}

static int ask_versions(const struct cluster_options *o, struct cluster_ranks *r)
{
    uint32_t n;
    struct cluster_rank **list = in_state(r, RANK_ENTERED, &n);
    int rc = list == NULL ? -ENOMEM : errands_run(o, "info", list, n, take_version);

    free(list);
    return rc;
}

int cluster_local(const struct cluster_options *o, struct cluster_ranks *ret)
{
    bool changes = o->action == CLUSTER_ATTACH || o->action == CLUSTER_DETACH;
    struct local_ranks l;
    char host[256] = "";
    int rc = local_ranks_find(o->job, &l);

    if (rc < 0)
        return rc;
    (void)gethostname(host, sizeof(host) - 1);
    if (changes && o->job == NULL)
        rc = local_ranks_of_one_job(&l);
    for (uint32_t i = 0; rc == 0 && i < l.n; i++)
        rc = add_local(&l.list[i], host, ret);
    for (uint32_t i = 0; rc == 0 && i < ret->n; i++)
        look_at(&ret->list[i]);
    if (rc == 0 && o->action == CLUSTER_ATTACH)
        rc = act(o, ret, "inject", RANK_NOT_ENTERED);
    if (rc == 0 && o->action == CLUSTER_DETACH)
        rc = act(o, ret, "eject", RANK_ENTERED);
    if (rc == 0 && o->action != CLUSTER_NODES)
        rc = ask_versions(o, ret);
    if (rc == 0 && o->action == CLUSTER_STATUS)
        rc = cluster_dead(o->job, &l, ret);
    local_ranks_done(&l);
    return rc;
}

/* ---- a rank as a line ---- */

void cluster_rank_write(const struct cluster_rank *r, struct buf *b)
{
    (void)buf_adds(b, "{");
    json_add_member_text(b, "host", r->host);
    json_add_member_text(b, "job", r->job);
    json_add_member_text(b, "launcher", r->launcher);
    json_add_member_int(b, "rank", r->rank, MEMBER_UNKNOWN);
    json_add_member_int(b, "world_size", r->world_size, MEMBER_UNKNOWN);
    json_add_member_int(b, "node_rank", r->node_rank, MEMBER_UNKNOWN);
    json_add_member_int(b, "local_rank", r->local_rank, MEMBER_UNKNOWN);
    json_add_member_int(b, "pid", r->pid, MEMBER_UNKNOWN);
    json_add_member_int(b, "restarts", r->restarts, MEMBER_UNKNOWN);
    json_add_member_int(b, "max_restarts", r->max_restarts, MEMBER_UNKNOWN);
    json_add_member_int(b, "last_ns", r->last_ns, MEMBER_UNKNOWN);
    json_add_member_int(b, "clock_error_ns", r->clock_error_ns, MEMBER_UNKNOWN);
    if (r->clock_error_ns == MEMBER_UNKNOWN)
        (void)buf_adds(b, "\"clock_offset_ns\": null, ");
    else
        (void)buf_addf(b, "\"clock_offset_ns\": %" PRId64 ", ", r->clock_offset_ns);
    json_add_member_text(b, "version", r->version);
    json_add_member_text(b, "why", r->why);
    (void)buf_addf(b, "\"state\": \"%s\"}\n", state_names[r->state]);
}

static void read_text(const struct json *o, const char *key, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", json_text(o, key, ""));
}

/* A rank, a pid: nothing that another machine says makes it anything else than a number. */
static int64_t read_number(const struct json *o, const char *key)
{
    int64_t n = json_int(o, key, MEMBER_UNKNOWN);

    return n >= 0 && n <= INT32_MAX ? n : MEMBER_UNKNOWN;
}

int cluster_rank_read(const char *line, size_t size, struct cluster_rank *ret)
{
    struct arena a;
    struct json *o = NULL;
    struct json_error bad;

    arena_init(&a, 1u << 20);
    int rc = json_read(&a, line, size, &o, &bad) == 0 && o->type == JSON_OBJECT ? 0 : -EBADMSG;
    if (rc == 0) {
        const char *state = json_text(o, "state", "");
        uint32_t i = 0;
        while (i < sizeof(state_names) / sizeof(state_names[0]) &&
               strcmp(state, state_names[i]) != 0)
            i++;
        if (i == sizeof(state_names) / sizeof(state_names[0]))
            rc = -EBADMSG;
        ret->state = (enum rank_state)i;
        read_text(o, "host", ret->host, sizeof(ret->host));
        read_text(o, "job", ret->job, sizeof(ret->job));
        read_text(o, "launcher", ret->launcher, sizeof(ret->launcher));
        read_text(o, "version", ret->version, sizeof(ret->version));
        read_text(o, "why", ret->why, sizeof(ret->why));
        ret->rank = read_number(o, "rank");
        ret->world_size = read_number(o, "world_size");
        ret->node_rank = read_number(o, "node_rank");
        ret->local_rank = read_number(o, "local_rank");
        ret->pid = read_number(o, "pid");
        ret->restarts = read_number(o, "restarts");
        ret->max_restarts = read_number(o, "max_restarts");
        ret->last_ns = json_int(o, "last_ns", MEMBER_UNKNOWN);
        if (ret->last_ns < 0)
            ret->last_ns = MEMBER_UNKNOWN;
    }
    arena_done(&a);
    return rc == 0 ? 0 : err_set(rc, "its answer is not one of probing");
}

/* ---- of other machines ---- */

/* `probing cluster ACTION --json ...`, as it runs on each. */
struct remote_words {
    char timeout[TEXT_AMOUNT_BYTES], interval[TEXT_AMOUNT_BYTES], at_once[16], looks[16];
    const char *words[WORDS_MAX];
    int n;
};

static void make_words(const struct cluster_options *o, struct remote_words *w)
{
    enum cluster_action action = o->action == CLUSTER_NODES ? CLUSTER_STATUS : o->action;

    text_ns((int64_t)o->timeout_ns, w->timeout);
    text_ns((int64_t)o->interval_ns, w->interval);
    (void)snprintf(w->at_once, sizeof(w->at_once), "%u", o->at_once);
    (void)snprintf(w->looks, sizeof(w->looks), "%u", o->looks);
    const char *const fixed[] = {
        "cluster", cluster_action_name(action), "--json", "--timeout", w->timeout, "--at-once",
        w->at_once};
    for (w->n = 0; w->n < (int)(sizeof(fixed) / sizeof(fixed[0])); w->n++)
        w->words[w->n] = fixed[w->n];
    if (o->job != NULL) {
        w->words[w->n++] = "--job";
        w->words[w->n++] = o->job;
    }
    for (uint32_t i = 0; i < o->n_plugins; i++) {
        w->words[w->n++] = "--plugin";
        w->words[w->n++] = o->plugins[i];
    }
    if (o->action == CLUSTER_HANG) {
        w->words[w->n++] = "--looks";
        w->words[w->n++] = w->looks;
        w->words[w->n++] = "--interval";
        w->words[w->n++] = w->interval;
        if (o->threads)
            w->words[w->n++] = "--threads";
    }
    if (o->action == CLUSTER_DIFF)
        w->words[w->n++] = "--all";
}

/* state: of RANK_NONE, RANK_UNREACHED. */
static int add_host(const char *host, enum rank_state state, const char *why,
                    struct cluster_ranks *ret)
{
    struct cluster_rank *r = cluster_rank_add(ret);

    if (r == NULL)
        return -ENOMEM;
    (void)snprintf(r->host, sizeof(r->host), "%s", host);
    set_why(r, state, why);
    return 0;
}

/* Set the clock that was measured here, whatever the host says of it. */
static void set_clock(uint32_t host, struct cluster_rank *r, uint32_t n)
{
    struct link_host h;
    bool known = n > 0 && link_host_of(host, &h) == 0 && h.error_ns != LINK_UNKNOWN;

    for (uint32_t i = 0; i < n; i++) {
        r[i].clock_error_ns = known ? h.error_ns : MEMBER_UNKNOWN;
        r[i].clock_offset_ns = known ? h.offset_ns : 0;
    }
}

/* The lines of one host.  A line that is none makes the host one that could not be asked. */
static int take_answer(void *arg, const char *host, const struct remote_run *run, const char *why)
{
    struct cluster_ranks *ret = arg;
    uint32_t before = ret->n;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < run->out.size;) {
        const char *line = run->out.data + at, *end = memchr(line, '\n', run->out.size - at);
        size_t n = end != NULL ? (size_t)(end - line) : run->out.size - at;
        struct cluster_rank *r = cluster_rank_add(ret);
        rc = r == NULL     ? -ENOMEM
             : end == NULL ? err_set(-EBADMSG, "its answer ends in the middle of a line")
                           : cluster_rank_read(line, n, r);
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
        return add_host(host, RANK_NONE, "", ret);
    return add_host(host, RANK_UNREACHED, rc < 0 && run->error == 0 ? err_text() : why, ret);
}

/* "": it did what it was to do. */
static void say_why(struct remote_run *run, char *ret, size_t size)
{
    ret[0] = '\0';
    if (run->error == 0 && run->status != 0)
        child_last_words(&run->err, ret, size);
    if (ret[0] == '\0' && (run->error < 0 || run->status != 0))
        (void)snprintf(ret, size, "%s", run->error < 0 ? run->why : "it did not say why");
}

/* argv of each is set; fn gets what became of it. */
static int run_all(const struct cluster_options *o, struct remote_run *runs, uint32_t n,
                   const char *const *names,
                   int (*fn)(void *arg, const char *host, const struct remote_run *run,
                             const char *why),
                   void *arg)
{
    bool changes = o->action == CLUSTER_ATTACH || o->action == CLUSTER_DETACH;
    /* A command that only looks asks all at once: a silent host keeps no other waiting. */
    const struct remote_limits limits = {.at_once = changes ? o->at_once : members_at_once(n),
                                         /* ssh's own, the look there, and all of its ranks */
                                         .timeout_ns =
                                             3 * o->timeout_ns + o->looks * o->interval_ns,
                                         .bytes = SIDE_OUTPUT_BYTES,
                                         .all_bytes = ALL_BYTES};
    int rc = n > 0 ? remote_runs(runs, n, &limits) : 0;

    for (uint32_t i = 0; i < n; i++) {
        char why[LINK_WHY];
        say_why(&runs[i], why, sizeof(why));
        child_say_left_out(names[i], &runs[i].err);
        rc = rc == 0 ? fn(arg, names[i], &runs[i], why) : rc;
        remote_run_done(&runs[i]);
    }
    return rc;
}

int cluster_ask_hosts(const struct cluster_options *o, const struct hosts *hosts,
                      int (*fn)(void *arg, const char *host, const struct remote_run *run,
                                const char *why),
                      void *arg)
{
    struct remote_run *runs = calloc(hosts->n + 1, sizeof(*runs));
    const char **names = calloc(hosts->n + 1, sizeof(char *));
    struct remote_words w;
    uint32_t first = 0;
    int rc =
        runs == NULL || names == NULL ? err_set(-ENOMEM, "no memory for %u hosts", hosts->n) : 0;

    make_words(o, &w);
    for (uint32_t i = 0; rc == 0 && i < hosts->n; i++)
        names[i] = hosts->list[i];
    link_configure(o->rsh, o->program, /* degree= */ 0);
    if (rc == 0)
        rc = link_hosts(names, hosts->n, &first);
    for (uint32_t i = 0; rc == 0 && i < hosts->n; i++)
        runs[i] = (struct remote_run){.host = first + i, .argc = w.n, .argv = w.words};
    if (rc == 0)
        rc = run_all(o, runs, hosts->n, names, fn, arg);
    free(runs);
    free(names);
    return rc;
}

/* ---- of what -t names ---- */

struct remote_group { /* what is meant on one host */
    struct remote_words words;
    char name[300];
    struct buf who; /* "4242,job:x", as -t takes them there */
};

struct remote_groups {
    struct remote_group *list;
    struct remote_run *runs;
    uint32_t n;
};

static int grow_groups(struct remote_groups *g)
{
    void *list = realloc(g->list, (g->n + 1) * sizeof(*g->list));

    if (list != NULL)
        g->list = list;
    void *runs = list != NULL ? realloc(g->runs, (g->n + 1) * sizeof(*g->runs)) : NULL;
    if (runs == NULL)
        return err_set(-ENOMEM, "no memory for %u hosts", g->n + 1);
    g->runs = runs;
    return 0;
}

static int add_there(void *arg, const struct members_there *t)
{
    struct remote_groups *g = arg;
    uint32_t at = 0;

    if (strncmp(t->name.what, "ssh:", 4) == 0 || strncmp(t->name.what, "relay:", 6) == 0)
        return cli_misuse(err_set(-EINVAL, "a relay speaks for its own machine: '%s' names another",
                                  t->name.what));
    while (at < g->n && (t->error < 0 || g->runs[at].error < 0 || g->runs[at].host != t->host))
        at++;
    int rc = at == g->n ? grow_groups(g) : 0;
    if (rc < 0)
        return rc;
    struct remote_group *one = &g->list[at];
    if (at == g->n) {
        buf_init(&one->who, WHO_BYTES);
        (void)snprintf(one->name, sizeof(one->name), "%s", t->name.host);
        g->runs[g->n++] = (struct remote_run){.host = t->host, .error = t->error};
        (void)snprintf(g->runs[at].why, sizeof(g->runs[at].why), "%s", t->why);
    }
    rc = buf_addf(&one->who, "%s%s", one->who.size > 0 ? "," : "",
                  t->name.what[0] != '\0' ? t->name.what : "all");
    return rc < 0 ? err_set(rc, "too many processes of %s", t->name.host) : 0;
}

/* `probing -t 4242,4243 cluster ACTION ...` */
static void say_who(const struct cluster_options *o, struct remote_group *g)
{
    make_words(o, &g->words);
    memmove(g->words.words + 2, g->words.words, (size_t)g->words.n * sizeof(g->words.words[0]));
    g->words.words[0] = "-t";
    g->words.words[1] = buf_text(&g->who);
    g->words.n += 2;
}

int cluster_ask_targets(const struct cluster_options *o, struct members *ret_here,
                        int (*fn)(void *arg, const char *host, const struct remote_run *run,
                                  const char *why),
                        void *arg)
{
    struct remote_groups g = {.n = 0};
    int rc = members_find_here(o->targets, add_there, &g, ret_here);
    const char **names = calloc(g.n + 1, sizeof(char *));

    if (rc == 0 && names == NULL)
        rc = err_set(-ENOMEM, "no memory for %u hosts", g.n);
    for (uint32_t i = 0; rc == 0 && i < g.n; i++) {
        say_who(o, &g.list[i]);
        names[i] = g.list[i].name;
        g.runs[i].argc = g.list[i].words.n;
        g.runs[i].argv = g.list[i].words.words;
    }
    if (rc == 0)
        rc = run_all(o, g.runs, g.n, names, fn, arg);
    for (uint32_t i = 0; i < g.n; i++)
        buf_done(&g.list[i].who);
    free(g.list);
    free(g.runs);
    free(names);
    return rc;
}

int cluster_remote(const struct cluster_options *o, const struct hosts *hosts,
                   struct cluster_ranks *ret)
{
    return cluster_ask_hosts(o, hosts, take_answer, ret);
}
