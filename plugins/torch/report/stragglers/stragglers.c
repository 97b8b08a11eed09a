/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/stragglers.c - `probing cluster stragglers`: which rank of a job
 * is late, since when, and by what sign.
 *
 * One thread.  All of it comes from tables, of the living and the dead.
 */
#include "stragglers.h"

#include <errno.h>

static int parse_option(void *arg, const char *option, const char *value)
{
    struct straggler_options *o = arg;
    uint64_t n;
    if (option == NULL)
        return report_fail(o->api, -EINVAL, "stragglers takes no argument '%s'", value);
    if (strcmp(option, "--json") == 0)
        return o->json = true, 0;
    if (o->api->parse_count(o->api, value, &n) == 0) {
        o->last_steps = n;
        o->last_ns = 0;
        return n > 0 ? 0 : report_fail(o->api, -EINVAL, "--last must be more than 0 steps");
    }
    o->last_steps = 0;
    if (o->api->parse_time(o->api, value, &o->last_ns) < 0 || o->last_ns == 0 ||
        o->last_ns > INT64_MAX / 2)
        return report_fail(o->api, -EINVAL,
                           "--last wants a number of steps or a time, 500 or 10m, not '%s'", value);
    return 0;
}

static int judge_all(const struct straggler_job *j, struct judge_report *ret)
{
    const struct judge_job judged = {.n_ranks = j->n_judged,
                                     .n_steps = j->n_numbers,
                                     .steps = j->steps,
                                     .numbers = j->numbers,
                                     .signs = j->signs,
                                     .backwards = j->backwards,
                                     .waits = j->waits,
                                     .n_backwards = j->n_backwards,
                                     .links = j->nodes != NULL ? j->links : NULL,
                                     .nodes = j->nodes,
                                     .n_links = j->n_links,
                                     .n_nodes = j->n_nodes,
                                     .stages = j->stages};
    judge_ranks(&judged, ret);
    return ret->outcome == JUDGE_NO_MEMORY
               ? report_fail(j->o->api, -ENOMEM, "no memory to compare %u ranks", j->n_judged)
               : 0;
}

/* They are many questions: only where a rank is named, or may be by them. */
static bool signs_matter(const struct judge_report *r)
{
    return r->outcome == JUDGE_NAMED ||
           (r->outcome == JUDGE_SILENT && (r->last_comm_sec >= JUDGE_COMM_SHARE * r->step_sec ||
                                           r->newest_comm_sec >= JUDGE_COMM_SHARE * r->newest_sec));
}

const char *straggler_outcome(const struct straggler_job *j, const struct judge_report *r,
                              char *room)
{
    room[0] = '\0';
    if (r->outcome == JUDGE_FEW_STEPS)
        (void)snprintf(room, 400,
                       "too few steps: the ranks have %u in common, and fewer than %d say nothing; "
                       "try again later",
                       r->n_steps, JUDGE_STEPS_MIN);
    else if (r->outcome == JUDGE_ONE_RANK)
        (void)snprintf(room, 400,
                       "of %u ranks with steps there are no two that step together: there is "
                       "nobody to compare with",
                       j->n_ranks);
    else if (r->outcome == JUDGE_SILENT)
        (void)snprintf(room, 400,
                       "no %srank stands out: none is late by %.0f %% of a step (%.1f ms) in most "
                       "steps, nor by %.0f %% now and then more than all others",
                       r->n_stages > 0 ? "other " : "", 100 * JUDGE_LATE_SHARE,
                       1e3 * JUDGE_LATE_SHARE * r->step_sec, 100 * JUDGE_EVENT_SHARE);
    return room;
}

const char *straggler_blind(const struct straggler_job *j, const struct judge_report *r, char *room)
{
    size_t used;
    room[0] = '\0';
    if (!j->blind || r->other_waits || j->n_judged < 2)
        return room;
    used = (size_t)snprintf(
        room, 600,
        "blind: these steps do not show where the ranks wait for each other (comm_sec is NULL), so "
        "a rank that is slow in that very part looks like those that wait for it");
    if (j->n_backwards > 0)
        (void)snprintf(
            room + used, 600 - used,
            "; DistributedDataParallel waits in its backward, of which torch has measured %u "
            "without the wait, and fewer than %d say nothing: "
            "model._set_ddp_runtime_logging_sample_rate(1) in the program measures each one",
            j->n_backwards, JUDGE_EPISODE_STEPS);
    else
        (void)snprintf(room + used, 600 - used,
                       "; for GPUs plugin nccl sees it (probing launch --plugin nccl)");
    return room;
}

int straggler_run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct straggler_options o = {.api = a};
    struct straggler_job j = {.o = &o};
    struct judge_report r;
    int rc = a->parse(a, argc, argv, parse_option, &o);
    if (rc == 0)
        rc = straggler_read(&j);
    if (rc == 0)
        rc = straggler_read_backwards(&j);
    if (rc == 0)
        rc = straggler_read_stages(&j);
    if (rc == 0)
        rc = judge_all(&j, &r);
    if (rc == 0 && signs_matter(&r))
        rc = straggler_read_signs(&j, r.n_found > 0 ? &r.found[0] : NULL);
    if (rc == 0 && signs_matter(&r))
        rc = straggler_read_links(&j);
    if (rc == 0 && signs_matter(&r))
        rc = judge_all(&j, &r);
    if (rc == 0 && o.json)
        a->exact(a);
    if (rc == 0)
        (o.json ? straggler_show_json : straggler_show)(&j, &r);
    straggler_done(&j);
    return rc;
}
