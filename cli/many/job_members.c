/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/job_members.c - `job:NAME` as members: the ranks of a job that run here, and the data of
 * those that have ended.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/many/find.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"

/* There is none of that name: what to say instead. */
static int no_job(const char *name)
{
    struct buf jobs;

    buf_init(&jobs, ERR_TEXT_BYTES / 2);
    (void)job_list(&jobs);
    job_list_ended(&jobs);
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

static int add_ended(void *arg, const char *directory, const struct rank *ended)
{
    (void)ended;
    return find_add(arg, directory);
}

int find_add_job(struct find *f, const char *text)
{
    uint32_t before = f->found->n;
    struct ranks living = {.n = 0};
    int rc = text[0] != '\0' ? job_find_ranks(text, &living) : no_job(text);
    char name[JOB_NAME_BYTES], pid[24];

    for (uint32_t i = 0; rc == 0 && i < living.n; i++) {
        (void)snprintf(pid, sizeof(pid), "%d", (int)living.list[i].pid);
        rc = find_add(f, pid);
    }
    if (rc == 0)
        rc = job_find_ended(text, living.list, living.n, add_ended, f);
    if (rc == 0 && living.n == 0 && f->found->n == before)
        rc = no_job(text);
    job_name_of(text, name, sizeof(name));
    for (uint32_t i = before; i < f->found->n && strcmp(name, "none") != 0; i++)
        memcpy(f->found->list[i].tags.job, name, sizeof(name));
    ranks_done(&living);
    return rc;
}

int members_find_job(const char *job, struct ranks *ret, struct members *ret_members)
{
    struct buf text;
    int rc = job_find_ranks(job, ret);

    if (rc == 0)
        rc = ranks_check_one_job(ret);
    buf_init(&text, (size_t)1 << 20);
    for (uint32_t i = 0; rc == 0 && i < ret->n; i++)
        rc = buf_addf(&text, "%s%d", i > 0 ? "," : "", (int)ret->list[i].pid);
    if (rc == 0 && ret->n > 0)
        rc = members_find(buf_text(&text), ret_members);
    buf_done(&text);
    return rc;
}
