/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/cluster.h - a job as a whole: its nodes, its ranks, and entering and leaving all of
 * them.
 *
 * One thread.  Nothing runs on between two commands: each looks anew.
 *
 *     cluster.c: the command     status.c: the ranks of this machine, and of others through a
 *     remote shell     dead_ranks.c: those that have ended     nodes.c: which nodes there are, and
 *     who says so     hosts.c: lists and files of hosts     ask_hosts.c: the same action there
 */
#ifndef CLI_CLUSTER_CLUSTER_H
#define CLI_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/job/job.h"
#include "cli/many/members.h"

#define HOSTS_MAX 10000
#define CLUSTER_PLUGINS_MAX 16

enum cluster_action {
    CLUSTER_NODES,
    CLUSTER_STATUS,
    CLUSTER_ATTACH,
    CLUSTER_DETACH,
    CLUSTER_HANG,
    CLUSTER_DIFF
};
#define CLUSTER_ACTIONS (CLUSTER_DIFF + 1)

/* As the command line has it: "nodes", "status" ... */
static inline const char *cluster_action_name(enum cluster_action action)
{
    static const char *const names[] = {
        [CLUSTER_NODES] = "nodes",   [CLUSTER_STATUS] = "status", [CLUSTER_ATTACH] = "attach",
        [CLUSTER_DETACH] = "detach", [CLUSTER_HANG] = "hang",     [CLUSTER_DIFF] = "diff"};
    return names[action];
}

struct cluster_options {
    enum cluster_action action;
    const char *job;     /* NULL: the only one there is */
    const char *targets; /* hang, diff: as -t takes them, in place of a job; NULL */
    const char *hosts;   /* a file, a list, or "auto"; NULL: this machine */
    const char *store;   /* HOST:PORT of torchrun's rendezvous; NULL: as the job's own words say */
    const char *rsh;     /* the remote shell, its words between blanks */
    const char *program; /* what probing is called on the other machines */
    const char *plugins[CLUSTER_PLUGINS_MAX + 1];
    uint32_t n_plugins;
    uint32_t at_once;
    uint64_t timeout_ns; /* of each rank, and of each host */
    bool json;           /* a line of JSON each; hang, diff: one value */
    /* hang */
    uint32_t looks;
    uint64_t interval_ns; /* from one look to the next */
    bool native, threads; /* frames of native code, and all threads, in the tree */
    bool all;             /* diff: what is the same, too */
};

/* An option of the row, but for the action: for cli_parse(), with struct cluster_options. */
int cluster_parse_option(void *options, const char *option, const char *value);

/* ---- ranks ---- */

/* Enter or leave the ranks of this machine that are to be, then say how it stands with each. */
int cluster_local(const struct cluster_options *o, struct ranks *ret);
/* dead_ranks.c: add the ranks of the job (NULL: of each of which one lives) that have ended; the
 * list has those that live. */
int cluster_dead(const char *job, struct ranks *r);
/* The same on each of those hosts, where a relay runs `probing cluster ...`.  One that cannot be
 * asked, or says what cannot be, is one row that says why. */
struct hosts;
int cluster_remote(const struct cluster_options *o, const struct hosts *hosts, struct ranks *ret);

/* ask_hosts.c: run this action there; fn gets the answer of each host, and "" or why it is not
 * whole. */
struct remote_run; /* cli/link/run_many.h */
int cluster_ask_hosts(const struct cluster_options *o, const struct hosts *hosts,
                      int (*fn)(void *arg, const char *host, const struct remote_run *run,
                                const char *why),
                      void *arg);
/* The same of what o->targets names on other machines, where nobody is asked first who is there;
 * those of this one are *ret_here, which may be nobody. */
int cluster_ask_targets(const struct cluster_options *o, struct members *ret_here,
                        int (*fn)(void *arg, const char *host, const struct remote_run *run,
                                  const char *why),
                        void *arg);

/* Say that there is no rank of the job, and which jobs there are. */
void cluster_say_none(const struct cluster_options *o);
/* Has it answered, and has no rank of the job? */
bool cluster_has_none(const struct remote_run *run, const char *why);

/* ---- hosts (hosts.c) ---- */

struct hosts {
    char (*list)[256];
    uint32_t n, room;
    uint32_t *slots; /* the list by names; UINT32_MAX: free */
    uint32_t named;  /* so often was one named, known or not */
};

/* Add a file's hosts (its name has a '/'; one a line, what follows the first word is for others,
 * '#' begins a comment; "node[1-8]" is eight) or those of such a list.  Each is kept once, and
 * HOSTS_MAX at most. */
int hosts_read(const char *text, struct hosts *ret);
int hosts_add(struct hosts *h, const char *name);
void hosts_done(struct hosts *h);
/* Are both names of one machine, as far as the names say?  "n1" is "n1.lan", not "n1.wan" "n1.lan".
 */
bool host_is(const char *one, const char *other);
bool host_is_here(const char *name);

/* ---- nodes (nodes.c) ---- */

struct cluster_node {
    char host[256];
    int64_t node_rank;      /* MEMBER_UNKNOWN */
    int64_t ranks, entered; /* MEMBER_UNKNOWN: it was not asked */
    char known_by[64];      /* "this machine, slurm, torchrun's store, the list" */
    char why[700];          /* it was asked in vain */
    uint32_t seen;          /* so many were known before it */
};

struct cluster_nodes {
    struct cluster_node *list;
    uint32_t n, room;
};

/* Find the nodes that the job's own words, torchrun's store and `given` (may be NULL) name.  A
 * source that cannot be asked is reported on stderr. */
int cluster_nodes_find(const struct cluster_options *o, const struct hosts *given,
                       struct cluster_nodes *ret);
/* Count the ranks of each into it. */
int cluster_nodes_count(struct cluster_nodes *n, const struct ranks *r);
void cluster_nodes_done(struct cluster_nodes *n);
/* Find the hosts that o->hosts means but for this machine; *ret_here: it is one of them, or none
 * is named.  Caller hosts_done()s. */
int cluster_hosts(const struct cluster_options *o, struct hosts *ret, bool *ret_here);

/* ---- hang.c, diff.c: an exit code, or -errno ---- */

int cluster_hang(const struct cluster_options *o, const struct hosts *hosts, bool here);
int cluster_diff(const struct cluster_options *o, const struct hosts *hosts, bool here);

#endif
