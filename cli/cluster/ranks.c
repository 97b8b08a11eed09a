/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/ranks.c - how it stands with each rank: those of this machine, by this program run
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

#include "cli/cli.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/local_ranks.h"
#include "cli/cluster/side_commands.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"
#include "sdk/lib/json_text.h"

#define WORDS_MAX 64
#define RSH_WORDS 24
#define RANKS_MAX (1u << 20)

static const char *const state_names[] = {[RANK_ENTERED] = "entered",
                                          [RANK_NOT_ENTERED] = "not entered",
                                          [RANK_STOPPED] = "stopped",
                                          [RANK_SILENT] = "no answer",
                                          [RANK_UNREACHED] = "not reached"};

const char *rank_state_name(enum rank_state state)
{
    return state_names[state];
}

struct cluster_rank *cluster_rank_add(struct cluster_ranks *r)
{
    if (r->n == r->room) {
        uint32_t room = r->room > 0 ? 2 * r->room : 32;
        struct cluster_rank *list =
            room <= RANKS_MAX ? realloc(r->list, room * sizeof(*list)) : NULL;
        if (list == NULL) {
            (void)err_set(-ENOMEM, "no memory for %u ranks", room);
            return NULL;
        }
        r->list = list;
        r->room = room;
    }
    struct cluster_rank *one = &r->list[r->n++];
    *one = (struct cluster_rank){.rank = MEMBER_UNKNOWN,
                                 .world_size = MEMBER_UNKNOWN,
                                 .node_rank = MEMBER_UNKNOWN,
                                 .local_rank = MEMBER_UNKNOWN,
                                 .pid = MEMBER_UNKNOWN};
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
    r->pid = l->pid;
    return 0;
}

/* What is seen from here, before anybody is asked. */
static void look_at(struct cluster_rank *r)
{
    char directory[4096], state = target_state((pid_t)r->pid);
    int rc = directory_of((pid_t)r->pid, directory, sizeof(directory));

    if (rc == -ENOENT)
        set_why(r, RANK_NOT_ENTERED, "");
    else if (rc < 0)
        set_why(r, RANK_SILENT, err_why(rc));
    else if (state == 'T' || state == 't')
        set_why(r, RANK_STOPPED, "it is stopped: kill -CONT goes on with it");
    else
        set_why(r, RANK_ENTERED, "");
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

/* Those in a state, as pointers: the caller frees.  NULL: no memory. */
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
    local_ranks_done(&l);
    return rc;
}

/* ---- a rank as a line ---- */

static void write_text(struct buf *b, const char *key, const char *text)
{
    (void)buf_addf(b, "\"%s\": ", key);
    if (text[0] != '\0')
        (void)json_add_text(b, text, strlen(text));
    else
        (void)buf_adds(b, "null");
    (void)buf_adds(b, ", ");
}

static void write_number(struct buf *b, const char *key, int64_t n)
{
    if (n == MEMBER_UNKNOWN)
        (void)buf_addf(b, "\"%s\": null, ", key);
    else
        (void)buf_addf(b, "\"%s\": %" PRId64 ", ", key, n);
}

void cluster_rank_write(const struct cluster_rank *r, struct buf *b)
{
    (void)buf_adds(b, "{");
    write_text(b, "host", r->host);
    write_text(b, "job", r->job);
    write_text(b, "launcher", r->launcher);
    write_number(b, "rank", r->rank);
    write_number(b, "world_size", r->world_size);
    write_number(b, "node_rank", r->node_rank);
    write_number(b, "local_rank", r->local_rank);
    write_number(b, "pid", r->pid);
    write_text(b, "version", r->version);
    write_text(b, "why", r->why);
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
    }
    arena_done(&a);
    return rc == 0 ? 0 : err_set(rc, "its answer is not one of probing");
}

/* ---- of other machines ---- */

/* RSH's words, the host, and one text for the shell there: every word of ours between quotes. */
struct trip {
    char rsh[1024], script[4096];
    char *words[RSH_WORDS + 3];
};

static void add_quoted(struct buf *b, const char *word)
{
    (void)buf_adds(b, b->size > 0 ? " '" : "'");
    for (; *word != '\0'; word++)
        (void)(*word == '\'' ? buf_adds(b, "'\\''") : buf_addc(b, *word));
    (void)buf_addc(b, '\'');
}

static void add_looks(const struct cluster_options *o, struct buf *b)
{
    char amount[TEXT_AMOUNT_BYTES], looks[16];

    text_ns((int64_t)o->interval_ns, amount);
    (void)snprintf(looks, sizeof(looks), "%u", o->looks);
    add_quoted(b, "--looks");
    add_quoted(b, looks);
    add_quoted(b, "--interval");
    add_quoted(b, amount);
    if (o->threads)
        add_quoted(b, "--threads");
}

static int trip_script(const struct cluster_options *o, struct trip *t)
{
    char amount[TEXT_AMOUNT_BYTES], at_once[16];
    enum cluster_action action = o->action == CLUSTER_NODES ? CLUSTER_STATUS : o->action;
    struct buf b;

    text_ns((int64_t)o->timeout_ns, amount);
    (void)snprintf(at_once, sizeof(at_once), "%u", o->at_once);
    const char *words[] = {
        "cluster", cluster_action_name(action), "--json", "--timeout", amount, "--at-once",
        at_once};
    buf_init(&b, sizeof(t->script) - 1);
    (void)buf_adds(&b, o->program); /* the user's own words: "PATH=... probing" */
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        add_quoted(&b, words[i]);
    if (o->job != NULL) {
        add_quoted(&b, "--job");
        add_quoted(&b, o->job);
    }
    for (uint32_t i = 0; i < o->n_plugins; i++) {
        add_quoted(&b, "--plugin");
        add_quoted(&b, o->plugins[i]);
    }
    if (o->action == CLUSTER_HANG)
        add_looks(o, &b);
    if (o->action == CLUSTER_DIFF)
        add_quoted(&b, "--all");
    int rc = b.failed ? err_set(-E2BIG, "the command for the other machines is too long") : 0;
    (void)snprintf(t->script, sizeof(t->script), "%s", buf_text(&b));
    buf_done(&b);
    return rc;
}

static int trip_words(const struct cluster_options *o, const char *host, struct trip *t)
{
    uint32_t n = 0;

    if ((size_t)snprintf(t->rsh, sizeof(t->rsh), "%s", o->rsh) >= sizeof(t->rsh))
        return err_set(-E2BIG, "the remote shell '%.60s...' is too long", o->rsh);
    for (char *at = t->rsh + strspn(t->rsh, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        if (n == RSH_WORDS)
            return err_set(-E2BIG, "the remote shell has more than %d words", RSH_WORDS);
        t->words[n++] = at;
        at += size;
        if (*at != '\0')
            *at++ = '\0';
    }
    if (n == 0)
        return err_set(-EINVAL, "the remote shell is empty: --rsh or PROBING_RSH names a command");
    t->words[n++] = (char *)(uintptr_t)host;
    t->words[n++] = t->script;
    return trip_script(o, t);
}

static int add_unreached(const char *host, const char *why, struct cluster_ranks *ret)
{
    struct cluster_rank *r = cluster_rank_add(ret);

    if (r == NULL)
        return -ENOMEM;
    (void)snprintf(r->host, sizeof(r->host), "%s", host);
    set_why(r, RANK_UNREACHED, why);
    return 0;
}

/* The lines of one host.  A line that is none makes the host one that could not be asked. */
static int take_answer(void *arg, const char *host, const struct side_command *c, const char *why)
{
    struct cluster_ranks *ret = arg;
    uint32_t before = ret->n;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < c->out.size;) {
        const char *line = c->out.data + at, *end = memchr(line, '\n', c->out.size - at);
        size_t n = end != NULL ? (size_t)(end - line) : c->out.size - at;
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
    if (rc == 0 && c->error == 0 && (why[0] == '\0' || ret->n > before)) /* 1: a rank is not well */
        return 0;
    ret->n = before;
    return add_unreached(host, rc < 0 && c->error == 0 ? err_text() : why, ret);
}

int cluster_ask_hosts(const struct cluster_options *o, const struct hosts *hosts,
                      int (*fn)(void *arg, const char *host, const struct side_command *c,
                                const char *why),
                      void *arg)
{
    struct trip *trips = calloc(hosts->n + 1, sizeof(*trips));
    struct side_command *commands = calloc(hosts->n + 1, sizeof(*commands));
    /* ssh's own, the look there, and all of its ranks */
    uint64_t timeout_ns = 3 * o->timeout_ns + o->looks * o->interval_ns;
    char why[700];
    int rc = trips == NULL || commands == NULL
                 ? err_set(-ENOMEM, "no memory for %u hosts", hosts->n)
                 : 0;

    for (uint32_t i = 0; rc == 0 && i < hosts->n; i++) {
        rc = trip_words(o, hosts->list[i], &trips[i]);
        commands[i].argv = trips[i].words;
    }
    if (rc == 0)
        rc = side_commands_run(commands, hosts->n, o->at_once, timeout_ns);
    for (uint32_t i = 0; rc == 0 && i < hosts->n; i++) {
        side_command_why(&commands[i], timeout_ns, why, sizeof(why));
        rc = fn(arg, hosts->list[i], &commands[i], why);
    }
    for (uint32_t i = 0; commands != NULL && i < hosts->n; i++)
        side_command_done(&commands[i]);
    free(trips);
    free(commands);
    return rc;
}

int cluster_remote(const struct cluster_options *o, const struct hosts *hosts,
                   struct cluster_ranks *ret)
{
    return cluster_ask_hosts(o, hosts, take_answer, ret);
}
