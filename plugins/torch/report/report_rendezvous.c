/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report_rendezvous.c - for `torch`: ranks that stand in making a process
 * group, and who has not come.
 *
 * One thread.  There is no group yet that could be asked.  A rank is known by the environment that
 * torchrun gives it: RANK, WORLD_SIZE, and the store where all meet.  Processes of this machine
 * that have the same store are the job's; if they have plugin torch they are asked whether they
 * stand there, too.  The rank of a process that sets RANK after its start is not known: then only
 * its own wait is shown.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/proc/proc_file.h"
#include "lib/proc/task.h"
#include "report.h"

#define ENVIRON_MAX_BYTES (1u << 20)
#define MEMBERS_MAX 512
#define TEXT_BYTES 128

struct member { /* a process of the job */
    int64_t pid;
    int64_t rank, size;
    char job[2 * TEXT_BYTES];
    char op[TEXT_BYTES]; /* where it stands; "": elsewhere */
    double seen_sec;
    bool asked, hangs; /* hangs: it does not let itself be read */
};

struct job {
    struct member all[MEMBERS_MAX];
    uint32_t n, hanging; /* hanging: of all processes of this machine */
};

/* Digits only, as torchrun writes them; else -1. */
static int64_t number_of(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= 9 && text[n] == '\0' ? strtoll(text, NULL, 10) : -1;
}

/* Read its environment as it was when it was started.  false: it is no rank of a job. */
static bool read_member(const struct probing_report_api *a, int64_t pid, struct member *ret)
{
    static const char *const keys[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    char values[4][TEXT_BYTES] = {"", "", "", ""};
    char *text = malloc(ENVIRON_MAX_BYTES);
    int n = text && PROBING_REPORT_HAS(a, read_process)
                ? a->read_process(a, pid, "environ", text, ENVIRON_MAX_BYTES)
                : -1;
    for (size_t i = 0; i < 4 && n > 0; i++) {
        const char *value = proc_environ_find(text, (size_t)n, keys[i]);
        (void)snprintf(values[i], TEXT_BYTES, "%s", value ? value : "");
    }
    free(text);
    *ret = (struct member){.pid = pid,
                           .rank = number_of(values[0]),
                           .size = number_of(values[1]),
                           .hangs = n == -ETIMEDOUT};
    (void)snprintf(ret->job, sizeof(ret->job), "%.*s:%.*s", TEXT_BYTES - 1, values[2],
                   TEXT_BYTES - 1, values[3]);
    return ret->rank >= 0 && ret->size > 1 && values[3][0] != '\0';
}

/* -1: not known. */
static int64_t parent_of(int64_t pid)
{
    struct proc_stat stat;
    return proc_stat_of((pid_t)pid, 0, &stat) == 0 && stat.ppid <= INT32_MAX ? (int64_t)stat.ppid
                                                                             : -1;
}

static bool is_same_rank(const struct member *a, const struct member *b)
{
    return a->rank == b->rank && strcmp(a->job, b->job) == 0;
}

/* The other ranks of its job that are here.  A rank's own children have its environment, too. */
static void find_others(const struct probing_report_api *a, struct job *j)
{
    struct proc_numbers processes;
    struct proc_number one;
    (void)proc_numbers_open(&processes, "/proc"); /* what is not readable has no processes */
    while (j->n < MEMBERS_MAX && !a->interrupted(a) && proc_numbers_next(&processes, &one)) {
        struct member *m = &j->all[j->n], parent;
        bool member = read_member(a, (int64_t)one.value, m);
        j->hanging += m->hangs;
        if (!member || strcmp(m->job, j->all[0].job) != 0 || is_same_rank(m, &j->all[0]) ||
            (read_member(a, parent_of(m->pid), &parent) && is_same_rank(m, &parent)))
            continue;
        j->n++;
    }
    proc_numbers_close(&processes);
}

static int take_join(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct member *m = arg;
    if (n < 2)
        return 0;
    (void)snprintf(m->op, sizeof(m->op), "%s", cell_text(&c[0]));
    m->seen_sec = c[1].type != 0 ? cell_number(&c[1]) : 0;
    return 0;
}

static const char join_sql[] =
    "select op, wait_sec from torch.waiting where op in ('init_process_group', 'new_group', "
    "'split_group', 'destroy_process_group') order by wait_sec limit 1";

static void ask_other(const struct probing_report_api *a, struct member *m)
{
    if (torch_runs_in(a, m->pid))
        m->asked = a->ask_process(a, m->pid, join_sql, take_join, m) == 0;
}

static void tell_other(const struct member *m, struct lines *lines)
{
    if (m->asked && m->op[0] != '\0')
        return;
    lines_add(lines,
              m->asked ? "  rank %lld has not come to it (pid %d)\n"
                       : "  rank %lld has no plugin torch to be asked (pid %d)\n",
              (long long)m->rank, (int)m->pid);
    lines_add(lines, "  where: probing -t %d backtrace\n", (int)m->pid);
}

static void add_waiter_lines(const struct job *j, const struct member *waiter, struct lines *lines)
{
    if (waiter->rank < 0)
        lines_add(lines, "the process");
    else
        lines_add(lines, "rank %lld of %lld", (long long)waiter->rank, (long long)waiter->size);
    lines_add(lines, " stands in %s, for %.1f s at least\n", waiter->op, waiter->seen_sec);
    for (uint32_t i = 0; i < j->n && waiter->rank >= 0; i++)
        tell_other(&j->all[i], lines);
    if (waiter->rank >= 0 && (int64_t)j->n < waiter->size)
        lines_add(lines, "  %lld of %lld ranks have no process here: elsewhere, or ended%s\n",
                  (long long)(waiter->size - (int64_t)j->n), (long long)waiter->size,
                  j->hanging > 0 ? ", or one that cannot be inspected" : "");
    if (waiter->rank < 0)
        lines_add(lines, "  where: probing -t %d backtrace\n", (int)waiter->pid);
}

static void read_job(const struct probing_report_api *a, struct job *j, bool others,
                     struct lines *lines)
{
    struct member *own = &j->all[0];
    bool member = read_member(a, a->target_pid, own);
    j->n = 1;
    if (!member)
        own->rank = -1;
    own->asked = a->ask(a, join_sql, take_join, own) == 0;
    const struct member *waiter = own->op[0] != '\0' ? own : NULL;
    if (member && (others || waiter != NULL))
        find_others(a, j);
    for (uint32_t i = 1; i < j->n; i++) {
        ask_other(a, &j->all[i]);
        if (waiter == NULL && j->all[i].op[0] != '\0')
            waiter = &j->all[i];
    }
    if (waiter != NULL)
        add_waiter_lines(j, waiter, lines);
}

void torch_read_joins(const struct probing_report_api *a, bool others, struct lines *lines)
{
    struct job *job = a->target_pid != 0 ? calloc(1, sizeof(*job)) : NULL;
    if (job != NULL)
        read_job(a, job, others, lines);
    free(job);
}
