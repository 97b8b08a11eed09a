/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/lmdb_record.c - keys and records of LMDB's two databases, and its errors as ours.
 *
 * Any thread; nothing here has a state.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/store/internal.h"

struct segment_key key_of(uint32_t table_id, uint64_t first_row)
{
    struct segment_key k;
    for (int i = 0; i < 4; i++)
        k.bytes[i] = (uint8_t)(table_id >> (24 - 8 * i));
    for (int i = 0; i < 8; i++)
        k.bytes[4 + i] = (uint8_t)(first_row >> (56 - 8 * i));
    return k;
}

bool key_read(const MDB_val *key, uint32_t *ret_table_id, uint64_t *ret_first_row)
{
    const uint8_t *p = key->mv_data;
    uint32_t id = 0;
    uint64_t row = 0;
    if (key->mv_size != sizeof(struct segment_key))
        return false;
    for (int i = 0; i < 4; i++)
        id = id << 8 | p[i];
    for (int i = 4; i < 12; i++)
        row = row << 8 | p[i];
    *ret_table_id = id;
    *ret_first_row = row;
    return id >= 1 && id <= TABLES_STORED_MAX;
}

struct meta_key meta_key_of(char kind, uint32_t id)
{
    return (struct meta_key){
        {(uint8_t)kind, (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id}};
}

MDB_val value_of(const void *p, size_t n)
{
    return (MDB_val){.mv_size = n, .mv_data = (void *)(uintptr_t)p};
}

uint64_t store_sum(struct meta_key key, const void *p, size_t n)
{
    return segment_checksum(p, n) ^ segment_checksum(&key, sizeof(key));
}

int store_put_record(struct store *s, MDB_txn *txn, char kind, uint32_t id, void *p, size_t n)
{
    struct meta_key k = meta_key_of(kind, id);
    uint64_t sum = store_sum(k, p, n - sizeof(sum)), before;
    memcpy((char *)p + n - sizeof(sum), &sum, sizeof(sum));
    MDB_val key = value_of(&k, sizeof(k)), value = value_of(p, n), old;
    int rc = mdb_get(txn, s->meta, &key, &old);
    if (rc != 0 && rc != MDB_NOTFOUND)
        return rc;
    if (kind != 's') {
        if (rc == 0 && old.mv_size >= sizeof(before)) {
            memcpy(&before, (char *)old.mv_data + old.mv_size - sizeof(before), sizeof(before));
            s->seal.records -= before;
        }
        s->seal.records += sum;
    }
    return mdb_put(txn, s->meta, &key, &value, 0);
}

bool store_read_record(const MDB_val *key, const MDB_val *value, void *ret, size_t n)
{
    struct meta_key k;
    uint64_t sum;
    if (key->mv_size != sizeof(k) || value->mv_size != n)
        return false;
    memcpy(&k, key->mv_data, sizeof(k));
    memcpy(&sum, (const char *)value->mv_data + n - sizeof(sum), sizeof(sum));
    if (sum != store_sum(k, value->mv_data, n - sizeof(sum)))
        return false;
    memcpy(ret, value->mv_data, n);
    return true;
}

int lmdb_failed(int code, const char *what)
{
    int rc = code > 0               ? -code
             : code == MDB_MAP_FULL ? -ENOSPC
             : code == MDB_NOTFOUND ? -ENOENT
                                    : -EIO;
    return rc == -ENOSPC ? err_set(rc, "%s: no room left on its device", what)
                         : err_set(rc, "%s: %s", what, mdb_strerror(code));
}
