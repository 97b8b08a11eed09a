/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/trace_window.c - the reckoning of what tracing costs, and of the pauses that
 * pay for it.
 *
 * Threads: as trace_window.h says.
 */
#include "window/trace_window.h"

#include <stdio.h>
#include <string.h>

#include "probing_sdk.h"

#define PART_NS PROBING_NS_PER_S

static double ns_since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) : 0;
}

static double least_of(double a, double b)
{
    return a < b ? a : b;
}

/* Give the most that the calls of that time have cost.  They can have held up the program only
 * while the device ran nothing, or ran what had been launched just before. */
static double calls_cost(double elapsed_ns, const struct window_seen *seen, uint64_t calls)
{
    double all = least_of((double)calls * WINDOW_CALL_NS, elapsed_ns);
    return least_of(all, seen->idle * elapsed_ns + seen->late * all);
}

/* Give the debt at now_ns; less than 0: it has paid more. */
static double debt_at(const struct window *w, uint64_t now_ns)
{
    return w->debt_ns + w->part.cost_ns - w->rule.share * ns_since(now_ns, w->part.since_ns);
}

static void begin_part(struct window *w, uint64_t now_ns)
{
    double debt = debt_at(w, now_ns);
    w->debt_ns = debt > 0 && w->rule.share > 0 ? debt : 0;
    w->paid_ns = now_ns;
    w->before = w->part;
    w->part.since_ns = now_ns;
    w->part.calls = 0;
    w->part.cost_ns = 0;
}

bool window_set(struct window *w, const struct window_rule *rule, uint64_t now_ns)
{
    if (rule->window_ns == w->rule.window_ns && rule->period_ns == w->rule.period_ns &&
        rule->share >= w->rule.share && rule->share <= w->rule.share)
        return false;
    begin_part(w, now_ns);
    w->rule = *rule;
    w->heavy = w->is_long = false;
    w->over = false;
    memset(&w->last, 0, sizeof(w->last));
    return true;
}

void window_open(struct window *w, uint64_t now_ns)
{
    double most = w->rule.share * (double)WINDOW_PAUSE_MOST_NS;
    double debt = w->paid_ns ? w->debt_ns - w->rule.share * ns_since(now_ns, w->paid_ns) : 0;
    w->debt_ns = debt > 0 ? least_of(debt, most) : 0;
    w->over = false;
    w->is_long = w->heavy && w->debt_ns <= w->rule.share * (double)WINDOW_LONG_NS;
    w->begun_ns = w->paid_ns = now_ns;
    memset(&w->before, 0, sizeof(w->before));
    memset(&w->part, 0, sizeof(w->part));
    w->before.since_ns = w->part.since_ns = now_ns;
}

bool window_look(struct window *w, uint64_t now_ns, const struct window_seen *seen)
{
    double open_ns = ns_since(now_ns, w->begun_ns);
    w->part.calls += seen->calls;
    w->part.cost_ns = calls_cost(ns_since(now_ns, w->part.since_ns), seen, w->part.calls);
    double debt = debt_at(w, now_ns);
    bool too_much = w->rule.share > 0 && debt > w->rule.share * (double)WINDOW_LONG_NS;
    bool over = too_much && open_ns >= (double)(w->is_long ? WINDOW_LONG_NS : WINDOW_JUDGED_NS);
    if (w->rule.window_ns)
        return w->over = open_ns >= (double)w->rule.window_ns;
    if (!too_much && open_ns >= (double)WINDOW_LONG_NS) /* it can go on as long as it stays so */
        w->heavy = w->is_long = false;
    if (!w->heavy)
        w->last.period_ns = over ? w->last.period_ns : 0;
    if (!over && ns_since(now_ns, w->part.since_ns) >= (double)PART_NS)
        begin_part(w, now_ns);
    return w->over |= over;
}

void window_rates(const struct window *w, uint64_t now_ns, double *ret_calls, double *ret_share)
{
    double elapsed = ns_since(now_ns, w->before.since_ns);
    *ret_calls = *ret_share = 0;
    if (elapsed > 0) {
        *ret_calls = (double)(w->before.calls + w->part.calls) * PROBING_NS_PER_S / elapsed;
        *ret_share = (w->before.cost_ns + w->part.cost_ns) / elapsed;
    }
}

/* Late where the machine is starved: then one is left out. */
static uint64_t next_of_period(const struct window *w, uint64_t now_ns)
{
    uint64_t next_ns = w->begun_ns + w->rule.period_ns;
    return next_ns > now_ns ? next_ns : now_ns + w->rule.period_ns - w->rule.window_ns;
}

uint64_t window_close(struct window *w, uint64_t now_ns)
{
    double calls, share;
    window_rates(w, now_ns, &calls, &share);
    begin_part(w, now_ns);
    if (!w->over)
        return now_ns;
    if (w->rule.window_ns)
        return next_of_period(w, now_ns);
    w->last.calls = calls;
    w->last.share = share;
    double pause = w->debt_ns / w->rule.share, most = (double)WINDOW_PAUSE_MOST_NS;
    w->heavy = true;
    w->last.late = pause > most;
    w->last.traced_ns = ns_since(now_ns, w->begun_ns);
    w->last.period_ns = w->last.traced_ns + least_of(pause, most);
    return now_ns + (uint64_t)least_of(pause, most);
}

uint64_t window_over_ns(const struct window *w)
{
    return w->rule.window_ns ? w->begun_ns + w->rule.window_ns : UINT64_MAX;
}

/* "82,000": two digits are known, at best. */
static void format_rough(double number, char *ret, size_t size)
{
    uint64_t unit = 1, n = number < 1e15 ? (uint64_t)number : UINT64_C(1000000000000000);
    while (n / unit >= 100)
        unit *= 10;
    n = (n + unit / 2) / unit * unit;
    if (n >= 1000000)
        (void)snprintf(ret, size, "%.2g million", (double)n / 1e6);
    else if (n >= 1000)
        (void)snprintf(ret, size, "%u,%03u", (unsigned)(n / 1000), (unsigned)(n % 1000));
    else
        (void)snprintf(ret, size, "%u", (unsigned)n);
}

void window_words(const struct window *w, char *ret, size_t size)
{
    char calls[32];
    ret[0] = '\0';
    if (w->rule.window_ns) {
        (void)snprintf(ret, size, "it traces for %g s of every %g s (cuda.window)",
                       probing_seconds(w->rule.window_ns), probing_seconds(w->rule.period_ns));
        return;
    }
    if (!(w->rule.share > 0) || !(w->last.period_ns > 0))
        return;
    format_rough(w->last.calls, calls, sizeof(calls));
    (void)snprintf(ret, size,
                   "it traces for %.2g s of every %.2g s: %s calls a second would cost up to %.2g "
                   "%% of the time (cuda.window=%g%%)%s; cuda.window=always traces all the time",
                   w->last.traced_ns / PROBING_NS_PER_S, w->last.period_ns / PROBING_NS_PER_S,
                   calls, 100 * w->last.share, 100 * w->rule.share,
                   w->last.late ? ", and more than that, as a pause is an hour at most" : "");
}
