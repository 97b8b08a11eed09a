/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/regexp.c - a compiled pattern run over a text, with all its threads side by side.
 *
 * Thompson's way with Pike's registers: each letter of the text is looked at once by every thread
 * that is alive, and there are at most as many as the program has steps.  Threads stand in the
 * order in which the pattern prefers them.
 * Any thread, a struct each.
 */
#include "core/sql/value/regexp_steps.h"

#include <string.h>

#define CHECK_WORK 100000 /* threads advanced between looks at the limits: a few ms */

uint32_t regexp_groups(const struct regexp *r)
{
    return r->n_groups;
}

struct position { /* between two letters */
    uint32_t at, size;
    uint32_t before, after; /* the letters; UINT32_MAX: none */
};

static bool holds_at(const struct regexp *r, enum step_op op, const struct position *p)
{
    bool lines = r->flags & REGEXP_LINES;
    if (op == OP_BEGIN || op == OP_TEXT_BEGIN)
        return p->at == 0 || (lines && op == OP_BEGIN && p->before == '\n');
    if (op == OP_END || op == OP_TEXT_END)
        return p->at == p->size || (lines && op == OP_END && p->after == '\n');
    bool before = p->before != UINT32_MAX && is_word_letter(p->before);
    bool after = p->after != UINT32_MAX && is_word_letter(p->after);
    if (op == OP_WORD_BEGIN || op == OP_WORD_END)
        return before != after && after == (op == OP_WORD_BEGIN);
    return (before != after) == (op == OP_WORD_EDGE);
}

static bool is_in(const struct threads *l, uint32_t pc)
{
    return l->sparse[pc] < l->n && l->dense[l->sparse[pc]] == pc;
}

/* A thread at pc, and wherever that leads without a letter; slots are its registers. */
static void add_thread(struct regexp *r, struct threads *l, uint32_t pc, const struct position *p,
                       uint32_t *slots, uint32_t n_slots)
{
    uint32_t top = 0, n_old = 0;
    r->stack[top++] = pc;
    while (top) {
        pc = r->stack[--top];
        if (pc == UINT32_MAX) { /* back out of a SAVE */
            n_old--;
            slots[r->old[2 * n_old]] = r->old[2 * n_old + 1];
            continue;
        }
        if (is_in(l, pc))
            continue;
        l->sparse[pc] = l->n;
        l->dense[l->n++] = pc;
        const struct re_step *s = &r->steps[pc];
        switch (s->op) {
        case OP_JUMP:
            r->stack[top++] = s->a;
            break;
        case OP_SPLIT:
            r->stack[top++] = s->b;
            r->stack[top++] = s->a;
            break;
        case OP_SAVE:
            if (s->a < n_slots) {
                r->old[2 * n_old] = s->a;
                r->old[2 * n_old++ + 1] = slots[s->a];
                r->stack[top++] = UINT32_MAX;
                slots[s->a] = p->at;
            }
            r->stack[top++] = pc + 1;
            break;
        case OP_BEGIN:
        case OP_END:
        case OP_TEXT_BEGIN:
        case OP_TEXT_END:
        case OP_WORD_EDGE:
        case OP_NO_WORD_EDGE:
        case OP_WORD_BEGIN:
        case OP_WORD_END:
            if (holds_at(r, s->op, p))
                r->stack[top++] = pc + 1;
            break;
        case OP_LETTER:
        case OP_ANY:
        case OP_CLASS:
        case OP_MATCH:
            if (n_slots)
                memcpy(&l->slots[(size_t)pc * n_slots], slots, n_slots * sizeof(*slots));
            break;
        }
    }
}

/* wide: of the classes that have more letters than their ranges say. */
static bool is_wide(uint32_t letter, uint8_t wide)
{
    bool is = letter < NO_LETTER && unicode_is_letter(letter);
    return ((wide & WIDE_LETTER) && is) || ((wide & WIDE_SIGN) && !is && letter < NO_LETTER) ||
           ((wide & WIDE_UPPER) && unicode_lower(letter) != letter) ||
           ((wide & WIDE_LOWER) && is && (unicode_upper(letter) != letter || letter == 0xdf));
}

static bool takes_letter(const struct regexp *r, const struct re_step *s, uint32_t letter)
{
    if (s->op == OP_ANY)
        return letter != '\n' || !(r->flags & REGEXP_LINES);
    if (r->flags & REGEXP_FOLD)
        letter = unicode_lower(letter);
    if (s->op == OP_LETTER)
        return s->a == letter;
    for (uint32_t i = s->a; i < s->a + s->b; i++)
        if (letter >= r->ranges[i].low && letter <= r->ranges[i].high)
            return !s->negated;
    return s->negated != (letter >= 0x80 && s->wide && is_wide(letter, s->wide));
}

/* Every thread takes the letter or ends.  A match ends those that are less dear. */
static bool advance_threads(struct regexp *r, const struct threads *from, struct threads *to,
                            uint32_t letter, const struct position *next, uint32_t *slots,
                            uint32_t n_slots)
{
    uint32_t own[2 * REGEXP_GROUPS];
    to->n = 0;
    for (uint32_t i = 0; i < from->n; i++) {
        uint32_t pc = from->dense[i];
        const struct re_step *s = &r->steps[pc];
        if (s->op == OP_MATCH) {
            if (slots)
                memcpy(slots, &from->slots[(size_t)pc * n_slots], n_slots * sizeof(*slots));
            return true;
        }
        bool consumes = s->op == OP_LETTER || s->op == OP_ANY || s->op == OP_CLASS;
        if (!consumes || letter == UINT32_MAX || !takes_letter(r, s, letter))
            continue;
        if (n_slots)
            memcpy(own, &from->slots[(size_t)pc * n_slots], n_slots * sizeof(*own));
        add_thread(r, to, pc + 1, next, own, n_slots);
    }
    return false;
}

/* The letter that ends before p. */
static uint32_t letter_before(const char *text, const char *p, const char *end)
{
    const char *b = p;
    if (b == text)
        return UINT32_MAX;
    do
        b--;
    while (b > text && p - b < 4 && ((unsigned char)*b & 0xc0) == 0x80);
    return unicode_next(&b, end);
}

int regexp_find(struct regexp *r, const char *text, uint32_t size, uint32_t from,
                uint32_t slots[2 * REGEXP_GROUPS], int (*check)(void *arg), void *arg)
{
    const char *end = text + size, *p = text + from;
    uint32_t n_slots = slots ? 2 * (r->n_groups + 1) : 0, empty[2 * REGEXP_GROUPS];
    struct threads *now = &r->lists[0], *then = &r->lists[1];
    struct position place = {.at = from, .size = size, .before = letter_before(text, p, end)};
    bool found = false;
    uint64_t work = 0;
    now->n = 0;
    memset(empty, 0xff, sizeof(empty));
    for (;;) {
        if (now->n == 0 && !found && r->first >= 0) {
            p = p < end ? memchr(p, r->first, (size_t)(end - p)) : NULL;
            if (!p)
                return 0;
            place.before = letter_before(text, p, end);
        }
        const char *after = p;
        uint32_t letter = p < end ? unicode_next(&after, end) : UINT32_MAX;
        place.at = (uint32_t)(p - text);
        place.after = letter;
        if (!found)
            add_thread(r, now, 0, &place, empty, n_slots);
        const char *further = after;
        struct position next = {.at = (uint32_t)(after - text),
                                .size = size,
                                .before = letter,
                                .after = after < end ? unicode_next(&further, end) : UINT32_MAX};
        work += now->n;
        if (advance_threads(r, now, then, letter, &next, slots, n_slots)) {
            found = true;
            if (!slots)
                return 1;
        }
        if (letter == UINT32_MAX || (found && then->n == 0))
            return found;
        if (work > CHECK_WORK) {
            int rc = check ? check(arg) : 0;
            if (rc < 0)
                return rc;
            work = 0;
        }
        struct threads *swap = now;
        now = then;
        then = swap;
        place.before = letter;
        p = after;
    }
}
