/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/job_said.c - the job that several hosts have answered for: one, or several of a name.
 *
 * One thread.  Where --job names a job exactly, hosts that name another one have their ranks left
 * out, and are named; where it does not, the question is refused, with the names.
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

/* ---- which job is meant ---- */

/* A loopback address is another place on each machine. */
static bool is_loopback(const char *master)
{
    return strncmp(master, "127.", 4) == 0 || strncmp(master, "localhost:", 10) == 0;
}

static bool is_same_place(const struct job_claim *a, const struct job_claim *b)
{
    return a == b || (strcmp(a->master, b->master) == 0 && !is_loopback(a->master));
}

static const char *place(const struct job_claim *c)
{
    return c->master[0] != '\0' ? c->master : "?";
}

static int refuse(const struct job_claim *a, const struct job_claim *b)
{
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

int job_said_settle(struct job_said *s, const char *asked, bool twice, struct job_claim *ret)
{
    uint32_t at = 0;

    *ret = (struct job_claim){.world_size = MEMBER_UNKNOWN};
    while (at < s->n && (asked == NULL || (strcmp(s->list[at].job, asked) != 0 &&
                                           strcmp(s->list[at].master, asked) != 0)))
        at++;
    bool exact = at < s->n;
    const struct job_claim *job = &s->list[exact ? at : 0];
    for (uint32_t i = 0; i < s->n; i++) {
        struct job_claim *c = &s->list[i];
        c->other = strcmp(c->job, job->job) != 0;
        if ((c->other && !exact) || (!c->other && twice && !is_same_place(job, c)))
            return refuse(job, c);
    }
    if (s->n > 0)
        *ret = *job;
    for (uint32_t i = 0; i < s->n; i++) { /* the least adds no rank that is none */
        int64_t size = s->list[i].world_size;
        if (!s->list[i].other && size != MEMBER_UNKNOWN &&
            (ret->world_size == MEMBER_UNKNOWN || size < ret->world_size))
            ret->world_size = size;
    }
    return 0;
}

void job_said_why(const struct job_claim *other, const struct job_claim *job, char *ret,
                  size_t size)
{
    (void)snprintf(ret, size,
                   "its ranks are left out: it says that they are of job '%.100s', the others "
                   "that theirs are of '%.100s'",
                   other->job, job->job);
}
