/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_judge_links.c - which machine of a job is behind a slow
 * or lossy cable, by what lies between each two of them: see straggler_judge.h.
 *
 * Pure; one thread.  A link is known at both its ends, so a slow one is a sign of both.  Links that
 * are bad are taken away: who then reaches nobody any more is behind them.
 */
#include <math.h>
#include <stdlib.h>

#include "straggler_frontier.h"

static double lost_of(const struct judge_link *l)
{
    return l->sent > 0 ? l->again / l->sent : 0;
}

/* ---- what is usual ---- */

enum measure { NOW, SHORTEST, LOST, N_MEASURES };

static double measure_link(const struct judge_link *l, enum measure m)
{
    return m == NOW ? l->now_sec : m == SHORTEST ? l->shortest_sec : lost_of(l);
}

/* Give the middle of the nodes' best links: a best one is near, wherever its node stands. */
static double usual_of(const struct judge_job *j, enum measure m, float *best, float *room)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_nodes; i++)
        best[i] = NAN;
    for (uint32_t i = 0; i < j->n_links; i++) {
        const struct judge_link *l = &j->links[i];
        float value = (float)measure_link(l, m);
        best[l->a] = fminf(best[l->a], value); /* a NAN is nothing */
        best[l->b] = fminf(best[l->b], value);
    }
    for (uint32_t i = 0; i < j->n_nodes; i++)
        if (!isnan(best[i]))
            room[n++] = best[i];
    return n > 0 ? (double)middle_of(room, n) : (double)NAN;
}

static uint8_t bad_of(const struct judge_link *l, const struct judge_link *usual)
{
    double slow = fmax(JUDGE_RTT_SEC, JUDGE_RTT_GAP * usual->shortest_sec);
    double slow_now = fmax(JUDGE_RTT_NOW_SEC, JUDGE_RTT_GAP * usual->now_sec);
    double lossy = fmax(JUDGE_LOST_SHARE, JUDGE_RTT_GAP * lost_of(usual));
    uint8_t bad = l->shortest_sec >= slow ? LINK_SLOW : 0;
    bad |= l->now_sec >= slow_now ? LINK_SLOW_NOW : 0;
    bad |= l->again >= JUDGE_LOST_SEGS && lost_of(l) >= lossy ? LINK_LOSSY : 0;
    return bad;
}

/* ---- who reaches whom ---- */

static uint32_t root_of(const uint32_t *groups, uint32_t node)
{
    while (groups[node] != node)
        node = groups[node];
    return node;
}

static void join_groups(struct judge_links *l)
{
    const struct judge_job *j = l->j;
    for (uint32_t i = 0; i < j->n_nodes; i++)
        l->groups[i] = i;
    for (uint32_t i = 0; i < j->n_links; i++) {
        uint32_t a = root_of(l->groups, j->links[i].a), b = root_of(l->groups, j->links[i].b);
        if (l->bad[i] == 0)
            l->groups[a > b ? a : b] = a < b ? a : b;
    }
    for (uint32_t i = 0; i < j->n_nodes; i++)
        l->groups[i] = root_of(l->groups, i);
}

static void count_links(struct judge_links *l, uint8_t *known)
{
    const struct judge_job *j = l->j;
    uint32_t n = 0;
    l->n_known = 0;
    for (uint32_t i = 0; i < j->n_nodes; i++)
        l->sizes[i] = 0;
    for (uint32_t i = 0; i < j->n_links; i++)
        known[j->links[i].a] = known[j->links[i].b] = 1;
    for (uint32_t i = 0; i < j->n_nodes; i++) {
        l->n_known += known[i];
        l->sizes[l->groups[i]] += known[i];
    }
    l->between = UINT32_MAX;
    for (uint32_t i = 0; i < j->n_links; i++)
        if (l->bad[i] != 0 && l->groups[j->links[i].a] == l->groups[j->links[i].b])
            l->between = n++ == 0 ? i : UINT32_MAX;
}

/* Give the best that the other links of one of its ends have, now. */
static double best_beside(const struct judge_job *j, uint32_t link, uint32_t node)
{
    double best = INFINITY;
    for (uint32_t i = 0; i < j->n_links; i++)
        if (i != link && (j->links[i].a == node || j->links[i].b == node))
            best = fmin(best, j->links[i].now_sec);
    return best;
}

/* A narrow cable makes the round trips of its machine longer by as much as goes through, some of
 * them by less than what is told.  So of a link that is slow just now one end may be behind such a
 * cable: the one whose other links are slower than those of the other end, too. */
static void choose_end(struct judge_links *l)
{
    const struct judge_job *j = l->j;
    if (l->between == UINT32_MAX || l->bad[l->between] != LINK_SLOW_NOW)
        return;
    const struct judge_link *at = &j->links[l->between];
    double a = best_beside(j, l->between, at->a), b = best_beside(j, l->between, at->b);
    uint32_t node = a >= JUDGE_RTT_GAP * b ? at->a : at->b;
    if (!isfinite(a) || !isfinite(b) || fmax(a, b) < JUDGE_RTT_GAP * fmin(a, b))
        return;
    for (uint32_t i = 0; i < j->n_links; i++)
        if (j->links[i].a == node || j->links[i].b == node)
            l->bad[i] |= LINK_SLOW_NOW;
}

bool links_make(const struct judge_job *j, unsigned which, struct judge_links *ret)
{
    size_t nodes = j->links != NULL ? j->n_nodes : 0, links = nodes > 0 ? j->n_links : 0;
    *ret = (struct judge_links){.j = j, .between = UINT32_MAX};
    if (links == 0)
        return true;
    float *best = calloc(nodes, sizeof(*best)), *room = calloc(nodes, sizeof(*room));
    uint8_t *known = calloc(nodes, 1);
    ret->bad = calloc(links, 1);
    ret->groups = calloc(nodes, sizeof(*ret->groups));
    ret->sizes = calloc(nodes, sizeof(*ret->sizes));
    bool there = best && room && known && ret->bad && ret->groups && ret->sizes;
    if (there) {
        ret->usual = (struct judge_link){.now_sec = usual_of(j, NOW, best, room),
                                         .shortest_sec = usual_of(j, SHORTEST, best, room),
                                         .again = usual_of(j, LOST, best, room),
                                         .sent = 1};
        for (uint32_t i = 0; i < links; i++)
            ret->bad[i] = bad_of(&j->links[i], &ret->usual) & which;
        join_groups(ret);
        count_links(ret, known);
        choose_end(ret);
        join_groups(ret);
        count_links(ret, known);
    }
    free(best);
    free(room);
    free(known);
    return there;
}

void links_done(struct judge_links *l)
{
    free(l->bad);
    free(l->groups);
    free(l->sizes);
}

bool links_find(const struct judge_job *j, struct judge_links *ret)
{
    bool there = links_make(j, LINK_SLOW | LINK_SLOW_NOW, ret);
    if (!there || links_found(ret))
        return there;
    links_done(ret);
    return links_make(j, LINK_LOSSY, ret);
}

bool links_know(const struct judge_links *l, uint32_t node)
{
    for (uint32_t i = 0; l->n_known > 2 && i < l->j->n_links; i++)
        if (l->j->links[i].a == node || l->j->links[i].b == node)
            return true;
    return false;
}

static bool is_alone(const struct judge_links *l, uint32_t node)
{
    uint32_t most = 0;
    for (uint32_t i = 0; l->sizes != NULL && i < l->j->n_nodes; i++)
        most = l->sizes[i] > most ? l->sizes[i] : most;
    return links_know(l, node) && l->sizes[l->groups[node]] == 1 && most > 1 &&
           2 * most > l->n_known;
}

bool links_found(const struct judge_links *l)
{
    bool found = l->between != UINT32_MAX;
    for (uint32_t i = 0; l->n_known > 0 && !found && i < l->j->n_nodes; i++)
        found = is_alone(l, i);
    return found;
}

/* ---- in a finding ---- */

static uint32_t rank_of(const struct judge_job *j, uint32_t node)
{
    uint32_t r = 0;
    while (r + 1 < j->n_ranks && j->nodes[r] != node)
        r++;
    return r;
}

/* Find the bad link of a node with the longest round trip. */
static uint32_t worst_of(const struct judge_links *l, uint32_t node)
{
    uint32_t worst = UINT32_MAX;
    for (uint32_t i = 0; i < l->j->n_links; i++) {
        const struct judge_link *at = &l->j->links[i];
        if ((at->a != node && at->b != node) || l->bad[i] == 0)
            continue;
        bool longer = worst == UINT32_MAX || at->now_sec > l->j->links[worst].now_sec;
        worst = longer ? i : worst;
    }
    return worst;
}

bool links_tell(const struct judge_links *l, uint32_t rank, struct judge_finding *ret)
{
    const struct judge_job *j = l->j;
    uint32_t node = j->nodes[rank], told = UINT32_MAX, bad = 0;
    bool alone = is_alone(l, node);
    if (alone)
        told = worst_of(l, node);
    else if (l->between != UINT32_MAX && rank_of(j, j->links[l->between].a) == rank)
        told = l->between;
    if (told == UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < j->n_links; i++)
        if (i == told || (alone && (j->links[i].a == node || j->links[i].b == node)))
            bad |= l->bad[i];
    ret->kind = LATE_LINK;
    ret->slow = (bad & (LINK_SLOW | LINK_SLOW_NOW)) != 0;
    ret->lossy = (bad & LINK_LOSSY) != 0;
    ret->sure = (bad & (LINK_SLOW | LINK_LOSSY)) != 0;
    ret->between = !alone;
    ret->link = j->links[told];
    ret->peer = rank_of(j, ret->link.a == node ? ret->link.b : ret->link.a);
    ret->others = l->usual;
    return true;
}
