/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/keys.h - distinct keys and their numbers, and rows that are kept.
 *
 * Private to core/sql; one thread a query, but for the helpers of parallel.c.
 */
#ifndef CORE_SQL_VALUE_KEYS_H
#define CORE_SQL_VALUE_KEYS_H

#include "core/sql/value/query.h"

/* ---- keys: hash.c, hash_direct.c ---- */

/* Distinct rows of keys, numbered from 0 in order of arrival. */
struct keys {
    struct query *q;
    uint32_t n_arguments; /* 8-byte words a key: one a column and one of NULL bits */
    uint32_t n, room;
    uint64_t *words; /* [room * n_arguments] */
    uint32_t *slots; /* key number + 1, 0: free */
    uint32_t mask;
    uint32_t *direct;        /* small keys by value, see hash.c; NULL: not in use */
    uint32_t direct_bits[3]; /* of each column */
    bool no_direct;          /* the words are too wide */
    struct key_text *texts;  /* dictionary of texts that have no id of the store */
    uint64_t *columns[SQL_CALL_ARGS + 1];
    enum sql_type types[SQL_CALL_ARGS];
    bool dict[SQL_CALL_ARGS];
    uint64_t *hashes;
};

int sql_keys_init(struct keys *k, struct query *q, const enum sql_type *types, const bool *dict,
                  uint32_t n);
/* Numbers of the n selected rows of the key vectors, new ones added: numbers[0 .. n - 1]. */
int sql_keys_add(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                 uint32_t *numbers);
/* The same without adding: UINT32_MAX is none. */
int sql_keys_find(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                  uint32_t *numbers);
/* Column c of the keys numbered first to first + n - 1, into a vector with room. */
int sql_keys_column(struct keys *k, uint32_t c, uint32_t first, uint32_t n, struct vec *ret);
/* The keys of another are added: numbers[other->n] says which they are here.  No vectors are added
 * or looked for after that. */
int sql_keys_merge(struct keys *k, const struct keys *other, uint32_t *numbers);
/* Item i becomes what order[i] was, each of them once; marks: n bytes of room. */
void sql_reorder(void *items, size_t size, const uint32_t *order, uint32_t n, uint8_t *marks);
/* The same for keys, which are found no more after it. */
void sql_keys_reorder(struct keys *k, const uint32_t *order, uint8_t *marks);
uint64_t sql_hash_bytes(const void *p, size_t n);

/* ---- rows kept: row_store.c ---- */

struct rowset {
    struct query *q;
    struct arena *mem;
    uint32_t n_cols;
    const enum sql_type *types;
    struct vec **chunks; /* [chunk][column], SQL_ROWS rows each */
    uint32_t n_chunks, room;
    uint32_t n;
};

int sql_rowset_init(struct rowset *r, struct query *q, struct arena *mem,
                    const enum sql_type *types, uint32_t n_cols);
int sql_no_room(void); /* -ENOMEM after err_set(): the rows kept are too many */
int sql_rowset_add(struct rowset *r, struct vec **v, const uint16_t *sel, uint32_t n);
/* Copy the rows `index` (n of them, at most SQL_ROWS) into vectors with room; UINT32_MAX: NULLs. */
void sql_rowset_get(const struct rowset *r, const uint32_t *index, uint32_t n, uint32_t first_col,
                    uint32_t n_cols, struct vec *ret);

#endif
