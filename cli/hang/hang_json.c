/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_json.c - what `cluster hang --json` prints, and what it has printed on another
 * machine.
 *
 * One thread.  What comes from another machine may be anything: texts are cut and cannot break a
 * line, numbers are checked, and all of it counts for the host that was asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/hang/hang.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/array.h"

#define RANKS_MAX (1u << 20)
#define TREE_BYTES ((size_t)512 << 20)

static const char *const state_names[] = {
    [HANG_UNSEEN] = "unseen", [HANG_WAITS] = "waits",     [HANG_ELSEWHERE] = "elsewhere",
    [HANG_MOVES] = "moves",   [HANG_STOPPED] = "stopped", [HANG_GONE] = "gone"};
#define N_STATES (sizeof(state_names) / sizeof(state_names[0]))

/* ---- ranks ---- */

struct hang_seen *hang_add(struct hang_found *f)
{
    struct hang_seen *list = array_grow(f->list, f->n, &f->room, sizeof(*list), RANKS_MAX);
    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for %u ranks", f->n + 1);
        return NULL;
    }
    f->list = list;
    struct hang_seen *one = &f->list[f->n++];
    *one = (struct hang_seen){.rank = {.rank = MEMBER_UNKNOWN,
                                       .pid = HANG_UNKNOWN,
                                       .woken = HANG_UNKNOWN,
                                       .busy_ns = HANG_UNKNOWN,
                                       .between_ns = HANG_UNKNOWN,
                                       .bytes = HANG_UNKNOWN,
                                       .ran_ns = HANG_UNKNOWN,
                                       .still_ns = HANG_UNKNOWN},
                              .claim = UINT32_MAX};
    buf_init(&one->stacks, HANG_STACK_BYTES);
    return one;
}

static void drop_from(struct hang_found *f, uint32_t n)
{
    while (f->n > n)
        buf_done(&f->list[--f->n].stacks);
}

int hang_claim(struct hang_found *f, const struct rank *job, uint32_t from)
{
    struct rank *one = ranks_add(&f->claims);

    if (one == NULL)
        return -ENOMEM;
    *one = *job;
    for (uint32_t i = from; i < f->n; i++)
        f->list[i].claim = f->claims.n - 1;
    return 0;
}

void hang_found_done(struct hang_found *f)
{
    drop_from(f, 0);
    free(f->list);
    ranks_done(&f->hosts);
    ranks_done(&f->claims);
    *f = (struct hang_found){.n = 0};
}

/* ---- out ---- */

static void write_s(struct buf *b, const char *key, int64_t ns)
{
    (void)buf_addf(b, "\"%s\": ", key);
    if (ns == HANG_UNKNOWN)
        (void)buf_adds(b, "null");
    else
        (void)json_add_f64(b, (double)ns / (double)NS_PER_S);
    (void)buf_adds(b, ", ");
}

static void write_call(struct buf *b, const struct hang_call *c)
{
    if (!c->known) {
        (void)buf_adds(b, "\"call\": null, ");
        return;
    }
    (void)buf_adds(b, "\"call\": {");
    json_add_member_text(b, "group", c->group);
    json_add_member_text(b, "ranks", c->ranks);
    json_add_member_int(b, "peer", c->peer, HANG_UNKNOWN);
    if (c->tag == HANG_UNKNOWN)
        (void)buf_adds(b, "\"tag\": null}, ");
    else
        (void)buf_addf(b, "\"tag\": %" PRId64 "}, ", c->tag);
}

static void write_rank(struct hang_seen *s, struct buf *b)
{
    const struct hang_rank *r = &s->rank;

    (void)buf_adds(b, "{");
    json_add_member_int(b, "rank", r->rank, MEMBER_UNKNOWN);
    json_add_member_text(b, "host", r->host);
    json_add_member_int(b, "pid", r->pid, MEMBER_UNKNOWN);
    (void)buf_addf(b, "\"state\": \"%s\", ", state_names[r->state]);
    json_add_member_text(b, "operation", r->operation);
    write_call(b, &r->call);
    json_add_member_text(b, "place", r->place);
    json_add_member_text(b, "doing", r->doing);
    json_add_member_int(b, "looks", r->looks, MEMBER_UNKNOWN);
    json_add_member_int(b, "woken", r->looks > 0 ? r->woken : HANG_UNKNOWN, MEMBER_UNKNOWN);
    write_s(b, "busy_s", r->looks > 0 ? r->busy_ns : HANG_UNKNOWN);
    write_s(b, "between_s", r->looks > 0 ? r->between_ns : HANG_UNKNOWN);
    json_add_member_int(b, "bytes", r->looks > 0 ? r->bytes : HANG_UNKNOWN, MEMBER_UNKNOWN);
    write_s(b, "ran_s", r->looks > 0 ? r->ran_ns : HANG_UNKNOWN);
    write_s(b, "still_s", r->looks > 0 ? r->still_ns : HANG_UNKNOWN);
    json_add_member_text(b, "why", r->why);
    (void)buf_addf(b, "\"stacks\": %s}",
                   s->stacks.size > 0 && s->stacks.failed == 0 ? buf_text(&s->stacks) : "[]");
}

static void write_lines(struct buf *b, const char *text)
{
    (void)buf_adds(b, "\"says\": [");
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, "\n");
        (void)buf_adds(b, at == text ? "" : ", ");
        (void)json_add_text(b, at, n);
        at += n + (at[n] == '\n');
    }
    (void)buf_adds(b, "], ");
}

static void write_awaited(struct buf *b, const struct hang_found *f, const struct hang_verdict *v)
{
    const char *sep = "";

    (void)buf_adds(b, "\"awaited\": [");
    for (uint32_t i = 0; i < f->n; i++)
        if (v->awaited[i]) {
            (void)buf_addf(b, "%s%" PRId64, sep, f->list[i].rank.rank);
            sep = ", ";
        }
    (void)buf_adds(b, "], ");
}

static void write_circles(struct buf *b, const struct hang_found *f, const struct hang_verdict *v)
{
    (void)buf_adds(b, "\"circles\": [");
    for (uint32_t n = 1; n <= v->n_circles; n++) {
        const char *sep = n > 1 ? ", [" : "[";
        for (uint32_t i = 0; i < f->n; i++)
            if (v->circle[i] == n) {
                (void)buf_addf(b, "%s%" PRId64, sep, f->list[i].rank.rank);
                sep = ", ";
            }
        (void)buf_addc(b, ']');
    }
    (void)buf_adds(b, "], ");
}

void hang_write(const struct cluster_options *o, const struct hang_found *f,
                const struct hang_verdict *v, const char *says, const char *caution, struct buf *b)
{
    (void)buf_adds(b, "{");
    json_add_member_text(b, "job", f->job.job);
    json_add_member_text(b, "launcher", f->job.launcher);
    json_add_member_text(b, "meets", f->job.master);
    json_add_member_int(b, "world_size", f->job.world_size, MEMBER_UNKNOWN);
    json_add_member_int(b, "looks", o->looks, MEMBER_UNKNOWN);
    (void)buf_adds(b, "\"span_s\": ");
    (void)json_add_f64(b, (double)f->span_ns / (double)NS_PER_S);
    (void)buf_addf(b, ", \"hangs\": %s, ",
                   v->hangs == HANG_YES  ? "true"
                   : v->hangs == HANG_NO ? "false"
                                         : "null");
    json_add_member_text(b, "caution", caution);
    write_s(b, "waited_s", v->waited_ns);
    write_awaited(b, f, v);
    write_circles(b, f, v);
    write_lines(b, says);
    ranks_write_hosts(&f->hosts, b);
    (void)buf_adds(b, ", \"ranks\": [");
    for (uint32_t i = 0; i < f->n; i++) {
        (void)buf_adds(b, i > 0 ? ",\n " : "\n ");
        write_rank(&f->list[i], b);
    }
    (void)buf_adds(b, "]}\n");
}

/* ---- in ---- */

static void read_text(const struct json *o, const char *key, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", json_text(o, key, ""));
}

static int64_t read_number(const struct json *o, const char *key, int64_t most)
{
    int64_t n = json_int(o, key, MEMBER_UNKNOWN);

    return n >= 0 && n <= most ? n : MEMBER_UNKNOWN;
}

static void read_call(const struct json *o, struct hang_call *c)
{
    *c = (struct hang_call){
        .known = o != NULL && o->type == JSON_OBJECT, .peer = HANG_UNKNOWN, .tag = HANG_UNKNOWN};
    if (!c->known)
        return;
    read_text(o, "group", c->group, sizeof(c->group));
    read_text(o, "ranks", c->ranks, sizeof(c->ranks));
    c->peer = read_number(o, "peer", INT32_MAX);
    c->tag = read_number(o, "tag", INT64_MAX);
}

/* Seconds; HANG_UNKNOWN. */
static int64_t read_s(const struct json *o, const char *key)
{
    const struct json *s = json_get(o, key);

    return s != NULL && s->type == JSON_NUMBER && s->number >= 0 && s->number < 1e9
               ? (int64_t)(s->number * (double)NS_PER_S)
               : HANG_UNKNOWN;
}

/* A stack once more as text: what is planted is read from there. */
static void copy_stacks(const struct json *stacks, struct buf *b)
{
    const char *sep = "";

    (void)buf_addc(b, '[');
    for (const struct json *s = stacks->first; s != NULL; s = s->next) {
        const struct json *frames = s->type == JSON_OBJECT ? json_get(s, "frames") : NULL;
        const char *doing = json_text(s, "doing", "?"), *comma = "";
        if (frames == NULL || frames->type != JSON_ARRAY)
            continue;
        (void)buf_addf(b, "%s{\"doing\":", sep);
        sep = ",";
        (void)json_add_text(b, doing, strlen(doing));
        (void)buf_adds(b, ",\"frames\":[");
        for (const struct json *f = frames->first; f != NULL; f = f->next, comma = ",") {
            (void)buf_addf(b, "%s[", comma);
            const struct json *item = f->type == JSON_ARRAY ? f->first : NULL;
            for (int i = 0; i < 3; i++, item = item != NULL ? item->next : NULL) {
                bool text = item != NULL && item->type == JSON_STRING;
                (void)buf_adds(b, i > 0 ? "," : "");
                (void)json_add_text(b, text ? item->text : "?", text ? item->size : 1);
            }
            (void)buf_addc(b, ']');
        }
        (void)buf_adds(b, "]}");
    }
    (void)buf_addc(b, ']');
}

static int read_rank(const struct json *o, const char *host, struct hang_found *f)
{
    const char *state = o->type == JSON_OBJECT ? json_text(o, "state", "") : "";
    uint32_t i = 0;

    while (i < N_STATES && strcmp(state, state_names[i]) != 0)
        i++;
    if (i == N_STATES)
        return -EBADMSG;
    if (i == HANG_UNSEEN && read_number(o, "pid", INT32_MAX) == MEMBER_UNKNOWN)
        return 0; /* of another machine, as far as that one knows */
    if (read_number(o, "rank", INT32_MAX) == MEMBER_UNKNOWN)
        return -EBADMSG; /* by one without a number all would go by their processes */
    struct hang_seen *s = hang_add(f);
    if (s == NULL)
        return -ENOMEM;
    struct hang_rank *r = &s->rank;
    r->state = (enum hang_state)i;
    r->rank = read_number(o, "rank", INT32_MAX);
    r->pid = read_number(o, "pid", INT32_MAX);
    int64_t looks = read_number(o, "looks", INT32_MAX);
    r->looks = looks > 0 ? (uint32_t)looks : 0;
    r->woken = read_number(o, "woken", INT64_MAX);
    r->busy_ns = read_s(o, "busy_s");
    r->between_ns = read_s(o, "between_s");
    r->bytes = read_number(o, "bytes", INT64_MAX);
    r->ran_ns = read_s(o, "ran_s");
    r->still_ns = read_s(o, "still_s");
    (void)snprintf(r->host, sizeof(r->host), "%.63s", host);
    read_text(o, "operation", r->operation, sizeof(r->operation));
    read_call(json_get(o, "call"), &r->call);
    read_text(o, "place", r->place, sizeof(r->place));
    read_text(o, "doing", r->doing, sizeof(r->doing));
    read_text(o, "why", r->why, sizeof(r->why));
    const struct json *stacks = json_get(o, "stacks");
    if (stacks != NULL && stacks->type == JSON_ARRAY)
        copy_stacks(stacks, &s->stacks);
    return 0;
}

/* Keep which job the host claims for the ranks from `before` on. */
static int read_job(const struct json *o, const char *host, uint32_t before, struct hang_found *f)
{
    int64_t span = read_s(o, "span_s");
    struct rank job;

    (void)rank_read(o, &job);
    (void)snprintf(job.host, sizeof(job.host), "%s", host);
    /* The shortest span of several hosts counts: so long all were looked at. */
    span = span == HANG_UNKNOWN ? 0 : span;
    if (f->span_ns == 0 || (uint64_t)span < f->span_ns)
        f->span_ns = (uint64_t)span;
    return hang_claim(f, &job, before);
}

int hang_read(const char *text, size_t size, const char *host, struct hang_found *f)
{
    struct json_error bad;
    struct json *o = NULL;
    struct arena a;
    uint32_t before = f->n;

    arena_init(&a, TREE_BYTES);
    int rc = json_read(&a, text, size, &o, &bad) == 0 && o->type == JSON_OBJECT ? 0 : -EBADMSG;
    const struct json *ranks = rc == 0 ? json_get(o, "ranks") : NULL;
    if (rc == 0 && (ranks == NULL || ranks->type != JSON_ARRAY))
        rc = -EBADMSG;
    for (const struct json *r = rc == 0 ? ranks->first : NULL; rc == 0 && r != NULL; r = r->next)
        rc = f->n - before < MEMBERS_MAX ? read_rank(r, host, f) : -EBADMSG;
    if (rc == 0 && f->n > before)
        rc = read_job(o, host, before, f);
    if (rc < 0)
        drop_from(f, before);
    arena_done(&a);
    return rc == -EBADMSG ? err_set(rc, "its answer is not one of probing") : rc;
}
