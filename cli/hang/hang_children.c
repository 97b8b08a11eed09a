/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_children.c - what holds up a rank that waits for a process of its own: a data
 * loader or another program that it has started, and that is stopped or stands still.
 *
 * One thread, and a child for each such process under way.  They are looked at from outside, once.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/hang/hang.h"
#include "cli/many/run_each.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/proc/digits.h"
#include "sdk/lib/proc/task.h"

#define OF_ONE 64  /* children of a rank; more are not looked at */
#define OF_ALL 512 /* of all ranks */
#define FEW 4      /* ranks that are told apart by the numbers of their children */
#define LIST_BYTES 4096
#define TREE_BYTES ((size_t)512 << 20) /* of one answer of 16 MB, taken apart */

struct suspect {
    struct hang_seen *parent;
    pid_t pid;
    struct hang_rank looked; /* by its place */
    bool idle;               /* a data loader that waits for its rank to ask for something */
};

struct suspects {
    struct suspect list[OF_ALL];
    uint32_t n;
    struct members members;
};

/* Does it stand where a program waits for its children?  Only then a child may be what it waits
 * for. */
static bool waits_for_children(const struct hang_rank *r)
{
    static const char *const files[] = {
        "dataloader.py:", "subprocess.py:", "popen_fork.py:", "connection.py:", "queues.py:",
        "selectors.py:",  "process.py:",    "pool.py:",       "threading.py:"};
    bool ret = strstr(r->doing, "wait4") != NULL || strstr(r->doing, "waitid") != NULL;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !ret; i++)
        ret = strstr(r->place, files[i]) != NULL;
    return ret;
}

/* "its child 4243 (python) is stopped; continue it with: kill -CONT 4243" */
static bool say_halted(struct suspect *s)
{
    struct hang_rank *r = &s->parent->rank;
    char name[PROC_COMM_BYTES];
    struct target_halt halt;

    if (!target_halted(s->pid, &halt))
        return false;
    (void)proc_comm_of(s->pid, 0, name, sizeof(name));
    (void)snprintf(r->why, sizeof(r->why), "its child %d (%s) is %s; %s", (int)s->pid, name,
                   halt.is, halt.remedy);
    return true;
}

/* Add the children that the main thread of `pid` has started, and theirs: a fork server of Python
 * has a rank's data loaders.  true: one may not run, which is all that is to be said. */
static bool add_children(struct suspects *all, struct hang_seen *parent, pid_t pid, int depth,
                         uint32_t end)
{
    char text[LIST_BYTES];
    uint64_t child;

    if (proc_read(pid, pid, "children", text, sizeof(text)) <= 0)
        return false;
    for (const char *at = text; at != NULL && *at != '\0' && all->n < end;) {
        at = proc_digits(proc_blanks(at), 10, &child);
        if (at == NULL || *at != ' ' || child > INT32_MAX)
            break; /* the last may be cut */
        struct suspect *s = &all->list[all->n++];
        *s = (struct suspect){.parent = parent, .pid = (pid_t)child};
        if (say_halted(s) || (depth > 1 && add_children(all, parent, s->pid, depth - 1, end)))
            return true;
    }
    return false;
}

static void find_children(struct suspects *all, struct hang_seen *parent)
{
    const uint32_t before = all->n, end = before + OF_ONE < OF_ALL ? before + OF_ONE : OF_ALL;

    if (add_children(all, parent, (pid_t)parent->rank.pid, /* depth= */ 2, end) ||
        !waits_for_children(&parent->rank))
        all->n = before;
}

/* "Queue.get" is called `get`. */
static bool is_called(const struct json *frame, const char *name)
{
    const char *func = json_text(frame, "func", ""), *dot = strrchr(func, '.');

    return strcmp(dot != NULL ? dot + 1 : func, name) == 0;
}

/* In torch's _worker_loop(), and in the queue that tells it what to do next; or multiprocessing's
 * own, which waits for orders, too. */
static bool is_idle(const struct json *threads)
{
    const struct json *frames = threads->first != NULL ? json_get(threads->first, "frames") : NULL;
    const struct json *inner = NULL;

    for (const struct json *f = frames != NULL ? frames->first : NULL; f != NULL; f = f->next) {
        const char *file = json_text(f, "file", "");
        if (strcmp(json_text(f, "type", ""), "python") != 0)
            continue;
        if (strstr(file, "/resource_tracker.py") != NULL ||
            (strstr(file, "/forkserver.py") != NULL && inner == NULL) ||
            (strstr(file, "/forkserver.py") != NULL && is_called(inner, "select")))
            return true;
        if (is_called(f, "_worker_loop"))
            return inner != NULL && is_called(inner, "get");
        inner = f;
    }
    return false;
}

static int take_stack(void *arg, const struct member *m, struct buf *out)
{
    struct suspects *all = arg;
    struct json_error bad;
    struct json *answer;
    struct arena a;
    uint32_t i = 0;

    while (i < all->n && all->list[i].pid != m->target.pid)
        i++;
    if (i == all->n || m->result.state != MEMBER_ANSWERED)
        return 0;
    arena_init(&a, TREE_BYTES);
    if (json_read(&a, out->data, out->size, &answer, &bad) == 0 &&
        hang_look(&all->list[i].looked, answer, /* all_threads= */ false, /* brief= */ false,
                  /* stacks= */ NULL) == 0)
        all->list[i].idle = is_idle(json_get(answer, "threads"));
    arena_done(&a);
    return 0;
}

static int look_at_stacks(const struct cluster_options *o, struct suspects *all)
{
    static char *words[] = {"backtrace", "--json", "--external", "--python", NULL};
    static const struct cli_command command = {.name = "backtrace", .run = command_backtrace};
    const struct each_run run = {.command = &command,
                                 .argc = 4,
                                 .argv = words,
                                 .at_once = o->at_once,
                                 .timeout_ns = o->timeout_ns,
                                 .done = take_stack,
                                 .arg = all};
    struct buf text;
    int rc = 0;

    buf_init(&text, OF_ALL * 16);
    for (uint32_t i = 0; i < all->n; i++)
        (void)buf_addf(&text, "%s%d", i > 0 ? "," : "", (int)all->list[i].pid);
    rc = members_find(buf_text(&text), &all->members);
    if (rc == 0)
        rc = each_member(&all->members, &run);
    buf_done(&text);
    return rc == -ECANCELED || rc == -ENOMEM ? rc : 0; /* what is not seen is not said */
}

/* many: without its number, so that ranks of which the same is to be said are one line. */
static void say_stuck(const struct suspect *s, bool many)
{
    char who[40];
    struct hang_rank *r = &s->parent->rank;
    char name[PROC_COMM_BYTES];

    bool awaited = strstr(r->doing, "wait4") != NULL || strstr(r->doing, "waitid") != NULL;
    if (s->idle || r->why[0] != '\0' || (s->looked.looks == 0 && !awaited))
        return;
    (void)proc_comm_of(s->pid, 0, name, sizeof(name));
    if (many)
        (void)snprintf(who, sizeof(who), "a child of each");
    else
        (void)snprintf(who, sizeof(who), "its child %d", (int)s->pid);
    if (s->looked.looks == 0)
        (void)snprintf(r->why, sizeof(r->why), "%s (%s) has not ended", who, name);
    else
        (void)snprintf(r->why, sizeof(r->why), "%s (%s) is in %.250s (%s)", who, name,
                       s->looked.place, s->looked.doing);
}

int hang_children(const struct cluster_options *o, struct hang_seen *list, uint32_t n)
{
    struct suspects *all = calloc(1, sizeof(*all));
    int rc = all == NULL ? err_set(-ENOMEM, "no memory for the children of ranks") : 0;
    uint32_t parents = 0;

    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if (list[i].here && list[i].rank.state == HANG_ELSEWHERE && list[i].rank.why[0] == '\0')
            find_children(all, &list[i]);
    if (rc == 0 && all->n > 0)
        rc = look_at_stacks(o, all);
    for (uint32_t i = 0; rc == 0 && i < all->n; i++)
        parents += i == 0 || all->list[i].parent != all->list[i - 1].parent;
    for (uint32_t i = 0; rc == 0 && i < all->n; i++)
        say_stuck(&all->list[i], parents > FEW);
    if (all != NULL)
        members_done(&all->members);
    free(all);
    return rc;
}
