/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/alarm.c - when the events of memory happen.
 *
 * One thread at a time.
 */
#include "alarm.h"

#include <stddef.h>

#define REST_PCT 5u          /* so far below its mark an event is over */
#define CLOSE_PCT 70u        /* of the limit: from here on speed counts, and looks are more often */
#define AHEAD_SEC 3.0        /* the limit is near when it would be reached in this time */
#define STALLED_PCT 30.0     /* of ten seconds nothing ran for want of memory ... */
#define STALLED_NEAR_PCT 85u /* ... so far up: the kernel is looking for pages */
#define NS_PER_SEC 1e9

static bool is_above(const struct alarm_look *l, uint32_t pct)
{
    return l->limit != UINT64_MAX && l->used >= l->limit / 100 * pct;
}

static void measure_speed(struct alarm *a, const struct alarm_look *l)
{
    double sec = (double)(l->now_ns - a->last_ns) / NS_PER_SEC;
    if (a->last_ns && sec > 0.01)
        a->speed = ((double)l->used - (double)a->last_used) / sec;
    a->last_ns = l->now_ns;
    a->last_used = l->used;
}

bool alarm_is_close(const struct alarm *a, const struct alarm_look *l)
{
    if (l->limit == UINT64_MAX)
        return false;
    double left = l->limit > l->used ? (double)(l->limit - l->used) : 0;
    return is_above(l, CLOSE_PCT) || (a->speed > 0 && left < 4 * AHEAD_SEC * a->speed);
}

static bool is_near(const struct alarm *a, const struct alarm_settings *s,
                    const struct alarm_look *l)
{
    if (l->limit == UINT64_MAX)
        return false;
    double left = l->limit > l->used ? (double)(l->limit - l->used) : 0;
    return is_above(l, s->near_pct) || (is_above(l, CLOSE_PCT) && left < AHEAD_SEC * a->speed) ||
           (is_above(l, STALLED_NEAR_PCT) && l->full_avg10 >= STALLED_PCT);
}

/* Told once: until it is below the mark, and some more. */
static bool turns_on(bool *told, bool now, bool over)
{
    bool is_new = now && !*told;
    *told = now || (*told && !over);
    return is_new;
}

static uint32_t rearm_percent(uint32_t pct)
{
    return pct > REST_PCT ? pct - REST_PCT : 0;
}

/* The least of each 64th of the time is kept.  What was told is the base from then on: the next
 * event is of as much again. */
static bool has_grown(struct alarm *a, const struct alarm_settings *s, const struct alarm_look *l,
                      uint64_t *ret_grown)
{
    uint64_t step = s->growth_within_ns / ALARM_LOOKS + 1, least = l->kept;
    if (a->at[a->slot] == 0 || l->now_ns - a->at[a->slot] >= step) {
        a->slot = a->at[a->slot] ? (a->slot + 1) % ALARM_LOOKS : a->slot;
        a->at[a->slot] = l->now_ns;
        a->least[a->slot] = l->kept;
    }
    if (l->kept < a->least[a->slot])
        a->least[a->slot] = l->kept;
    for (uint32_t i = 0; i < ALARM_LOOKS; i++)
        if (a->at[i] && l->now_ns - a->at[i] <= s->growth_within_ns && a->least[i] < least)
            least = a->least[i];
    if (s->growth == 0 || l->kept - least < s->growth)
        return false;
    *ret_grown = l->kept - least;
    for (uint32_t i = 0; i < ALARM_LOOKS; i++)
        a->at[i] = 0;
    return true;
}

uint32_t alarm_look(struct alarm *a, const struct alarm_settings *s, const struct alarm_look *l,
                    uint64_t *ret_grown)
{
    uint32_t events = 0;
    measure_speed(a, l);
    if (s->high_pct &&
        turns_on(&a->high, is_above(l, s->high_pct), !is_above(l, rearm_percent(s->high_pct))))
        events |= ALARM_HIGH;
    if (s->near_pct && turns_on(&a->near, is_near(a, s, l),
                                !is_above(l, rearm_percent(s->near_pct)) && a->speed <= 0))
        events |= ALARM_OOM_NEAR;
    if (has_grown(a, s, l, ret_grown))
        events |= ALARM_GROWTH;
    return events;
}
