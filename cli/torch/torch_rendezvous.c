/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch/torch_rendezvous.c - for `torch`: ranks that stand in making a process group, and who
 * has not come.
 *
 * One thread.  There is no group yet that could be asked.  What tells a rank then is the
 * environment that torchrun gives it: RANK, WORLD_SIZE, and the store where all meet.  Processes of
 * this machine that have the same store are the job's; those with plugin torch are asked whether
 * they stand there, too.  Who sets RANK by itself after its start is not known, and then only the
 * own wait is told.
 */
#include "cli/torch/torch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cli/target/query_client.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "sdk/lib/proc/task.h"

#define ENVIRON_MAX_BYTES (1u << 20)
#define MEMBERS_MAX 512
#define TEXT_BYTES 128

struct member { /* a process of the job */
    pid_t pid;
    int64_t rank, size;
    char job[2 * TEXT_BYTES];
    char op[TEXT_BYTES]; /* where it stands; "": elsewhere */
    double seen_sec;
    bool asked;
};

struct job {
    struct member all[MEMBERS_MAX];
    uint32_t n;
};

static int64_t number_of(const char *text)
{
    int64_t n;
    return parse_i64(text, &n) == 0 ? n : -1;
}

/* What its environment says when it was started.  false: it is no rank of a job. */
static bool read_member(pid_t pid, struct member *ret)
{
    static const char *const keys[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    char path[64], values[4][TEXT_BYTES] = {"", "", "", ""};
    struct buf text;
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    buf_init(&text, ENVIRON_MAX_BYTES);
    if (file_read(AT_FDCWD, path, &text) == 0)
        for (size_t i = 0; i < 4; i++) {
            const char *said = proc_environ_find(buf_text(&text), text.size, keys[i]);
            (void)snprintf(values[i], TEXT_BYTES, "%s", said != NULL ? said : "");
        }
    buf_done(&text);
    *ret = (struct member){.pid = pid, .rank = number_of(values[0]), .size = number_of(values[1])};
    (void)snprintf(ret->job, sizeof ret->job, "%.*s:%.*s", TEXT_BYTES - 1, values[2],
                   TEXT_BYTES - 1, values[3]);
    return ret->rank >= 0 && ret->size > 1 && values[3][0] != '\0';
}

static pid_t parent_of(pid_t pid)
{
    struct proc_stat s;
    return proc_stat_of(pid, 0, &s) == 0 && s.ppid != PROC_UNKNOWN ? (pid_t)s.ppid : 0;
}

static bool is_same_rank(const struct member *a, const struct member *b)
{
    return a->rank == b->rank && strcmp(a->job, b->job) == 0;
}

/* The other ranks of its job that are here.  A rank's own children have its environment, too. */
static void find_others(struct job *j)
{
    DIR *proc = opendir("/proc");
    for (struct dirent *e = proc != NULL ? readdir(proc) : NULL; e != NULL; e = readdir(proc)) {
        struct member *m = &j->all[j->n], parent;
        uint64_t pid;
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || parse_u64(e->d_name, &pid) < 0)
            continue;
        if (j->n == MEMBERS_MAX || !read_member((pid_t)pid, m) ||
            strcmp(m->job, j->all[0].job) != 0 || is_same_rank(m, &j->all[0]) ||
            (read_member(parent_of(m->pid), &parent) && is_same_rank(m, &parent)))
            continue;
        j->n++;
    }
    if (proc != NULL)
        (void)closedir(proc);
}

static int take_join(void *self, const struct json *const *c, struct buf *out)
{
    struct member *m = self;
    (void)out;
    (void)snprintf(m->op, sizeof m->op, "%s", answer_text(c[0]));
    m->seen_sec = c[1]->type != JSON_NUMBER ? 0
                  : c[1]->is_integer        ? (double)c[1]->integer
                                            : c[1]->number;
    return 0;
}

static void ask(struct member *m, const struct target *t)
{
    struct export_writer w = {.row = take_join, .self = m};
    m->asked = answer_rows(t,
                           "select op, wait_sec from torch.waiting where op in "
                           "('init_process_group', 'new_group', 'split_group', "
                           "'destroy_process_group') order by wait_sec limit 1",
                           &w) == 0;
}

static void ask_other(struct member *m)
{
    struct target t;
    char text[16];
    (void)snprintf(text, sizeof text, "%d", (int)m->pid);
    if (target_resolve(text, &t) == 0 && t.kind == TARGET_LIVE && answer_plugin_runs(&t, "torch"))
        ask(m, &t);
}

static void tell_other(const struct member *m, struct buf *lines)
{
    if (m->asked && m->op[0] != '\0')
        return;
    (void)buf_addf(lines,
                   m->asked ? "  rank %lld has not come to it (pid %d)\n"
                            : "  rank %lld has no plugin torch to be asked (pid %d)\n",
                   (long long)m->rank, (int)m->pid);
    (void)buf_addf(lines, "  where: probing -t %d backtrace\n", (int)m->pid);
}

static void tell(const struct job *j, const struct member *waiter, struct buf *lines)
{
    if (waiter->rank < 0)
        (void)buf_adds(lines, "the process");
    else
        (void)buf_addf(lines, "rank %lld of %lld", (long long)waiter->rank,
                       (long long)waiter->size);
    (void)buf_addf(lines, " stands in %s, for %.1f s at least\n", waiter->op, waiter->seen_sec);
    for (uint32_t i = 0; i < j->n && waiter->rank >= 0; i++)
        tell_other(&j->all[i], lines);
    if (waiter->rank >= 0 && (int64_t)j->n < waiter->size)
        (void)buf_addf(lines, "  %lld of %lld ranks have no process here: elsewhere, or ended\n",
                       (long long)(waiter->size - (int64_t)j->n), (long long)waiter->size);
    if (waiter->rank < 0)
        (void)buf_addf(lines, "  where: probing -t %d backtrace\n", (int)waiter->pid);
}

void torch_read_joins(const struct target *t, bool others, struct buf *lines)
{
    static struct job job; /* too large for a stack */
    if (t->pid == 0)
        return;
    bool member = read_member(t->pid, &job.all[0]);
    job.n = 1;
    if (!member)
        job.all[0].rank = -1;
    ask(&job.all[0], t);
    const struct member *waiter = job.all[0].op[0] != '\0' ? &job.all[0] : NULL;
    if (member && (others || waiter != NULL))
        find_others(&job);
    for (uint32_t i = 1; i < job.n; i++) {
        ask_other(&job.all[i]);
        if (waiter == NULL && job.all[i].op[0] != '\0')
            waiter = &job.all[i];
    }
    if (waiter != NULL)
        tell(&job, waiter, lines);
}
