/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/diff/diff.h - `cluster diff`: what is known of each rank, as facts that can be compared.
 *
 * Private to its parts; one thread.
 *
 *     diff.c: the command     diff_local.c: facts of the ranks of this machine
 *     diff_facts.c: facts, and which of them differ     diff_json.c: what --json prints, and what
 *     another machine has printed
 */
#ifndef CLI_DIFF_DIFF_H
#define CLI_DIFF_DIFF_H

#include "cli/cluster/cluster.h"
#include "cli/job/job.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

#define DIFF_VALUE_BYTES \
    2000 /* of a value: of a longer one its size and a hash of it stand there */

/* A fact of one rank: "environment", "OMP_NUM_THREADS", "4". */
struct fact {
    const char *kind, *name, *value;
    uint32_t rank; /* place in ranks.list */
};

struct diff_found {
    struct arena mem;
    struct fact *facts;
    uint32_t n_facts, room;
    struct ranks ranks; /* `why`: what of one is not known */
    struct ranks hosts; /* that have none, could not be asked, or speak of another job */
    struct rank job;    /* the one that is meant; its name is "" where nobody has named one */
    bool ranked;
};

void diff_init(struct diff_found *f);
void diff_done(struct diff_found *f);
/* Copied; control characters become blanks. */
int diff_add(struct diff_found *f, uint32_t rank, const char *kind, const char *name,
             const char *value, size_t n);

#define DIFF_CLOCK "clock" /* a fact of "machine" that this machine finds out, and of "core" */
/* A clock that is so far from the one that it is compared with, give or take the error, in words
 * that are the same of clocks between which nothing is known to differ. */
#define DIFF_CLOCK_NS INT64_C(1000000) /* less is none that anybody would look for */
int diff_add_clock(struct diff_found *f, uint32_t rank, const char *kind, int64_t offset_ns,
                   int64_t error_ns, const char *whose);

/* diff_script.c: facts of the script that a Python runs.  words: its command line, as /proc has it,
 * and a NUL more. */
int diff_script(struct diff_found *f, uint32_t rank, pid_t pid, const char *words, size_t size);
/* In such a command line, '*' for what launchers give each rank: --local-rank=3. */
void diff_hide_place(char *words, size_t size);

/* Add the facts of ranks of this machine.  Ranks of others that o->targets names are asked there:
 * fn gets what they say, as in cluster_ask_targets(). */
int diff_local(const struct cluster_options *o, struct diff_found *f,
               int (*fn)(void *arg, const char *host, const struct remote_run *run,
                         const char *why));

/* ---- what differs ---- */

enum fact_is {
    FACT_DIFFERS,
    FACT_SAME,  /* in all of whom such facts are known */
    FACT_OWN,   /* each rank has its own, or its name says which rank it is */
    FACT_HIDDEN /* secrets: not compared */
};

struct fact_group { /* the facts of one kind and name: facts[first..first + n), sorted */
    enum fact_is is;
    size_t first, n;
    uint32_t n_values;
    bool some_lack_it; /* of those of whom facts of this kind are known: */
    const bool *known; /* [ranks.n] */
};

/* Sorts the facts; fn gets each group, in order of kind and name, until it gives below 0. */
int diff_groups(struct diff_found *f, int (*fn)(void *arg, const struct fact_group *g), void *arg);
/* The numbers of those with the value of facts[at], or without any where at is SIZE_MAX; *ret_next:
 * where the next value begins.  ret: room for ranks.n. */
size_t diff_ranks_of(const struct diff_found *f, const struct fact_group *g, size_t at,
                     int64_t *ret, size_t *ret_next);

/* ---- JSON ---- */

int diff_write(const struct cluster_options *o, struct diff_found *f, struct buf *b);
/* Read what `cluster diff --all --json` has printed on `host`.  -EBADMSG with err_set(). */
int diff_read(const char *text, size_t size, const char *host, struct diff_found *f);

#endif
