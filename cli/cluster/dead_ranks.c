/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/dead_ranks.c - ranks of a job that have ended and left data here: when, and by what.
 *
 * One thread.  How a process ended is known where it crashed and its report says so; who was killed
 * (SIGKILL, the kernel for want of memory) and who left by itself leave the same.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cluster/cluster.h"
#include "cli/job/local_ranks.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/crash/crash.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"

static void utc_text(int64_t ns, char ret[32])
{
    time_t seconds = (time_t)(ns / (int64_t)NS_PER_S);
    struct tm tm;

    if (gmtime_r(&seconds, &tm) == NULL || strftime(ret, 32, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
        (void)snprintf(ret, 32, "?");
}

/* The crash that it did not survive. */
static void say_crash(const struct datadir *d, struct cluster_rank *r)
{
    struct crash_reports all;
    char at[32];

    if (crash_read_signals(d, &all) < 0)
        return;
    for (uint32_t i = 0; i < all.n; i++) {
        const struct crash_report *one = &all.list[i];
        if (one->survived)
            continue;
        r->last_ns = one->utc_ns;
        utc_text(one->utc_ns, at);
        (void)snprintf(r->why, sizeof(r->why), "crashed: %s, %s", one->signal, at);
    }
    crash_reports_done(&all);
}

static void say_last(const struct datadir *d, struct cluster_rank *r)
{
    struct stat st;
    char at[32];

    if (!datadir_has(d, "data.mdb", &st))
        return;
    r->last_ns = (int64_t)st.st_mtim.tv_sec * (int64_t)NS_PER_S + st.st_mtim.tv_nsec;
    utc_text(r->last_ns, at);
    (void)snprintf(r->why, sizeof(r->why), "left by itself, or was killed; last wrote data %s", at);
}

static int add_dead(void *arg, const char *directory, int64_t pid)
{
    struct cluster_rank *r = cluster_rank_add(arg);
    struct datadir d = DATADIR_NONE;
    struct member_tags tags;
    struct job_place place;
    struct buf environment;

    if (r == NULL)
        return -ENOMEM;
    r->state = RANK_ENDED;
    r->pid = pid;
    (void)gethostname(r->host, sizeof(r->host) - 1);
    dead_environment(directory, &environment);
    if (environment.size > 0) {
        member_place(environment.data, environment.size - 1, &tags);
        job_place_of(environment.data, environment.size - 1, &place);
        (void)snprintf(r->job, sizeof(r->job), "%s", tags.job[0] != '\0' ? tags.job : place.master);
        (void)snprintf(r->launcher, sizeof(r->launcher), "%s", place.launcher);
        r->rank = tags.rank;
        r->node_rank = tags.node_rank;
        r->local_rank = tags.local_rank;
        r->world_size = place.world_size;
    }
    buf_done(&environment);
    if (datadir_open(directory, DATADIR_ANY, &d) == 0) {
        say_last(&d, r);
        say_crash(&d, r);
    }
    datadir_close(&d);
    return 0;
}

/* Add the dead ranks of one job, whose living ranks are the n of the list. */
static int dead_of(const char *job, const struct local_rank *list, uint32_t n,
                   struct cluster_ranks *ret)
{
    struct job_living *living = calloc(n + 1, sizeof(*living));

    if (living == NULL)
        return err_set(-ENOMEM, "no memory for %u ranks", n);
    for (uint32_t i = 0; i < n; i++)
        living[i] = (struct job_living){list[i].pid, list[i].tags.rank};
    int rc = job_each_dead(job, living, n, add_dead, ret);
    free(living);
    return rc;
}

int cluster_dead(const char *job, const struct local_ranks *living, struct cluster_ranks *ret)
{
    int rc = 0;

    if (job != NULL)
        return dead_of(job, living->list, living->n, ret);
    for (uint32_t first = 0, n; rc == 0 && first < living->n; first += n) {
        const char *name = living->list[first].tags.job;
        for (n = 1; first + n < living->n; n++)
            if (strcmp(living->list[first + n].tags.job, name) != 0)
                break;
        if (name[0] != '\0')
            rc = dead_of(name, living->list + first, n, ret);
    }
    return rc;
}
