/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/leak_judge.c - what tells a leak from growth of other kinds.
 */
#include "leak_judge.h"

#include <math.h>

#define FEWEST_NET 6 /* of a stack: samples that came more than went */
#define LARGER 6u    /* times that a block was replaced by a larger one: by chance 1 in 720 */
#define LARGER_IN_TIME 2u

static double grown_between(const struct leak_judge *j, const struct leak_growth *g, uint32_t from,
                            uint32_t to)
{
    return g->level[j->past + to] - g->level[j->past + from];
}

double leak_growth_bytes(const struct leak_judge *j, const struct leak_growth *g)
{
    return grown_between(j, g, 0, LEAK_PERIODS);
}

/* A normally distributed value is further from 0 than sqrt(2 ln(1 / 2p)) errors with a probability
 * of less than p.  p: one in a hundred, shared by all questions.  (Of n samples of one weight that
 * came and never went the square is n variances; that all of n came though as many should have gone
 * has the probability 2^-n, which is less.) */
double leak_surely(uint32_t questions)
{
    double bits = 0;
    for (uint64_t n = 1; n < (uint64_t)questions * 50; n *= 2)
        bits++;
    return 2 * 0.6931472 * (bits > 5.7 ? bits : 5.7);
}

/* Is the level beyond all before?  The next tooth of a saw and another epoch are not. */
static bool exceeds_past(const struct leak_judge *j, const struct leak_growth *g, double grown)
{
    double highest = -INFINITY;
    for (uint32_t i = 0; i < j->past; i++)
        highest = g->level[i] > highest ? g->level[i] : highest;
    return g->level[j->past + LEAK_PERIODS] - highest > grown / 2;
}

/* Is there still what came early, beyond what it replaced?  A tooth of a saw that is shorter than
 * the time, an epoch, and a cache that drops the oldest do not stay. */
static bool has_stayed(const struct leak_growth *g, double grown, bool is_group)
{
    double early = -g->gone;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < LEAK_QUARTERS; i++) {
        early += i < LEAK_QUARTERS / 2 ? g->kept[i] : 0;
        kept += g->kept[i] > 0;
    }
    return early > grown / (is_group ? 3 : 4) && kept + !is_group >= LEAK_QUARTERS;
}

/* It grows all the time, and in the newer half not much less than in the older: a cache that has
 * been filled and stays is none.  Several stacks together have to be more alike in time: many
 * things that happen once each seem to go on. */
static bool goes_on(const struct leak_judge *j, const struct leak_growth *g, bool is_group)
{
    double older = grown_between(j, g, 0, LEAK_PERIODS / 2);
    double newer = grown_between(j, g, LEAK_PERIODS / 2, LEAK_PERIODS);
    uint32_t growing = 0;
    for (uint32_t i = 0; i < LEAK_PERIODS; i += LEAK_PERIODS / LEAK_QUARTERS)
        growing += grown_between(j, g, i, i + LEAK_PERIODS / LEAK_QUARTERS) > 0;
    return older > 0 && newer > older / (is_group ? 2 : 4) &&
           newer * newer > (is_group ? 4 : 1) * g->newer_variance &&
           growing + !is_group >= LEAK_QUARTERS;
}

/* Is it the largest block that has grown, and not their number?  `old` is what it had before the
 * time, 0 if it came in it; all blocks that it replaced had `gone`. */
static bool is_of_size(const struct leak_growth *g, double grown, double old, double gain)
{
    return 2 * gain >= grown || (g->gone > 0 && 2 * gain * g->gone >= grown * old);
}

/* Blocks take each other's place, each larger than the one before, and one is always there.  Blocks
 * of any size that come and go have no such order, and a server whose load rises has more of them,
 * not larger ones. */
static bool is_replaced_by_larger(const struct leak_judge *j, const struct leak_growth *g,
                                  double grown)
{
    uint32_t n = 0, in_time = 0, in_newer = 0;
    double newest = 0, after = INFINITY, old = 0;
    for (uint32_t i = j->past + LEAK_PERIODS; i > 0; i--) {
        double size = g->largest[i];
        if (size >= after)
            break;
        if (size <= 0)
            continue;
        newest = n++ ? newest : size;
        old = i <= j->past && old == 0 ? size : old;
        after = size;
        in_time += i > j->past;
        in_newer += i > j->past + LEAK_PERIODS / 2;
    }
    for (uint32_t i = LEAK_PERIODS / 2; i <= LEAK_PERIODS; i++)
        if (grown_between(j, g, 0, i) <= 0)
            return false;
    return n >= LARGER && in_time >= LARGER_IN_TIME && in_newer > 0 && 2 * g->net <= g->came &&
           is_of_size(g, grown, old, newest - old);
}

enum leak_verdict leak_judge(const struct leak_judge *j, const struct leak_growth *g, bool is_group)
{
    double grown = leak_growth_bytes(j, g);
    if (!(grown > LEAK_LEAST))
        return LEAK_SMALL;
    if (!(grown * grown > j->surely * g->variance))
        return LEAK_BY_CHANCE;
    if (!exceeds_past(j, g, grown))
        return LEAK_AS_BEFORE;
    if (is_replaced_by_larger(j, g, grown))
        return LEAK_FOUND;
    if (g->net < (is_group ? 2 * FEWEST_NET : FEWEST_NET))
        return LEAK_FEW;
    if (!goes_on(j, g, is_group))
        return LEAK_PAUSES;
    return has_stayed(g, grown, is_group) ? LEAK_FOUND : LEAK_FREED;
}
