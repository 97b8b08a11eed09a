/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/run_many.c - see run_many.h.
 *
 * One thread.
 */
#include "cli/link/run_many.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define LOOK_MS 100
#define RUN_POLLS 3

struct taking {
    struct remote_run *r;
    size_t *kept, all;
};

static int take_piece(void *arg, bool error, const char *data, size_t size)
{
    const struct taking *t = arg;

    *t->kept += size;
    if (*t->kept > t->all || buf_add(error ? &t->r->err : &t->r->out, data, size) < 0)
        return err_set(-EMSGSIZE, "its answer has more than %zu MB%s",
                       (*t->kept > t->all ? t->all : t->r->out.max) >> 20,
                       *t->kept > t->all ? " with the others'" : "");
    return 0;
}

static void fail_run(struct remote_run *r, int rc)
{
    r->error = rc;
    (void)snprintf(r->why, sizeof(r->why), "%s", err_why(rc));
}

/* rc: 1, it has come to its end by itself. */
static void end_run(struct remote_run *r, int rc)
{
    r->runs = false;
    if (rc == 1 && r->run.status >= 0) {
        r->status = r->run.status;
    } else if (rc == 1) {
        r->error = r->run.status;
        (void)snprintf(r->why, sizeof(r->why), "%s", r->run.why);
    } else {
        fail_run(r, rc);
    }
    link_run_end(&r->run);
}

static void begin_run(struct remote_run *r, const struct remote_limits *limits)
{
    buf_init(&r->out, limits->bytes);
    buf_init(&r->err, limits->bytes);
    r->deadline_ns = clock_monotonic() + limits->timeout_ns;
    int rc = link_run_begin(r->host, r->argc, r->argv, &r->run);
    r->runs = rc == 0;
    if (rc < 0)
        fail_run(r, rc);
}

static void turn_run(struct remote_run *r, const struct pollfd *polls, size_t *kept,
                     const struct remote_limits *limits)
{
    struct taking t = {r, kept, limits->all_bytes};
    char limit[TEXT_AMOUNT_BYTES];
    int rc = link_run_turn(&r->run, polls, take_piece, &t);

    if (rc == 0 && clock_monotonic() > r->deadline_ns) {
        text_ns((int64_t)limits->timeout_ns, limit);
        rc = err_set(-ETIMEDOUT, "no answer within %s", limit);
    }
    if (rc != 0)
        end_run(r, rc);
}

int remote_runs(struct remote_run *list, uint32_t n, const struct remote_limits *limits)
{
    struct pollfd *polls = calloc((size_t)n + 1, RUN_POLLS * sizeof(*polls));
    uint32_t begun = 0, running = 0;
    size_t kept = 0;

    if (polls == NULL)
        return err_set(-ENOMEM, "no memory for %u hosts", n);
    do {
        for (; begun < n && running < limits->at_once; begun++) {
            if (list[begun].error == 0)
                begin_run(&list[begun], limits);
            running += list[begun].runs;
        }
        nfds_t used = 0;
        for (uint32_t i = 0; i < begun; i++) {
            if (list[i].runs)
                link_run_polls(&list[i].run, polls + used);
            used += list[i].runs ? RUN_POLLS : 0;
        }
        (void)poll(polls, used, LOOK_MS);
        running = 0;
        used = 0;
        for (uint32_t i = 0; i < begun; i++) {
            if (!list[i].runs)
                continue;
            turn_run(&list[i], polls + used, &kept, limits);
            used += RUN_POLLS;
            running += list[i].runs;
        }
    } while ((running > 0 || begun < n) && !cli_interrupted);
    free(polls);
    return cli_interrupted ? err_set(-ECANCELED, "interrupted") : 0;
}

void remote_run_done(struct remote_run *r)
{
    if (r->runs)
        link_run_end(&r->run);
    r->runs = false;
    buf_done(&r->out);
    buf_done(&r->err);
}
