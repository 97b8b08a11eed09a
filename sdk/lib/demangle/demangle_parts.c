/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/demangle/demangle_parts.c - texts in one room, numbers, and the parts of names that are
 * simple.
 *
 * Threads: as demangle.h says.
 */
#include "sdk/lib/demangle/demangle_parts.h"

#include <string.h>

/* ---- texts ---- */

bool plain_put(struct plainer *p, const char *text, size_t n)
{
    if (n > PLAIN_ROOM - p->used)
        return false;
    memmove(p->room + p->used, text, n);
    p->used += (uint32_t)n;
    return true;
}

bool plain_puts(struct plainer *p, const char *text)
{
    return plain_put(p, text, strlen(text));
}

bool plain_put_piece(struct plainer *p, const struct piece *a)
{
    return plain_put(p, p->room + a->at, a->n) && plain_put(p, p->room + a->behind, a->n_behind);
}

struct piece plain_begin(const struct plainer *p)
{
    return (struct piece){.at = p->used};
}

/* Make a piece of the text that was put since it began. */
bool plain_end(const struct plainer *p, struct piece *a)
{
    a->n = p->used - a->at;
    return true;
}

bool plain_make(struct plainer *p, const char *text, struct piece *ret)
{
    *ret = plain_begin(p);
    return plain_puts(p, text) && plain_end(p, ret);
}

bool plain_ends_with(const struct plainer *p, const struct piece *a, char c)
{
    return a->n_behind ? p->room[a->behind + a->n_behind - 1] == c
                       : a->n && p->room[a->at + a->n - 1] == c;
}

/* a, text */
bool plain_append(struct plainer *p, const struct piece *a, const char *text, struct piece *ret)
{
    struct piece b = plain_begin(p);
    if (!plain_put_piece(p, a) || !plain_puts(p, text) || !plain_end(p, &b))
        return false;
    *ret = b;
    return true;
}

bool plain_join(struct plainer *p, const struct piece *a, const char *between,
                const struct piece *b, struct piece *ret)
{
    struct piece c = plain_begin(p);
    if (!plain_put_piece(p, a) || !plain_puts(p, between) || !plain_put_piece(p, b) ||
        !plain_end(p, &c))
        return false;
    *ret = c;
    return true;
}

bool plain_collect(struct plainer *p, const struct piece *a)
{
    if (p->n_scratch == PLAIN_SCRATCH)
        return false;
    p->scratch[p->n_scratch++] = *a;
    return true;
}

/* Keep what was collected since `base`, while those that it lies in go on to collect. */
bool plain_keep_collected(struct plainer *p, uint32_t base, struct list *ret)
{
    *ret = (struct list){p->n_pieces, p->n_scratch - base};
    if (ret->n > PLAIN_PIECES - p->n_pieces)
        return false;
    memcpy(p->pieces + p->n_pieces, p->scratch + base, ret->n * sizeof(p->pieces[0]));
    p->n_pieces += ret->n;
    p->n_scratch = base;
    return true;
}

bool plain_substitutable(struct plainer *p, const struct piece *a)
{
    if (p->n_substitutions == PLAIN_SUBSTITUTIONS)
        return false;
    p->substitutions[p->n_substitutions++] = *a;
    return true;
}

/* ---- what is read ---- */

bool plain_step(struct plainer *p)
{
    return ++p->steps < PLAIN_STEPS;
}

bool plain_take(struct plainer *p, char c)
{
    if (*p->s != c)
        return false;
    p->s++;
    return true;
}

bool plain_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool plain_read_number(struct plainer *p, uint32_t *ret)
{
    uint32_t n = 0;
    if (!plain_is_digit(*p->s))
        return false;
    for (; plain_is_digit(*p->s); p->s++) {
        if (n > 1000000)
            return false;
        n = 10 * n + (uint32_t)(*p->s - '0');
    }
    *ret = n;
    return true;
}

/* "_" is 0, "0_" is 1, ... */
bool plain_read_index(struct plainer *p, uint32_t base, uint32_t *ret)
{
    uint32_t n = 0, digits = 0;
    for (; *p->s != '_'; p->s++, digits++) {
        bool letter = base == 36 && *p->s >= 'A' && *p->s <= 'Z';
        if ((!letter && !plain_is_digit(*p->s)) || n > 1000000)
            return false;
        n = n * base + (uint32_t)(letter ? *p->s - 'A' + 10 : *p->s - '0');
    }
    p->s++;
    *ret = digits ? n + 1 : 0;
    return true;
}

bool plain_read_source_name(struct plainer *p, struct piece *ret)
{
    static const char anonymous[] = "_GLOBAL__N";
    uint32_t n;
    if (!plain_read_number(p, &n) || strnlen(p->s, n) < n || n == 0)
        return false;
    bool none = n > sizeof(anonymous) && memcmp(p->s, anonymous, sizeof(anonymous) - 1) == 0;
    *ret = plain_begin(p);
    bool ok = none ? plain_puts(p, "(anonymous namespace)") : plain_put(p, p->s, n);
    p->s += n;
    while (ok && plain_take(p, 'B')) { /* a tag of the ABI */
        ok = plain_read_number(p, &n) && strnlen(p->s, n) == n && plain_puts(p, "[abi:") &&
             plain_put(p, p->s, n) && plain_puts(p, "]");
        p->s += ok ? n : 0;
    }
    return ok && plain_end(p, ret);
}
