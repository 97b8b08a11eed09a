/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/resume.c - what an earlier life of the process left in LMDB, for a store that goes on.
 *
 * Owner's thread, before anybody else has the store.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/store/internal.h"

static int load_schemas(struct store *s, MDB_txn *txn)
{
    MDB_cursor *cursor;
    MDB_val key = value_of("t", 1), value;
    struct table *t;
    int rc = mdb_cursor_open(txn, s->meta, &cursor);
    if (rc)
        return lmdb_failed(rc, "tables cannot be read");
    int bad = 0;
    rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; rc == 0 && bad == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (key.mv_size != sizeof(struct meta_key) || *(const char *)key.mv_data != 't')
            break;
        bad = schema_read(value.mv_data, value.mv_size, s->tables, &t);
    }
    mdb_cursor_close(cursor);
    if (bad)
        return bad;
    return rc && rc != MDB_NOTFOUND ? lmdb_failed(rc, "tables cannot be read") : 0;
}

static void load_rows(struct store *s, MDB_txn *txn)
{
    for (uint32_t id = 1; id <= TABLES_STORED_MAX; id++) {
        struct meta_key k = meta_key_of('r', id);
        struct row_record r;
        MDB_val key = value_of(&k, sizeof(k)), value;
        if (mdb_get(txn, s->meta, &key, &value) == 0 &&
            store_read_record(&key, &value, &r, sizeof(r))) {
            s->state[id].next_row = r.next_row;
            s->state[id].expired = r.expired;
        }
    }
}

static int load_segments(struct store *s, MDB_txn *txn)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    int rc = mdb_cursor_open(txn, s->segments, &cursor);
    if (rc)
        return lmdb_failed(rc, "segments cannot be read");
    for (rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST); rc == 0;
         rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        struct segment seg;
        uint32_t id;
        uint64_t row;
        if (!key_read(&key, &id, &row) || segment_open(value.mv_data, value.mv_size, &seg) != 0)
            continue;
        struct table_state *state = &s->state[id];
        state->rows += seg.n_rows;
        state->bytes += value.mv_size;
        state->segments++;
        if (state->next_row < row + seg.n_rows)
            state->next_row = row + seg.n_rows;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : lmdb_failed(rc, "segments cannot be read");
}

/* Was it written in this format?  An empty one is. */
static int check_format(struct store *s, MDB_txn *txn)
{
    struct meta_key k = meta_key_of('f', 0);
    MDB_val key = value_of(&k, sizeof(k)), value;
    MDB_stat stat = {0};
    struct format_record f;
    if (mdb_get(txn, s->meta, &key, &value) == 0 &&
        store_read_record(&key, &value, &f, sizeof(f)) && f.format == STORE_FORMAT)
        return 0;
    return mdb_stat(txn, s->segments, &stat) == 0 && stat.ms_entries == 0
               ? 0
               : err_set(-EPROTO, "another version of probing wrote data.mdb");
}

int store_load(struct store *s)
{
    MDB_txn *txn;
    int rc = env_begin(s, MDB_RDONLY, &txn);
    if (rc)
        return lmdb_failed(rc, "data.mdb");
    rc = check_format(s, txn);
    if (rc == 0)
        rc = load_schemas(s, txn);
    if (rc == 0) {
        load_rows(s, txn);
        rc = load_segments(s, txn);
    }
    int lost = env_end(s, txn);
    return rc || !lost ? rc : lmdb_failed(lost, "data.mdb");
}
