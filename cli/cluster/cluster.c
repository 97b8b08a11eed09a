/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/cluster.c - `probing cluster nodes | status | attach | detach ...`: options
 * and the tables.
 *
 * One thread.
 */
#include "cli/cluster/cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/job_report.h"
#include "cli/commands/commands.h"
#include "cli/link/link.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/limits.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define TIMEOUT_NS (20 * NS_PER_S)
#define HANG_TIMEOUT_NS (15 * NS_PER_S) /* three times, and looks: what a bad host may cost */
#define AT_ONCE 16
#define AT_ONCE_MAX MEMBERS_MAX
#define AT_ONCE_TEXT "16"
#define ACTIONS "nodes, status, attach, detach, hang or diff"
#define LOOKS 3
#define LOOKS_MAX 1000
#define INTERVAL_NS NS_PER_S

/* ---- options ---- */

struct taken {
    struct cluster_options o;
    bool acts; /* an action was named */
};

/* CLUSTER_ACTIONS: it is none. */
static uint32_t action_of(const char *word)
{
    uint32_t i = 0;

    while (i < CLUSTER_ACTIONS && strcmp(word, cluster_action_name((enum cluster_action)i)) != 0)
        i++;
    return i;
}

static bool is_action(const char *word)
{
    return action_of(word) < CLUSTER_ACTIONS;
}

static int parse_action(struct taken *t, const char *word)
{
    uint32_t i = action_of(word);
    char names[400];

    if (i == CLUSTER_ACTIONS || t->acts)
        return err_set(-EINVAL, "cluster needs one of " ACTIONS "%s, not '%s'",
                       job_reports(names, sizeof(names)), word);
    t->o.action = (enum cluster_action)i;
    t->acts = true;
    return 0;
}

static int parse_number(const char *option, const char *value, uint32_t least, uint32_t most,
                        uint32_t *ret)
{
    uint64_t n;

    if (parse_u64(value, &n) < 0 || n < least || n > most)
        return err_set(-EINVAL, "%s must be a number from %u to %u, not '%s'", option, least, most,
                       value);
    *ret = (uint32_t)n;
    return 0;
}

int cluster_parse_option(void *options, const char *option, const char *value)
{
    struct cluster_options *o = options;

    if (strcmp(option, "--job") == 0)
        o->job = value;
    else if (strcmp(option, "--hosts") == 0)
        o->hosts = value;
    else if (strcmp(option, "--store") == 0)
        o->store = value;
    else if (strcmp(option, "--rsh") == 0)
        o->rsh = value;
    else if (strcmp(option, "--remote-probing") == 0)
        o->program = value;
    else if (strcmp(option, "--json") == 0)
        o->json = true;
    else if (strcmp(option, "--all") == 0)
        o->all = true;
    else if (strcmp(option, "--native") == 0)
        o->native = true;
    else if (strcmp(option, "--threads") == 0)
        o->threads = true;
    else if (strcmp(option, "--at-once") == 0)
        return parse_number(option, value, 1, AT_ONCE_MAX, &o->at_once);
    else if (strcmp(option, "--looks") == 0)
        return parse_number(option, value, 1, LOOKS_MAX, &o->looks);
    else if (strcmp(option, "--interval") == 0)
        return cli_take_time(option, value, &o->interval_ns);
    else if (strcmp(option, "--plugin") == 0) {
        if (o->n_plugins == CLUSTER_PLUGINS_MAX)
            return err_set(-E2BIG, "more than %d plugins", CLUSTER_PLUGINS_MAX);
        o->plugins[o->n_plugins++] = value;
    } else { /* --timeout */
        return cli_take_time(option, value, &o->timeout_ns);
    }
    return 0;
}

static int parse_word(void *arg, const char *option, const char *value)
{
    struct taken *t = arg;

    return option == NULL ? parse_action(t, value) : cluster_parse_option(&t->o, option, value);
}

static const char *from_environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : otherwise;
}

static int check_options(const struct taken *t)
{
    if (!t->acts)
        return err_set(-EINVAL, "cluster needs one of " ACTIONS);
    if (t->o.n_plugins > 0 && t->o.action != CLUSTER_ATTACH)
        return err_set(-EINVAL, "--plugin is for `cluster attach`");
    if (t->o.action != CLUSTER_HANG &&
        (t->o.looks > 0 || t->o.interval_ns > 0 || t->o.native || t->o.threads))
        return err_set(-EINVAL, "--looks, --interval, --native and --threads are for `cluster "
                                "hang`");
    if (t->o.targets != NULL && t->o.action != CLUSTER_HANG && t->o.action != CLUSTER_DIFF)
        return err_set(-EINVAL, "cluster %s takes no target: --job NAME names a job",
                       cluster_action_name(t->o.action));
    if (t->o.targets != NULL && (t->o.job != NULL || t->o.hosts != NULL))
        return err_set(-EINVAL, "cluster %s takes targets (-t), or a job (--job, --hosts)",
                       cluster_action_name(t->o.action));
    if (t->o.all && t->o.action != CLUSTER_DIFF)
        return err_set(-EINVAL, "--all is for `cluster diff`");
    if (t->o.store != NULL && t->o.action != CLUSTER_NODES &&
        (t->o.hosts == NULL || strcmp(t->o.hosts, "auto") != 0))
        return err_set(-EINVAL, "--store is for `cluster nodes`, and for --hosts auto");
    return 0;
}

/* ---- what is shown ---- */

static const char *number_text(int64_t n, char room[24])
{
    (void)snprintf(room, 24, "%" PRId64, n);
    return n == MEMBER_UNKNOWN ? "-" : room;
}

static void print_rank(const struct rank *r, int host)
{
    char rank[24], local[24], pid[24], version[64], why[2900];

    printf("%5s  %5s  %-*s  %8s  %-11s  %s%s\n", number_text(r->rank, rank),
           number_text(r->local_rank, local), host, r->host, number_text(r->pid, pid),
           rank_state_name(r->state), terminal_field(version, sizeof(version), r->version),
           terminal_field(why, sizeof(why), r->why));
}

static int host_width(const struct ranks *r)
{
    int width = 4;

    for (uint32_t i = 0; i < r->n; i++)
        width = (int)strlen(r->list[i].host) > width ? (int)strlen(r->list[i].host) : width;
    return width;
}

/* Not a rank, but a line for a host. */
static bool is_host(const struct rank *r)
{
    return r->state == RANK_NONE || r->state == RANK_UNREACHED;
}

static int compare_rows(const void *one, const void *two)
{
    const struct rank *a = one, *b = two;
    int order = strcmp(a->job, b->job);

    if (is_host(a) != is_host(b))
        return is_host(a) ? 1 : -1;
    if (order != 0)
        return order;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return strcmp(a->host, b->host);
}

/* Print the clock of each host once, whether its ranks follow each other or not. */
static void print_clocks(const struct ranks *r)
{
    char offset[TEXT_AMOUNT_BYTES], error[TEXT_AMOUNT_BYTES];

    for (uint32_t i = 0; i < r->n; i++) {
        const struct rank *one = &r->list[i];
        bool said = one->clock_error_ns == MEMBER_UNKNOWN;
        for (uint32_t k = 0; k < i && !said; k++)
            said = strcmp(r->list[k].host, one->host) == 0;
        if (said)
            continue;
        bool behind = one->clock_offset_ns < 0;
        text_ns(behind ? -one->clock_offset_ns : one->clock_offset_ns, offset);
        text_ns(one->clock_error_ns, error);
        printf("clock of %s: %s %s ours, give or take %s\n", one->host, offset,
               behind ? "behind" : "ahead of", error);
    }
}

static void print_ranks(const struct cluster_options *o, struct ranks *r)
{
    const char *job = NULL;
    char name[1300], launcher[200];
    struct buf b;

    if (r->n > 0)
        qsort(r->list, r->n, sizeof(*r->list), compare_rows);
    buf_init(&b, (size_t)1 << 20);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct rank *one = &r->list[i];
        buf_reset(&b);
        if (o->json) {
            (void)buf_addc(&b, '{');
            rank_write(one, &b);
            (void)buf_addf(&b, "\"state\": \"%s\"}\n", rank_state_name(one->state));
            (void)fwrite(buf_text(&b), 1, b.size, stdout);
            continue;
        }
        bool fresh = job == NULL || strcmp(job, one->job) != 0;
        if (fresh && !is_host(one)) {
            char size[24];
            printf("%sjob %s (%s), world size %s\n", job != NULL ? "\n" : "",
                   terminal_field(name, sizeof(name), one->job),
                   terminal_field(launcher, sizeof(launcher), one->launcher),
                   number_text(one->world_size, size));
            job = one->job;
        }
        if (i == 0 || (fresh && !is_host(one)))
            printf("%5s  %5s  %-*s  %8s  %-11s  %s\n", "rank", "local", host_width(r), "host",
                   "pid", "state", "core, or why not");
        print_rank(one, host_width(r));
    }
    buf_done(&b);
}

static void print_nodes(const struct cluster_options *o, const struct cluster_nodes *n)
{
    char rank[24], ranks[24], entered[24], why[2900];
    int width = 4;
    struct buf b;

    for (uint32_t i = 0; i < n->n; i++)
        width = (int)strlen(n->list[i].host) > width ? (int)strlen(n->list[i].host) : width;
    if (n->n > 0 && !o->json)
        printf("%4s  %-*s  %5s  %7s  %s\n", "node", width, "host", "ranks", "entered", "known by");
    buf_init(&b, (size_t)1 << 20);
    for (uint32_t i = 0; i < n->n; i++) {
        const struct cluster_node *one = &n->list[i];
        if (!o->json) {
            printf("%4s  %-*s  %5s  %7s  %s%s%s\n", number_text(one->node_rank, rank), width,
                   one->host, number_text(one->ranks, ranks), number_text(one->entered, entered),
                   one->known_by, one->why[0] != '\0' ? "; " : "",
                   terminal_field(why, sizeof(why), one->why));
            continue;
        }
        buf_reset(&b);
        (void)buf_adds(&b, "{\"host\": ");
        (void)json_add_text(&b, one->host, strlen(one->host));
        (void)buf_adds(&b, ", \"known_by\": ");
        (void)json_add_text(&b, one->known_by, strlen(one->known_by));
        (void)buf_adds(&b, ", \"why\": ");
        (void)json_add_text(&b, one->why, strlen(one->why));
        const int64_t numbers[] = {one->node_rank, one->ranks, one->entered};
        static const char *const names[] = {"node_rank", "ranks", "entered"};
        for (int k = 0; k < 3; k++)
            (void)buf_addf(&b, ", \"%s\": %s", names[k],
                           numbers[k] == MEMBER_UNKNOWN ? "null" : number_text(numbers[k], rank));
        (void)buf_adds(&b, "}\n");
        (void)fwrite(buf_text(&b), 1, b.size, stdout);
    }
    buf_done(&b);
}

static const char *ended_text(uint32_t n, char room[64])
{
    (void)snprintf(room, 64, ", %u %s ended", n, n == 1 ? "has" : "have");
    return n > 0 ? room : "";
}

#define SELVES                                                                                \
    "; ranks of a job that was started by `probing launch -- torchrun ...`, or with PROBING=" \
    "SCRIPT.py in its environment, are entered by themselves"

/* torchrun starts all ranks anew when one fails, or a machine leaves or comes: a core ends with its
 * process.  r is of one job. */
static void say_restarts(const struct cluster_options *o, const struct ranks *r)
{
    const struct rank *first = NULL;
    uint32_t bare = 0;

    for (uint32_t i = 0; i < r->n; i++) {
        const struct rank *one = &r->list[i];
        if (is_host(one) || one->state == RANK_ENDED)
            continue;
        bare += one->state == RANK_NOT_ENTERED;
        first = first == NULL || one->restarts > first->restarts ? one : first;
    }
    if (first == NULL || o->action == CLUSTER_DETACH)
        return;
    if (bare > 0 && first->restarts > 0)
        terminal_say("torchrun has started the ranks anew (restart %" PRId64 " of %" PRId64
                     "), and a core ends with its process: `probing cluster attach` enters the new "
                     "ones" SELVES,
                     first->restarts, first->max_restarts);
    else if (o->action == CLUSTER_ATTACH && bare == 0 && first->max_restarts > first->restarts)
        terminal_say(
            "torchrun may start the ranks anew (%" PRId64 " of %" PRId64
            " restarts so far), and a core ends with its process: attach again then" SELVES,
            first->restarts, first->max_restarts);
}

/* The last line: how many of how many, and what is missing. */
static bool say_sum(const struct cluster_options *o, const struct ranks *r)
{
    enum rank_state wanted = o->action == CLUSTER_DETACH ? RANK_NOT_ENTERED : RANK_ENTERED;
    uint32_t here = 0, well = 0, unreached = 0, ended = 0;
    int64_t world = MEMBER_UNKNOWN;
    bool one_job = true;
    char room[64];

    for (uint32_t i = 0; i < r->n; i++) {
        const struct rank *one = &r->list[i];
        unreached += one->state == RANK_UNREACHED;
        if (is_host(one))
            continue;
        one_job = one_job && strcmp(one->job, r->list[0].job) == 0;
        world = one->world_size;
        ended += one->state == RANK_ENDED;
        here += one->state != RANK_ENDED;
        well += one->state == wanted;
    }
    if (here + ended + unreached == 0)
        cluster_say_none(o);
    else if (!o->json)
        terminal_say("%u of %u ranks %s%s%s", well, here + ended,
                     o->action == CLUSTER_DETACH ? "are left alone" : "are entered",
                     ended_text(ended, room),
                     unreached > 0 ? "; of some hosts nothing is known" : "");
    if (!o->json && one_job)
        say_restarts(o, r);
    here += ended;
    if (!o->json && one_job && here > 0 && world > here && unreached == 0)
        terminal_say("the job has %" PRId64 " ranks: the other %" PRId64
                     " have ended without data, or are on other machines%s",
                     world, world - here,
                     o->hosts == NULL ? " (`probing cluster nodes` names them, --hosts asks them)"
                                      : " that were not asked");
    if (!o->json && one_job && world != MEMBER_UNKNOWN && world < here)
        terminal_say("the job has %" PRId64
                     " ranks, and %u were found: does --hosts name a machine "
                     "by two names?",
                     world, here);
    return well == here && unreached == 0 && here > 0;
}

/* ---- the actions ---- */

static int run_nodes(const struct cluster_options *o, const struct hosts *hosts, bool here)
{
    struct cluster_nodes nodes = {.n = 0};
    struct ranks ranks = {.n = 0};
    int rc = cluster_nodes_find(o, hosts, &nodes);
    bool reached = true;

    if (rc == 0 && here)
        rc = cluster_local(o, &ranks);
    if (rc == 0 && hosts->n > 0)
        rc = cluster_remote(o, hosts, &ranks);
    if (rc == 0)
        rc = cluster_nodes_count(&nodes, &ranks);
    if (rc == 0) {
        print_nodes(o, &nodes);
        if (nodes.n == 0) {
            cluster_say_none(o);
            terminal_say("--store HOST:PORT --job NAME asks torchrun's store, --hosts machines");
        }
    }
    for (uint32_t i = 0; rc == 0 && i < nodes.n; i++)
        reached = reached && nodes.list[i].why[0] == '\0';
    rc = rc < 0 ? rc : reached && nodes.n > 0 ? EXIT_DONE : EXIT_FAILED;
    cluster_nodes_done(&nodes);
    ranks_done(&ranks);
    return rc;
}

static int run_ranks(const struct cluster_options *o, const struct hosts *hosts, bool here)
{
    struct ranks ranks = {.n = 0};
    int rc = here ? cluster_local(o, &ranks) : 0;

    if (rc == 0 && hosts->n > 0)
        rc = cluster_remote(o, hosts, &ranks);
    if (rc == 0) {
        print_ranks(o, &ranks);
        if (!o->json)
            print_clocks(&ranks);
        rc = say_sum(o, &ranks) ? EXIT_DONE : EXIT_FAILED;
    }
    ranks_done(&ranks);
    return rc;
}

const char *cluster_help_word(int argc, char **argv)
{
    const struct cli_command *report = job_report_of(argc, argv, is_action);

    return report != NULL ? report->name : argv[0];
}

int command_cluster(struct target *t, int argc, char **argv)
{
    struct taken taken = {.o = {.at_once = AT_ONCE}};
    struct hosts hosts = {.n = 0};
    bool here = true;

    const char *targets = t->by_environment ? NULL : t->text; /* that is of one process */
    int rc = cli_check_files();
    if (rc < 0)
        return rc;
    const struct cli_command *report = job_report_of(argc, argv, is_action);
    if (report != NULL)
        return job_report_run(report, targets, argc, argv);
    taken.o.targets = targets;
    taken.o.rsh = from_environment("PROBING_RSH", LINK_RSH);
    taken.o.program = from_environment("PROBING_REMOTE", "probing");
    rc = cli_parse(argc, argv, parse_word, &taken);
    if (rc == 0)
        rc = cli_misuse(check_options(&taken));
    if (taken.o.timeout_ns == 0)
        taken.o.timeout_ns = taken.o.action == CLUSTER_HANG ? HANG_TIMEOUT_NS : TIMEOUT_NS;
    link_set_timeout(3 * taken.o.timeout_ns); /* what a host has, to say who is there, too */
    if (rc == 0)
        rc = cluster_hosts(&taken.o, &hosts, &here);
    if (taken.o.action == CLUSTER_HANG && taken.o.looks == 0)
        taken.o.looks = LOOKS;
    if (taken.o.action == CLUSTER_HANG && taken.o.interval_ns == 0)
        taken.o.interval_ns = INTERVAL_NS;
    if (rc == 0)
        rc = taken.o.action == CLUSTER_NODES  ? run_nodes(&taken.o, &hosts, here)
             : taken.o.action == CLUSTER_DIFF ? cluster_diff(&taken.o, &hosts, here)
             : taken.o.action == CLUSTER_HANG ? cluster_hang(&taken.o, &hosts, here)
                                              : run_ranks(&taken.o, &hosts, here);
    hosts_done(&hosts);
    return rc;
}
