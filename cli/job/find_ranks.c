/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/find_ranks.c - the processes of this machine that are ranks of a job, with a core or
 * without; ended_ranks.c has those that have ended.
 *
 * One thread.  What a job goes by is in place.c.  Children of a rank have its environment too, and
 * so have wrappers around it: of a family one is the rank.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/job/job.h"
#include "cli/target/apart.h"
#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/proc_file.h"
#include "sdk/lib/proc/task.h"

#define ANCESTORS 32 /* looked at: a launcher's chain is short */
#define JOBS_SHOWN 8
#define PF_FORKNOEXEC 0x40 /* include/linux/sched.h of the kernel */

/* The sum of the signs that it is the rank.  Wrappers are mostly shells, or become a user. */
enum worth { WORTH_SHELL = 0, WORTH_PROGRAM = 1, WORTH_PYTHON = 2, WORTH_CORE = 4 };

/* The launcher that gave it its rank: in a family the rank of the innermost one counts. */
enum level { LEVEL_SCHEDULER, LEVEL_MPI, LEVEL_TORCH };

struct candidate {
    pid_t pid;
    uint32_t uid;
    pid_t ancestors[ANCESTORS]; /* its parent first; 0: no more */
    struct rank place;
    int worth; /* of enum worth */
    enum level level;
    bool elastic;  /* torchrun has started it, or what started it */
    bool batch;    /* has its place of sbatch: it may be what starts the ranks */
    bool launches; /* srun, mpirun ... */
    bool own;      /* this program, as a relay that srun has started */
    bool forked;   /* a Python that has run no program since it was forked, */
    bool outlived; /* or whose parent is not who has begun it, as far as its group tells */
    bool late;     /* has set its rank itself, since it began */
    bool out;
};

struct candidates {
    struct candidate *list;
    uint32_t n, room;
};

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0)
        names++;
    return *names != NULL;
}

/* A process that was forked and has run no program since has its parent's environment, which says
 * what the parent was.  One in a process group that is neither its own nor its parent's was mostly
 * begun by another of that group. */
static void look_at_parent(struct candidate *c)
{
    struct proc_stat s;
    pid_t group = getpgid(c->pid);

    c->forked =
        proc_stat_of(c->pid, 0, &s) == 0 && s.flags != PROC_UNKNOWN && (s.flags & PF_FORKNOEXEC);
    c->outlived = c->forked || (group > 0 && group != c->pid && group != getpgid(c->ancestors[0]));
}

/* own: the name of this program. */
static void look_at_program(struct candidate *c, const char *own)
{
    static const char *const shells[] = {"sh",   "bash", "rbash",   "dash", "zsh", "ksh",
                                         "mksh", "csh",  "tcsh",    "fish", "ash", "busybox",
                                         "su",   "sudo", "runuser", "doas", NULL};
    static const char *const launchers[] = {"srun",
                                            "salloc",
                                            "sbatch",
                                            "slurmstepd",
                                            "orterun",
                                            "orted",
                                            "mpirun",
                                            "prun",
                                            "mpiexec",
                                            "prterun",
                                            "prted",
                                            "prte",
                                            "mpiexec.hydra",
                                            "hydra",
                                            "hydra_pmi_proxy",
                                            "hydra_bstrap_proxy",
                                            NULL};
    char name[256], directory[4096];

    job_read_program(c->pid, name, sizeof(name));
    c->own = own[0] != '\0' && strcmp(name, own) == 0;
    c->launches = is_one_of(name, launchers);
    c->worth = strncmp(name, "python", 6) == 0 ? WORTH_PYTHON
               : is_one_of(name, shells)       ? WORTH_SHELL
                                               : WORTH_PROGRAM;
    if (directory_of(c->pid, directory, sizeof(directory)) == 0)
        c->worth += WORTH_CORE;
    if (c->worth >= WORTH_PYTHON)
        look_at_parent(c);
}

static void find_ancestors(struct candidate *c)
{
    struct proc_stat s;
    pid_t young = c->pid;

    for (int i = 0; i < ANCESTORS && young > 1 && proc_stat_of(young, 0, &s) == 0; i++)
        c->ancestors[i] = young = (pid_t)s.ppid;
}

/* The control port of MPICH's launcher on each machine, "node1:32893", names a job that has no
 * other name; "": its parent is none. */
static void read_proxy(pid_t parent, char *ret, size_t size)
{
    static const char word[] = "--control-port";
    char program[256];
    struct buf words;

    ret[0] = '\0';
    job_read_program(parent, program, sizeof(program));
    if (strncmp(program, "hydra_", 6) != 0)
        return;
    buf_init(&words, JOB_ENVIRONMENT_BYTES);
    if (apart_read(parent, "cmdline", &words) == 0 && buf_addc(&words, '\0') == 0)
        for (size_t at = 0; at < words.size && ret[0] == '\0';) {
            bool here = strcmp(words.data + at, word) == 0;
            at += strlen(words.data + at) + 1;
            if (here && at < words.size)
                (void)snprintf(ret, size, "%.120s", words.data + at);
        }
    buf_done(&words);
}

/* b: its environment.  false: it says nothing of that job. */
static bool read_candidate(const struct buf *b, const char *name, struct candidate *c)
{
    c->place = (struct rank)RANK_UNKNOWN;
    rank_read_environment(b, &c->place);
    if (c->place.rank == MEMBER_UNKNOWN)
        return false;
    find_ancestors(c);
    c->place.pid = c->pid;
    c->place.parent = c->ancestors[0];
    if (c->place.job[0] == '\0')
        read_proxy(c->ancestors[0], c->place.job, sizeof(c->place.job));
    c->level = job_variable(b, "RANK")[0] != '\0' ? LEVEL_TORCH
               : job_variable(b, "OMPI_COMM_WORLD_RANK")[0] != '\0' ||
                       job_variable(b, "PMIX_RANK")[0] != '\0' ||
                       job_variable(b, "PMI_RANK")[0] != '\0'
                   ? LEVEL_MPI
                   : LEVEL_SCHEDULER;
    c->elastic = job_variable(b, "TORCHELASTIC_RUN_ID")[0] != '\0';
    c->batch = c->level == LEVEL_SCHEDULER && job_variable(b, "SLURM_PROCID")[0] != '\0' &&
               job_variable(b, "SLURM_STEP_ID")[0] == '\0';
    return job_is_named(b, name) ||
           (c->place.job[0] != '\0' && (name == NULL || strcmp(name, c->place.job) == 0));
}

static int add_candidate(struct candidates *all, const struct candidate *c)
{
    struct candidate *list = array_grow(all->list, all->n, &all->room, sizeof(*list), UINT32_MAX);

    if (list == NULL)
        return err_set(-ENOMEM, "no memory for the processes of a job");
    all->list = list;
    all->list[all->n++] = *c;
    return 0;
}

/* The search that gather_candidates() makes. */
struct gathering {
    const struct job_meant *meant; /* NULL: jobs of all users */
    const char *own;               /* the name of this program */
    struct candidates *all;
    struct job_left_out left_out;
};

static int take_process(struct gathering *g, pid_t pid)
{
    struct candidate c = {.pid = pid};
    struct environment_source source;
    struct buf b;
    int rc = job_read_environment(pid, &b, &source);
    bool read = rc == 0 && read_candidate(&b, g->meant != NULL ? g->meant->name : NULL, &c);

    buf_done(&b);
    if (!read)
        return apart_pass_over(pid, rc, "it is left out");
    c.late = source.late;
    c.uid = source.uid;
    if (g->meant != NULL && c.uid != g->meant->uid) {
        job_leave_out(&g->left_out, pid, c.uid);
        return 0;
    }
    look_at_program(&c, g->own);
    return add_candidate(g->all, &c);
}

/* The user who is meant; NULL: all, each by itself. */
static int gather_candidates(struct candidates *all, const struct job_meant *meant)
{
    char own[256];
    struct gathering g = {.meant = meant, .own = own, .all = all};
    struct proc_numbers processes;
    struct proc_number one;
    int rc = proc_numbers_open(&processes, "/proc");

    if (rc < 0)
        return err_set(rc, "cannot read /proc: %s", strerror(-rc));
    job_read_program(getpid(), own, sizeof(own));
    while (rc == 0 && !cli_interrupted && proc_numbers_next(&processes, &one))
        rc = take_process(&g, (pid_t)one.value);
    proc_numbers_close(&processes);
    if (rc == 0 && meant != NULL)
        job_say_left_out(&g.left_out, meant);
    return rc;
}

/* srun and mpirun are no ranks, nor is the script that has called them (sbatch gives it rank 0);
 * nor is this program, which srun may have started as a relay, nor the shell before it. */
static void judge_launcher(struct candidate *old, struct candidate *young)
{
    if (young->launches && (old->batch || old->worth < WORTH_PYTHON))
        old->out = true;
    if (young->own && old->worth < WORTH_PYTHON)
        old->out = true;
}

/* srun starts torchrun or mpirun's daemon, which start ranks: these have a place of their own, and
 * their launcher is no rank.  (A rank that sets RANK for its helpers has the same one as they.) */
static void judge_level(struct candidate *old, struct candidate *young)
{
    if (!young->out && old->level < young->level &&
        (old->place.rank != young->place.rank || (young->elastic && !old->elastic)))
        old->out = true;
}

static bool has_words(const struct candidate *c, const char *text, size_t n)
{
    struct buf words;

    buf_init(&words, JOB_ENVIRONMENT_BYTES);
    bool ret = apart_read(c->pid, "cmdline", &words) == 0 &&
               memmem(words.data, words.size, text, n) != NULL;
    buf_done(&words);
    return ret;
}

/* Does it say itself that it is a helper: by torch's name for a DataLoader's workers, or by the
 * words with which multiprocessing starts a Python? */
static bool is_helper(const struct candidate *c)
{
    static const char code[] = "-c\0from multiprocessing.";
    char name[PROC_COMM_BYTES];

    return (proc_comm_of(c->pid, 0, name, sizeof(name)) == 0 &&
            strcmp(name, "pt_data_worker") == 0) ||
           (!c->late && has_words(c, code, sizeof(code) - 1));
}

/* multiprocessing's own, which run none of the program. */
static void judge_trackers(struct candidates *all)
{
    static const char tracker[] = "-c\0from multiprocessing.resource_tracker import",
                      server[] = "-c\0from multiprocessing.forkserver import";

    for (uint32_t i = 0; i < all->n; i++) {
        struct candidate *c = &all->list[i];
        if (!c->out && !c->forked && c->worth >= WORTH_PYTHON)
            c->out = has_words(c, tracker, sizeof(tracker) - 1) ||
                     has_words(c, server, sizeof(server) - 1);
    }
}

/* Pythons are begun in three ways: by fork(), by multiprocessing's words, or by a program's. */
static int kind_of(const struct candidate *c)
{
    return c->forked ? 1 : is_helper(c) ? 2 : 4;
}

/* A launcher that sets RANK in its own environment for each process that it begins has that of the
 * last, which is not 0, or one that it has begun in this way has its rank.  (Lightning's rank 0
 * begins the other ranks, and its data loaders in another way.) */
static void judge_late(struct candidates *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        struct candidate *old = &all->list[i];
        int same = 0, others = 0;
        for (uint32_t k = 0; k < all->n && old->late && !old->out; k++) {
            const struct candidate *c = &all->list[k];
            if (c->ancestors[0] != old->pid || c->out || c->worth < WORTH_PYTHON)
                continue;
            if (c->place.rank == old->place.rank)
                same |= kind_of(c);
            else
                others |= kind_of(c);
        }
        old->out = old->out || (same & others) != 0 || (others != 0 && old->place.rank > 0);
    }
}

/* One of two of a family with the same rank is out: the one worth less, else the child. */
static void judge_same(struct candidate *old, struct candidate *young)
{
    if (old->out || young->out || old->place.rank != young->place.rank)
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
        bool new = !all->list[i].out && all->list[i].place.master[0] != '\0';
        for (uint32_t k = 0; k < i && new; k++)
            new = all->list[k].out ||
                  strcmp(all->list[k].place.master, all->list[i].place.master) != 0;
        if (new &&n++ < JOBS_SHOWN) {
            (void)buf_adds(&text, n > 1 ? ", " : "");
            job_add_text(&text, all->list[i].place.master, all->list[i].uid);
        }
    }
    int rc = n < 2 || name == NULL || strcmp(name, "none") != 0
                 ? 0
                 : err_set(-EINVAL, "job:none is %u jobs that have no name of their own: %s", n,
                           buf_text(&text));
    buf_done(&text);
    return rc;
}

static int compare_candidates(const void *one, const void *two)
{
    const struct candidate *a = one, *b = two;

    if (a->uid != b->uid)
        return a->uid < b->uid ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* Its parent has ended, or whoever leads its process group, as a launcher makes of each rank. */
static bool is_orphan(const struct candidate *c, bool *ret_leads)
{
    pid_t leader = getpgid(c->pid);

    *ret_leads = leader <= 0 || strchr("?ZX", target_state(leader)) == NULL;
    return !*ret_leads || c->ancestors[0] <= 1;
}

/* A rank whose parent has begun others, too, has not outlived it: SLURM puts the ranks of a node
 * into the group of the first, and some launchers fork ranks that set their RANK themselves. */
static bool is_left(const struct candidates *all, const struct candidate *c)
{
    bool others = false, begun = false, forks = c->forked && c->late;

    for (uint32_t k = 0; k < all->n && c->outlived; k++) {
        const struct candidate *o = &all->list[k];
        if (o->out || (o->outlived && !forks) || o->worth < WORTH_PYTHON ||
            o->place.rank == c->place.rank || strcmp(o->place.job, c->place.job) != 0)
            continue;
        others = true;
        begun = begun || o->ancestors[0] == c->ancestors[0];
    }
    return c->outlived && ((others && (!begun || (c->forked && !forks))) || is_helper(c));
}

/* A logger, say, or a data loader, that runs on when its rank has ended: it says that it is the
 * rank, and hid that it is gone.  Only where other ranks of the job are Pythons that have parents.
 */
static void judge_left(struct candidates *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        struct candidate *c = &all->list[i];
        bool leads;
        if (!c->out && is_left(all, c))
            c->out = true;
        if (c->out || c->worth >= WORTH_PYTHON || !is_orphan(c, &leads))
            continue;
        for (uint32_t k = 0; k < all->n && !c->out; k++) {
            const struct candidate *o = &all->list[k];
            c->out = !o->out && o->worth >= WORTH_PYTHON && o->place.rank != c->place.rank &&
                     strcmp(o->place.job, c->place.job) == 0 &&
                     (!leads || o->ancestors[0] != c->ancestors[0]);
        }
    }
}

/* Goes by families, not by pairs: thousands that are no ranks may have a job's environment. */
static void judge_families(struct candidates *all,
                           void (*fn)(struct candidate *old, struct candidate *young))
{
    for (uint32_t i = 0; i < all->n; i++) {
        struct candidate *young = &all->list[i];
        for (int k = 0; k < ANCESTORS && young->ancestors[k] > 1; k++) {
            const struct candidate key = {.pid = young->ancestors[k], .uid = young->uid};
            struct candidate *old =
                bsearch(&key, all->list, all->n, sizeof(*all->list), compare_candidates);
            if (old != NULL)
                fn(old, young);
        }
    }
}

/* A shell that is left has not begun its rank yet, or somebody sits before it (srun --pty bash):
 * there is nothing to enter. */
static void judge_user(struct candidates *all)
{
    judge_families(all, judge_launcher);
    for (uint32_t i = 0; i < all->n; i++)
        all->list[i].out = all->list[i].out || all->list[i].launches || all->list[i].own;
    judge_families(all, judge_level);
    judge_trackers(all);
    judge_late(all);
    judge_families(all, judge_same);
    judge_left(all);
    for (uint32_t i = 0; i < all->n; i++)
        all->list[i].out = all->list[i].out || all->list[i].worth == WORTH_SHELL;
}

/* Each user's by themselves: what one says about himself puts out no rank of another. */
static void judge_all(struct candidates *all)
{
    if (all->n > 0)
        qsort(all->list, all->n, sizeof(*all->list), compare_candidates);
    for (uint32_t first = 0, n; first < all->n; first += n) {
        for (n = 1; first + n < all->n && all->list[first + n].uid == all->list[first].uid;)
            n++;
        struct candidates user = {.list = all->list + first, .n = n};
        judge_user(&user);
    }
}

uint32_t job_list(struct buf *ret)
{
    struct candidates all = {.n = 0};
    uint32_t shown = 0;

    if (gather_candidates(&all, /* meant= */ NULL) == 0)
        judge_all(&all);
    for (uint32_t i = 0; i < all.n; i++) {
        struct candidate *c = &all.list[i];
        uint32_t ranks = 0;
        for (uint32_t k = i; k < all.n && !c->out; k++)
            if (!all.list[k].out && all.list[k].uid == c->uid &&
                strcmp(all.list[k].place.job, c->place.job) == 0) {
                all.list[k].out = k > i;
                ranks++;
            }
        if (ranks > 0 && shown++ < JOBS_SHOWN) {
            (void)buf_adds(ret, shown > 1 ? ", " : "");
            job_add_text(ret, c->place.job, c->uid);
            (void)buf_addf(ret, " (%u rank%s)", ranks, ranks > 1 ? "s" : "");
        }
    }
    if (shown > JOBS_SHOWN)
        (void)buf_addf(ret, " and %u more", shown - JOBS_SHOWN);
    if (shown == 0)
        (void)buf_adds(ret, "none that can be read");
    free(all.list);
    return shown;
}

static int compare_ranks(const void *one, const void *two)
{
    const struct rank *a = one, *b = two;
    int order = strcmp(a->job, b->job);

    if (order != 0)
        return order;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

int job_find_ranks(const char *text, struct ranks *ret)
{
    struct candidates all = {.n = 0};
    struct job_meant meant;

    *ret = (struct ranks){.n = 0};
    job_meant_read(text, &meant);
    int rc = gather_candidates(&all, &meant);
    judge_all(&all);
    if (rc == 0)
        rc = refuse_unnamed(&all, meant.name);
    for (uint32_t i = 0; i < all.n && rc == 0; i++) {
        struct rank *one = all.list[i].out ? NULL : ranks_add(ret);
        if (one != NULL) {
            *one = all.list[i].place;
            (void)gethostname(one->host, sizeof(one->host) - 1);
        } else if (!all.list[i].out) {
            rc = -ENOMEM;
        }
    }
    free(all.list);
    if (rc == 0 && cli_interrupted)
        rc = err_set(-ECANCELED, "interrupted");
    if (rc < 0)
        ranks_done(ret);
    if (ret->n > 0)
        qsort(ret->list, ret->n, sizeof(*ret->list), compare_ranks);
    return rc;
}

bool job_of_asker(const char *text, struct buf *ret)
{
    struct job_meant meant;

    job_meant_read(text, &meant);
    return job_read_environment(getpid(), ret, /* ret_source= */ NULL) == 0 &&
           meant.uid == geteuid() && job_is_named(ret, meant.name);
}
