/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/job_said.c - whose job several hosts have answered for: one, or several of a name.
 *
 * One thread.  A host that names another job than most of them has its own ranks left out, and is
 * named; where there is no most, the question is refused, with their names.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/job.h"
#include "cli/job/job_place.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"

int job_said_by(struct job_said *s, const char *host, const struct job_claim *what, uint32_t *ret)
{
    *ret = JOB_SAID_NONE;
    if (what->job[0] == '\0')
        return 0;
    struct job_claim *list = array_grow(s->list, s->n, &s->room, sizeof(*list), UINT32_MAX);
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for %u hosts", s->n + 1);
    s->list = list;
    struct job_claim *one = &list[s->n];
    *one = *what;
    one->here = host == NULL;
    one->other = false;
    (void)snprintf(one->host, sizeof(one->host), "%s", host != NULL ? host : "this machine");
    *ret = s->n++;
    return 0;
}

void job_said_done(struct job_said *s)
{
    free(s->list);
    *s = (struct job_said){.n = 0};
}

/* ---- what most of them say ---- */

/* A loopback address is another place on each machine. */
static bool is_loopback(const char *master)
{
    return strncmp(master, "127.", 4) == 0 || strncmp(master, "localhost:", 10) == 0;
}

static bool is_same_job(const struct job_claim *a, const struct job_claim *b, bool twice)
{
    if (a == b)
        return true;
    return strcmp(a->job, b->job) == 0 &&
           (!twice || (strcmp(a->master, b->master) == 0 && !is_loopback(a->master)));
}

static bool is_same_size(const struct job_claim *a, const struct job_claim *b, bool twice)
{
    (void)twice;
    return a->world_size == b->world_size;
}

static bool is_known_size(const struct job_claim *c)
{
    return !c->other && c->world_size != MEMBER_UNKNOWN;
}

static bool is_any(const struct job_claim *c)
{
    (void)c;
    return true;
}

/* One that agrees with more than half of those that count; NULL: there is no such (of votes the one
 * that remains when those of two opinions leave in pairs, counted once more). */
static const struct job_claim *
most(const struct job_said *s, bool twice, bool (*counts)(const struct job_claim *c),
     bool (*same)(const struct job_claim *a, const struct job_claim *b, bool twice))
{
    const struct job_claim *best = NULL;
    uint64_t left = 0, with = 0, all = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct job_claim *c = &s->list[i];
        if (!counts(c))
            continue;
        for (uint32_t k = 0; k < c->votes; k++) {
            best = left > 0 ? best : c;
            left = left == 0 || same(best, c, twice) ? left + 1 : left - 1;
        }
    }
    for (uint32_t i = 0; best != NULL && i < s->n; i++)
        if (counts(&s->list[i])) {
            all += s->list[i].votes;
            with += same(best, &s->list[i], twice) ? s->list[i].votes : 0;
        }
    return 2 * with > all ? best : NULL;
}

static const char *place(const struct job_claim *c)
{
    return c->master[0] != '\0' ? c->master : "?";
}

static int refuse(const struct job_said *s, bool twice)
{
    const struct job_claim *a = s->list, *b = s->list;

    for (uint32_t i = 1; i < s->n && a == b; i++) /* another name before another place */
        b = strcmp(s->list[i].job, a->job) != 0 ? &s->list[i] : b;
    for (uint32_t i = 1; i < s->n && a == b; i++)
        b = !is_same_job(a, &s->list[i], twice) ? &s->list[i] : b;
    if (strcmp(a->job, b->job) != 0)
        return err_set(-EINVAL,
                       "these are ranks of several jobs, '%.100s' on %.100s and '%.100s' on %.100s "
                       "among them: name one with --job",
                       a->job, a->host, b->job, b->host);
    return err_set(-EINVAL,
                   "two jobs are called '%.100s': the ranks on %.100s meet at %.100s, those on "
                   "%.100s at %.100s; name one by where it meets (--job), or its hosts alone",
                   a->job, a->host, place(a), b->host, place(b));
}

/* A claim of this machine counts once more: it is seen here, and nobody has told us. */
static void give_votes(struct job_said *s, const char *asked)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct job_claim *c = &s->list[i];
        c->votes = 1 + c->here +
                   (asked != NULL && (strcmp(c->job, asked) == 0 || strcmp(c->master, asked) == 0));
    }
}

int job_said_settle(struct job_said *s, const char *asked, bool twice, const struct job_claim **ret)
{
    *ret = NULL;
    give_votes(s, asked);
    const struct job_claim *job = most(s, twice, is_any, is_same_job);
    if (s->n == 0)
        return 0;
    if (job == NULL)
        return refuse(s, twice);
    for (uint32_t i = 0; i < s->n; i++)
        s->list[i].other = !is_same_job(job, &s->list[i], twice);
    const struct job_claim *size = most(s, false, is_known_size, is_same_size);
    for (uint32_t i = 0; i < s->n && size == NULL; i++) /* the least adds no rank that is none */
        if (is_known_size(&s->list[i]) &&
            (!is_known_size(job) || s->list[i].world_size < job->world_size))
            job = &s->list[i];
    *ret = size != NULL ? size : job;
    return 0;
}

void job_said_why(const struct job_claim *other, const struct job_claim *most_say, char *ret,
                  size_t size)
{
    if (strcmp(other->job, most_say->job) != 0)
        (void)snprintf(ret, size,
                       "its ranks are left out: it says that they are of job '%.100s', the others "
                       "that theirs are of '%.100s'",
                       other->job, most_say->job);
    else
        (void)snprintf(ret, size,
                       "its ranks are left out: they meet at %.100s, those of the others at %.100s",
                       place(other), place(most_say));
}
