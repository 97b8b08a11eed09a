/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/job.c - `job:NAME`: the ranks on this machine that say that they are of that job, with a
 * core or without; job_dead.c has those that have ended.
 *
 * One thread.  A job is known by torchrun's --rdzv-id, the id or name that SLURM, PBS or LSF gave
 * it, a Kubernetes job's name, or MASTER_ADDR:MASTER_PORT.  Children of a rank have its environment
 * too, and so have wrappers around it: of a family one is the rank.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/many/find.h"
#include "cli/target/apart.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/proc_file.h"
#include "sdk/lib/proc/task.h"

#define ANCESTORS 32 /* looked at: a launcher's chain is short */
#define JOBS_SHOWN 8

struct candidate {
    pid_t pid;
    pid_t ancestors[ANCESTORS]; /* its parent first; 0: no more */
    int64_t rank;
    int worth;        /* what speaks for its being the rank: a core, a Python */
    char master[128]; /* "127.0.0.1:29500", "": it has none */
    char job[128];    /* what to call its job */
    bool torch;       /* its rank is what torch reads, not a scheduler's */
    bool out;
};

struct candidates {
    struct candidate *list;
    uint32_t n, room;
};

static const char *variable(const struct buf *b, const char *name)
{
    const char *value = proc_environ_find(b->data, b->size, name);

    return value != NULL ? value : "";
}

void job_master(const struct buf *b, char *ret, size_t size)
{
    const char *address = variable(b, "MASTER_ADDR"), *port = variable(b, "MASTER_PORT");

    ret[0] = '\0';
    if (address[0] != '\0' && port[0] != '\0')
        (void)snprintf(ret, size, "%.100s:%.8s", address, port);
}

/* name: NULL, of any. */
static bool is_of_job(const struct buf *b, const char *name, const char *master)
{
    static const char *const names[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_JOB_NAME",
                                        "PBS_JOBID",           "LSB_JOBID",    "JOB_NAME"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (name != NULL ? strcmp(variable(b, names[i]), name) == 0
                         : variable(b, names[i])[0] != '\0')
            return true;
    return name != NULL ? strcmp(master, name) == 0 : master[0] != '\0';
}

bool job_is_named(const struct buf *environment, const char *name)
{
    char master[128];

    job_master(environment, master, sizeof(master));
    return is_of_job(environment, name, master);
}

/* A core counts most, then that it is a Python: wrappers are shells. */
static int worth_of(pid_t pid)
{
    char path[PROC_PATH_BYTES], exe[4096], directory[4096];

    proc_path(pid, 0, "exe", path);
    ssize_t n = readlink(path, exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(exe, '/');
    bool python = slash != NULL && strncmp(slash + 1, "python", 6) == 0;
    return (directory_of(pid, directory, sizeof(directory)) == 0 ? 2 : 0) + python;
}

static void find_ancestors(struct candidate *c)
{
    struct proc_stat s;
    pid_t young = c->pid;

    for (int i = 0; i < ANCESTORS && young > 1 && proc_stat_of(young, 0, &s) == 0; i++)
        c->ancestors[i] = young = (pid_t)s.ppid;
}

static int take_process(struct candidates *all, pid_t pid, const char *name)
{
    struct candidate c = {.pid = pid};
    struct member_tags place;
    struct buf b;
    int rc = find_environment(pid, &b);
    bool read = rc == 0;

    if (read) {
        job_master(&b, c.master, sizeof(c.master));
        member_place(b.data, b.size - 1, &place);
        c.rank = place.rank;
        (void)snprintf(c.job, sizeof(c.job), "%s", place.job);
        c.torch = variable(&b, "RANK")[0] != '\0';
        read = c.rank != MEMBER_UNKNOWN && is_of_job(&b, name, c.master);
    }
    buf_done(&b);
    if (!read)
        return apart_pass_over(pid, rc, "it is left out");
    c.worth = worth_of(pid);
    find_ancestors(&c);
    struct candidate *list = array_grow(all->list, all->n, &all->room, sizeof(*list), UINT32_MAX);
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for the processes of a job");
    all->list = list;
    all->list[all->n++] = c;
    return 0;
}

static int gather(struct candidates *all, const char *name)
{
    struct proc_numbers processes;
    struct proc_number one;
    int rc = proc_numbers_open(&processes, "/proc");

    if (rc < 0)
        return err_set(rc, "cannot read /proc: %s", strerror(-rc));
    while (rc == 0 && !cli_interrupted && proc_numbers_next(&processes, &one))
        if ((pid_t)one.value != getpid())
            rc = take_process(all, (pid_t)one.value, name);
    proc_numbers_close(&processes);
    return rc;
}

/* srun starts torchrun, which starts ranks: it has a place in the scheduler's job, and is none.  Of
 * two of a family with the same rank one is out: who is worth less, else the child. */
static void judge(struct candidate *old, struct candidate *young)
{
    if (!old->torch && young->torch)
        old->out = true;
    if (old->out || young->out || old->rank != young->rank)
        return;
    bool old_stays = old->worth >= young->worth;
    old->out = !old_stays;
    young->out = old_stays;
}

/* torchrun calls a job "none" that nobody has named: two of them are two jobs. */
static int refuse_unnamed(const struct candidates *all, const char *name)
{
    struct buf text;
    uint32_t n = 0;

    buf_init(&text, ERR_TEXT_BYTES / 2);
    for (uint32_t i = 0; i < all->n; i++) {
        bool new = !all->list[i].out && all->list[i].master[0] != '\0';
        for (uint32_t k = 0; k < i && new; k++)
            new = all->list[k].out || strcmp(all->list[k].master, all->list[i].master) != 0;
        if (new &&n++ < JOBS_SHOWN) {
            (void)buf_adds(&text, n > 1 ? ", " : "");
            members_add_job(&text, all->list[i].master);
        }
    }
    int rc = n < 2 || name == NULL || strcmp(name, "none") != 0
                 ? 0
                 : err_set(-EINVAL, "job:none is %u jobs that have no name of their own: %s", n,
                           buf_text(&text));
    buf_done(&text);
    return rc;
}

static int compare(const void *one, const void *two)
{
    const struct candidate *a = one, *b = two;

    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* Its parent has ended, or whoever leads its process group, as a launcher makes of each rank. */
static bool is_orphan(const struct candidate *c, bool *ret_leads)
{
    pid_t leader = getpgid(c->pid);

    *ret_leads = leader <= 0 || strchr("?ZX", target_state(leader)) == NULL;
    return !*ret_leads || c->ancestors[0] <= 1;
}

/* A logger, say, that runs on when its rank has ended: it says that it is the rank, and hid that it
 * is gone.  Only of what is no Python where the other ranks of the job are, and have parents. */
static void judge_left(struct candidates *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        struct candidate *c = &all->list[i];
        bool leads;
        if (c->out || c->worth > 0 || !is_orphan(c, &leads))
            continue;
        for (uint32_t k = 0; k < all->n && !c->out; k++) {
            const struct candidate *o = &all->list[k];
            c->out = !o->out && o->worth > 0 && o->rank != c->rank && strcmp(o->job, c->job) == 0 &&
                     (!leads || o->ancestors[0] != c->ancestors[0]);
        }
    }
}

/* By families, not by pairs: a job's environment may be that of thousands that are no ranks. */
static void judge_all(struct candidates *all)
{
    if (all->n > 0)
        qsort(all->list, all->n, sizeof(*all->list), compare);
    for (uint32_t i = 0; i < all->n; i++) {
        struct candidate *young = &all->list[i];
        for (int k = 0; k < ANCESTORS && young->ancestors[k] > 1; k++) {
            const struct candidate key = {.pid = young->ancestors[k]};
            struct candidate *old = bsearch(&key, all->list, all->n, sizeof(*all->list), compare);
            if (old != NULL)
                judge(old, young);
        }
    }
    judge_left(all);
}

void job_list(struct buf *ret)
{
    struct candidates all = {.n = 0};
    uint32_t shown = 0;

    if (gather(&all, /* name= */ NULL) == 0)
        judge_all(&all);
    for (uint32_t i = 0; i < all.n; i++) {
        struct candidate *c = &all.list[i];
        uint32_t ranks = 0;
        for (uint32_t k = i; k < all.n && !c->out; k++)
            if (!all.list[k].out && strcmp(all.list[k].job, c->job) == 0) {
                all.list[k].out = k > i;
                ranks++;
            }
        if (ranks > 0 && shown++ < JOBS_SHOWN) {
            (void)buf_adds(ret, shown > 1 ? ", " : "");
            members_add_job(ret, c->job);
            (void)buf_addf(ret, " (%u rank%s)", ranks, ranks > 1 ? "s" : "");
        }
    }
    if (shown > JOBS_SHOWN)
        (void)buf_addf(ret, " and %u more", shown - JOBS_SHOWN);
    if (shown == 0)
        (void)buf_adds(ret, "none that can be read");
    free(all.list);
}

int job_each(const char *name, int (*fn)(void *arg, pid_t pid), void *arg)
{
    struct candidates all = {.n = 0};
    int rc = gather(&all, name);

    judge_all(&all);
    if (rc == 0)
        rc = refuse_unnamed(&all, name);
    for (uint32_t i = 0; i < all.n && rc == 0; i++)
        rc = all.list[i].out ? 0 : fn(arg, all.list[i].pid);
    free(all.list);
    return rc;
}

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
    job_list(&jobs);
    int rc = name[0] == '\0'
                 ? cli_misuse(err_set(-EINVAL,
                                      "'job:' needs the job's name; on this machine there is %s",
                                      buf_text(&jobs)))
                 : err_set(-ESRCH,
                           "no rank of a job '%s' runs here, there is %s; a job's name is what its "
                           "ranks have as TORCHELASTIC_RUN_ID, SLURM_JOB_ID, SLURM_JOB_NAME, "
                           "PBS_JOBID, LSB_JOBID, JOB_NAME or MASTER_ADDR:MASTER_PORT",
                           name, buf_text(&jobs));
    buf_done(&jobs);
    return rc;
}

int find_add_job(struct find *f, const char *name)
{
    struct of_job o = {.find = f};
    uint32_t before = f->found->n;
    int rc = name[0] != '\0' ? job_each(name, add_pid, &o) : no_job(name);

    if (rc == 0)
        rc = find_add_dead(f, name, before);
    o.n += f->found->n - before;
    for (uint32_t i = before; i < f->found->n && strcmp(name, "none") != 0; i++)
        (void)snprintf(f->found->list[i].tags.job, sizeof(f->found->list[i].tags.job), "%s", name);
    return rc == 0 && o.n == 0 ? no_job(name) : rc;
}
