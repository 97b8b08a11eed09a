/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/hash.h - keys: what hash.c and hash_direct.c share.
 *
 * Private to them; the query's thread, or its helper's.
 */
#ifndef CORE_SQL_VALUE_HASH_H
#define CORE_SQL_VALUE_HASH_H

#include "core/sql/value/keys.h"
#include "sdk/lib/hash.h"

/* Hash a key so far and its next word. */
static inline uint64_t keys_hash_word(uint64_t h, uint64_t word)
{
    return hash_spread(h ^ word) ^ (h >> 29);
}

/* Number of row r of the words; UINT32_MAX: not there (or no memory, when adding). */
uint32_t sql_keys_look_up(struct keys *k, uint32_t r, uint64_t hash, bool add);

/* hash_direct.c.  Make the table, if it is time and fits. */
void sql_keys_consider_direct(struct keys *k);
/* Rows whose words are in k->columns, new ones added. */
int sql_keys_add_direct(struct keys *k, uint32_t n, uint32_t *numbers);
/* Straight from the vectors; false: that cannot be. */
bool sql_keys_add_known(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                        uint32_t *numbers);
bool sql_keys_find_direct(const struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                          uint32_t *numbers);

#endif
