/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/table_files.c - tables of a live store: bound to the rings, and described for the
 * dead.
 *
 * Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/rights.h"
#include "core/store/internal.h"

/* One line for each table beside LMDB, so that rows in the rings can be read when LMDB cannot. */
static int note_schema(const struct store *s, struct buf *json)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/tables", s->directory);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(-ENAMETOOLONG,
                       "the path '%.60s...' is too long: set a shorter PROBING_DATA_DIR",
                       s->directory);
    rights_keep();
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    int rc = buf_addc(json, '\n');
    /* One write: a kill leaves a whole line or none. */
    if (rc == 0 && write(fd, json->data, json->size) != (ssize_t)json->size)
        rc = err_set(-EIO, "%s cannot be written", path);
    (void)close(fd);
    return rc;
}

static int keep_schema(struct store *s, const struct table *t)
{
    struct buf json;
    MDB_txn *txn;
    buf_init(&json, 1 << 20);
    int rc = schema_write(t, &json);
    struct meta_key k = meta_key_of('t', t->id);
    MDB_val key = value_of(&k, sizeof(k)), old, value = value_of(json.data, json.size);
    int failed = rc ? 0 : s->env ? env_begin(s, 0, &txn) : EIO;
    if (rc == 0 && failed == 0) {
        bool same = mdb_get(txn, s->meta, &key, &old) == 0 && old.mv_size == value.mv_size &&
                    memcmp(old.mv_data, value.mv_data, value.mv_size) == 0;
        if (same) {
            mdb_txn_abort(txn);
            buf_done(&json);
            return 0;
        }
        failed = mdb_put(txn, s->meta, &key, &value, 0);
        if (failed)
            mdb_txn_abort(txn);
        else
            failed = env_commit(s, txn);
    }
    if (failed)
        rc = lmdb_failed(failed, "the table's description cannot be kept");
    if (rc == 0)
        rc = note_schema(s, &json);
    buf_done(&json);
    return rc;
}

/* Rows of a table that went with data.mdb.  lock: drain_lock */
static void count_lost(struct store *s, uint32_t id)
{
    struct table_state *state = &s->state[id];
    const struct table *t = tables_by_id(s->tables, id);
    if (t && t->lost)
        (void)atomic_fetch_add_explicit(&t->lost[TABLE_LOST_STORE], state->rows,
                                        memory_order_relaxed);
    state->rows = state->bytes = state->segments = 0;
}

int store_begin_anew(struct store *s)
{
    MDB_txn *txn;
    int rc = 0, failed;
    (void)pthread_mutex_lock(&s->drain_lock);
    for (uint32_t id = 1; id <= TABLES_STORED_MAX && rc == 0; id++) {
        const struct table *t = tables_by_id(s->tables, id);
        count_lost(s, id);
        if (t && !t->scan)
            rc = keep_schema(s, t);
    }
    failed = rc ? 0 : env_begin(s, 0, &txn);
    if (rc == 0 && failed == 0) {
        for (uint32_t id = 1; id <= TABLES_STORED_MAX && failed == 0; id++) {
            struct row_record r = {.next_row = s->state[id].next_row,
                                   .expired = s->state[id].expired};
            if (r.next_row)
                failed = store_put_record(s, txn, 'r', id, &r, sizeof(r));
        }
        if (failed)
            mdb_txn_abort(txn);
        else
            failed = env_commit(s, txn);
    }
    (void)pthread_mutex_unlock(&s->drain_lock);
    return failed ? lmdb_failed(failed, "data.mdb cannot be begun anew") : rc;
}

int store_table_add(struct store *s, const char *schema, const struct probing_table_desc *d,
                    void *self, struct table **ret)
{
    struct table *t;
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return err_set(-ESHUTDOWN, "this is a forked child without a store");
    if (!s->live)
        return err_set(-EROFS, "the store of a dead process takes no tables");
    if (d && d->scan)
        return tables_add(s->tables, schema, d, self, ret);
    struct table *old = NULL;
    int rc = tables_add(s->tables, schema, d, self, &t);
    if (rc == -EEXIST)
        rc = tables_supersede(s->tables, schema, d, &old, &t);
    if (rc)
        return rc;
    struct quiet quiet;
    quiet_begin(&quiet);
    (void)pthread_rwlock_rdlock(&s->map_lock);
    (void)pthread_mutex_lock(&s->drain_lock);
    rc = rings_bind_table(s->rings, t);
    if (rc == 0 && old)
        rc = keep_schema(s, old); /* its new name first: no two tables have one name */
    if (rc == 0)
        rc = keep_schema(s, t);
    if (rc == 0)
        retention_wanted(s, t);
    (void)pthread_mutex_unlock(&s->drain_lock);
    (void)pthread_rwlock_unlock(&s->map_lock);
    quiet_end(&quiet);
    if (rc == 0)
        *ret = t;
    return rc;
}
