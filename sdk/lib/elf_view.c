/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/elf_view.c - see elf_view.h.
 *
 * Any thread.
 */
#include "sdk/lib/elf_view.h"

#include <string.h>

#define NAME_BYTES 256 /* of a name that is looked up, with its end */
#define WORDS 256      /* of a hash table that are read at once */

/* ---- the dynamic section ---- */

bool elf_view_dynamic(struct elf_view *v, uint64_t address, uint64_t n)
{
    Elf64_Dyn d;
    v->dynamic = address;
    v->n_dynamic = n;
    for (uint64_t i = 0; elf_view_entry(v, i, &d); i++) {
        if (d.d_tag == DT_NULL) {
            v->n_dynamic = i;
            return true;
        }
        int tag = elf_tag(d.d_tag);
        if (tag == 0)
            continue;
        v->has[tag] = true;
        v->value[tag] = d.d_un.d_val;
    }
    return false;
}

bool elf_view_entry(const struct elf_view *v, uint64_t i, Elf64_Dyn *ret)
{
    return i < v->n_dynamic && v->read(v, v->dynamic + i * sizeof(*ret), ret, sizeof(*ret));
}

uint64_t elf_view_address(const struct elf_view *v, int64_t tag)
{
    uint64_t value = elf_value(v, tag);
    return !elf_has(v, tag) ? 0 : value < v->base ? value + v->bias : value;
}

/* ---- symbols ---- */

bool elf_view_has_name(const struct elf_view *v, uint64_t at, const char *name)
{
    char found[NAME_BYTES];
    size_t size = strlen(name) + 1;
    uint64_t all = elf_value(v, DT_STRSZ);
    return size <= sizeof(found) && at < all && size <= all - at &&
           v->read(v, elf_view_address(v, DT_STRTAB) + at, found, size) &&
           memcmp(found, name, size) == 0;
}

bool elf_view_symbol(const struct elf_view *v, uint64_t i, Elf64_Sym *ret)
{
    return i < ELF_SYMBOLS_MAX && elf_has(v, DT_SYMTAB) &&
           v->read(v, elf_view_address(v, DT_SYMTAB) + i * sizeof(*ret), ret, sizeof(*ret));
}

/* GNU's hash table: four words, a bloom filter, buckets, and a word for each symbol from `first`
 * on, of which the last of a bucket has bit 0 set. */
struct gnu_hash {
    uint32_t n_buckets, first, n_words, shift;
    uint64_t bloom, buckets, chain; /* addresses */
};

static bool read_gnu_hash(const struct elf_view *v, struct gnu_hash *ret)
{
    uint64_t at = elf_view_address(v, DT_GNU_HASH);
    uint32_t head[4];
    if (!at || !v->read(v, at, head, sizeof(head)) || head[0] == 0 || head[2] == 0)
        return false;
    *ret = (struct gnu_hash){
        .n_buckets = head[0], .first = head[1], .n_words = head[2], .shift = head[3] & 31};
    ret->bloom = at + sizeof(head);
    ret->buckets = ret->bloom + head[2] * UINT64_C(8);
    ret->chain = ret->buckets + head[0] * UINT64_C(4);
    return true;
}

static bool read_link(const struct elf_view *v, const struct gnu_hash *h, uint32_t i, uint32_t *ret)
{
    return i >= h->first && i < ELF_SYMBOLS_MAX &&
           v->read(v, h->chain + (i - h->first) * UINT64_C(4), ret, sizeof(*ret));
}

uint32_t elf_view_count(const struct elf_view *v)
{
    uint32_t head[2], some[WORDS], last = 0, link = 0;
    struct gnu_hash h;
    if (!read_gnu_hash(v, &h))
        return elf_has(v, DT_HASH) &&
                       v->read(v, elf_view_address(v, DT_HASH), head, sizeof(head)) &&
                       head[1] <= ELF_SYMBOLS_MAX
                   ? head[1]
                   : 0;
    for (uint32_t i = 0; i < h.n_buckets; i += WORDS) {
        uint32_t n = h.n_buckets - i < WORDS ? h.n_buckets - i : WORDS;
        if (!v->read(v, h.buckets + i * UINT64_C(4), some, n * sizeof(some[0])))
            return 0;
        for (uint32_t k = 0; k < n; k++)
            last = some[k] > last ? some[k] : last;
    }
    for (; !(link & 1); last++)
        if (!read_link(v, &h, last, &link))
            return 0;
    return last;
}

struct search {
    const struct elf_view *v;
    const char *name;
    bool (*is_it)(void *arg, uint32_t i, const Elf64_Sym *s);
    void *arg;
};

static bool is_wanted(const struct search *s, uint32_t i)
{
    Elf64_Sym symbol;
    return elf_view_symbol(s->v, i, &symbol) && elf_view_has_name(s->v, symbol.st_name, s->name) &&
           s->is_it(s->arg, i, &symbol);
}

static uint32_t find_gnu(const struct search *s, const struct gnu_hash *h)
{
    const struct elf_view *v = s->v;
    uint32_t hash = 5381, i, link = 0;
    uint64_t word;
    for (const char *c = s->name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    if (!v->read(v, h->bloom + hash / 64 % h->n_words * UINT64_C(8), &word, sizeof(word)) ||
        !(word >> hash % 64 & word >> (hash >> h->shift) % 64 & 1) ||
        !v->read(v, h->buckets + hash % h->n_buckets * UINT64_C(4), &i, sizeof(i)))
        return 0;
    for (; !(link & 1) && read_link(v, h, i, &link); i++)
        if ((link | 1) == (hash | 1) && is_wanted(s, i))
            return i;
    return 0;
}

/* The older table: the numbers of buckets and of symbols, buckets, and the next symbol of each. */
static uint32_t find_sysv(const struct search *s, uint64_t at)
{
    const struct elf_view *v = s->v;
    uint32_t head[2], i, hash = 0;
    for (const char *c = s->name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0xfffffff;
    }
    if (!v->read(v, at, head, sizeof(head)) || head[0] == 0 ||
        !v->read(v, at + 8 + hash % head[0] * UINT64_C(4), &i, sizeof(i)))
        return 0;
    for (uint32_t steps = 0; i != 0 && i < head[1] && steps < head[1]; steps++) {
        if (is_wanted(s, i))
            return i;
        if (!v->read(v, at + 8 + ((uint64_t)head[0] + i) * 4, &i, sizeof(i)))
            return 0;
    }
    return 0;
}

uint32_t elf_view_find(const struct elf_view *v, const char *name,
                       bool (*is_it)(void *arg, uint32_t i, const Elf64_Sym *s), void *arg)
{
    const struct search s = {v, name, is_it, arg};
    struct gnu_hash h;
    if (elf_has(v, DT_GNU_HASH))
        return read_gnu_hash(v, &h) ? find_gnu(&s, &h) : 0;
    return elf_has(v, DT_HASH) ? find_sysv(&s, elf_view_address(v, DT_HASH)) : 0;
}
