/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/nodes.c - which nodes a job has, and who says so: the scheduler's list in the
 * environment of its ranks, torchrun's rendezvous store, the user's list, and this machine.
 *
 * One thread.  torchrun's agent, the parent of its ranks, names the store in its own words.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cluster/cluster.h"
#include "cli/cluster/torch_store.h"
#include "cli/job/host_list.h"
#include "cli/link/remote_shell.h"
#include "cli/target/apart.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/proc_file.h"

#define C10D_PORT 29400 /* torchrun's, where an endpoint names none */
#define WORDS_BYTES ((size_t)1 << 20)
#define NODES_BYTES 4096 /* of SLURM's list */

static struct cluster_node *node_add(struct cluster_nodes *n)
{
    struct cluster_node *list = array_grow(n->list, n->n, &n->room, sizeof(*list), 2 * HOSTS_MAX);
    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for %u nodes", n->n + 1);
        return NULL;
    }
    n->list = list;
    struct cluster_node *one = &n->list[n->n++];
    *one = (struct cluster_node){.node_rank = MEMBER_UNKNOWN,
                                 .ranks = MEMBER_UNKNOWN,
                                 .entered = MEMBER_UNKNOWN,
                                 .seen = n->n};
    return one;
}

/* Two nodes of one machine are two: torchrun may start several agents there.  To those that meet on
 * their own machine it is "localhost". */
static bool is_node(const struct cluster_node *n, const char *host, int64_t node_rank)
{
    bool same = host_is(n->host, host) ||
                (node_rank != MEMBER_UNKNOWN && host_is_here(n->host) && host_is_here(host));

    return same && (n->node_rank == node_rank || n->node_rank == MEMBER_UNKNOWN ||
                    node_rank == MEMBER_UNKNOWN);
}

/* One that is known already is known by one more. */
static int node_see(struct cluster_nodes *n, const char *host, int64_t node_rank, const char *by)
{
    struct cluster_node *one = NULL;

    for (uint32_t i = 0; i < n->n && one == NULL; i++)
        one = is_node(&n->list[i], host, node_rank) ? &n->list[i] : NULL;
    if (one == NULL) {
        one = node_add(n);
        if (one == NULL)
            return -ENOMEM;
        (void)snprintf(one->host, sizeof(one->host), "%s", host);
    }
    if (one->node_rank == MEMBER_UNKNOWN)
        one->node_rank = node_rank;
    size_t used = strlen(one->known_by);
    if (strstr(one->known_by, by) == NULL)
        (void)snprintf(one->known_by + used, sizeof(one->known_by) - used, "%s%s",
                       used > 0 ? ", " : "", by);
    return 0;
}

/* By number, as a store has them in no order; those that have none behind them, as they came. */
static int compare_nodes(const void *one, const void *two)
{
    const struct cluster_node *a = one, *b = two;

    if (a->node_rank == b->node_rank)
        return a->seen < b->seen ? -1 : 1;
    if (a->node_rank == MEMBER_UNKNOWN || b->node_rank == MEMBER_UNKNOWN)
        return a->node_rank == MEMBER_UNKNOWN ? 1 : -1;
    return a->node_rank < b->node_rank ? -1 : 1;
}

/* ---- the scheduler's list ---- */

struct seen {
    struct cluster_nodes *nodes;
    const char *by;
    int64_t next; /* place in the list; MEMBER_UNKNOWN: it has no order */
};

static int see_listed(void *arg, const char *name)
{
    struct seen *s = arg;

    return host_is_name(name)
               ? node_see(s->nodes, name, s->next == MEMBER_UNKNOWN ? s->next : s->next++, s->by)
               : 0;
}

static int see_scheduler(const char *hosts, struct cluster_nodes *n)
{
    struct seen s = {.nodes = n, .by = "SLURM"};
    const char *wrong = NULL;
    int rc = host_list_each(hosts, HOSTS_MAX, see_listed, &s, &wrong);

    if (rc == -E2BIG && wrong != NULL)
        terminal_say("SLURM's list of nodes '%.200s' names more than %d nodes: none of it is taken",
                     hosts, HOSTS_MAX);
    else if (wrong != NULL)
        terminal_say("SLURM's list of nodes '%.200s' cannot be read: none of it is taken", hosts);
    return rc == -ENOMEM ? rc : 0;
}

/* Asks each rank for SLURM's list, which is seen once where ranks that follow each other have the
 * same. */
static int see_schedulers(const struct ranks *l, struct cluster_nodes *n)
{
    char hosts[2][NODES_BYTES] = {"", ""};
    struct buf b;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < l->n; i++) {
        char *now = hosts[i % 2], *before = hosts[(i + 1) % 2];
        now[0] = '\0';
        if (job_read_environment((pid_t)l->list[i].pid, &b, /* ret_source= */ NULL) == 0)
            job_read_nodes(&b, now, NODES_BYTES);
        buf_done(&b);
        if (now[0] != '\0' && strcmp(now, before) != 0)
            rc = see_scheduler(now, n);
    }
    return rc;
}

/* If none of its ranks runs, this may be salloc's shell, or sbatch's script. */
static int see_allocation(const char *job, struct cluster_nodes *n)
{
    char hosts[NODES_BYTES] = "";
    struct buf b;

    if (job_of_asker(job, &b) && job_variable(&b, "SLURM_JOB_ID")[0] != '\0')
        job_read_nodes(&b, hosts, sizeof(hosts));
    buf_done(&b);
    return hosts[0] != '\0' ? see_scheduler(hosts, n) : 0;
}

/* ---- torchrun's store ---- */

/* The value of "--rdzv-endpoint=X" or "--rdzv_endpoint X" among a process's words; NULL: none. */
static const char *word_of(const struct buf *words, const char *name)
{
    for (size_t at = 0; at < words->size;) {
        const char *w = words->data + at;
        size_t n = strnlen(w, words->size - at), k = 0;
        at += n + 1;
        while (k < n && w[k] != '=' && (w[k] == name[k] || (w[k] == '_' && name[k] == '-')))
            k++;
        if (name[k] != '\0' || k < 3)
            continue;
        if (w[k] == '=')
            return w + k + 1;
        if (w[k] == '\0' && at < words->size)
            return words->data + at;
    }
    return NULL;
}

/* Its agent has taken a port that was free, as with --standalone: no other one can know it. */
static bool is_its_own(const char *endpoint)
{
    const char *colon = strrchr(endpoint, ':');

    return colon != NULL && strcmp(colon, ":0") == 0;
}

/* Does it speak for the user of that rank? */
static bool is_of_same_user(pid_t agent, pid_t rank)
{
    struct proc_identity one, other;

    return identity_of(agent, &one) == 0 && identity_of(rank, &other) == 0 &&
           identity_believes_environment(&one) &&
           one.uid[IDENTITY_EFFECTIVE] == other.uid[IDENTITY_EFFECTIVE];
}

/* Find the place where the job's agents meet; false: its agent does not say, or not by a TCPStore,
 * or is alone. */
static bool find_store(const struct rank *rank, char *ret, size_t size)
{
    struct buf words;

    buf_init(&words, WORDS_BYTES);
    bool found = is_of_same_user((pid_t)rank->parent, (pid_t)rank->pid) &&
                 apart_read((pid_t)rank->parent, "cmdline", &words) == 0 && words.size > 0;
    if (found) {
        (void)buf_addc(&words, '\0');
        const char *backend = word_of(&words, "--rdzv-backend");
        const char *endpoint = word_of(&words, "--rdzv-endpoint");
        found = backend != NULL && strcmp(backend, "c10d") == 0 && endpoint != NULL &&
                endpoint[0] != '\0' && strlen(endpoint) < size && !is_its_own(endpoint);
        if (found)
            (void)snprintf(ret, size, "%s", endpoint);
    }
    buf_done(&words);
    return found;
}

static int split_endpoint(const char *text, char *host, size_t size, uint16_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    uint64_t port = C10D_PORT;
    size_t n = colon != NULL ? (size_t)(colon - text) : strlen(text);

    if (colon != NULL && (parse_u64(colon + 1, &port) < 0 || port == 0 || port > 65535))
        return err_set(-EINVAL, "the store '%s' needs a port from 1 to 65535: HOST:PORT", text);
    if (n > 2 && text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    }
    if (n == 0 || n >= size)
        return err_set(-EINVAL, "the store '%s' is not HOST:PORT", text);
    (void)snprintf(host, size, "%.*s", (int)n, text);
    *ret_port = (uint16_t)port;
    return 0;
}

static int see_agent(void *arg, const struct torch_node *node)
{
    return node_see(arg, node->host, node->rank, "torchrun's store");
}

/* A store that tells nothing is no reason to tell nothing, unless it was named. */
static int see_store(const struct cluster_options *o, const char *store, const char *run_id,
                     struct cluster_nodes *n)
{
    uint64_t limit =
        o->timeout_ns < TORCH_STORE_TIMEOUT_NS ? o->timeout_ns : TORCH_STORE_TIMEOUT_NS;
    char host[256];
    uint16_t port = 0;
    int rc = split_endpoint(store, host, sizeof(host), &port);

    if (rc == 0)
        rc = torch_rendezvous_nodes(host, port, run_id, limit, see_agent, n);
    if (rc == 0 || rc == -ENOMEM || rc == -ECANCELED)
        return rc;
    if (o->store != NULL)
        return rc; /* it was asked for */
    terminal_say("%s", err_why(rc));
    return 0;
}

/* torchrun's name of the job; "": another has started it, or nobody has named it. */
static void read_run_id(const struct ranks *l, char *ret, size_t size)
{
    const char *id = "";
    struct buf b;

    buf_init(&b, 0);
    if (l->n > 0 && job_read_environment((pid_t)l->list[0].pid, &b, /* ret_source= */ NULL) == 0)
        id = job_variable(&b, "TORCHELASTIC_RUN_ID");
    (void)snprintf(ret, size, "%s", strcmp(id, "none") != 0 ? id : "");
    buf_done(&b);
}

int cluster_nodes_find(const struct cluster_options *o, const struct hosts *given,
                       struct cluster_nodes *ret)
{
    char own[256] = "", store[300], run_id[300];
    struct ranks l;
    int rc = job_find_ranks(o->job, &l);

    if (rc < 0)
        return rc;
    (void)gethostname(own, sizeof(own) - 1);
    rc = o->job == NULL ? ranks_check_one_job(&l) : 0; /* one has the nodes of all its steps */
    for (uint32_t i = 0; rc == 0 && i < l.n; i++)
        rc = node_see(ret, own, l.list[i].node_rank, "this machine");
    if (rc == 0)
        rc = l.n > 0 ? see_schedulers(&l, ret) : see_allocation(o->job, ret);
    read_run_id(&l, run_id, sizeof(run_id));
    if (rc == 0 && o->store != NULL) {
        if (o->job != NULL)
            job_name_of(o->job, run_id, sizeof(run_id));
        rc = run_id[0] != '\0'
                 ? see_store(o, o->store, run_id, ret)
                 : err_set(-EINVAL, "--store needs the run id of torchrun: --job NAME");
    } else if (rc == 0 && l.n > 0 && strcmp(l.list[0].launcher, "torchrun") == 0 &&
               find_store(&l.list[0], store, sizeof(store))) {
        rc = see_store(o, store, run_id[0] != '\0' ? run_id : "none", ret);
    }
    for (uint32_t i = 0; rc == 0 && given != NULL && i < given->n; i++)
        rc = node_see(ret, given->list[i], MEMBER_UNKNOWN, "--hosts");
    ranks_done(&l);
    if (ret->n > 0)
        qsort(ret->list, ret->n, sizeof(*ret->list), compare_nodes);
    return rc;
}

int cluster_nodes_count(struct cluster_nodes *n, const struct ranks *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const struct rank *rank = &r->list[i];
        struct cluster_node *node = NULL;
        for (uint32_t k = 0; k < n->n && node == NULL; k++)
            node = is_node(&n->list[k], rank->host, rank->node_rank) ? &n->list[k] : NULL;
        if (node == NULL && (node = node_add(n)) == NULL)
            return -ENOMEM;
        if (node->host[0] == '\0')
            (void)snprintf(node->host, sizeof(node->host), "%s", rank->host);
        if (rank->state == RANK_UNREACHED) {
            (void)snprintf(node->why, sizeof(node->why), "%s", rank->why);
            continue;
        }
        if (rank->state == RANK_NONE) {
            node->ranks = node->entered = 0;
            continue;
        }
        if (node->node_rank == MEMBER_UNKNOWN)
            node->node_rank = rank->node_rank;
        if (rank->state == RANK_ENDED)
            continue;
        if (node->ranks == MEMBER_UNKNOWN)
            node->ranks = node->entered = 0;
        node->ranks++;
        node->entered += rank->state == RANK_ENTERED;
    }
    return 0;
}

void cluster_nodes_done(struct cluster_nodes *n)
{
    free(n->list);
    *n = (struct cluster_nodes){.n = 0};
}

/* ---- who is asked ---- */

int cluster_hosts(const struct cluster_options *o, struct hosts *ret, bool *ret_here)
{
    struct hosts all = {.n = 0};
    struct cluster_nodes nodes = {.n = 0};
    int rc = 0;

    *ret_here = o->hosts == NULL;
    if (o->hosts == NULL)
        return 0;
    if (strcmp(o->hosts, "auto") == 0) {
        rc = cluster_nodes_find(o, NULL, &nodes);
        for (uint32_t i = 0; rc == 0 && i < nodes.n; i++)
            rc = hosts_add(&all, nodes.list[i].host);
        if (rc == 0 && nodes.n == 0)
            rc = err_set(-ENOENT,
                         "--hosts auto finds no node: no rank of the job runs here, this is "
                         "no shell of SLURM's for it, and no store was named (--store)");
    } else {
        rc = hosts_read(o->hosts, &all);
    }
    for (uint32_t i = 0; rc == 0 && i < all.n; i++) {
        bool here = host_is_here(all.list[i]);
        *ret_here = *ret_here || here;
        rc = here ? 0 : hosts_add(ret, all.list[i]);
    }
    cluster_nodes_done(&nodes);
    hosts_done(&all);
    return rc;
}
