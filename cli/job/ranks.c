/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/ranks.c - lists of ranks and of hosts that were asked for them: which job they are of,
 * and how they are written and read.
 *
 * One thread.  What comes from another machine is checked and bounded.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/job.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/array.h"
#include "sdk/lib/json.h"
#include "sdk/lib/json_text.h"

#define RANKS_MAX (1u << 20)
#define LINE_TREE_BYTES ((size_t)1 << 20) /* of a line, taken apart */

static const char *const rank_states[] = {
    [RANK_ENTERED] = "entered",       [RANK_NOT_ENTERED] = "not entered",
    [RANK_STOPPED] = "stopped",       [RANK_SILENT] = "no answer",
    [RANK_ENDED] = "ended",           [RANK_NONE] = "no rank",
    [RANK_UNREACHED] = "not reached", [RANK_LEFT_OUT] = "left out"};
#define N_RANK_STATES (sizeof(rank_states) / sizeof(rank_states[0]))

const char *rank_state_name(enum rank_state state)
{
    return rank_states[state];
}

struct rank *ranks_add(struct ranks *r)
{
    struct rank *list = array_grow(r->list, r->n, &r->room, sizeof(*list), RANKS_MAX);

    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for %u ranks", r->n + 1);
        return NULL;
    }
    r->list = list;
    list[r->n] = (struct rank)RANK_UNKNOWN;
    return &list[r->n++];
}

int ranks_add_host(struct ranks *r, const char *host, enum rank_state state, const char *why)
{
    struct rank *one = ranks_add(r);

    if (one == NULL)
        return -ENOMEM;
    (void)snprintf(one->host, sizeof(one->host), "%s", host);
    (void)snprintf(one->why, sizeof(one->why), "%s", why);
    one->state = state;
    return 0;
}

void ranks_done(struct ranks *r)
{
    free(r->list);
    *r = (struct ranks){.n = 0};
}

/* ---- which job they are of ---- */

int ranks_check_one_job(const struct ranks *r)
{
    for (uint32_t i = 1; i < r->n; i++)
        if (strcmp(r->list[0].job, r->list[i].job) != 0)
            return err_set(-EINVAL,
                           "ranks of several jobs run here, '%s' and '%s' among them: name one "
                           "with --job",
                           r->list[0].job, r->list[i].job);
    return 0;
}

/* A loopback address is another place on each machine. */
static bool is_loopback(const char *master)
{
    return strncmp(master, "127.", 4) == 0 || strncmp(master, "localhost:", 10) == 0;
}

static bool is_same_place(const struct rank *a, const struct rank *b)
{
    return strcmp(a->host, b->host) == 0 ||
           (strcmp(a->master, b->master) == 0 && !is_loopback(a->master));
}

static const char *meeting_place(const struct rank *r)
{
    return r->master[0] != '\0' ? r->master : "?";
}

static int refuse_jobs(const struct rank *a, const struct rank *b)
{
    if (strcmp(a->job, b->job) != 0)
        return err_set(-EINVAL,
                       "these are ranks of several jobs, '%.100s' on %.100s and '%.100s' on %.100s "
                       "among them: name one with --job",
                       a->job, a->host, b->job, b->host);
    return err_set(-EINVAL,
                   "two jobs are called '%.100s': the ranks on %.100s meet at %.100s, those on "
                   "%.100s at %.100s; name one by where it meets (--job), or its hosts alone",
                   a->job, a->host, meeting_place(a), b->host, meeting_place(b));
}

static bool is_asked_for(const struct rank *r, const char *asked)
{
    return asked != NULL && (strcmp(r->job, asked) == 0 || strcmp(r->master, asked) == 0);
}

bool rank_is_left_out(const struct rank *one, const struct rank *job)
{
    return one->job[0] != '\0' && strcmp(one->job, job->job) != 0;
}

int ranks_find_job(const struct ranks *r, const char *asked, bool twice, struct rank *ret)
{
    const struct rank *job = NULL;

    *ret = (struct rank)RANK_UNKNOWN;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->list[i].job[0] != '\0' &&
            (job == NULL || (is_asked_for(&r->list[i], asked) && !is_asked_for(job, asked))))
            job = &r->list[i];
    if (job == NULL)
        return 0;
    *ret = *job;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct rank *one = &r->list[i];
        bool other = rank_is_left_out(one, job);
        if ((other && !is_asked_for(job, asked)) ||
            (!other && one->job[0] != '\0' && twice && !is_same_place(job, one)))
            return refuse_jobs(job, one);
        if (!other && one->world_size != MEMBER_UNKNOWN &&
            (ret->world_size == MEMBER_UNKNOWN || one->world_size < ret->world_size))
            ret->world_size = one->world_size; /* the least adds no rank that is none */
    }
    return 0;
}

int ranks_add_left_out(struct ranks *hosts, const struct rank *one, const struct rank *job)
{
    char why[sizeof(one->why)];

    for (uint32_t i = 0; i < hosts->n; i++)
        if (strcmp(hosts->list[i].host, one->host) == 0)
            return 0;
    (void)snprintf(why, sizeof(why),
                   "its ranks are left out: it says that they are of job '%.100s', the others that "
                   "theirs are of '%.100s'",
                   one->job, job->job);
    return ranks_add_host(hosts, one->host, RANK_LEFT_OUT, why);
}

/* ---- as JSON ---- */

void rank_write(const struct rank *r, struct buf *b)
{
    json_add_member_text(b, "host", r->host);
    json_add_member_text(b, "job", r->job);
    json_add_member_text(b, "launcher", r->launcher);
    json_add_member_text(b, "role", r->role);
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
}

static void read_rank_text(const struct json *o, const char *key, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", json_text(o, key, ""));
}

/* A rank, a pid: nothing that another machine says makes it anything else than a number. */
static int64_t read_rank_number(const struct json *o, const char *key, int64_t most)
{
    int64_t n = json_int(o, key, MEMBER_UNKNOWN);

    return n >= 0 && n <= most ? n : MEMBER_UNKNOWN;
}

int rank_read(const struct json *o, struct rank *ret)
{
    const char *state = json_text(o, "state", "");
    uint32_t i = 0;

    *ret = (struct rank)RANK_UNKNOWN;
    while (i < N_RANK_STATES && strcmp(state, rank_states[i]) != 0)
        i++;
    ret->state = i < N_RANK_STATES ? (enum rank_state)i : RANK_NONE;
    read_rank_text(o, "host", ret->host, sizeof(ret->host));
    read_rank_text(o, "job", ret->job, sizeof(ret->job));
    read_rank_text(o, "launcher", ret->launcher, sizeof(ret->launcher));
    read_rank_text(o, "role", ret->role, sizeof(ret->role));
    read_rank_text(o, "meets", ret->master, sizeof(ret->master));
    read_rank_text(o, "version", ret->version, sizeof(ret->version));
    read_rank_text(o, "why", ret->why, sizeof(ret->why));
    ret->rank = read_rank_number(o, "rank", INT32_MAX);
    ret->world_size = read_rank_number(o, "world_size", INT32_MAX);
    ret->node_rank = read_rank_number(o, "node_rank", INT32_MAX);
    ret->local_rank = read_rank_number(o, "local_rank", INT32_MAX);
    ret->pid = read_rank_number(o, "pid", INT32_MAX);
    ret->restarts = read_rank_number(o, "restarts", INT32_MAX);
    ret->max_restarts = read_rank_number(o, "max_restarts", INT32_MAX);
    ret->last_ns = read_rank_number(o, "last_ns", INT64_MAX);
    return i < N_RANK_STATES ? 0 : -EBADMSG;
}

int rank_read_line(const char *line, size_t size, struct rank *ret)
{
    struct arena a;
    struct json *o = NULL;
    struct json_error bad;

    arena_init(&a, LINE_TREE_BYTES);
    int rc = json_read(&a, line, size, &o, &bad) == 0 && o->type == JSON_OBJECT ? rank_read(o, ret)
                                                                                : -EBADMSG;
    arena_done(&a);
    return rc == 0 ? 0 : err_set(rc, "its answer is not one of probing");
}

/* ---- hosts that were asked ---- */

static void write_host_list(const struct ranks *hosts, bool none, struct buf *b)
{
    const char *sep = "";

    for (uint32_t i = 0; i < hosts->n; i++) {
        const struct rank *h = &hosts->list[i];
        if ((h->state == RANK_NONE) != none)
            continue;
        (void)buf_addf(b, "%s%s", sep, none ? "" : "{\"host\": ");
        (void)json_add_text(b, h->host, strlen(h->host));
        sep = ", ";
        if (none)
            continue;
        (void)buf_adds(b, ", \"why\": ");
        (void)json_add_text(b, h->why, strlen(h->why));
        (void)buf_addc(b, '}');
    }
}

void ranks_write_hosts(const struct ranks *hosts, struct buf *b)
{
    (void)buf_adds(b, "\"no_rank\": [");
    write_host_list(hosts, /* none= */ true, b);
    (void)buf_adds(b, "], \"not_reached\": [");
    write_host_list(hosts, /* none= */ false, b);
    (void)buf_addc(b, ']');
}

void ranks_say_hosts(const struct ranks *hosts)
{
    char why[4 * sizeof(hosts->list[0].why)];

    for (uint32_t i = 0; i < hosts->n; i++) {
        const struct rank *h = &hosts->list[i];
        if (h->state == RANK_NONE)
            terminal_say("host %s has no rank of the job", h->host);
        else
            terminal_say("host %s%s: %s", h->host,
                         h->state == RANK_LEFT_OUT ? "" : " could not be asked",
                         terminal_field(why, sizeof(why), h->why));
    }
}
