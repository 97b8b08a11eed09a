/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/diff/diff.c - `probing cluster diff`: what is not the same in all ranks.
 *
 * One thread.
 */
#include "cli/diff/diff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/rank_ranges.h"
#include "cli/link/run_many.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/printable.h"

#define ANSWER_BYTES ((size_t)2 << 30)
#define LINE_BYTES ((size_t)1 << 20)
#define VALUE_SHOWN 200
#define VALUES_SHOWN 20 /* of one fact */
#define RANGES_SHOWN 12
#define NAMES_SHOWN 12 /* of what each rank has its own */

struct printing {
    const struct cluster_options *o;
    struct diff_found *found;
    const char *kind; /* of the last one that was printed */
    int64_t *room;
    uint32_t counts[4];
    struct buf own; /* names */
};

/* "ranks 0-2,5 (4)": the first n of p->room. */
static void name_all(const struct printing *p, size_t n, struct buf *b)
{
    (void)buf_addf(b, "%s ",
                   p->found->ranked ? n == 1 ? "rank" : "ranks"
                   : n == 1         ? "process"
                                    : "processes");
    rank_ranges(p->room, n, RANGES_SHOWN, b);
    if (n > 1)
        (void)buf_addf(b, " (%zu)", n);
}

/* "  NAME: its value\n": what others have said, as far as it is shown. */
static void print_text(const char *before, const char *text, size_t most, const char *after)
{
    struct buf b;

    buf_init(&b, LINE_BYTES);
    (void)printable_add(&b, text, strnlen(text, most), PRINTABLE_LINE);
    printf("%s%s%s%s", before, buf_text(&b), strlen(text) > most ? "..." : "", after);
    buf_done(&b);
}

static void print_value(const struct printing *p, const struct fact_group *g, size_t at,
                        size_t *ret_next)
{
    const struct diff_found *f = p->found;
    size_t n = diff_ranks_of(f, g, at, p->room, ret_next);
    const char *value = at != SIZE_MAX ? f->facts[at].value : "(not there)";
    struct buf b;

    buf_init(&b, LINE_BYTES);
    name_all(p, n, &b);
    printf("    %s", buf_text(&b));
    print_text(": ", value[0] != '\0' ? value : "(empty)", VALUE_SHOWN, "\n");
    buf_done(&b);
}

/* Each value once: that of the most ranks first. */
static void print_values(const struct printing *p, const struct fact_group *g)
{
    size_t most = 0, best = g->first, next = g->first;
    uint32_t shown = 1;

    for (size_t at = g->first; at < g->first + g->n; at = next) {
        size_t n = diff_ranks_of(p->found, g, at, p->room, &next);
        if (n > most) {
            most = n;
            best = at;
        }
    }
    print_value(p, g, best, &next);
    for (size_t at = g->first; at < g->first + g->n && shown < VALUES_SHOWN; at = next) {
        if (at == best) {
            (void)diff_ranks_of(p->found, g, at, p->room, &next);
            continue;
        }
        print_value(p, g, at, &next);
        shown++;
    }
    if (g->n_values > shown)
        printf("    and %u values more (--json has them)\n", g->n_values - shown);
    if (g->some_lack_it)
        print_value(p, g, SIZE_MAX, &next);
}

static int print_group(void *arg, const struct fact_group *g)
{
    struct printing *p = arg;
    const struct fact *first = &p->found->facts[g->first];

    p->counts[g->is]++;
    if (g->is == FACT_OWN && p->counts[FACT_OWN] <= NAMES_SHOWN)
        (void)(buf_adds(&p->own, p->own.size > 0 ? ", " : "") ||
               printable_add(&p->own, first->name, strlen(first->name), PRINTABLE_LINE));
    if (g->is != FACT_DIFFERS && !p->o->all)
        return 0;
    if (p->kind == NULL || strcmp(p->kind, first->kind) != 0)
        print_text(p->kind != NULL ? "\n" : "", first->kind, SIZE_MAX, "\n");
    p->kind = first->kind;
    if (g->is == FACT_SAME || g->is == FACT_HIDDEN) {
        print_text("  ", first->name, SIZE_MAX, ": ");
        print_text("", first->value, VALUE_SHOWN, "\n");
        return 0;
    }
    print_text("  ", first->name, SIZE_MAX, "\n");
    print_values(p, g);
    return 0;
}

/* Name the ranks of which something is not known, once for each reason. */
static void say_unknown(const struct printing *p)
{
    const struct diff_found *f = p->found;
    char why[4 * sizeof(f->ranks.list->why)];
    struct buf b;

    buf_init(&b, LINE_BYTES);
    for (uint32_t i = 0; i < f->ranks.n; i++) {
        size_t n = 0;
        bool said = f->ranks.list[i].why[0] == '\0';
        for (uint32_t k = 0; k < i && !said; k++)
            said = strcmp(f->ranks.list[k].why, f->ranks.list[i].why) == 0;
        for (uint32_t k = i; k < f->ranks.n && !said; k++)
            if (strcmp(f->ranks.list[k].why, f->ranks.list[i].why) == 0)
                p->room[n++] = f->ranks.list[k].rank;
        if (said)
            continue;
        buf_reset(&b);
        name_all(p, n, &b);
        terminal_say("%s: %s", buf_text(&b),
                     terminal_field(why, sizeof(why), f->ranks.list[i].why));
    }
    buf_done(&b);
    ranks_say_hosts(&f->hosts);
    if (f->job.world_size != MEMBER_UNKNOWN && f->ranked && (int64_t)f->ranks.n < f->job.world_size)
        terminal_say("the job has %lld ranks: of the other %lld nothing is known%s",
                     (long long)f->job.world_size, (long long)(f->job.world_size - f->ranks.n),
                     p->o->hosts == NULL ? " (--hosts asks other machines)" : "");
    if (f->job.world_size != MEMBER_UNKNOWN && f->ranked && (int64_t)f->ranks.n > f->job.world_size)
        terminal_say("the job has %lld ranks, and %u were compared: does --hosts name a machine by "
                     "two names?",
                     (long long)f->job.world_size, f->ranks.n);
}

static void say_sum(struct printing *p)
{
    if (p->kind != NULL)
        putchar('\n');
    printf("%u %s; %u %s the same in all of %u, as far as they are known", p->counts[FACT_DIFFERS],
           p->counts[FACT_DIFFERS] == 1 ? "thing differs" : "things differ", p->counts[FACT_SAME],
           p->counts[FACT_SAME] == 1 ? "is" : "are", p->found->ranks.n);
    if (p->counts[FACT_OWN] > 0)
        printf("; %u of each one's own (%s%s)", p->counts[FACT_OWN], buf_text(&p->own),
               p->counts[FACT_OWN] > NAMES_SHOWN ? ", ..." : "");
    if (p->counts[FACT_HIDDEN] > 0)
        printf("; %u secret%s, not compared", p->counts[FACT_HIDDEN],
               p->counts[FACT_HIDDEN] == 1 ? "" : "s");
    printf("\n");
    (void)fflush(stdout);
    say_unknown(p);
}

static int print_all(const struct cluster_options *o, struct diff_found *f)
{
    struct printing p = {.o = o, .found = f, .room = calloc(f->ranks.n + 1, sizeof(int64_t))};
    int rc = p.room == NULL ? err_set(-ENOMEM, "no memory for %u ranks", f->ranks.n) : 0;

    buf_init(&p.own, LINE_BYTES);
    if (rc == 0)
        rc = diff_groups(f, print_group, &p);
    if (rc == 0)
        say_sum(&p);
    buf_done(&p.own);
    free(p.room);
    return rc;
}

static int write_all(const struct cluster_options *o, struct diff_found *f)
{
    struct buf b;

    terminal_exact();
    buf_init(&b, ANSWER_BYTES);
    int rc = diff_write(o, f, &b);
    if (rc == 0)
        (void)fwrite(buf_text(&b), 1, b.size, stdout);
    buf_done(&b);
    return rc;
}

/* ---- who ---- */

/* Add the clocks of ranks[from..], as they were measured here. */
static int add_clocks(struct diff_found *f, uint32_t from, uint32_t host)
{
    struct link_host h;
    bool known = link_host_of(host, &h) == 0 && h.error_ns != LINK_UNKNOWN;
    int rc = 0;

    for (uint32_t i = from; known && rc == 0 && i < f->ranks.n; i++)
        rc = diff_add_clock(f, i, "machine", h.offset_ns, h.error_ns, "the asker's");
    return rc;
}

/* Ranks of this machine have its clock, where there are others to compare it with. */
static int add_own_clock(struct diff_found *f)
{
    bool far = false;
    int rc = 0;

    for (uint32_t i = 0; i < f->ranks.n; i++)
        far = far || f->ranks.list[i].far;
    for (uint32_t i = 0; far && rc == 0 && i < f->ranks.n; i++)
        if (!f->ranks.list[i].far)
            rc = diff_add_clock(f, i, "machine", 0, 0, "the asker's");
    return rc;
}

static int take_host(void *arg, const char *host, const struct remote_run *run, const char *why)
{
    struct diff_found *f = arg;
    uint32_t before = f->ranks.n;
    int rc = run->error == 0 && run->out.size > 0 ? diff_read(run->out.data, run->out.size, host, f)
                                                  : -EBADMSG;

    if (rc == -ENOMEM)
        return rc;
    if (rc < 0 && !cluster_has_none(run, why))
        return ranks_add_host(&f->hosts, host, RANK_UNREACHED,
                              run->out.size > 0 && run->error == 0 ? err_text()
                              : why[0] != '\0'                     ? why
                                                                   : "it said nothing");
    return f->ranks.n > before ? add_clocks(f, before, run->host)
                               : ranks_add_host(&f->hosts, host, RANK_NONE, "");
}

static void name_ranks(struct diff_found *f)
{
    f->ranked = true;
    for (uint32_t i = 0; i < f->ranks.n; i++)
        f->ranked = f->ranked && f->ranks.list[i].rank != MEMBER_UNKNOWN;
    for (uint32_t i = 0; i < f->ranks.n && !f->ranked; i++)
        f->ranks.list[i].rank = f->ranks.list[i].pid;
}

static int compare_ranks(const void *one, const void *two)
{
    const struct rank *a = *(const struct rank *const *)one, *b = *(const struct rank *const *)two;

    return a->rank != b->rank ? (a->rank < b->rank ? -1 : 1) : strcmp(a->host, b->host);
}

/* Do two machines claim the same rank?  Ranks of one machine are its own. */
static int is_claimed_twice(const struct diff_found *f, bool *ret)
{
    const struct rank **order = calloc(f->ranks.n + 1, sizeof(*order));

    *ret = false;
    if (order == NULL)
        return err_set(-ENOMEM, "no memory for %u ranks", f->ranks.n);
    for (uint32_t i = 0; i < f->ranks.n; i++)
        order[i] = &f->ranks.list[i];
    qsort(order, f->ranks.n, sizeof(*order), compare_ranks);
    for (uint32_t i = 1; i < f->ranks.n && f->ranked; i++)
        *ret = *ret || (order[i]->rank == order[i - 1]->rank &&
                        strcmp(order[i]->host, order[i - 1]->host) != 0);
    free(order);
    return 0;
}

/* Their facts, too.  The ranks that stay move up. */
static int leave_out(struct diff_found *f)
{
    uint32_t *to = calloc(f->ranks.n + 1, sizeof(*to)), kept = 0, facts = 0;
    int rc = 0;

    if (to == NULL)
        return err_set(-ENOMEM, "no memory for %u ranks", f->ranks.n);
    for (uint32_t i = 0; i < f->n_facts; i++)
        if (!rank_is_left_out(&f->ranks.list[f->facts[i].rank], &f->job))
            f->facts[facts++] = f->facts[i];
    f->n_facts = facts;
    for (uint32_t i = 0; i < f->ranks.n; i++)
        if (rank_is_left_out(&f->ranks.list[i], &f->job)) {
            rc = rc == 0 ? ranks_add_left_out(&f->hosts, &f->ranks.list[i], &f->job) : rc;
        } else {
            to[i] = kept;
            f->ranks.list[kept++] = f->ranks.list[i];
        }
    f->ranks.n = kept;
    for (uint32_t i = 0; i < facts; i++)
        f->facts[i].rank = to[f->facts[i].rank];
    free(to);
    return rc;
}

/* Find the job that is meant; hosts that speak of another one are named. */
static int find_job(const struct cluster_options *o, struct diff_found *f)
{
    char asked[JOB_NAME_BYTES];
    bool twice;

    job_name_of(o->job, asked, sizeof(asked));
    int rc = is_claimed_twice(f, &twice);
    if (rc == 0)
        rc = ranks_find_job(&f->ranks, asked[0] != '\0' ? asked : NULL, twice, &f->job);
    return rc == 0 ? leave_out(f) : rc;
}

static bool is_whole(const struct diff_found *f)
{
    bool whole = f->ranks.n > 0;

    for (uint32_t i = 0; i < f->hosts.n; i++)
        whole = whole && f->hosts.list[i].state == RANK_NONE;
    for (uint32_t i = 0; i < f->ranks.n; i++)
        whole = whole && f->ranks.list[i].why[0] == '\0';
    return whole;
}

int cluster_diff(const struct cluster_options *o, const struct hosts *hosts, bool here)
{
    struct diff_found f;

    diff_init(&f);
    int rc = here ? diff_local(o, &f, take_host) : 0;
    if (rc == 0 && hosts->n > 0)
        rc = cluster_ask_hosts(o, hosts, take_host, &f);
    name_ranks(&f);
    if (rc == 0)
        rc = find_job(o, &f);
    rc = rc == 0 ? add_own_clock(&f) : rc;
    if (rc == 0 && f.ranks.n == 0 && f.hosts.n == 0) {
        cluster_say_none(o);
        rc = EXIT_FAILED;
    } else if (rc == 0) {
        rc = o->json ? write_all(o, &f) : print_all(o, &f);
        rc = rc < 0 ? rc : is_whole(&f) ? EXIT_DONE : EXIT_FAILED;
    }
    diff_done(&f);
    return rc;
}
