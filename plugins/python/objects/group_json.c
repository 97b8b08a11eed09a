/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/group_json.c - torch.distributed's process groups in a frame's variables,
 * by guarded reads.
 *
 * One thread at a time per struct walk.  A group is an object of C++.  Its name and its ranks stand
 * in two dicts of torch.distributed.distributed_c10d, from torch 1.8 on; the default group is the
 * first one made.
 */
#include <stdio.h>
#include <string.h>

#include "objects/dict_reader.h"
#include "objects/object_json.h"

#define GROUPS 4096u    /* looked at */
#define RANKS 256u      /* of a group; of a larger one they are not told */
#define HEAD_BYTES 32   /* of an int: its type, size and first digit */
#define RANGES_BYTES 96 /* of their text: more are not told */

struct ranges { /* "0-3,8-56/8": with a step, as cron writes them */
    int64_t first, last, step;
    char text[RANGES_BYTES];
    size_t n;
    bool any;
};

static void close_range(struct ranges *r)
{
    const char *comma = r->n ? "," : "";
    long long first = r->first, last = r->last, step = r->step;
    char *to = r->text + r->n;
    size_t room = r->n < sizeof(r->text) ? sizeof(r->text) - r->n : 0;
    int n = last == first ? snprintf(to, room, "%s%lld", comma, first)
            : last == first + step && step > 1
                ? snprintf(to, room, "%s%lld,%lld", comma, first, last)
            : step == 1 ? snprintf(to, room, "%s%lld-%lld", comma, first, last)
                        : snprintf(to, room, "%s%lld-%lld/%lld", comma, first, last, step);
    r->n += (size_t)n;
}

static void add_rank(struct ranges *r, int64_t rank)
{
    bool begins = r->any && r->last == r->first && rank > r->last;
    if (begins)
        r->step = rank - r->first;
    if (r->any && !begins && (r->last == r->first || rank != r->last + r->step)) {
        close_range(r);
        r->any = false;
    }
    if (!r->any) {
        r->first = rank;
        r->step = 1;
    }
    r->last = rank;
    r->any = true;
}

/* An int of one digit as it was read; -1: it is none. */
static int64_t rank_at(const struct walk *w, const uint8_t *head)
{
    uint64_t size = u64_at(head, w->o.ob_head), one = w->o.minor < 12 ? 1 : 1 << 3;
    if (u64_at(head, w->o.ob_type) != address_of(w->py->PyLong_Type))
        return -1;
    if (size == (w->o.minor < 12 ? 0 : 1))
        return 0;
    return size == one ? i32_at(head, w->o.ob_head + 8) : -1;
}

/* Which entry the group has; e->n: none. */
static uint64_t place_of(const struct entries *e, uint64_t group)
{
    uint64_t i = 0;
    while (i < e->n && dicts_key(e, i) != group)
        i++;
    return i;
}

/* The first `n` keys of this dict; false: they are not all ranks. */
static bool read_ranks(const struct walk *w, const struct entries *e, int64_t *ret, size_t n)
{
    uint8_t heads[RANKS][HEAD_BYTES];
    struct iovec pieces[RANKS];
    bool good = n > 0;
    for (size_t i = 0; i < n; i++)
        pieces[i] = peek_piece(dicts_key(e, i), HEAD_BYTES);
    if (peek_pieces(&w->peek, pieces, n, heads[0]) < n * HEAD_BYTES)
        return false;
    for (size_t i = 0; i < n; i++) {
        ret[i] = rank_at(w, heads[i]);
        good = good && ret[i] >= 0;
    }
    return good;
}

/* The keys of this dict, in the order of their ranks in the group, as text; "": not readable, too
 * many, or too long. */
static void ranks_text(const struct walk *w, uint64_t dict, struct ranges *r)
{
    int64_t ranks[RANKS];
    struct entries e;
    if (!dict || !dicts_read(w, dict, RANKS + 1, &e))
        return;
    if (e.n <= RANKS && read_ranks(w, &e, ranks, (size_t)e.n)) {
        for (uint64_t i = 0; i < e.n; i++)
            add_rank(r, ranks[i]);
        close_range(r);
    }
    dicts_done(&e);
    if (r->n >= sizeof(r->text))
        r->text[0] = '\0';
}

bool group_put(const struct walk *w, struct out *o, uint64_t object, const char *type)
{
    const char *dot = strrchr(type, '.');
    struct ranges r = {.n = 0};
    struct entries e;
    if (strncmp(type, "torch.", 6) != 0 || strncmp(dot + 1, "ProcessGroup", 12) != 0)
        return false;
    if (w->group_names && dicts_read(w, w->group_names, GROUPS, &e)) {
        uint64_t at = place_of(&e, object);
        if (at < e.n)
            out_put(o, ",\"name\":");
        if (at < e.n)
            value_put(w, o, dicts_value(w, &e, at), /* depth= */ 1);
        dicts_done(&e);
    }
    if (w->group_ranks && dicts_read(w, w->group_ranks, GROUPS, &e)) {
        uint64_t at = place_of(&e, object);
        if (at < e.n)
            ranks_text(w, dicts_value(w, &e, at), &r);
        out_put(o, at == 0 ? ",\"default\":true" : "");
        dicts_done(&e);
    }
    if (r.text[0]) {
        out_put(o, ",\"ranks\":");
        out_string(o, r.text);
    }
    return true;
}

void group_find(struct walk *w, uint64_t interpreter)
{
    static const char module[] = "torch.distributed.distributed_c10d";
    w->group_names = dicts_global(w, interpreter, module, "_pg_names");
    w->group_ranks = dicts_global(w, interpreter, module, "_pg_group_ranks");
}
