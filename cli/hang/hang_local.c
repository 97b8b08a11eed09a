/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_local.c - several looks at the ranks of this machine: by their cores, and from
 * outside at those that have none, are stopped, or do not answer.
 *
 * One thread, and a child for each rank under way.  Nobody is entered and nothing is changed.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/backtrace/backtrace_external.h"
#include "cli/commands/commands.h"
#include "cli/hang/hang.h"
#include "cli/inject/sleep_time.h"
#include "cli/many/query_members.h"
#include "cli/many/run_each.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/number.h"
#include "sdk/lib/proc/task.h"

#define TREE_BYTES ((size_t)512 << 20) /* of one answer of 16 MB, taken apart */
#define NODE_RANKS_MAX 4096
#define AT_ONCE 32                /* children that mostly wait */
#define TURN_NS (200 * NS_PER_MS) /* between looks at Ctrl-C */

enum how {
    BY_CORE,
    OUTSIDE,
    BRIEFLY, /* from outside without native frames: a tenth of the time, as no symbols are read */
    N_HOW
};

struct looking {
    const struct cluster_options *o;
    struct members members;
    struct hang_found *found;
    uint32_t first; /* of found->list: members.list[0] */
    bool *only;
    enum how how; /* those are looked at that are under way */
};

/* ---- in the child ---- */

static const struct looking *under_way; /* as it was at the fork */

/* Give the thread that spoke for it at the look before. */
static pid_t thread_of(const struct target *t)
{
    for (uint32_t i = 0; i < under_way->members.n; i++)
        if (under_way->members.list[i].target.pid == t->pid)
            return (pid_t)under_way->found->list[under_way->first + i].rank.tid;
    return 0;
}

static void print_work(const struct target *t)
{
    struct hang_work w;
    char line[160];

    hang_work_read(t->host[0] == '\0' ? t->pid : 0, thread_of(t), &w);
    hang_work_write(&w, line, sizeof(line));
    puts(line);
}

/* `backtrace` between two lines that say what it has done: the look itself is not counted. */
static int look_once(struct target *t, int argc, char **argv)
{
    print_work(t);
    int rc = command_backtrace(t, argc, argv);
    putchar('\n');
    print_work(t);
    return rc;
}

/* ---- its answer ---- */

/* Add up the looks: a number that one does not know, all together do not. */
static int64_t sum_of(int64_t sum, int64_t from, int64_t to)
{
    bool known = sum != HANG_UNKNOWN && from != HANG_UNKNOWN && to >= from;

    return known ? sum + to - from : HANG_UNKNOWN;
}

/* It ran last before the first look, and not between two of them: but for us it stands still. */
static void take_work(struct hang_seen *s, const struct hang_work *before,
                      const struct hang_work *after)
{
    struct hang_rank *r = &s->rank;

    if (r->looks == 1) {
        r->woken = r->busy_ns = r->bytes = r->ran_ns = r->between_ns =
            before->at_ns != HANG_UNKNOWN ? 0 : HANG_UNKNOWN;
        s->still_since = before->still_ns == HANG_UNKNOWN   ? HANG_UNKNOWN
                         : before->still_ns < before->at_ns ? before->at_ns - before->still_ns
                                                            : 0;
    } else {
        r->woken = sum_of(r->woken, s->until.woken, before->woken);
        r->busy_ns = sum_of(r->busy_ns, s->until.busy_ns, before->busy_ns);
        r->bytes = sum_of(r->bytes, s->until.bytes, before->bytes);
        r->ran_ns = sum_of(r->ran_ns, s->until.ran_ns, before->ran_ns);
        r->between_ns = sum_of(r->between_ns, s->until.at_ns, before->at_ns);
    }
    r->still_ns = r->woken == 0 && s->still_since != HANG_UNKNOWN ? after->at_ns - s->still_since
                                                                  : HANG_UNKNOWN;
    s->until = *after;
}

static int take_stacks(const struct looking *l, struct hang_seen *s, const char *text, size_t n)
{
    struct json_error bad;
    struct json *answer;
    struct arena a;

    arena_init(&a, TREE_BYTES);
    int rc = json_read(&a, text, n, &answer, &bad);
    if (rc == 0)
        rc = hang_look(&s->rank, answer, l->o->threads, l->how == BRIEFLY, &s->stacks);
    arena_done(&a);
    return rc;
}

static void take_answer(const struct looking *l, struct hang_seen *s, struct buf *out)
{
    const char *text = buf_text(out), *end = text + out->size;
    const char *begin = memchr(text, '\n', out->size);

    while (end > text && end[-1] == '\n')
        end--;
    const char *last = end;
    int64_t asked = s->rank.tid;
    while (last > text && last[-1] != '\n')
        last--;
    int rc = begin == NULL || last <= begin ? -EBADMSG
                                            : take_stacks(l, s, begin, (size_t)(last - begin));
    s->rank.why[0] = '\0';
    struct hang_work before, after;
    if (rc == 0) {
        hang_work_parse(text, (size_t)(begin - text), &before);
        hang_work_parse(last, (size_t)(end - last), &after);
        if (s->rank.tid != asked && s->here) { /* it was of another thread */
            hang_work_read((pid_t)s->rank.pid, (pid_t)s->rank.tid, &after);
            before = after;
        }
        take_work(s, &before, &after);
        return;
    }
    (void)snprintf(s->rank.why, sizeof(s->rank.why), "%s",
                   rc == -E2BIG     ? "its stacks are too long"
                   : rc == -ENODATA ? "it has no thread that could be read"
                                    : "its answer is no backtrace");
}

static int take_one(void *arg, const struct member *m, struct buf *out)
{
    struct looking *l = arg;
    struct hang_seen *s = &l->found->list[l->first + (uint32_t)(m - l->members.list)];

    if (m->result.state == MEMBER_ANSWERED)
        take_answer(l, s, out);
    else
        (void)snprintf(s->rank.why, sizeof(s->rank.why), "%s", m->result.why);
    return 0;
}

/* ---- looks ---- */

static struct hang_seen *seen_of(const struct looking *l, uint32_t i)
{
    return &l->found->list[l->first + i];
}

/* One whose Python frames have told what it waits in: they will tell whether it still does. */
static enum how how_of(const struct looking *l, const struct hang_seen *s)
{
    bool brief = s->rank.looks > 0 && s->rank.by_python && !l->o->native && !l->o->threads;

    return !s->outside ? BY_CORE : brief ? BRIEFLY : OUTSIDE;
}

/* Ask the ranks that answered all `looks` looks so far; at the last one arguments are read. */
static int ask_ranks(struct looking *l, uint32_t looks, enum how how)
{
    static const struct cli_command command = {.name = "backtrace", .run = look_once};
    char *words[] = {"backtrace", "--json", "--external", "--python", NULL, NULL};
    int n_words = 2 + (int)how;
    uint32_t n = 0;

    if (looks + 1 == l->o->looks)
        words[n_words++] = "--locals";
    words[n_words] = NULL;

    l->how = how;
    under_way = l;
    for (uint32_t i = 0; i < l->members.n; i++) {
        const struct hang_seen *s = seen_of(l, i);
        l->only[i] = l->members.list[i].error == 0 && s->rank.state != HANG_GONE &&
                     how_of(l, s) == how && s->rank.looks == looks;
        n += l->only[i];
    }
    const struct each_run run = {.command = &command,
                                 .argc = n_words,
                                 .argv = words,
                                 .at_once = l->o->at_once > AT_ONCE ? l->o->at_once : AT_ONCE,
                                 .timeout_ns = l->o->timeout_ns,
                                 .only = l->only,
                                 .done = take_one,
                                 .arg = l};
    if (n > 1 && how != BY_CORE)
        external_backtrace_prepare();
    if (n > 1)
        sleep_time_prepare();
    return n > 0 ? each_member(&l->members, &run) : 0;
}

/* A core that does not answer is no reason not to look: from outside that is seen, too. */
static void fall_back(struct looking *l)
{
    for (uint32_t i = 0; i < l->members.n; i++) {
        struct hang_seen *s = seen_of(l, i);
        s->outside = s->outside || (s->rank.looks == 0 && s->here);
    }
}

static int wait_until(uint64_t until_ns)
{
    for (uint64_t now = clock_monotonic(); now < until_ns; now = clock_monotonic()) {
        uint64_t left = until_ns - now < TURN_NS ? until_ns - now : TURN_NS;
        (void)poll(NULL, 0, (int)(left / NS_PER_MS) + 1);
        if (cli_interrupted)
            return err_set(-ECANCELED, "interrupted");
    }
    return 0;
}

static int look_again_and_again(struct looking *l)
{
    uint64_t began = clock_monotonic(), last = began;
    int rc = 0;

    for (uint32_t looks = 0; looks < l->o->looks && rc == 0; looks++) {
        if (looks > 0) /* from the end of one: a slow look leaves as much time as a quick one */
            rc = wait_until(clock_monotonic() + l->o->interval_ns);
        last = clock_monotonic();
        if (rc == 0)
            rc = ask_ranks(l, looks, BY_CORE);
        if (rc == 0 && looks == 0)
            fall_back(l);
        for (enum how how = OUTSIDE; how < N_HOW && rc == 0; how++)
            rc = ask_ranks(l, looks, how);
    }
    l->found->span_ns = last - began;
    return rc;
}

/* ---- who ---- */

static int add_members(struct looking *l)
{
    l->first = l->found->n;
    l->only = calloc(l->members.n + 1, sizeof(*l->only));
    if (l->only == NULL)
        return err_set(-ENOMEM, "no memory for %u ranks", l->members.n);
    for (uint32_t i = 0; i < l->members.n; i++) {
        const struct member *m = &l->members.list[i];
        struct hang_seen *s = hang_add(l->found);
        if (s == NULL)
            return -ENOMEM;
        s->rank.rank = m->tags.rank;
        s->rank.pid = m->target.pid > 0 ? m->target.pid : HANG_UNKNOWN;
        s->here = m->target.pid > 0 && m->target.host[0] == '\0';
        (void)snprintf(s->rank.host, sizeof(s->rank.host), "%.63s", m->tags.host);
        s->outside = m->target.kind == TARGET_BARE || m->target.stopped;
        if (m->error == 0 && m->target.kind == TARGET_FILES && !m->target.stopped) {
            s->here = false; /* whoever has its number now is another */
            s->rank.state = HANG_GONE;
            (void)snprintf(s->rank.why, sizeof(s->rank.why), "it has ended, and left its data");
        }
        if (m->error < 0)
            (void)snprintf(s->rank.why, sizeof(s->rank.why), "%s", m->result.why);
    }
    return 0;
}

/* It is stopped or has ended: that is more than what its stack said. */
static void judge_process(struct hang_seen *s)
{
    char state = s->here ? target_state((pid_t)s->rank.pid) : 'S';
    const char *ends = s->here ? target_ends((pid_t)s->rank.pid) : NULL;
    struct target_halt halt;

    if (s->here && target_halted((pid_t)s->rank.pid, &halt)) {
        s->rank.state = HANG_STOPPED;
        (void)snprintf(s->rank.why, sizeof(s->rank.why), "%s%s%s",
                       strcmp(halt.is, "stopped") == 0 ? "" : halt.is,
                       strcmp(halt.is, "stopped") == 0 ? "" : "; ", halt.remedy);
    } else if (ends != NULL) {
        s->rank.state = HANG_GONE;
        (void)snprintf(s->rank.why, sizeof(s->rank.why), "%s", ends);
    } else if (state == '?' || state == 'Z' || state == 'X') {
        s->rank.state = HANG_GONE;
        (void)snprintf(s->rank.why, sizeof(s->rank.why), "it ended while it was looked at");
    }
}

/* ---- who is not there any more ---- */

static bool is_found(const struct hang_found *f, int64_t rank)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->list[i].rank.rank == rank)
            return true;
    return false;
}

static int add_gone(const struct looking *l, int64_t rank, const char *why)
{
    if (is_found(l->found, rank))
        return 0;
    struct hang_seen *s = hang_add(l->found);
    if (s == NULL)
        return -ENOMEM;
    s->rank.rank = rank;
    s->rank.state = HANG_GONE;
    (void)gethostname(s->rank.host, sizeof(s->rank.host) - 1);
    (void)snprintf(s->rank.why, sizeof(s->rank.why), "%s", why);
    return 0;
}

static bool is_on_one_machine(const struct rank *p)
{
    return strncmp(p->master, "127.", 4) == 0 || strncmp(p->master, "localhost:", 10) == 0;
}

/* The ranks of a node follow each other, as LOCAL_RANK says and LOCAL_WORLD_SIZE; and ranks that
 * meet at 127.0.0.1 are all here. */
static int add_those_gone(const struct looking *l, const struct ranks *r)
{
    int64_t before = -1, n_before = 0; /* of the rank before: mostly of the same node */
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < r->n; i++) {
        const struct rank *one = &r->list[i];
        int64_t first = one->rank - one->local_rank, n = one->local_size;
        bool of_node = one->local_rank != MEMBER_UNKNOWN && n != MEMBER_UNKNOWN;
        if (!of_node && is_on_one_machine(one)) {
            first = 0;
            n = one->world_size;
        } else if (!of_node) {
            continue;
        }
        if (first == before && n == n_before)
            continue;
        before = first;
        n_before = n;
        int64_t world = one->world_size; /* the last node may have fewer */
        int64_t end = world != MEMBER_UNKNOWN && world < first + n ? world : first + n;
        for (int64_t k = first < 0 ? 0 : first; rc == 0 && n <= NODE_RANKS_MAX && k < end; k++)
            rc = add_gone(l, k,
                          of_node ? "its node has no process of it any more, and had one "
                                    "(LOCAL_WORLD_SIZE)"
                                  : "this machine has no process of it, and the job meets at "
                                    "127.0.0.1");
    }
    return rc;
}

static int look_at_all(struct looking *l, const struct cluster_options *o)
{
    int rc = members_identify(&l->members, o->timeout_ns, o->at_once);

    if (rc == 0)
        rc = add_members(l);
    if (rc == 0)
        rc = look_again_and_again(l);
    for (uint32_t i = 0; rc == 0 && i < l->members.n; i++)
        judge_process(seen_of(l, i));
    return rc == 0 && l->members.n > 0 ? hang_children(o, seen_of(l, 0), l->members.n) : rc;
}

int hang_local(const struct cluster_options *o, struct hang_found *f,
               int (*fn)(void *arg, const char *host, const struct remote_run *run,
                         const char *why))
{
    struct looking l = {.o = o, .found = f, .first = f->n};
    struct ranks r = {.n = 0};
    int rc = o->targets != NULL ? cluster_ask_targets(o, &l.members, fn, f)
                                : members_find_job(o->job, &r, &l.members);

    if (rc == 0 && l.members.n > 0)
        rc = look_at_all(&l, o);
    if (rc == 0)
        rc = add_those_gone(&l, &r);
    if (rc == 0 && r.n > 0)
        rc = hang_claim(f, &r.list[0], l.first);
    members_done(&l.members);
    free(l.only);
    ranks_done(&r);
    return rc;
}
