/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/commit_sum.c - is all that a data.mdb holds of one moment?
 *
 * LMDB's pages have no check and do not say which transaction wrote them.  A file that was copied
 * while the process wrote may hold pages of several transactions, and still look whole: rows that
 * lie in no tree any more, or that are in the segments and once more in the rings.  So each
 * transaction writes down a sum over everything that it leaves, kept up as things come and go.
 *
 * Live: under LMDB's lock of writers, that is between env_begin() and env_commit().
 */
#include "core/store/internal.h"

static uint64_t sum_of(uint32_t table_id, uint64_t first_row, uint32_t n_rows)
{
    uint64_t words[3] = {table_id, first_row, n_rows};
    return segment_checksum(words, sizeof(words));
}

void commit_sum_rows_added(struct commit_sum *seal, uint32_t table_id, uint64_t first_row,
                           uint32_t n_rows)
{
    seal->segments += sum_of(table_id, first_row, n_rows);
}

void commit_sum_rows_removed(struct commit_sum *seal, uint32_t table_id, uint64_t first_row,
                             uint32_t n_rows)
{
    seal->segments -= sum_of(table_id, first_row, n_rows);
}

int commit_sum_write(struct store *s, MDB_txn *txn)
{
    struct commit_sum_record r = {.seal = s->seal};
    return s->has_commit_sum ? store_put_record(s, txn, 's', 0, &r, sizeof(r)) : 0;
}

int commit_sum_load(struct store *s, MDB_txn *txn)
{
    struct meta_key k = meta_key_of('s', 0);
    MDB_val key = value_of(&k, sizeof(k)), value;
    struct commit_sum_record r = {.sum = 0};
    MDB_stat meta, segments;
    int rc = mdb_get(txn, s->meta, &key, &value);
    s->has_commit_sum = rc == 0 && store_read_record(&key, &value, &r, sizeof(r));
    s->sealed = r.seal;
    if (rc != MDB_NOTFOUND)
        return rc;
    rc = mdb_stat(txn, s->meta, &meta);
    if (rc == 0)
        rc = mdb_stat(txn, s->segments, &segments);
    /* A version of probing that knew no seal wrote what is there: it stays without. */
    s->has_commit_sum = rc == 0 && meta.ms_entries + segments.ms_entries == 0;
    return rc;
}
