/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_waits.c - see hang_waits.h.
 *
 * One thread.  Each rank is given one other that it waits for: the first that is away, else the
 * first that waits itself.  Following them leads to a rank that is away, into a circle, or to one
 * whose call all have come to, as far as is known.
 */
#include "cli/hang/hang_waits.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/printable.h"

#define CHAIN_SHOWN 16              /* ranks of a row in which each waits for the next one */
#define RANGES_MAX (HANG_RANKS / 2) /* a text has no more */

static bool is_one_of(const char *operation, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(operation, *names) == 0)
            return true;
    return false;
}

static bool is_send(const struct hang_rank *r)
{
    static const char *const names[] = {"send", "isend", NULL};

    return is_one_of(r->operation, names);
}

static bool is_receive(const struct hang_rank *r)
{
    static const char *const names[] = {"recv", "irecv", NULL};

    return is_one_of(r->operation, names);
}

bool hang_has_peer(const struct hang_rank *r)
{
    return is_send(r) || is_receive(r);
}

bool hang_is_same_group(const struct hang_call *a, const struct hang_call *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->ranks, b->ranks) == 0;
}

bool hang_is_same_call(const struct hang_rank *a, const struct hang_rank *b)
{
    return a->call.known == b->call.known && hang_is_same_group(&a->call, &b->call) &&
           a->call.peer == b->call.peer && a->call.tag == b->call.tag &&
           strcmp(a->operation, b->operation) == 0;
}

bool hang_is_away(const struct hang_rank *r)
{
    return r->state == HANG_ELSEWHERE || r->state == HANG_STOPPED || r->state == HANG_GONE;
}

bool hang_range_next(const char **text, struct hang_range *ret)
{
    const char *at = *text;
    char *end;

    if (*at == '\0')
        return false;
    ret->first = ret->last = strtoll(at, &end, 10);
    ret->step = 1;
    if (*end == '-')
        ret->last = strtoll(end + 1, &end, 10);
    if (*end == '/')
        ret->step = strtoll(end + 1, &end, 10);
    *text = *end == ',' ? end + 1 : "";
    return end > at && ret->first >= 0 && ret->first <= ret->last && ret->last <= INT32_MAX &&
           ret->step > 0;
}

bool hang_waits_for_transfer(const struct hang_rank *r)
{
    return strstr(r->operation, "RecvWork::") != NULL || strstr(r->operation, "SendWork::") != NULL;
}

/* The ranks that an operation needs. */
struct needed {
    struct hang_range list[RANGES_MAX];
    size_t n;
};

/* If the call is not known it needs all, but for a transfer only one, and which one is clear if
 * there are but two. */
static void find_needed(const struct hang_waits *w, const struct hang_rank *r, struct needed *ret)
{
    const struct hang_call *c = &r->call;
    const char *text = c->ranks;

    ret->n = 0;
    if (!c->known && hang_waits_for_transfer(r) && w->n != 2)
        return;
    if (c->known && hang_has_peer(r))
        ret->list[ret->n++] = (struct hang_range){c->peer, c->peer, 1};
    else if (!c->known || *text == '\0')
        ret->list[ret->n++] = (struct hang_range){0, INT64_MAX, 1};
    else
        while (ret->n < RANGES_MAX && hang_range_next(&text, &ret->list[ret->n]))
            ret->n++;
}

static bool is_needed(const struct needed *by, int64_t rank)
{
    bool in = false;

    for (size_t i = 0; i < by->n && !in; i++) {
        const struct hang_range *r = &by->list[i];
        in = rank >= r->first && rank <= r->last && (rank - r->first) % r->step == 0;
    }
    return in;
}

/* Two halves of one transfer but for their tags, or one collective. */
static bool calls_fit(const struct hang_rank *a, const struct hang_rank *b)
{
    if (!hang_is_same_group(&a->call, &b->call))
        return false;
    if (hang_has_peer(a))
        return (is_send(a) ? is_receive(b) : is_send(b)) && a->call.peer == b->rank &&
               b->call.peer == a->rank;
    return strcmp(a->operation, b->operation) == 0 && a->call.peer == b->call.peer;
}

static void link_rank(struct hang_waits *w, size_t i)
{
    const struct hang_rank *r = &w->ranks[i];
    uint32_t away = HANG_NOBODY, waiting = HANG_NOBODY;
    struct needed needed;

    /* Ranks in one call need the same ones; in a job of thousands they mostly come in a row. */
    if (i > 0 && w->waiting[i - 1] && !hang_has_peer(r) && hang_is_same_call(r, &w->ranks[i - 1])) {
        w->next[i] = w->next[i - 1];
        return;
    }
    find_needed(w, r, &needed);
    for (size_t k = 0; k < w->n; k++) {
        const struct hang_rank *other = &w->ranks[k];
        if (k == i || !is_needed(&needed, other->rank))
            continue;
        if (hang_is_away(other)) {
            w->awaited[k] = true;
            away = away == HANG_NOBODY ? (uint32_t)k : away;
        } else if (w->tell && waiting == HANG_NOBODY && w->waiting[k] && r->call.known &&
                   other->call.known && (!calls_fit(r, other) || r->call.tag != other->call.tag)) {
            waiting = (uint32_t)k;
        }
    }
    w->next[i] = away != HANG_NOBODY ? away : waiting;
}

/* Followed until one that waits for nobody, or one that has been followed. */
static void find_circle(struct hang_waits *w, uint32_t from)
{
    uint32_t at = from;

    while (at != HANG_NOBODY && w->path[at] == 0) {
        w->path[at] = from + 1;
        at = w->next[at];
    }
    if (at == HANG_NOBODY || w->path[at] != from + 1)
        return;
    w->n_circles++;
    for (; w->circle[at] == 0; at = w->next[at])
        w->circle[at] = w->n_circles;
}

void hang_waits_find(struct hang_waits *w)
{
    w->n_circles = 0;
    w->tell = false;
    for (size_t i = 0; i < w->n; i++) {
        const struct hang_call *c = &w->ranks[i].call;
        w->tell = w->tell ||
                  (w->waiting[i] && c->known && (c->ranks[0] != '\0' || c->peer != HANG_UNKNOWN));
        w->awaited[i] = false;
        w->next[i] = HANG_NOBODY;
        w->path[i] = w->circle[i] = 0;
    }
    for (size_t i = 0; i < w->n; i++)
        if (w->waiting[i])
            link_rank(w, i);
    for (size_t i = 0; i < w->n; i++)
        find_circle(w, (uint32_t)i);
}

uint32_t hang_waits_end(const struct hang_waits *w, uint32_t from, uint32_t *ret_steps)
{
    uint32_t at = from;

    *ret_steps = 0;
    for (; w->circle[at] == 0 && w->next[at] != HANG_NOBODY; at = w->next[at])
        ++*ret_steps;
    return w->circle[at] != 0 ? HANG_NOBODY : at;
}

/* ---- in words ---- */

static void add_text(struct buf *b, const char *text)
{
    (void)printable_add(b, text, strlen(text), PRINTABLE_LINE);
}

void hang_call_print(const struct hang_rank *r, struct buf *ret)
{
    static const char *const to_one[] = {"send", "isend", "reduce", "gather", NULL};
    const struct hang_call *c = &r->call;

    add_text(ret, r->operation);
    if (!c->known)
        return;
    if (c->peer != HANG_UNKNOWN) {
        (void)buf_addf(ret, "(%s=%lld", is_one_of(r->operation, to_one) ? "dst" : "src",
                       (long long)c->peer);
        if (c->tag != HANG_UNKNOWN)
            (void)buf_addf(ret, ", tag=%lld", (long long)c->tag);
        (void)buf_addc(ret, ')');
    }
    if (c->ranks[0] != '\0') {
        (void)buf_adds(ret, " of group ");
        add_text(ret, c->group);
        (void)buf_adds(ret, " (ranks ");
        add_text(ret, c->ranks);
        (void)buf_addc(ret, ')');
    }
}

void hang_chain_print(const struct hang_waits *w, uint32_t from, const char *one, struct buf *ret)
{
    uint32_t at = from, n = 0;

    (void)buf_addf(ret, "%s %lld", one, (long long)w->ranks[from].rank);
    do {
        const struct hang_rank *r = &w->ranks[at], *to = &w->ranks[w->next[at]];
        if (n < CHAIN_SHOWN) {
            (void)buf_adds(ret, n > 0 ? ", which waits in " : " waits in ");
            hang_call_print(r, ret);
            (void)buf_addf(ret, " for %s %lld", one, (long long)to->rank);
            (void)buf_adds(ret,
                           w->waiting[w->next[at]] && calls_fit(r, to) ? " (the tags differ)" : "");
        }
        n++;
        at = w->next[at];
    } while (at != from && w->next[at] != HANG_NOBODY);
    if (n > CHAIN_SHOWN)
        (void)buf_addf(ret, ", and so on: %u more", n - CHAIN_SHOWN);
    (void)buf_adds(ret, ".\n");
}
