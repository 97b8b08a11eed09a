/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/job_members.c - `job:NAME` as members: the ranks of a job that run here, and the data of
 * those that have ended.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/local_ranks.h"
#include "cli/many/find.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"

struct of_job {
    struct find *find;
    uint32_t n; /* those that are named already count, too */
};

static int add_pid(void *arg, pid_t pid)
{
    struct of_job *o = arg;
    char text[24];

    o->n++;
    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    return find_add(o->find, text);
}

/* There is none of that name: what to say instead. */
static int no_job(const char *name)
{
    struct buf jobs;

    buf_init(&jobs, ERR_TEXT_BYTES / 2);
    (void)job_list(&jobs);
    job_list_dead(&jobs);
    int rc = name[0] == '\0'
                 ? cli_misuse(err_set(-EINVAL,
                                      "'job:' needs the job's name; on this machine there is %s",
                                      buf_text(&jobs)))
                 : err_set(-ESRCH,
                           "no rank of a job '%s' runs here, there is %s; a job's name is what its "
                           "ranks have as TORCHELASTIC_RUN_ID, SLURM_JOB_ID, SLURM_JOB_NAME, "
                           "PBS_JOBID, LSB_JOBID, JOB_NAME, PMIX_NAMESPACE or "
                           "MASTER_ADDR:MASTER_PORT",
                           name, buf_text(&jobs));
    buf_done(&jobs);
    return rc;
}

static int add_dead(void *arg, const char *directory, int64_t pid)
{
    (void)pid;
    return find_add(arg, directory);
}

static int find_add_dead(struct find *f, const char *name, uint32_t before)
{
    uint32_t n = f->found->n - before;
    struct job_living *living = calloc(n + 1, sizeof(*living));

    if (living == NULL)
        return err_set(-ENOMEM, "no memory for %u ranks", n);
    for (uint32_t i = 0; i < n; i++) {
        const struct member *m = &f->found->list[before + i];
        living[i] = (struct job_living){m->target.pid, m->tags.rank};
    }
    int rc = job_each_dead(name, living, n, add_dead, f);
    free(living);
    return rc;
}

int find_add_job(struct find *f, const char *text)
{
    struct of_job o = {.find = f};
    uint32_t before = f->found->n;
    int rc = text[0] != '\0' ? job_each(text, add_pid, &o) : no_job(text);
    char name[sizeof(f->found->list[0].tags.job)];

    if (rc == 0)
        rc = find_add_dead(f, text, before);
    o.n += f->found->n - before;
    job_name_of(text, name, sizeof(name));
    for (uint32_t i = before; i < f->found->n && strcmp(name, "none") != 0; i++)
        (void)snprintf(f->found->list[i].tags.job, sizeof(f->found->list[i].tags.job), "%s", name);
    return rc == 0 && o.n == 0 ? no_job(text) : rc;
}

int members_find_job(const char *job, struct local_ranks *ret, struct members *ret_members)
{
    struct buf text;
    int rc = local_ranks_find(job, ret);

    if (rc == 0)
        rc = local_ranks_of_one_job(ret);
    buf_init(&text, (size_t)1 << 20);
    for (uint32_t i = 0; rc == 0 && i < ret->n; i++)
        rc = buf_addf(&text, "%s%d", i > 0 ? "," : "", (int)ret->list[i].pid);
    if (rc == 0 && ret->n > 0)
        rc = members_find(buf_text(&text), ret_members);
    buf_done(&text);
    return rc;
}
