/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_judge.c - what all ranks say together.
 */
#include "cli/hang/hang_judge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/hang/hang_waits.h"
#include "cli/job/rank_ranges.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/printable.h"
#include "core/base/text.h"

#define RANGES_SHOWN 12
#define STEP_NS INT64_C(1000000) /* a look: less is what wakings take, and no step of a job */
#define WORK_BYTES (1 << 20)     /* less is what a loop that waits may write into a log */
#define CIRCLES_SHOWN 4

struct judging {
    const struct hang_rank *ranks;
    size_t n;
    const char *one, *many;
    struct buf *ret;
    int64_t *some;  /* room for n ranks */
    uint32_t *like; /* [n] the first rank of which the same is to be said */
    struct hang_waits waits;
};

/* Only looks, signals, and a processor that came late to both woke it: whatever state it was seen
 * in, it stood where it stands. */
static bool has_stood(const struct hang_rank *r)
{
    return r->ran_ns != HANG_UNKNOWN && r->looks > 1 && r->ran_ns < (int64_t)r->looks * STEP_NS;
}

/* Once a look the main thread may be woken for other reasons: a signal, a look of somebody else.
 * What a program does once is no step of a loop, and torch before 2 polls in there. */
static bool has_run(const struct hang_rank *r)
{
    static const char *const once[] = {"init_process_group", "new_group", "destroy_process_group"};

    for (size_t i = 0; i < sizeof(once) / sizeof(once[0]) && r->state == HANG_WAITS; i++)
        if (strcmp(r->operation, once[i]) == 0)
            return false;
    return r->woken != HANG_UNKNOWN && r->looks > 0 && r->woken >= (int64_t)r->looks &&
           !has_stood(r);
}

/* It computes, or reads and writes: then it is late, or in a loop, and does not stand still. */
static bool is_at_work(const struct hang_rank *r)
{
    return r->state == HANG_ELSEWHERE &&
           ((r->between_ns > 0 && r->busy_ns >= r->between_ns / 2) || r->bytes >= WORK_BYTES);
}

static bool is_alike(const struct hang_rank *a, const struct hang_rank *b)
{
    if (a->state != b->state || strcmp(a->why, b->why) != 0)
        return false;
    switch (a->state) {
    case HANG_WAITS:
        return strcmp(a->operation, b->operation) == 0 && strcmp(a->place, b->place) == 0 &&
               has_run(a) == has_run(b);
    case HANG_ELSEWHERE:
    case HANG_STOPPED:
        return is_at_work(a) == is_at_work(b) && strcmp(a->place, b->place) == 0 &&
               strcmp(a->doing, b->doing) == 0;
    case HANG_UNSEEN:
    case HANG_GONE:
    case HANG_MOVES:
        return true;
    }
    return false;
}

static void find_alike(struct judging *j)
{
    for (uint32_t i = 0; i < j->n; i++) {
        uint32_t k = 0;
        while (k < i && (j->like[k] != k || !is_alike(&j->ranks[k], &j->ranks[i])))
            k++;
        j->like[i] = k;
    }
}

/* "ranks 0-1,3 (3)" of all that are like the i-th; 0: it has been named with one before it. */
static size_t name_alike(const struct judging *j, size_t i, const char *process)
{
    size_t n = 0;

    for (size_t k = i; k < j->n && j->like[i] == i; k++)
        if (j->like[k] == i)
            j->some[n++] = j->ranks[k].rank;
    if (n == 0)
        return 0;
    (void)buf_addf(j->ret, "%s ", n == 1 ? j->one : j->many);
    rank_ranges(j->some, n, RANGES_SHOWN, j->ret);
    if (n > 1)
        (void)buf_addf(j->ret, " (%zu)", n);
    else if (process != NULL && j->ranks[i].pid != HANG_UNKNOWN && j->ranks[i].pid != j->some[0])
        (void)buf_addf(j->ret, " (%s %lld%s%s)", process, (long long)j->ranks[i].pid,
                       j->ranks[i].host[0] != '\0' ? " on " : "", j->ranks[i].host);
    return n;
}

static void say_text(const struct judging *j, const char *before, const char *text)
{
    (void)buf_adds(j->ret, before);
    (void)printable_add(j->ret, text, strlen(text), PRINTABLE_LINE);
}

/* "; for at least 72 s" of all that are like the i-th, where that is more than nothing. */
static void say_how_long(const struct judging *j, size_t i)
{
    int64_t least = j->ranks[i].still_ns;
    char text[TEXT_AMOUNT_BYTES];

    for (size_t k = i; k < j->n; k++)
        if (j->like[k] == i && j->ranks[k].still_ns < least)
            least = j->ranks[k].still_ns;
    if (least < (int64_t)NS_PER_S)
        return;
    text_ns(least / (int64_t)NS_PER_S * (int64_t)NS_PER_S, text);
    (void)buf_addf(j->ret, "; for at least %s", text);
}

/* Do all that are like the i-th wait in the very same call? */
static bool share_call(const struct judging *j, size_t i)
{
    bool same = true;

    for (size_t k = i; k < j->n && same; k++)
        same = j->like[k] != i || hang_is_same_call(&j->ranks[k], &j->ranks[i]);
    return same;
}

static void say_one(const struct judging *j, size_t i)
{
    const struct hang_rank *r = &j->ranks[i];
    size_t n = name_alike(j, i, r->state == HANG_WAITS ? NULL : "process");
    bool one = n == 1;

    if (n == 0)
        return;
    switch (r->state) {
    case HANG_WAITS:
        say_text(j, one ? " waits in " : " wait in ", share_call(j, i) ? "" : r->operation);
        if (share_call(j, i))
            hang_call_print(r, j->ret);
        say_text(j, ": ", r->place);
        (void)buf_adds(j->ret, has_run(r) ? "; but ran between the looks" : "");
        if (!has_run(r))
            say_how_long(j, i);
        break;
    case HANG_ELSEWHERE:
        say_text(j, one ? " is in no collective: " : " are in no collective: ", r->place);
        say_text(j, " (", r->doing);
        (void)buf_adds(j->ret, is_at_work(r) ? ", at work)" : ")");
        break;
    case HANG_MOVES:
        (void)buf_addf(j->ret, " %s: not in the same operation at each look",
                       one ? "moves" : "move");
        break;
    case HANG_STOPPED:
        say_text(j, one ? " is stopped" : " are stopped", "");
        say_text(j, r->place[0] != '\0' ? ": " : "", r->place);
        break;
    case HANG_GONE:
        (void)buf_addf(j->ret, " %s gone", one ? "is" : "are");
        break;
    case HANG_UNSEEN:
        (void)buf_addf(j->ret, " %s not seen", one ? "was" : "were");
        break;
    }
    say_text(j, r->why[0] == '\0' ? "" : r->state == HANG_GONE ? ": " : "; ", r->why);
    (void)buf_addc(j->ret, '\n');
}

static size_t count_in_state(const struct judging *j, enum hang_state state)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n; i++)
        n += j->ranks[i].state == state;
    return n;
}

/* ---- what follows ---- */

/* Find the first rank in the operation that most wait in; of two as frequent the first. */
static const struct hang_rank *most_wait_in(const struct judging *j)
{
    const struct hang_rank *best = NULL;
    size_t most = 0;

    for (size_t i = 0; i < j->n; i++) {
        size_t n = 0;
        if (i > 0 && strcmp(j->ranks[i - 1].operation, j->ranks[i].operation) == 0 &&
            j->ranks[i - 1].state == HANG_WAITS)
            continue; /* it has been counted with that one */
        for (size_t k = i; k < j->n && j->ranks[i].state == HANG_WAITS; k++)
            n += j->ranks[k].state == HANG_WAITS &&
                 strcmp(j->ranks[k].operation, j->ranks[i].operation) == 0;
        if (n > most) {
            most = n;
            best = &j->ranks[i];
        }
    }
    return best;
}

static void name_awaited(const struct judging *j, const struct hang_verdict *v)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n; i++)
        if (v->awaited[i])
            j->some[n++] = j->ranks[i].rank;
    (void)buf_addf(j->ret, "%s ", n == 1 ? j->one : j->many);
    rank_ranges(j->some, n, RANGES_SHOWN, j->ret);
}

/* How long all of those that wait have done so at least. */
static int64_t least_wait(const struct judging *j)
{
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < j->n; i++)
        if (j->ranks[i].state == HANG_WAITS && j->ranks[i].still_ns < least)
            least = j->ranks[i].still_ns;
    return least == INT64_MAX ? HANG_UNKNOWN : least;
}

static bool places_differ(const struct judging *j, const struct hang_rank *most)
{
    for (size_t i = 0; i < j->n; i++)
        if (j->ranks[i].state == HANG_WAITS && strcmp(j->ranks[i].place, most->place) != 0)
            return true;
    return false;
}

static size_t wait_in(const struct judging *j, const char *operation)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n; i++)
        n += j->ranks[i].state == HANG_WAITS && strcmp(j->ranks[i].operation, operation) == 0;
    return n;
}

/* Stages of a pipeline send and receive while others do something else: their program is right. */
static bool some_talk_to_one(const struct judging *j)
{
    bool talk = wait_in(j, "batch_isend_irecv") > 0;

    for (size_t i = 0; i < j->n && !talk; i++)
        talk = j->ranks[i].state == HANG_WAITS &&
               (hang_has_peer(&j->ranks[i]) || hang_waits_for_transfer(&j->ranks[i]));
    return talk;
}

static bool is_of_ddp(const char *operation)
{
    return strncmp(operation, "c10d::Reducer::", 15) == 0;
}

/* A rank that waits for a call made before, or for a device, is in a native function: its stack
 * does not tell of which collective that was.  DDP's backward is known to wait for an all_reduce,
 * and a rank that waits for a key of the store is in none. */
static bool some_wait_for_earlier(const struct judging *j)
{
    bool reduce = wait_in(j, "all_reduce") > 0;

    for (size_t i = 0; i < j->n; i++) {
        const char *operation = j->ranks[i].operation;
        if (j->ranks[i].state == HANG_WAITS && strstr(operation, "Store::") == NULL &&
            ((is_of_ddp(operation) && reduce) ||
             (!is_of_ddp(operation) && strstr(operation, "::") != NULL) ||
             strstr(operation, "Sync") != NULL))
            return true;
    }
    return false;
}

/* A rank that waits in another operation is named only where the others are more. */
static bool judge_different(const struct judging *j, const struct hang_rank *most,
                            struct hang_verdict *v)
{
    size_t differ = 0, often = wait_in(j, most->operation);
    bool clear = true;

    for (size_t i = 0; i < j->n; i++) {
        const struct hang_rank *r = &j->ranks[i];
        bool other = r->state == HANG_WAITS && strcmp(r->operation, most->operation) != 0;
        differ += other;
        clear = clear && (!other || wait_in(j, r->operation) < often);
        v->awaited[i] = other;
    }
    if (differ == 0)
        return false;
    (void)buf_adds(j->ret, "They wait in different operations: ");
    if (some_talk_to_one(j)) {
        (void)buf_adds(j->ret, "some send to one rank or receive from it, and which one its stack "
                               "does not tell. Look at what those ranks do.\n");
        clear = false;
    } else if (some_wait_for_earlier(j)) {
        (void)buf_adds(j->ret, "some wait for a call that they made before, or for a device, and "
                               "their stacks do not tell which collective that is.\n");
        clear = false;
    } else {
        (void)buf_adds(j->ret, "the ranks do not run the same program, or not in the same order.");
        (void)buf_adds(j->ret, clear ? " Different from most: " : "\n");
    }
    if (!clear) {
        memset(v->awaited, 0, j->n * sizeof(*v->awaited));
        return true;
    }
    v->n_awaited = differ;
    name_awaited(j, v);
    (void)buf_adds(j->ret, ".\n");
    return true;
}

/* All that were seen wait: for each other, in different calls, or for what is not seen. */
static void judge_waiters(const struct judging *j, struct hang_verdict *v)
{
    const struct hang_rank *most = most_wait_in(j);

    if (judge_different(j, most, v))
        return;
    if (some_talk_to_one(j))
        (void)buf_adds(j->ret, "They send to one rank or receive from it, and their stacks do not "
                               "tell which one. Where plugin torch is, `probing -t PID torch` "
                               "tells it of what began after the plugin had come.\n");
    else if (places_differ(j, most))
        (void)buf_adds(j->ret, "They wait in the same operation, called from different places: two "
                               "halves of one call, or calls that do not belong together.\n");
    else
        (void)buf_addf(j->ret, "All%s wait in the same call: what is missing is %s.\n",
                       v->all && count_in_state(j, HANG_UNSEEN) == 0 ? "" : " that were seen",
                       v->all && count_in_state(j, HANG_UNSEEN) == 0
                           ? "the network, or a device"
                           : "a rank that was not seen, the network, or a device");
}

/* ---- by their calls ---- */

static void say_circles(const struct judging *j)
{
    uint32_t n = j->waits.n_circles;

    for (uint32_t said = 0; said < n && said < CIRCLES_SHOWN; said++) {
        uint32_t first = 0;
        while (j->waits.circle[first] != said + 1)
            first++;
        (void)buf_adds(j->ret, "They wait for each other in a circle: ");
        hang_chain_print(&j->waits, first, j->one, j->ret);
    }
    if (n > CIRCLES_SHOWN)
        (void)buf_addf(j->ret, "There are %u more circles.\n", n - CIRCLES_SHOWN);
}

/* "ranks 0-1 wait for " of those that wait, in the end, for one that is away, or "The others ..."
 * where all of them do; behind it, later, the longest row of those. */
static uint32_t name_waiters(const struct judging *j)
{
    const struct hang_waits *w = &j->waits;
    uint32_t longest = 1, from = HANG_NOBODY, steps;
    bool others = false;
    size_t n = 0;

    for (uint32_t i = 0; i < j->n; i++) {
        uint32_t end = hang_waits_end(w, i, &steps);
        bool waits = steps > 0 && end != HANG_NOBODY && hang_is_away(&j->ranks[end]);
        others = others || (!waits && !w->awaited[i] && j->ranks[i].state != HANG_UNSEEN);
        if (waits)
            j->some[n++] = j->ranks[i].rank;
        if (waits && steps > longest) {
            longest = steps;
            from = i;
        }
    }
    if (others) {
        (void)buf_addf(j->ret, "%s ", n == 1 ? j->one : j->many);
        rank_ranges(j->some, n, RANGES_SHOWN, j->ret);
    }
    (void)buf_adds(j->ret, !others  ? "The others wait for "
                           : n == 1 ? " waits for "
                                    : " wait for ");
    return from;
}

/* Name the ranks that wait in calls to which all have come. */
static void say_network(const struct judging *j, const struct hang_verdict *v)
{
    bool all = v->all && count_in_state(j, HANG_UNSEEN) == 0;
    size_t n = 0;

    for (uint32_t i = 0; i < j->n; i++)
        if (j->waits.waiting[i] && j->waits.circle[i] == 0 && j->waits.next[i] == HANG_NOBODY)
            j->some[n++] = j->ranks[i].rank;
    if (n == 0)
        return;
    (void)buf_addf(j->ret, "%s ", n == 1 ? j->one : j->many);
    rank_ranges(j->some, n, RANGES_SHOWN, j->ret);
    (void)buf_addf(j->ret,
                   " wait%s, as far as calls tell, for nobody%s: what is missing is %sthe network, "
                   "or a device.\n",
                   n == 1 ? "s" : "", all ? "" : " that was seen",
                   all ? "" : "a rank that was not seen, ");
}

static bool wait_in_one_call(const struct judging *j)
{
    const struct hang_rank *first = most_wait_in(j);

    for (size_t i = 0; i < j->n; i++)
        if (j->waits.waiting[i] && (strcmp(j->ranks[i].operation, first->operation) != 0 ||
                                    !hang_is_same_group(&j->ranks[i].call, &first->call)))
            return false;
    return !hang_has_peer(first);
}

static void judge_all_wait(const struct judging *j, struct hang_verdict *v)
{
    if (!j->waits.tell || (v->n_circles == 0 && wait_in_one_call(j)))
        judge_waiters(j, v);
    else
        say_network(j, v);
}

static void judge_hang(const struct judging *j, struct hang_verdict *v)
{
    size_t at_work = 0;

    for (size_t i = 0; i < j->n; i++) {
        v->awaited[i] = j->waits.awaited[i];
        v->n_awaited += v->awaited[i];
        at_work += v->awaited[i] && is_at_work(&j->ranks[i]);
    }
    v->hangs = at_work > 0 && at_work == v->n_awaited ? HANG_NOT_KNOWN : HANG_YES;
    v->waited_ns = least_wait(j);
    v->may_be_slow =
        v->hangs == HANG_YES && count_in_state(j, HANG_STOPPED) + count_in_state(j, HANG_GONE) == 0;
    v->all_wait = v->n_awaited == 0;
    say_circles(j);
    if (v->all_wait) {
        judge_all_wait(j, v);
        return;
    }
    uint32_t longest = name_waiters(j);
    name_awaited(j, v);
    (void)buf_adds(j->ret, ".\n");
    if (longest != HANG_NOBODY)
        hang_chain_print(&j->waits, longest, j->one, j->ret);
    if (v->hangs == HANG_NOT_KNOWN)
        (void)buf_addf(j->ret,
                       "%s at work: late, or in a loop that does not end. A longer look "
                       "tells more (--interval 10s).\n",
                       v->n_awaited == 1 ? "It is" : "They are");
}

static void judge_moving(const struct judging *j, size_t still, struct hang_verdict *v)
{
    v->hangs = still == 0 ? HANG_NO : HANG_NOT_KNOWN;
    (void)buf_adds(j->ret, still == 0
                               ? "Nothing hangs: the ranks get on between the looks.\n"
                               : "Some get on and others did not between the looks: a longer "
                                 "look tells more (--interval 10s).\n");
    if (v->n_circles > 0)
        v->hangs = HANG_YES;
    say_circles(j);
}

static void judge_idle(const struct judging *j, struct hang_verdict *v)
{
    size_t stopped = count_in_state(j, HANG_STOPPED), gone = count_in_state(j, HANG_GONE),
           running = 0;

    for (size_t i = 0; i < j->n; i++)
        running += has_run(&j->ranks[i]) ||
                   (strncmp(j->ranks[i].doing, "running", 7) == 0 && !has_stood(&j->ranks[i]));
    v->hangs = stopped + gone > 0 || running == 0 ? HANG_NOT_KNOWN : HANG_NO;
    (void)buf_addf(j->ret, "Nobody waits in a collective%s.\n",
                   gone > 0       ? ", and not all ranks are there"
                   : stopped > 0  ? ", and not all ranks may run"
                   : running == 0 ? ", and nobody ran between the looks"
                                  : "");
}

/* Find the ranks that wait.  moving: others get on, so that one that polls does not wait. */
static void find_waits(struct judging *j, bool moving, struct hang_verdict *v)
{
    struct hang_waits *w = &j->waits;

    w->ranks = j->ranks;
    w->n = j->n;
    w->circle = v->circle;
    for (size_t i = 0; i < j->n; i++)
        w->waiting[i] = j->ranks[i].state == HANG_WAITS && !(moving && has_run(&j->ranks[i]));
    hang_waits_find(w);
    v->n_circles = w->n_circles;
}

static void judge_seen(struct judging *j, struct hang_verdict *v)
{
    size_t waiting = 0, running = 0;

    for (size_t i = 0; i < j->n; i++) {
        running += j->ranks[i].state == HANG_WAITS && has_run(&j->ranks[i]);
        waiting += j->ranks[i].state == HANG_WAITS && !has_run(&j->ranks[i]);
    }
    /* Without one that is known to be away nobody gets on: those that wait only poll. */
    if (count_in_state(j, HANG_GONE) + count_in_state(j, HANG_STOPPED) > 0) {
        waiting += running;
        running = 0;
    }
    running += count_in_state(j, HANG_MOVES);
    find_waits(j, running > 0, v);
    if (count_in_state(j, HANG_UNSEEN) == j->n)
        (void)buf_adds(j->ret, j->n > 0 ? "Nothing is known of any of them.\n" : "");
    else if (running > 0)
        judge_moving(j, waiting, v);
    else if (waiting > 0)
        judge_hang(j, v);
    else
        judge_idle(j, v);
    if (v->hangs != HANG_NO && waiting > 0 && count_in_state(j, HANG_UNSEEN) > 0)
        (void)buf_adds(j->ret, "Those that were not seen may be what the others wait for, too.\n");
}

int hang_judge(const struct hang_rank *ranks, size_t n, const char *one, const char *many,
               struct hang_verdict *v, struct buf *ret)
{
    static const enum hang_state order[] = {HANG_WAITS,     HANG_GONE,  HANG_STOPPED,
                                            HANG_ELSEWHERE, HANG_MOVES, HANG_UNSEEN};
    struct judging j = {.ranks = ranks,
                        .n = n,
                        .one = one,
                        .many = many,
                        .ret = ret,
                        .some = calloc(n + 1, sizeof(int64_t)),
                        .waits = {.waiting = calloc(2 * n + 1, sizeof(bool)),
                                  .next = calloc(3 * n + 1, sizeof(uint32_t))}};
    int rc = j.some != NULL && j.waits.waiting != NULL && j.waits.next != NULL
                 ? 0
                 : err_set(-ENOMEM, "no memory for %zu ranks", n);

    v->hangs = HANG_NOT_KNOWN;
    v->n_awaited = v->n_circles = 0;
    v->waited_ns = HANG_UNKNOWN;
    v->may_be_slow = v->all_wait = false;
    memset(v->awaited, 0, n * sizeof(*v->awaited));
    if (rc == 0) {
        j.like = j.waits.next + 2 * n;
        find_alike(&j);
    }
    for (size_t s = 0; rc == 0 && s < sizeof(order) / sizeof(order[0]); s++)
        for (size_t i = 0; i < n; i++)
            if (ranks[i].state == order[s])
                say_one(&j, i);
    if (rc == 0) {
        j.waits.awaited = j.waits.waiting + n;
        j.waits.path = j.waits.next + n;
        judge_seen(&j, v);
    }
    free(j.some);
    free(j.waits.waiting);
    free(j.waits.next);
    return rc;
}
