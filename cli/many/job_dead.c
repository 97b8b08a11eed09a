/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/job_dead.c - the ranks of a job that have ended and left data here.
 *
 * One thread.  What a rank was stands in the info of its data.  Data of other users are not
 * believed, but for root those of the user whose ranks live.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/many/find.h"
#include "core/base/err.h"
#include "core/base/info_file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/proc_file.h"

#define DEAD_MAX 65536 /* directories of one job; more are not looked at */

/* One start of a job: those that met elsewhere, or had another number of ranks, were another. */
struct start {
    char master[128], world[24];
    char step[24]; /* of SLURM: one srun of its job */
};

struct dead {
    char *path;
    struct member_tags tags;
    struct start start;
    int64_t pid, parent;
    struct timespec changed;
    bool out;
};

struct searching {
    const char *name;
    const struct job_living *living;
    uint32_t n_living;
    uid_t owners[2]; /* whose data are believed */
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

static void start_of(const struct buf *environment, struct start *ret)
{
    const char *world = proc_environ_find(environment->data, environment->size, "WORLD_SIZE");

    job_master(environment, ret->master, sizeof(ret->master));
    const char *step = proc_environ_find(environment->data, environment->size, "SLURM_STEP_ID");
    (void)snprintf(ret->world, sizeof(ret->world), "%s", world != NULL ? world : "");
    (void)snprintf(ret->step, sizeof(ret->step), "%s", step != NULL ? step : "");
}

static int keep(struct searching *s, const struct datadir *d, const struct dead *one)
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

static int look(void *arg, const struct datadir *d)
{
    struct searching *s = arg;
    struct dead one = {.out = false};
    struct buf info, environment;
    pid_t pid;
    int rc = 0;

    if ((d->owner != s->owners[0] && d->owner != s->owners[1]) || directory_alive(d, &pid) ||
        directory_held(d))
        return 0;
    buf_init(&environment, FIND_ENVIRONMENT_BYTES);
    bool whole = datadir_info(d, &info) == 0;
    if (whole)
        read_variables(&info, &environment);
    if (whole && environment.failed == 0 && job_is_named(&environment, s->name)) {
        member_place(environment.data, environment.size - 1, &one.tags);
        start_of(&environment, &one.start);
        one.pid = number_of(&info, "pid");
        one.parent = number_of(&info, "parent");
        rc = one.tags.rank != MEMBER_UNKNOWN ? keep(s, d, &one) : 0;
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
    struct start ret = {.master = ""};
    const struct dead *newest = NULL;
    struct buf b;

    for (uint32_t i = 0; i < s->n; i++)
        if (newest == NULL || is_newer(&s->list[i], newest))
            newest = &s->list[i];
    if (s->n_living == 0)
        return newest != NULL ? newest->start : ret;
    if (find_environment(s->living[0].pid, &b) == 0)
        start_of(&b, &ret);
    buf_done(&b);
    return ret;
}

/* Of a rank and its children (data loaders have its environment, too) the rank; of several that
 * were the same rank the newest, and none where it lives. */
static void judge(struct searching *s)
{
    const struct start meant = start_meant(s);

    for (uint32_t i = 0; i < s->n; i++) {
        struct dead *one = &s->list[i];
        one->out = strcmp(one->start.master, meant.master) != 0 ||
                   strcmp(one->start.world, meant.world) != 0 ||
                   strcmp(one->start.step, meant.step) != 0;
        for (uint32_t k = 0; k < s->n_living && !one->out; k++)
            one->out = s->living[k].rank == one->tags.rank;
        for (uint32_t k = 0; k < s->n && !one->out; k++)
            one->out = s->list[k].tags.rank == one->tags.rank && s->list[k].pid == one->parent;
    }
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < s->n && !s->list[i].out; k++)
            s->list[i].out = k != i && !s->list[k].out &&
                             s->list[k].tags.rank == s->list[i].tags.rank &&
                             !is_newer(&s->list[i], &s->list[k]);
}

void dead_environment(const char *directory, struct buf *ret)
{
    struct datadir d = DATADIR_NONE;
    struct buf info;

    buf_init(ret, FIND_ENVIRONMENT_BYTES);
    if (datadir_open(directory, DATADIR_ANY, &d) == 0) {
        if (datadir_info(&d, &info) == 0)
            read_variables(&info, ret);
        buf_done(&info);
    }
    datadir_close(&d);
    if (ret->failed != 0)
        buf_reset(ret);
}

void dead_place(const char *directory, struct member_tags *ret)
{
    struct buf environment;

    dead_environment(directory, &environment);
    if (environment.size > 0)
        member_place(environment.data, environment.size - 1, ret);
    buf_done(&environment);
}

int job_each_dead(const char *name, const struct job_living *living, uint32_t n,
                  int (*fn)(void *arg, const char *directory, int64_t pid), void *arg)
{
    const uid_t uid = geteuid();
    struct searching s = {.name = name, .living = living, .n_living = n, .owners = {uid, uid}};
    char path[PROC_PATH_BYTES];
    struct stat st;

    if (n > 0) {
        proc_path(living[0].pid, 0, NULL, path);
        if (stat(path, &st) == 0)
            s.owners[1] = st.st_uid;
    }
    int rc = directory_each(look, &s);
    if (rc == 0)
        judge(&s);
    for (uint32_t i = 0; i < s.n; i++) {
        rc = rc == 0 && !s.list[i].out ? fn(arg, s.list[i].path, s.list[i].pid) : rc;
        free(s.list[i].path);
    }
    free(s.list);
    return rc;
}

static int add_dead(void *arg, const char *directory, int64_t pid)
{
    (void)pid;
    return find_add(arg, directory);
}

int find_add_dead(struct find *f, const char *name, uint32_t before)
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
