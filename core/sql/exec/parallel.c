/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/parallel.c - helpers: threads that take a share of a stored table's segments.
 *
 * A helper has the operators from the scan up to the one that is shared out once more, in a query
 * of its own: memory apart, counted in the one budget; limits and cancellation as the query's.
 * The scans take segment after segment from one place, so that none waits for the other.  Helpers
 * have the priority of the query's thread (query.nice) and call nothing of the host's: what is
 * computed by plugins is not shared out.  They are begun when a scan has shown to be long, never
 * more than the processors that the process may use.
 */
#include "core/sql/exec/parallel.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/guest/thread.h"
#include "core/sql/exec/ops.h"

#define STACK_BYTES ((size_t)1 << 20) /* as the query's own thread */

struct helper {
    struct parallel *team;
    struct query q;
    struct op *op;
    pthread_t thread;
    int code; /* written by its thread, read once that has been joined, as the next two */
    uint64_t cpu_ns;
    struct err_kept why;
};

struct parallel {
    struct op *op; /* that is shared out */
    int (*run)(struct op *op);
    struct helper *helpers;
    uint32_t n;
    _Atomic int stop;
    _Atomic bool failed;
};

uint32_t sql_parallel_threads(const struct query *q)
{
    uint64_t wanted = q->stop || q->dry ? 1 : sql_setting(q->s, SQL_SET_THREADS);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (wanted < 2 || sched_getaffinity(0, sizeof(set), &set) == -1)
        return 1;
    uint64_t there = (uint64_t)CPU_COUNT(&set);
    return (uint32_t)(there < wanted ? there : wanted);
}

const char *sql_parallel_why_not(const struct op *input)
{
    const struct table *t;
    const struct op *op = input;
    while (op->beside && op->child)
        op = op->child;
    if (strcmp(op->name, "filter") == 0 || strcmp(op->name, "project") == 0)
        return "a subquery is run for its rows";
    return sql_is_scan(op, &t) && op->beside ? NULL : "its rows do not come from one stored table";
}

struct op *sql_parallel_scan(struct op *op)
{
    while (op->child)
        op = op->child;
    return op;
}

/* The operators from the scan up to this one, once more. */
static int copy_pipeline(struct query *q, struct op *op, struct op **ret)
{
    struct op *child = NULL;
    int rc = op->child ? copy_pipeline(q, op->child, &child) : 0;
    return rc < 0 ? rc : op->beside(q, op, child, ret);
}

static void *run_part(void *arg)
{
    struct helper *h = arg;
    h->code = h->team->run(h->op);
    if (h->code < 0) {
        err_keep(&h->why, h->code);
        atomic_store_explicit(&h->team->failed, true, memory_order_relaxed);
    }
    h->cpu_ns = thread_cpu();
    return NULL;
}

static void helper_done(void *arg)
{
    struct helper *h = arg;
    sql_query_done(&h->q);
}

int sql_parallel_start(struct op *op, op_beside make, int (*fn)(struct op *op),
                       struct parallel **ret)
{
    struct query *q = op->q;
    uint32_t n = sql_parallel_threads(q) - 1;
    struct parallel *t = sql_get(q, 1, sizeof(*t));
    *ret = NULL;
    if (!t || !(t->helpers = sql_get(q, n, sizeof(*t->helpers))))
        return -ENOMEM;
    t->op = op;
    t->run = fn;
    for (; t->n < n; t->n++) {
        struct helper *h = &t->helpers[t->n];
        h->team = t;
        sql_query_beside(&h->q, q, &t->stop);
        int rc = sql_defer(q, helper_done, h);
        if (rc < 0) {
            sql_query_done(&h->q);
            return sql_parallel_end(t, rc);
        }
        struct op *child;
        if (copy_pipeline(&h->q, op->child, &child) < 0 || make(&h->q, op, child, &h->op) < 0)
            break;
        if (thread_start(&h->thread, "probing/query+", STACK_BYTES, run_part, h) != 0)
            break;
    }
    if (t->n)
        *ret = t;
    return 0;
}

bool sql_parallel_failed(const struct parallel *t)
{
    return atomic_load_explicit(&t->failed, memory_order_relaxed);
}

/* Add the counts of a helper's operators to those of the operators they are copies of. */
static void add_counts(struct op *to, const struct op *from)
{
    for (; to && from; to = to->child, from = from->child) {
        to->rows += from->rows;
        to->ns += from->ns;
        to->pruned += from->pruned;
        to->segments += from->segments;
    }
}

int sql_parallel_end(struct parallel *t, int rc)
{
    const struct helper *failed = NULL;
    if (rc < 0 || sql_parallel_failed(t))
        atomic_store_explicit(&t->stop, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct helper *h = &t->helpers[i];
        (void)pthread_join(h->thread, NULL);
        if (h->code < 0 && (!failed || failed->code == -ECANCELED)) /* others were only stopped */
            failed = h;
        thread_cpu_add(h->cpu_ns);
        add_counts(t->op->child, h->op->child);
    }
    return rc == 0 && failed ? err_restore(&failed->why) : rc;
}

uint32_t sql_parallel_size(const struct parallel *t)
{
    return t->n;
}

struct op *sql_parallel_op(struct parallel *t, uint32_t i)
{
    return t->helpers[i].op;
}
