/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/ended_ranks.c - the ranks of a job that have ended and left data here.
 *
 * One thread.  What a rank was stands in the info of its data.  Only data of the job's user are
 * believed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/job/job.h"
#include "cli/target/datadir.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/proc_file.h"
#include "sdk/lib/proc/task.h"

#define DEAD_MAX 65536 /* directories of one job; more are not looked at */
#define DEAD_JOBS_SHOWN 8
#define APART_NS NS_PER_S /* between a rank's last rows and the ranks that torchrun starts anew */

/* One start of a job: those that met elsewhere, or had another number of ranks, were another. */
struct start {
    char master[JOB_NAME_BYTES], world[24];
    char step[24];    /* of SLURM: one srun of its job */
    char restart[24]; /* of torchrun: so many of the ranks of this agent have failed before */
    int64_t agent;    /* its process */
    int64_t began_ns; /* UTC.  MEMBER_UNKNOWN: not known, or torchrun has not started it */
};

struct dead {
    char *path;
    struct rank place;
    struct start start;
    struct timespec changed;
    int64_t last_ns; /* UTC: when it wrote rows last; MEMBER_UNKNOWN */
    bool out;
};

struct searching {
    const char *name;
    const struct rank *living;
    uint32_t n_living;
    uid_t owner; /* whose data are believed */
    struct dead *list;
    uint32_t n, room;
};

static int64_t number_of(const struct buf *info, const char *key)
{
    char text[24];
    uint64_t n;

    return info_get(info, key, text, sizeof(text)) && parse_u64(text, &n) == 0 && n <= INT32_MAX
               ? (int64_t)n
               : MEMBER_UNKNOWN;
}

/* Its lines "variable: NAME=VALUE", as /proc has an environment. */
static void read_variables(const struct buf *info, struct buf *ret)
{
    static const char key[] = "variable: ";
    const char *at = info->data, *end = at + info->size;

    for (const char *line; at < end; at = line + 1) {
        line = memchr(at, '\n', (size_t)(end - at));
        line = line != NULL ? line : end;
        if ((size_t)(line - at) > sizeof(key) - 1 && memcmp(at, key, sizeof(key) - 1) == 0) {
            (void)buf_add(ret, at + sizeof(key) - 1, (size_t)(line - at) - (sizeof(key) - 1));
            (void)buf_addc(ret, '\0');
        }
    }
    (void)buf_addc(ret, '\0');
}

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * (int64_t)NS_PER_S + t->tv_nsec;
}

/* Turn ticks of this boot into UTC, by its clock of now. */
static int64_t utc_of_ticks(uint64_t ticks)
{
    const int64_t hz = sysconf(_SC_CLK_TCK);
    struct timespec up, now;

    if (ticks == 0 || ticks > INT64_MAX / NS_PER_S || hz <= 0 ||
        clock_gettime(CLOCK_BOOTTIME, &up) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0)
        return MEMBER_UNKNOWN;
    return ns_of(&now) - ns_of(&up) + (int64_t)(ticks * (NS_PER_S / (uint64_t)hz));
}

/* Read the start of a process from its environment, when it began, and its parent. */
static void start_of(const struct buf *environment, int64_t began_ns, int64_t parent,
                     struct start *ret)
{
    struct rank place = RANK_UNKNOWN;
    const char *const names[] = {"WORLD_SIZE", "SLURM_STEP_ID", "TORCHELASTIC_RESTART_COUNT"};
    char *const texts[] = {ret->world, ret->step, ret->restart};

    rank_read_environment(environment, &place);
    memcpy(ret->master, place.master, sizeof(ret->master));
    for (int i = 0; i < 3; i++)
        (void)snprintf(texts[i], sizeof(ret->world), "%s", job_variable(environment, names[i]));
    ret->agent = parent;
    ret->began_ns =
        job_variable(environment, "TORCHELASTIC_RUN_ID")[0] != '\0' ? began_ns : MEMBER_UNKNOWN;
}

/* Reads from the info of its data when a process began; MEMBER_UNKNOWN, too, if that is of another
 * boot. */
static int64_t began_of(const struct buf *info)
{
    char boot[64], ticks[24];
    struct buf ours;
    uint64_t n;

    buf_init(&ours, sizeof(boot));
    bool here = info_get(info, "boot_id", boot, sizeof(boot)) &&
                file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &ours) == 0 &&
                strncmp(buf_text(&ours), boot, strlen(boot)) == 0 &&
                info_get(info, "start_time", ticks, sizeof(ticks)) && parse_u64(ticks, &n) == 0;
    buf_done(&ours);
    return here ? utc_of_ticks(n) : MEMBER_UNKNOWN;
}

static int keep_ended(struct searching *s, const struct datadir *d, const struct dead *one)
{
    if (s->n == DEAD_MAX)
        return 0;
    struct dead *list = array_grow(s->list, s->n, &s->room, sizeof(*list), UINT32_MAX);
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for the data of a job");
    s->list = list;
    s->list[s->n] = *one;
    s->list[s->n].path = strdup(d->path);
    s->list[s->n].changed = d->changed;
    if (s->list[s->n].path == NULL)
        return err_set(-ENOMEM, "no memory for the data of a job");
    s->n++;
    return 0;
}

static int read_directory(void *arg, const struct datadir *d)
{
    struct searching *s = arg;
    struct dead one = {.place = RANK_UNKNOWN};
    struct buf info, environment;
    struct stat st;
    pid_t pid;
    int rc = 0;

    if (d->owner != s->owner || directory_alive(d, &pid) || directory_held(d))
        return 0;
    buf_init(&environment, JOB_ENVIRONMENT_BYTES);
    bool whole = datadir_info(d, &info) == 0;
    if (whole)
        read_variables(&info, &environment);
    if (whole && environment.failed == 0 && job_is_named(&environment, s->name)) {
        rank_read_environment(&environment, &one.place);
        one.place.parent = number_of(&info, "parent");
        start_of(&environment, began_of(&info), one.place.parent, &one.start);
        one.last_ns = datadir_has(d, "data.mdb", &st) ? ns_of(&st.st_mtim) : MEMBER_UNKNOWN;
        one.place.pid = number_of(&info, "pid");
        rc = one.place.rank != MEMBER_UNKNOWN ? keep_ended(s, d, &one) : 0;
    }
    buf_done(&environment);
    buf_done(&info);
    return rc;
}

static bool is_newer(const struct dead *a, const struct dead *b)
{
    return a->changed.tv_sec != b->changed.tv_sec ? a->changed.tv_sec > b->changed.tv_sec
                                                  : a->changed.tv_nsec > b->changed.tv_nsec;
}

/* The start that is meant: of the ranks that live, else the last one. */
static struct start start_meant(const struct searching *s)
{
    struct start ret = {.began_ns = MEMBER_UNKNOWN, .agent = MEMBER_UNKNOWN};
    const struct dead *newest = NULL;
    struct proc_stat stat;
    struct buf b;

    for (uint32_t i = 0; i < s->n; i++)
        if (newest == NULL || is_newer(&s->list[i], newest))
            newest = &s->list[i];
    if (s->n_living == 0)
        return newest != NULL ? newest->start : ret;
    if (proc_stat_of((pid_t)s->living[0].pid, 0, &stat) < 0)
        stat.start_ticks = stat.ppid = 0;
    if (job_read_environment((pid_t)s->living[0].pid, &b, /* ret_source= */ NULL) == 0)
        start_of(&b, utc_of_ticks(stat.start_ticks), (int64_t)stat.ppid, &ret);
    buf_done(&b);
    return ret;
}

/* torchrun begins all ranks of a start together, behind the end of all those of the start before.
 * That is the only sign where no rank of this agent has failed: one of another machine has, or a
 * machine has left the job or come. */
static bool is_of(const struct dead *one, const struct start *meant)
{
    bool before = one->last_ns != MEMBER_UNKNOWN && meant->began_ns != MEMBER_UNKNOWN &&
                  one->last_ns < meant->began_ns - (int64_t)APART_NS;

    return !before && strcmp(one->start.master, meant->master) == 0 &&
           strcmp(one->start.world, meant->world) == 0 &&
           strcmp(one->start.step, meant->step) == 0 &&
           (one->start.agent != meant->agent || strcmp(one->start.restart, meant->restart) == 0);
}

/* Keep a rank, not its children (data loaders have its environment, too); of several that were the
 * same rank the newest, and none where it lives. */
static void judge_ended(struct searching *s)
{
    const struct start meant = start_meant(s);

    for (uint32_t i = 0; i < s->n; i++) {
        struct dead *one = &s->list[i];
        one->out = !is_of(one, &meant);
        for (uint32_t k = 0; k < s->n_living && !one->out; k++)
            one->out = s->living[k].rank == one->place.rank;
        for (uint32_t k = 0; k < s->n && !one->out; k++)
            one->out = s->list[k].place.rank == one->place.rank &&
                       s->list[k].place.pid == one->place.parent;
    }
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < s->n && !s->list[i].out; k++)
            s->list[i].out = k != i && !s->list[k].out &&
                             s->list[k].place.rank == s->list[i].place.rank &&
                             !is_newer(&s->list[i], &s->list[k]);
}

void rank_read_data(const char *directory, struct rank *ret)
{
    struct datadir d = DATADIR_NONE;
    struct buf info, environment;

    buf_init(&environment, JOB_ENVIRONMENT_BYTES);
    if (datadir_open(directory, DATADIR_ANY, &d) == 0) {
        if (datadir_info(&d, &info) == 0)
            read_variables(&info, &environment);
        buf_done(&info);
    }
    datadir_close(&d);
    if (environment.size > 0 && environment.failed == 0)
        rank_read_environment(&environment, ret);
    buf_done(&environment);
}

int job_find_ended(const char *text, const struct rank *living, uint32_t n,
                   int (*fn)(void *arg, const char *directory, const struct rank *ended), void *arg)
{
    struct job_meant meant;

    job_meant_read(text, &meant);
    struct searching s = {.name = meant.name, .living = living, .n_living = n, .owner = meant.uid};
    int rc = directory_each(read_directory, &s, /* says= */ false);
    if (rc == 0)
        judge_ended(&s);
    for (uint32_t i = 0; i < s.n; i++) {
        rc = rc == 0 && !s.list[i].out ? fn(arg, s.list[i].path, &s.list[i].place) : rc;
        free(s.list[i].path);
    }
    free(s.list);
    return rc;
}

static int by_job(const void *a, const void *b)
{
    const struct rank *x = &((const struct dead *)a)->place;
    const struct rank *y = &((const struct dead *)b)->place;
    int order = strcmp(x->job, y->job);

    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

void job_list_ended(struct buf *ret)
{
    struct searching s = {.name = NULL, .owner = geteuid()};
    uint32_t shown = 0, jobs = 0;

    if (directory_each(read_directory, &s, /* says= */ false) == 0 && s.n > 1)
        qsort(s.list, s.n, sizeof(*s.list), by_job);
    for (uint32_t i = 0, next; i < s.n; i = next) {
        uint32_t ranks = 1;
        for (next = i + 1; next < s.n && strcmp(s.list[next].place.job, s.list[i].place.job) == 0;
             next++)
            ranks += s.list[next].place.rank != s.list[next - 1].place.rank;
        if (jobs++ >= DEAD_JOBS_SHOWN)
            continue;
        (void)buf_adds(ret, shown++ > 0 ? ", " : "; data are left of ");
        job_add_target(ret, s.list[i].place.job);
        (void)buf_addf(ret, " (%u rank%s)", ranks, ranks > 1 ? "s" : "");
    }
    if (jobs > shown)
        (void)buf_addf(ret, " and %u more", jobs - shown);
    for (uint32_t i = 0; i < s.n; i++)
        free(s.list[i].path);
    free(s.list);
}
