/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/hash.h - the two hashes that everything here is made of: FNV-1a of bytes, and a
 * multiplication that spreads a word's bits upwards.
 *
 * Any thread, handlers too; no state.  Some results lie in files (segments, the dictionary, sealed
 * texts), so what these give may never change: hash_test.c holds it against published vectors.
 * Neither withstands somebody who chooses keys: tables of outside keys bound their probes.
 */
#ifndef SDK_LIB_HASH_H
#define SDK_LIB_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_FNV UINT64_C(0xcbf29ce484222325)    /* FNV-1a's beginning, 64 bit */
#define HASH_GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / the golden ratio, odd (Knuth) */

/* FNV-1a over n more bytes; h: HASH_FNV, or what came out for those before.  [signal] */
static inline uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* The same over a text without its NUL.  [signal] */
static inline uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

/* A word with its bits spread upwards: the upper ones are the hash, so take it >> (64 - bits).
 * Of several words: h = hash_spread(h ^ word), and h ^= h >> 29 or 32 where the lower bits of one
 * matter for the next.  [signal] */
static inline uint64_t hash_spread(uint64_t word)
{
    return word * HASH_GOLDEN;
}

#endif
