/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/job_said.c - whose job several hosts have answered for: one, or several of a name.
 *
 * One thread.  A host that names another job than the rest has the question refused, by its name.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cluster/job_place.h"
#include "core/base/err.h"

void job_said_by(struct job_said *s, const char *host, const char *job, const char *master)
{
    const char *const loopback[] = {"127.", "localhost:"};
    bool other = false;

    if (job[0] == '\0')
        return;
    if (s->job[0] == '\0') {
        (void)snprintf(s->job, sizeof(s->job), "%s", job);
        (void)snprintf(s->host, sizeof(s->host), "%s", host);
        (void)snprintf(s->master, sizeof(s->master), "%s", master);
        return;
    }
    for (size_t i = 0; i < 2; i++) /* of two machines these are two places */
        other = other || strncmp(master, loopback[i], strlen(loopback[i])) == 0;
    if (s->other_job[0] == '\0' || strcmp(s->other_job, s->job) == 0) {
        other = other || strcmp(s->master, master) != 0;
        if (strcmp(s->job, job) == 0 && !other)
            return;
        (void)snprintf(s->other_job, sizeof(s->other_job), "%s", job);
        (void)snprintf(s->other_host, sizeof(s->other_host), "%s", host);
        (void)snprintf(s->other_master, sizeof(s->other_master), "%s", master);
    }
}

int job_said_one(const struct job_said *s, bool twice)
{
    if (s->other_job[0] != '\0' && strcmp(s->job, s->other_job) != 0)
        return err_set(-EINVAL,
                       "these are ranks of several jobs, '%.100s' on %.100s and '%.100s' on %.100s "
                       "among them: name one with --job",
                       s->job, s->host, s->other_job, s->other_host);
    if (twice && s->other_job[0] != '\0')
        return err_set(-EINVAL,
                       "two jobs are called '%.100s': the ranks on %.100s meet at %.100s, those on "
                       "%.100s at %.100s; name one by where it meets (--job), or its hosts alone",
                       s->job, s->host, s->master[0] != '\0' ? s->master : "?", s->other_host,
                       s->other_master[0] != '\0' ? s->other_master : "?");
    return 0;
}
