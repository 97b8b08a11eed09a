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
static void say_crash(const struct datadir *d, struct rank *r)
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

static void say_last(const struct datadir *d, struct rank *r)
{
    struct stat st;
    char at[32];

    if (!datadir_has(d, "data.mdb", &st))
        return;
    r->last_ns = (int64_t)st.st_mtim.tv_sec * (int64_t)NS_PER_S + st.st_mtim.tv_nsec;
    utc_text(r->last_ns, at);
    (void)snprintf(r->why, sizeof(r->why), "left by itself, or was killed; last wrote data %s", at);
}

static int add_dead(void *arg, const char *directory, const struct rank *ended)
{
    struct rank *r = ranks_add(arg);
    struct datadir d = DATADIR_NONE;

    if (r == NULL)
        return -ENOMEM;
    *r = *ended;
    r->state = RANK_ENDED;
    (void)gethostname(r->host, sizeof(r->host) - 1);
    if (datadir_open(directory, DATADIR_ANY, &d) == 0) {
        say_last(&d, r);
        say_crash(&d, r);
    }
    datadir_close(&d);
    return 0;
}

int cluster_dead(const char *job, struct ranks *r)
{
    const uint32_t n_living = r->n;
    struct rank *living = calloc(n_living + 1, sizeof(*living)); /* the list grows */
    int rc = living == NULL ? err_set(-ENOMEM, "no memory for %u ranks", n_living) : 0;

    if (rc == 0 && n_living > 0)
        memcpy(living, r->list, n_living * sizeof(*living));
    if (rc == 0 && job != NULL)
        rc = job_find_ended(job, living, n_living, add_dead, r);
    for (uint32_t first = 0, n; rc == 0 && job == NULL && first < n_living; first += n) {
        for (n = 1; first + n < n_living; n++)
            if (strcmp(living[first + n].job, living[first].job) != 0)
                break;
        if (living[first].job[0] != '\0')
            rc = job_find_ended(living[first].job, living + first, n, add_dead, r);
    }
    free(living);
    return rc;
}
