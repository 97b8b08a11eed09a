/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang.c - `probing cluster hang`: the stacks of all ranks as one tree, what each waits
 * in, and for whom.
 *
 * One thread.
 */
#include "cli/hang/hang.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/run_many.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"

#define SAID_BYTES ((size_t)64 << 20)
#define ANSWER_BYTES ((size_t)2 << 30)
#define STACKS_BYTES ((size_t)64 << 20) /* of one rank's, taken apart */
#define WORLD_MAX (2 * MEMBERS_MAX) /* of more ranks those that nobody has seen are not listed */

/* ---- other machines ---- */

/* Exit code 1 there means that something hangs: the answer is whole if it can be read. */
static int take_host(void *arg, const char *host, const struct remote_run *run, const char *why)
{
    struct hang_found *f = arg;
    uint32_t before = f->n;
    int rc = run->error == 0 && run->out.size > 0 ? hang_read(run->out.data, run->out.size, host, f)
                                                  : -EBADMSG;

    if (rc == -ENOMEM)
        return rc;
    if (rc < 0 && !cluster_has_none(run, why))
        return ranks_add_host(&f->hosts, host, RANK_UNREACHED,
                              run->out.size == 0 || run->error != 0 ? why : err_text());
    return f->n > before ? 0 : ranks_add_host(&f->hosts, host, RANK_NONE, "");
}

/* ---- in order, and who is missing ---- */

static int compare_seen(const void *one, const void *two)
{
    const struct hang_seen *a = one, *b = two;

    if (a->rank.rank != b->rank.rank)
        return a->rank.rank < b->rank.rank ? -1 : 1;
    int order = strcmp(a->rank.host, b->rank.host);
    return order != 0 ? order : a->rank.pid < b->rank.pid ? -1 : a->rank.pid > b->rank.pid;
}

/* If one has no rank, all go by their processes. */
static void sort_ranks(struct hang_found *f)
{
    f->ranked = true;
    for (uint32_t i = 0; i < f->n; i++)
        f->ranked = f->ranked && f->list[i].rank.rank != MEMBER_UNKNOWN;
    for (uint32_t i = 0; i < f->n && !f->ranked; i++)
        f->list[i].rank.rank = f->list[i].rank.pid != HANG_UNKNOWN ? f->list[i].rank.pid : i;
    if (f->n > 0)
        qsort(f->list, f->n, sizeof(*f->list), compare_seen);
}

/* The list is in order of rank. */
static int add_missing(const struct cluster_options *o, struct hang_found *f)
{
    uint32_t n = f->n, at = 0;
    int rc = 0;

    if (!f->ranked || f->job.world_size == MEMBER_UNKNOWN || f->job.world_size > WORLD_MAX)
        return 0;
    for (int64_t rank = 0; rank < f->job.world_size && rc == 0; rank++) {
        while (at < n && f->list[at].rank.rank < rank)
            at++;
        if (at < n && f->list[at].rank.rank == rank)
            continue;
        struct hang_seen *s = hang_add(f);
        if (s == NULL)
            return -ENOMEM;
        s->rank.rank = rank;
        (void)snprintf(s->rank.why, sizeof(s->rank.why), "%s",
                       o->hosts == NULL ? "it runs on another machine (--hosts asks those), is of "
                                          "another user, or has ended"
                                        : "no host that answered has it");
    }
    if (f->n > n)
        qsort(f->list, f->n, sizeof(*f->list), compare_seen);
    return rc;
}

/* Two hosts that have the same rank: one of them errs, or lies, and who does is not known. */
static void say_claimed_twice(const struct hang_found *f, struct buf *b)
{
    for (uint32_t i = 1; i < f->n; i++)
        if (f->ranked && f->list[i].rank.rank == f->list[i - 1].rank.rank)
            (void)buf_addf(b, "rank %" PRId64 " is claimed by %s and by %s.\n",
                           f->list[i].rank.rank, f->list[i - 1].rank.host, f->list[i].rank.host);
}

static bool is_claimed_twice(const struct hang_found *f)
{
    bool twice = false;

    for (uint32_t i = 1; i < f->n && f->ranked; i++)
        twice = twice || f->list[i].rank.rank == f->list[i - 1].rank.rank;
    return twice;
}

/* Find the job that is meant; hosts that speak of another one are named. */
static int find_job(const struct cluster_options *o, struct hang_found *f)
{
    char asked[JOB_NAME_BYTES];
    uint32_t kept = 0;

    job_name_of(o->job, asked, sizeof(asked));
    int rc =
        ranks_find_job(&f->claims, asked[0] != '\0' ? asked : NULL, is_claimed_twice(f), &f->job);
    for (uint32_t i = 0; rc == 0 && i < f->claims.n; i++)
        if (rank_is_left_out(&f->claims.list[i], &f->job))
            rc = ranks_add_left_out(&f->hosts, &f->claims.list[i], &f->job);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < f->n; i++) {
        struct hang_seen *s = &f->list[i];
        if (s->claim < f->claims.n && rank_is_left_out(&f->claims.list[s->claim], &f->job))
            buf_done(&s->stacks);
        else
            f->list[kept++] = *s;
    }
    f->n = kept;
    return 0;
}

/* ---- what is shown ---- */

static int plant_stacks(const struct cluster_options *o, const struct hang_seen *s,
                        struct stack_tree *tree)
{
    struct json_error bad;
    struct json *stacks;
    struct arena a;

    if (s->stacks.size == 0 || s->stacks.failed != 0)
        return 0;
    arena_init(&a, STACKS_BYTES);
    int rc = json_read(&a, s->stacks.data, s->stacks.size, &stacks, &bad);
    if (rc == 0)
        rc = hang_plant(tree, s->rank.rank, stacks, !o->native);
    arena_done(&a);
    return rc == -ENOMEM || rc == -E2BIG ? err_set(rc, "the tree of stacks is too large") : 0;
}

static int print_tree(const struct cluster_options *o, const struct hang_found *f)
{
    struct stack_tree *tree = stack_tree_new();
    struct buf b;
    int rc = tree == NULL ? err_set(-ENOMEM, "no memory for a tree") : 0;

    buf_init(&b, SAID_BYTES);
    for (uint32_t i = 0; rc == 0 && i < f->n; i++)
        rc = plant_stacks(o, &f->list[i], tree);
    if (rc == 0)
        stack_tree_print(tree, "", f->ranked ? "rank" : "process",
                         f->ranked ? "ranks" : "processes", &b);
    if (rc == 0 && b.size > 0) {
        putchar('\n');
        (void)fwrite(b.data, 1, b.size, stdout);
    }
    buf_done(&b);
    stack_tree_free(tree);
    return rc;
}

static void print_head(const struct cluster_options *o, const struct hang_found *f)
{
    char name[1300], launcher[200], size[24];

    if (f->job.job[0] == '\0') {
        printf("%u %s%s; %u look%s in %.1f s\n\n", f->n, f->ranked ? "rank" : "process",
               f->n == 1   ? ""
               : f->ranked ? "s"
                           : "es",
               o->looks, o->looks == 1 ? "" : "s", (double)f->span_ns / (double)NS_PER_S);
        return;
    }
    (void)snprintf(size, sizeof(size), "%" PRId64, f->job.world_size);
    printf("job %s (%s), world size %s; %u look%s in %.1f s\n\n",
           terminal_field(name, sizeof(name), f->job.job),
           f->job.launcher[0] != '\0' ? terminal_field(launcher, sizeof(launcher), f->job.launcher)
                                      : "unknown",
           f->job.world_size == MEMBER_UNKNOWN ? "unknown" : size, o->looks,
           o->looks == 1 ? "" : "s", (double)f->span_ns / (double)NS_PER_S);
}

static void say_hosts(const struct hang_found *f)
{
    ranks_say_hosts(&f->hosts);
    if (f->job.world_size != MEMBER_UNKNOWN && f->job.world_size > WORLD_MAX)
        terminal_say("the job has %" PRId64 " ranks, they say: of the others nothing is known",
                     f->job.world_size);
}

/* Say what the verdict cannot tell apart; "": it can. */
static void write_caution(const struct hang_found *f, const struct hang_verdict *v, char *ret,
                          size_t size)
{
    bool longer = v->waited_ns > 0 && (uint64_t)v->waited_ns > f->span_ns;
    const char *what = v->all_wait ? "a collective" : "a step";
    char waited[TEXT_AMOUNT_BYTES];

    ret[0] = '\0';
    if (v->n_circles > 0) {
        (void)snprintf(ret, size,
                       "an operation that a rank began before and does not wait for (isend, "
                       "async_op) is in no stack");
        return;
    }
    text_ns(v->waited_ns / (int64_t)NS_PER_S * (int64_t)NS_PER_S, waited);
    if (v->may_be_slow && longer)
        (void)snprintf(ret, size,
                       "%s that takes longer than %s, so long they have waited, looks the same",
                       what, waited);
    else if (v->may_be_slow)
        (void)snprintf(ret, size,
                       "%s that takes longer than these looks (%.1f s) looks the same: "
                       "--interval 10s looks longer",
                       what, (double)f->span_ns / (double)NS_PER_S);
}

static int show_verdict(const struct cluster_options *o, const struct hang_found *f,
                        const struct hang_verdict *v, const char *says)
{
    char doubt[160];
    struct buf b;
    int rc = 0;

    write_caution(f, v, doubt, sizeof(doubt));
    if (!o->json) {
        print_head(o, f);
        fputs(says, stdout);
        rc = print_tree(o, f);
        if (rc == 0)
            say_hosts(f);
        if (rc == 0 && doubt[0] != '\0')
            terminal_say("%s", doubt);
        return rc;
    }
    terminal_exact();
    buf_init(&b, ANSWER_BYTES);
    hang_write(o, f, v, says, doubt, &b);
    if (b.failed == 0)
        (void)fwrite(buf_text(&b), 1, b.size, stdout);
    else
        rc = err_set(b.failed, "no memory for the answer");
    buf_done(&b);
    return rc;
}

/* ---- all of it ---- */

static int judge_ranks(const struct cluster_options *o, const struct hang_found *f)
{
    struct hang_rank *ranks = calloc(f->n + 1, sizeof(*ranks));
    struct hang_verdict v = {.awaited = calloc(f->n + 1, sizeof(bool)),
                             .circle = calloc(f->n + 1, sizeof(uint32_t)),
                             .all = f->ranked && f->job.world_size != MEMBER_UNKNOWN &&
                                    f->n >= f->job.world_size};
    bool whole = true;
    struct buf says;
    int rc = ranks == NULL || v.awaited == NULL || v.circle == NULL
                 ? err_set(-ENOMEM, "no memory for %u ranks", f->n)
                 : 0;

    buf_init(&says, SAID_BYTES);
    for (uint32_t i = 0; i < f->hosts.n; i++)
        whole = whole && f->hosts.list[i].state == RANK_NONE;
    for (uint32_t i = 0; rc == 0 && i < f->n; i++) {
        ranks[i] = f->list[i].rank;
        ranks[i].call.known = ranks[i].call.known && f->ranked;
        whole = whole && ranks[i].state != HANG_UNSEEN;
    }
    if (rc == 0)
        rc = hang_judge(ranks, f->n, f->ranked ? "rank" : "process",
                        f->ranked ? "ranks" : "processes", &v, &says);
    if (rc == 0) {
        say_claimed_twice(f, &says);
        rc = show_verdict(o, f, &v, buf_text(&says));
    }
    if (rc == 0)
        rc = v.hangs == HANG_NO && whole ? EXIT_DONE : EXIT_FAILED;
    buf_done(&says);
    free(ranks);
    free(v.awaited);
    free(v.circle);
    return rc;
}

int cluster_hang(const struct cluster_options *o, const struct hosts *hosts, bool here)
{
    struct hang_found f = {.job = RANK_UNKNOWN};
    int rc = here ? hang_local(o, &f, take_host) : 0;

    if (rc == 0 && hosts->n > 0)
        rc = cluster_ask_hosts(o, hosts, take_host, &f);
    sort_ranks(&f);
    if (rc == 0)
        rc = find_job(o, &f);
    if (rc == 0)
        rc = add_missing(o, &f);
    if (rc == 0 && f.n == 0 && f.hosts.n == 0) {
        cluster_say_none(o);
        rc = EXIT_FAILED;
    } else if (rc == 0) {
        rc = judge_ranks(o, &f);
    }
    hang_found_done(&f);
    return rc;
}
