/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_print.c - who is late, since when and by what sign, as
 * text and as JSON.
 *
 * One thread.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "stragglers.h"

#define RANKS_SHOWN 16u
#define TEXT_BYTES 500 /* of a name, or of a list */

static const char *const part_names[N_PARTS] = {
    [PART_OPTIMIZER] = "optimizer", [PART_EVALUATION] = "evaluation", [PART_OTHER] = "other",
    [PART_DATA] = "data",           [PART_FORWARD] = "forward",       [PART_BACKWARD] = "backward",
    [PART_COMM] = "communication"};

static const char *const part_words[N_PARTS] = {
    [PART_OPTIMIZER] = "in the optimizer",
    [PART_EVALUATION] = "in an evaluation (it calls a model outside of training)",
    [PART_OTHER] = "outside of torch's parts (its own Python, a checkpoint, garbage collection)",
    [PART_DATA] = "waiting for data",
    [PART_FORWARD] = "in forward",
    [PART_BACKWARD] = "in backward",
    [PART_COMM] = "in communication"};

static const struct {
    const char *name, *format; /* format: two numbers, its own and the middle rank's */
    double per;
} sign_words[N_SIGNS] = {
    [SIGN_CPU_THROTTLED] = {"cpu_throttled",
                            "its cgroup is throttled %.1f %% of the time (others %.1f)", 100},
    [SIGN_CPU_TAKEN] = {"cpu_taken",
                        "its processor is given to other tasks %.0f times a second (others %.0f)",
                        1},
    [SIGN_CPU_WAIT] = {"cpu_wait",
                       "tasks of its machine wait for a processor %.0f %% of the time (others "
                       "%.0f)",
                       100},
    [SIGN_CPU_USED] = {"cpu_used", "it uses %.2f cores (others %.2f)", 1},
    [SIGN_PAGE_FAULTS] = {"page_faults", "%.0f page faults a second need a disk (others %.0f)", 1},
    [SIGN_MEMORY_WAIT] = {"memory_wait",
                          "tasks of its machine wait for memory %.0f %% of the time (others %.0f)",
                          100},
    [SIGN_DISK_WAIT] = {"disk_wait",
                        "tasks of its machine wait for disks %.0f %% of the time (others %.0f)",
                        100},
    [SIGN_DISK_READ] = {"disk_read", "it reads %.1f MB a second from disks (others %.1f)", 1e-6},
    [SIGN_GC] = {"gc", "Python's garbage collector runs %.1f %% of the time (others %.1f)", 100},
    [SIGN_STOPPED] = {"stopped",
                      "its whole process stands still %.0f %% of the time (others %.0f), as one "
                      "does that a signal (SIGSTOP), a debugger or a frozen cgroup stops",
                      100},
    [SIGN_NETWORK_BAD] = {"network_bad",
                          "%.1f packets a second are bad or lost at its interfaces (others %.1f)",
                          1},
    [SIGN_RUNQ_WAIT] = {"runq_wait",
                        "its threads are ready to run and get no processor for %.2f s of each "
                        "second, all together (others %.2f)",
                        1},
    [SIGN_NICE] = {"nice", "its nice is %.0f (others %.0f): others go before it", 1},
    [SIGN_FEW_CPUS] = {"few_cpus", "it may run on %.0f processors (others %.0f)", 1},
    [SIGN_STEAL] = {"steal",
                    "its machine's hypervisor takes %.1f %% of the processors (others "
                    "%.1f)",
                    100},
    [SIGN_SWAP] = {"swap", "its machine swaps in %.1f MB a second (others %.1f)", 1e-6},
    [SIGN_RETRANS] = {"retransmits",
                      "%.2f %% of its machine's TCP segments are sent again (others %.2f)", 100}};

static const struct straggler_rank *rank_at(const struct straggler_job *j, uint32_t judged)
{
    return &j->ranks[j->index[judged]];
}

static const char *name_of(const struct straggler_rank *r, char room[TEXT_BYTES])
{
    if (r->rank != INT64_MIN)
        (void)snprintf(room, TEXT_BYTES, "rank %" PRId64, r->rank);
    else
        (void)snprintf(room, TEXT_BYTES, "process %s", r->name);
    return room;
}

static const char *time_as(const char *format, int64_t ns, char room[40])
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm) == NULL || strftime(room, 40, format, &tm) == 0)
        room[0] = '\0';
    return room;
}

static const char *time_text(int64_t ns, char room[40])
{
    return time_as("%Y-%m-%d %H:%M:%S", ns, room);
}

static const char *step_text(const struct straggler_job *j, uint32_t step, char room[80])
{
    char when[40];
    (void)snprintf(room, 80, "step %" PRId64 " (%s UTC)", j->numbers[step],
                   time_text(j->ends_ns[step], when));
    return room;
}

/* ---- in words ---- */

__attribute__((format(printf, 3, 4))) static void say(const struct straggler_job *j,
                                                      const char *indent, const char *format, ...)
{
    char text[REPORT_LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    j->o->api->print_wrapped(j->o->api, indent, text, strlen(text));
}

/* The middle one of the others. */
static double others_sign(const struct straggler_job *j, uint32_t judged, int sign)
{
    double *of = calloc(j->n_judged, sizeof(*of)), middle = NAN;
    uint32_t n = 0;
    for (uint32_t r = 0; r < j->n_judged && of != NULL; r++) {
        double value = j->signs[(size_t)r * N_SIGNS + (size_t)sign];
        uint32_t at = n;
        if (r == judged || isnan(value))
            continue;
        for (; at > 0 && of[at - 1] > value; at--)
            of[at] = of[at - 1];
        of[at] = value;
        n++;
    }
    if (n > 0)
        middle = of[(n - 1) / 2];
    free(of);
    return middle;
}

static double own_sign(const struct straggler_job *j, const struct judge_finding *f, int sign)
{
    return j->signs[(size_t)f->rank * N_SIGNS + (size_t)sign];
}

static const char *sign_text(const struct straggler_job *j, const struct judge_finding *f, int sign,
                             char room[TEXT_BYTES])
{
    (void)snprintf(room, TEXT_BYTES, sign_words[sign].format,
                   sign_words[sign].per * own_sign(j, f, sign),
                   sign_words[sign].per * others_sign(j, f->rank, sign));
    return room;
}

static double lost_pct(const struct judge_link *l)
{
    return l->sent > 0 ? 100 * l->again / l->sent : 0;
}

/* Say what the slowest of its bad links shows. */
static void say_link(const struct straggler_job *j, const struct judge_finding *f)
{
    char peer[TEXT_BYTES];
    (void)name_of(rank_at(j, f->peer), peer);
    if (f->slow)
        say(j, "  ",
            "sign: a round trip between it and %s (%s) takes %.2f ms, the shortest of five minutes "
            "%.2f (usual in this job: %.2f, %.2f)",
            peer, rank_at(j, f->peer)->host, 1e3 * f->link.now_sec, 1e3 * f->link.shortest_sec,
            1e3 * f->others.now_sec, 1e3 * f->others.shortest_sec);
    if (f->lossy)
        say(j, "  ",
            "sign: %.2f %% of the TCP segments between it and %s (%s) are sent again (usual in "
            "this job: %.2f)",
            lost_pct(&f->link), peer, rank_at(j, f->peer)->host, lost_pct(&f->others));
    if (f->between)
        say(j, "  ", "both ranks reach the others well: it is what lies between these two");
}

static void say_signs(const struct straggler_job *j, const struct judge_finding *f)
{
    char words[TEXT_BYTES];
    if (f->slow || f->lossy)
        say_link(j, f);
    for (int i = 0; i < N_SIGNS; i++)
        if (f->signs & 1u << i)
            say(j, "  ", "sign: %s", sign_text(j, f, i, words));
    if (f->part == PART_OTHER && isnan(own_sign(j, f, SIGN_GC)))
        say(j, "  ", "sign: not known is whether it collects garbage (config python.gc=on)");
    if (f->signs == 0 && !f->slow && !f->lossy)
        say(j, "  ", "%s",
            j->any_sign ? "sign: none of its process and its host stands out"
                        : "sign: not known, as plugin system was not loaded in this time");
}

static void say_when(const struct straggler_job *j, const struct judge_finding *f)
{
    char first[80], last[80];
    (void)step_text(j, f->first, first);
    (void)step_text(j, f->last, last);
    if (f->kind == LATE_LINK || f->kind == LATE_STARVED)
        say(j, "  ", "by its signs from %s to %s UTC; since when they are there is not known",
            time_text(j->signs_from_ns, first), time_text(j->signs_to_ns, last));
    else if (f->kind == LATE_SOMETIMES && f->n_late == 1)
        say(j, "  ", "at %s", first);
    else if (f->kind == LATE_SOMETIMES)
        say(j, "  ", "first at %s, last at %s", first, last);
    else if (f->from_start && f->to_end)
        say(j, "  ", "since before %s, the first that was looked at", first);
    else if (f->to_end)
        say(j, "  ", "since %s", first);
    else
        say(j, "  ", "from %s%s to %s, and no more", f->from_start ? "before " : "", first, last);
    if (f->every > 0) {
        say(j, "  ", "at even distances of %" PRId64 " steps, as what a program does on purpose",
            f->every);
    }
}

/* Give the command to type next. */
static const char *where_to_look(const struct straggler_job *j, const struct judge_finding *f,
                                 char room[TEXT_BYTES])
{
    const char *words =
        f->part == PART_DATA ? "query \"select * from torch.loaders\""
        : f->slow || f->lossy
            ? "query \"select peer_address, rtt_ns, min_rtt_ns, retrans_segs, unacked_segs from "
              "net.connections order by rtt_ns desc\""
        : f->kind == LATE_LINK ? "query \"select * from net.utilization order by ts desc limit 20\""
        : f->kind == LATE_STARVED
            ? "query \"select comm, nice, cpus_allowed, sum(delta_runq_wait_ns) from "
              "cpu.utilization where scope = 'thread' group by 1, 2, 3 order by 4 desc\""
            : "flamegraph --mode wall -s 10 -o slow.html";
    (void)snprintf(room, TEXT_BYTES, "probing -t %s %s", rank_at(j, f->rank)->name, words);
    return room;
}

static void say_finding(const struct straggler_job *j, const struct judge_report *r,
                        const struct judge_finding *f)
{
    char name[TEXT_BYTES], look[TEXT_BYTES];
    const struct straggler_rank *rank = rank_at(j, f->rank);
    double step_sec = f->slow || f->lossy ? r->newest_sec : r->step_sec;
    double share = step_sec > 0 ? 100 * f->late_sec / step_sec : 0;
    (void)name_of(rank, name);
    if (f->kind == LATE_LINK || f->kind == LATE_STARVED)
        say(j, "",
            "%s (%s, -t %s): nobody comes late, but communication takes %.1f ms of a "
            "step (%.0f %%) even for who comes last, and %s",
            name, rank->host, rank->name, 1e3 * f->late_sec, share,
            f->between             ? "one of this rank's connections is bad"
            : f->slow              ? "this rank's connections to the others are slow"
            : f->kind == LATE_LINK ? "the network of this rank loses packets"
                                   : "this rank does not get the processors that the others get");
    else
        say(j, "", "%s (%s, -t %s) is late in %u of %u %s, by %.1f ms (%.0f %% of a step), %s",
            name, rank->host, rank->name, f->n_late, f->n_of,
            f->sampled ? "backwards that torch has measured" : "steps", 1e3 * f->late_sec, share,
            part_words[f->part]);
    say_when(j, f);
    if (f->lost_sec > 0 && r->total_sec > 0)
        say(j, "  ", "all ranks lost %.2f s to it, %.1f %% of their time", f->lost_sec,
            100 * f->lost_sec / r->total_sec);
    say_signs(j, f);
    say(j, "  ", "look: %s", where_to_look(j, f, look));
}

/* ---- the table ---- */

static bool is_found(const struct judge_report *r, uint32_t judged)
{
    for (uint32_t i = 0; i < r->n_found; i++)
        if (r->found[i].rank == judged)
            return true;
    return false;
}

static void show_row(const struct straggler_job *j, uint32_t judged, bool found)
{
    struct straggler_means m = straggler_means_of(j, judged);
    const struct straggler_rank *r = rank_at(j, judged);
    char rank[24];
    (void)snprintf(rank, sizeof(rank), "%" PRId64, r->rank);
    report_printf(j->o->api, " %c%5s  %9.3f  %9.3f  %9.3f  %9.3f  %9.3f  %9.3f  %9.3f  %s\n",
                  found ? '>' : ' ', r->rank != INT64_MIN ? rank : "-", 1e3 * m.whole,
                  1e3 * m.parts[PART_DATA], 1e3 * m.parts[PART_FORWARD],
                  1e3 * m.parts[PART_BACKWARD], 1e3 * m.parts[PART_OPTIMIZER],
                  1e3 * (m.parts[PART_OTHER] + m.parts[PART_EVALUATION]), 1e3 * m.parts[PART_COMM],
                  r->host);
}

static void show_table(const struct straggler_job *j, const struct judge_report *r)
{
    uint32_t shown = 0;
    report_printf(j->o->api, "\n%7s  %9s  %9s  %9s  %9s  %9s  %9s  %9s  %s\n", "rank", "step ms",
                  "data", "forward", "backward", "optimizer", "other", "comm", "host");
    for (uint32_t i = 0; i < j->n_judged; i++)
        if (j->n_judged <= RANKS_SHOWN || is_found(r, i)) {
            show_row(j, i, is_found(r, i));
            shown++;
        }
    for (uint32_t i = 0; i < j->n_judged && shown < RANKS_SHOWN && j->n_judged > RANKS_SHOWN; i++)
        if (!is_found(r, i)) {
            show_row(j, i, false);
            shown++;
        }
    if (shown < j->n_judged)
        report_printf(j->o->api, "  and %u ranks more (--json has all)\n", j->n_judged - shown);
}

/* "2,5": ranks of the job that nothing is known of; gives how many. */
static int64_t missing_of(const struct straggler_job *j, char room[TEXT_BYTES])
{
    int64_t size = 0, n = 0;
    size_t used = 0;
    room[0] = '\0';
    for (uint32_t i = 0; i < j->n_ranks; i++)
        size = j->ranks[i].world_size > size ? j->ranks[i].world_size : size;
    for (int64_t rank = 0; rank < size && size <= 1 << 20; rank++) {
        bool there = false;
        uint32_t from = 0, to = j->n_ranks; /* they are in order */
        while (from < to) {
            uint32_t middle = from + (to - from) / 2;
            if (j->ranks[middle].rank < rank)
                from = middle + 1;
            else
                to = middle;
        }
        there = from < j->n_ranks && j->ranks[from].rank == rank;
        if (there)
            continue;
        if (used + 24 < TEXT_BYTES / 2)
            used += (size_t)snprintf(room + used, TEXT_BYTES - used, "%s%" PRId64, n > 0 ? "," : "",
                                     rank);
        else if (n > 0 && room[used - 1] != '.')
            used += (size_t)snprintf(room + used, TEXT_BYTES - used, " ...");
        n++;
    }
    return n;
}

static void say_left_out(const struct straggler_job *j)
{
    char name[TEXT_BYTES];
    uint32_t n = 0;
    int64_t missing = missing_of(j, name);
    if (missing > 0) {
        say(j, "",
            "of %" PRId64 " ranks nothing is known, and the late one may be among "
            "them: %s",
            missing, name);
    }
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        if (j->ranks[i].judged || n++ >= 4)
            continue;
        say(j, "", "%s is left out: %s", name_of(&j->ranks[i], name), j->ranks[i].why);
    }
    if (n > 4) {
        say(j, "", "and %u more", n - 4);
    }
    for (uint32_t i = 0; i < j->n_judged; i++)
        if (rank_at(j, i)->times > 1)
            say(j, "",
                "%s makes %" PRIu32 " steps while the others make one; so many are compared as "
                "one",
                name_of(rank_at(j, i), name), rank_at(j, i)->times);
}

/* A machine all of whose ranks are late, of several machines. */
static void say_machines(const struct straggler_job *j, const struct judge_report *r)
{
    for (uint32_t i = 0; i < r->n_found; i++) {
        const char *host = rank_at(j, r->found[i].rank)->host;
        uint32_t here = 0, late = 0, before = 0;
        for (uint32_t k = 0; k < j->n_judged; k++)
            here += strcmp(rank_at(j, k)->host, host) == 0;
        for (uint32_t k = 0; k < r->n_found; k++) {
            bool same = strcmp(rank_at(j, r->found[k].rank)->host, host) == 0;
            late += same;
            before += same && k < i;
        }
        if (before == 0 && here > 1 && late == here && here < j->n_judged)
            say(j, "", "all %u ranks of %s are late: it may be the machine", here, host);
    }
}

static void say_stages(const struct straggler_job *j, const struct judge_report *r)
{
    char name[TEXT_BYTES];
    if (!j->stages)
        return;
    say(j, "",
        "ranks send to each other, as stages of a pipeline do, whose work differs: who is late "
        "all of the time is not named, but who becomes so, or is late now and then");
    if (r->n_stages > 0) {
        say(j, "  ", "so are %u, and most of them %s, by %.1f ms: it may have more to do",
            r->n_stages, name_of(rank_at(j, r->stage), name), 1e3 * r->stage_sec);
    }
}

void straggler_show(const struct straggler_job *j, const struct judge_report *r)
{
    const struct probing_report_api *a = j->o->api;
    char text[600], first[80], last[80];
    if (j->n_numbers > 0)
        report_printf(a, "%u ranks, %s to %s\n", j->n_judged, step_text(j, 0, first),
                      step_text(j, j->n_numbers - 1, last));
    if (r->n_passed > r->n_steps)
        report_printf(a,
                      "%u steps were compared, of %.3f ms each; of %" PRId64
                      " older ones only those that took long\n",
                      r->n_steps, 1e3 * r->step_sec, r->n_passed - r->n_steps);
    else if (r->n_steps > 0)
        report_printf(a, "%u steps were compared, of %.3f ms each\n", r->n_steps,
                      1e3 * r->step_sec);
    if (j->cut)
        report_printf(a, "(fewer than were asked for: more would not fit)\n");
    say_left_out(j);
    (void)a->print(a, "\n", 1);
    for (uint32_t i = 0; i < r->n_found; i++)
        say_finding(j, r, &r->found[i]);
    if (r->n_more > 0)
        report_printf(a, "and %u more\n", r->n_more);
    say_machines(j, r);
    say_stages(j, r);
    if (r->outcome != JUDGE_NAMED)
        say(j, "", "%s", straggler_outcome(j, r, text));
    if (straggler_blind(j, r, text)[0] != '\0')
        say(j, "", "%s", text);
    if (j->n_judged > 1)
        show_table(j, r);
}

/* ---- JSON ---- */

static void json_int(struct report_json *o, const char *key, int64_t value)
{
    json_key(o, key);
    if (value == INT64_MIN)
        report_printf(o->api, "null");
    else
        report_printf(o->api, "%" PRId64, value);
}

static void json_rank(struct report_json *o, const struct straggler_job *j,
                      const struct straggler_rank *r)
{
    json_int(o, "rank", r->rank);
    json_text(o, "name", r->name);
    json_text(o, "host", r->host);
    (void)j;
}

static void json_link(struct report_json *o, const struct straggler_job *j,
                      const struct judge_finding *f)
{
    if (!f->slow && !f->lossy)
        return;
    json_key(o, "link");
    json_open(o, '{');
    json_key(o, "peer");
    json_open(o, '{');
    json_rank(o, j, rank_at(j, f->peer));
    json_close(o, '}');
    json_int(o, "slow", f->slow);
    json_int(o, "lossy", f->lossy);
    json_int(o, "only_this_one", f->between);
    json_number(o, "rtt_sec", f->link.now_sec);
    json_number(o, "shortest_rtt_sec", f->link.shortest_sec);
    json_number(o, "lost_pct", lost_pct(&f->link));
    json_number(o, "usual_rtt_sec", f->others.now_sec);
    json_number(o, "usual_shortest_rtt_sec", f->others.shortest_sec);
    json_close(o, '}');
}

static void json_finding(struct report_json *o, const struct straggler_job *j,
                         const struct judge_finding *f)
{
    static const char *const kinds[] = {[LATE_ALWAYS] = "always",
                                        [LATE_SOMETIMES] = "sometimes",
                                        [LATE_LINK] = "link",
                                        [LATE_STARVED] = "starved"};
    char when[40], text[TEXT_BYTES];
    json_item(o);
    json_rank(o, j, rank_at(j, f->rank));
    json_text(o, "kind", kinds[f->kind]);
    json_text(o, "part", part_names[f->part]);
    json_number(o, "late_sec", f->late_sec);
    json_number(o, "lost_sec", f->lost_sec);
    json_int(o, "late_steps", f->n_late);
    json_int(o, "of_steps", f->n_of);
    json_int(o, "first_step", j->numbers[f->first]);
    json_text(o, "first_at", time_as("%Y-%m-%dT%H:%M:%SZ", j->ends_ns[f->first], when));
    json_int(o, "last_step", j->numbers[f->last]);
    json_text(o, "last_at", time_as("%Y-%m-%dT%H:%M:%SZ", j->ends_ns[f->last], when));
    json_int(o, "sampled", f->sampled);
    json_int(o, "from_start", f->kind != LATE_SOMETIMES && f->from_start);
    json_int(o, "to_end", f->kind != LATE_SOMETIMES && f->to_end);
    json_int(o, "every_steps", f->every > 0 ? f->every : INT64_MIN);
    json_link(o, j, f);
    json_key(o, "signs");
    json_open(o, '{');
    for (int i = 0; i < N_SIGNS; i++)
        if (f->signs & 1u << i) {
            json_key(o, sign_words[i].name);
            json_open(o, '{');
            json_number(o, "own", own_sign(j, f, i));
            json_number(o, "others", others_sign(j, f->rank, i));
            json_text(o, "says", sign_text(j, f, i, text));
            json_close(o, '}');
        }
    json_close(o, '}');
    json_text(o, "look", where_to_look(j, f, text));
    json_close(o, '}');
}

static uint32_t judged_place(const struct straggler_job *j, uint32_t rank)
{
    uint32_t i = 0;
    while (i < j->n_judged && j->index[i] != rank)
        i++;
    return i;
}

static void json_means(struct report_json *o, const struct straggler_job *j, uint32_t rank)
{
    uint32_t at = judged_place(j, rank);
    struct straggler_means m = {.n = 0};
    if (at < j->n_judged)
        m = straggler_means_of(j, at);
    json_int(o, "steps", m.n);
    json_int(o, "own_steps_in_one", at < j->n_judged ? j->ranks[rank].times : INT64_MIN);
    json_number(o, "step_sec", m.n > 0 ? m.whole : (double)NAN);
    for (int p = 0; p < N_PARTS; p++) {
        char key[40];
        (void)snprintf(key, sizeof(key), "%s_sec", part_names[p]);
        json_number(o, key, m.n > 0 ? m.parts[p] : (double)NAN);
    }
}

void straggler_show_json(const struct straggler_job *j, const struct judge_report *r)
{
    static const char *const outcomes[] = {[JUDGE_NAMED] = "named",
                                           [JUDGE_SILENT] = "silent",
                                           [JUDGE_FEW_STEPS] = "too few steps",
                                           [JUDGE_ONE_RANK] = "nobody to compare with",
                                           [JUDGE_NO_MEMORY] = "no memory"};
    struct report_json o = {.api = j->o->api};
    char missing[TEXT_BYTES], says[600];
    json_open(&o, '{');
    json_text(&o, "outcome", outcomes[r->outcome]);
    json_text(&o, "says", straggler_outcome(j, r, says));
    json_text(&o, "blind", straggler_blind(j, r, says));
    json_int(&o, "ranks_judged", j->n_judged);
    json_int(&o, "ranks_missing", missing_of(j, missing));
    json_int(&o, "steps", r->n_steps);
    json_int(&o, "steps_passed", r->n_passed);
    json_number(&o, "step_sec", r->n_steps > 0 ? r->step_sec : (double)NAN);
    json_int(&o, "stages", j->stages);
    json_int(&o, "stages_late", r->n_stages);
    json_list(&o, "stragglers");
    for (uint32_t i = 0; i < r->n_found; i++)
        json_finding(&o, j, &r->found[i]);
    json_close(&o, ']');
    json_list(&o, "ranks");
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        json_item(&o);
        json_rank(&o, j, &j->ranks[i]);
        json_means(&o, j, i);
        json_text(&o, "left_out", j->ranks[i].why);
        json_close(&o, '}');
    }
    json_close(&o, ']');
    json_close(&o, '}');
    report_printf(o.api, "\n");
}
