/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/local_ranks.c - see local_ranks.h.
 *
 * One thread.  It only looks: nothing is entered, asked or changed here.
 */
#include "cli/job/local_ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/target/apart.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/task.h"

static struct local_rank *grow(struct local_ranks *r)
{
    if (r->n == LOCAL_RANKS_MAX) {
        (void)err_set(-E2BIG, "more than %d processes here say that they are ranks",
                      LOCAL_RANKS_MAX);
        return NULL;
    }
    struct local_rank *list = array_grow(r->list, r->n, &r->room, sizeof(*list), UINT32_MAX);
    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for %u ranks", r->n + 1);
        return NULL;
    }
    r->list = list;
    return &r->list[r->n++];
}

/* One that has ended meanwhile is left out. */
static int add_rank(void *arg, pid_t pid)
{
    struct local_ranks *r = arg;
    struct proc_stat stat;
    struct buf b;
    bool there = proc_stat_of(pid, 0, &stat) == 0 && stat.state != 'Z';
    int rc = there ? find_environment(pid, &b, /* ret_source= */ NULL) : -ESRCH;

    if (rc < 0) {
        rc = apart_pass_over(pid, rc, "it is left out");
    } else {
        struct local_rank *one = grow(r);
        rc = one != NULL ? 0 : r->n == LOCAL_RANKS_MAX ? -E2BIG : -ENOMEM;
        if (rc == 0) {
            *one = (struct local_rank){.pid = pid, .parent = (pid_t)stat.ppid};
            member_place(b.data, b.size - 1, &one->tags);
            job_place_of(b.data, b.size - 1, &one->place);
            if (one->tags.job[0] == '\0')
                (void)snprintf(one->tags.job, sizeof(one->tags.job), "%.127s", one->place.master);
            if (one->tags.job[0] == '\0')
                job_proxy(one->parent, one->tags.job, sizeof(one->tags.job));
        }
    }
    if (there)
        buf_done(&b);
    return rc;
}

static int compare(const void *one, const void *two)
{
    const struct local_rank *a = one, *b = two;
    int order = strcmp(a->tags.job, b->tags.job);

    if (order != 0)
        return order;
    if (a->tags.rank != b->tags.rank)
        return a->tags.rank < b->tags.rank ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

int local_ranks_find(const char *job, struct local_ranks *ret)
{
    *ret = (struct local_ranks){.n = 0};
    int rc = job_each(job, add_rank, ret);

    if (rc == 0 && cli_interrupted)
        rc = err_set(-ECANCELED, "interrupted");
    if (rc == 0 && ret->n > 0)
        qsort(ret->list, ret->n, sizeof(*ret->list), compare);
    if (rc < 0)
        local_ranks_done(ret);
    return rc;
}

int local_ranks_of_one_job(const struct local_ranks *r)
{
    for (uint32_t i = 1; i < r->n; i++)
        if (strcmp(r->list[0].tags.job, r->list[i].tags.job) != 0)
            return err_set(-EINVAL,
                           "ranks of several jobs run here, '%s' and '%s' among them: name one "
                           "with --job",
                           r->list[0].tags.job, r->list[i].tags.job);
    return 0;
}

void local_ranks_done(struct local_ranks *r)
{
    free(r->list);
    *r = (struct local_ranks){.n = 0};
}
