/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/dead.c - opening what a process left: LMDB read-only, and the rows still in its rings.
 *
 * Owner's thread.  Nothing in the directory is changed, not even LMDB's lock file, so that it may
 * lie on a read-only file system or belong to somebody else; nothing in it is trusted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/inside.h"

static void note(struct store *s, const char *what)
{
    (void)buf_addf(&s->damage, "%s\n", what);
}

/* ---- what LMDB says (for a live store that goes on, too) ---- */

static int load_schemas(struct store *s, MDB_txn *txn)
{
    MDB_cursor *cursor;
    MDB_val key = value_of("t", 1), value;
    struct table *t;
    int rc = mdb_cursor_open(txn, s->meta, &cursor);
    if (rc)
        return lmdb_failed(rc, "tables cannot be read");
    rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (key.mv_size != sizeof(struct meta_key) || *(const char *)key.mv_data != 't')
            break;
        int bad = schema_read(value.mv_data, value.mv_size, s->tables, &t);
        if (bad && s->live) {
            mdb_cursor_close(cursor);
            return bad;
        }
        if (bad)
            note(s, err_why(bad));
    }
    mdb_cursor_close(cursor);
    return rc && rc != MDB_NOTFOUND ? lmdb_failed(rc, "tables cannot be read") : 0;
}

static void load_rows(struct store *s, MDB_txn *txn)
{
    for (uint32_t id = 1; id <= TABLES_MAX; id++) {
        struct meta_key k = meta_key_of('r', id);
        struct row_record r;
        MDB_val key = value_of(&k, sizeof(k)), value;
        if (mdb_get(txn, s->meta, &key, &value) == 0 && value.mv_size == sizeof(r)) {
            memcpy(&r, value.mv_data, sizeof(r));
            s->state[id].next_row = r.next_row;
            s->state[id].expired = r.expired;
        }
    }
}

static int load_segments(struct store *s, MDB_txn *txn)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    uint64_t bad = 0;
    int rc = mdb_cursor_open(txn, s->segments, &cursor);
    if (rc)
        return lmdb_failed(rc, "segments cannot be read");
    for (rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST); rc == 0;
         rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        struct segment seg;
        uint32_t id;
        uint64_t row;
        if (!key_read(&key, &id, &row) || segment_open(value.mv_data, value.mv_size, &seg) != 0) {
            bad++;
            continue;
        }
        struct table_state *state = &s->state[id];
        state->rows += seg.n_rows;
        state->bytes += value.mv_size;
        state->segments++;
        if (state->next_row < row + seg.n_rows)
            state->next_row = row + seg.n_rows;
    }
    mdb_cursor_close(cursor);
    if (bad)
        (void)buf_addf(&s->damage, "%llu segments of data.mdb are damaged and left out\n",
                       (unsigned long long)bad);
    return rc == MDB_NOTFOUND ? 0 : lmdb_failed(rc, "segments cannot be read");
}

int store_load(struct store *s)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn);
    if (rc)
        return lmdb_failed(rc, "data.mdb");
    rc = load_schemas(s, txn);
    if (rc == 0) {
        load_rows(s, txn);
        rc = load_segments(s, txn);
    }
    mdb_txn_abort(txn);
    return rc;
}

/* ---- the dead ---- */

/* Is every page that LMDB may follow within the file?  A cut file would be a SIGBUS. */
static int check_length(struct store *s, uint64_t size)
{
    MDB_envinfo info;
    MDB_stat stat;
    int rc = mdb_env_info(s->env, &info);
    if (rc == 0)
        rc = mdb_env_stat(s->env, &stat);
    if (rc)
        return lmdb_failed(rc, "data.mdb");
    if ((info.me_last_pgno + 1) * (uint64_t)stat.ms_psize > size)
        return err_set(-EBADMSG, "data.mdb is cut short: %llu bytes of %llu",
                       (unsigned long long)size,
                       (unsigned long long)((info.me_last_pgno + 1) * (uint64_t)stat.ms_psize));
    return 0;
}

static int open_lmdb(struct store *s)
{
    char path[4096];
    struct stat st;
    MDB_txn *txn;
    int n = snprintf(path, sizeof(path), "%s/data.mdb", s->directory);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long", s->directory);
    if (stat(path, &st) == -1)
        return err_set(-errno, "data.mdb: %s", strerror(errno));
    if (st.st_size == 0)
        return err_set(-EBADMSG, "data.mdb is empty");
    int rc = mdb_env_create(&s->env);
    if (rc)
        return lmdb_failed(rc, "LMDB cannot start");
    rc = mdb_env_set_maxdbs(s->env, 2);
    if (rc == 0)
        rc = mdb_env_open(s->env, s->directory, MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0600);
    if (rc)
        return lmdb_failed(rc, "data.mdb");
    rc = check_length(s, (uint64_t)st.st_size);
    if (rc)
        return rc;
    rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn);
    if (rc)
        return lmdb_failed(rc, "data.mdb");
    rc = mdb_dbi_open(txn, "meta", 0, &s->meta);
    if (rc == 0)
        rc = mdb_dbi_open(txn, "segments", 0, &s->segments);
    if (rc) {
        mdb_txn_abort(txn);
        return lmdb_failed(rc, "data.mdb");
    }
    rc = mdb_txn_commit(txn); /* or the handles are gone with it */
    return rc ? lmdb_failed(rc, "data.mdb") : store_load(s);
}

/* Without LMDB, the descriptions come from the text file beside it. */
static void load_schema_lines(struct store *s)
{
    char path[4096];
    struct buf text;
    struct table *t;
    buf_init(&text, 64 << 20);
    int n = snprintf(path, sizeof(path), "%s/tables", s->directory);
    if (n > 0 && (size_t)n < sizeof(path) && file_read(AT_FDCWD, path, &text) == 0) {
        const char *p = buf_text(&text), *end = p + text.size;
        while (p < end) {
            const char *line_end = memchr(p, '\n', (size_t)(end - p));
            size_t size = (size_t)((line_end ? line_end : end) - p);
            if (size)
                (void)schema_read(p, size, s->tables, &t);
            p += size + 1;
        }
    }
    buf_done(&text);
}

/* Where the rows of a ring begin that LMDB does not have. */
static uint64_t position_in_lmdb(struct store *s, uint32_t slot)
{
    MDB_txn *txn;
    struct meta_key k = meta_key_of('p', slot);
    MDB_val key = value_of(&k, sizeof(k)), value;
    struct position_record p = {0};
    if (!s->env || mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn) != 0)
        return 0;
    if (mdb_get(txn, s->meta, &key, &value) == 0 && value.mv_size == sizeof(p))
        memcpy(&p, value.mv_data, sizeof(p));
    mdb_txn_abort(txn);
    return p.rings == rings_identity(s->rings) && p.generation == ring_generation(s->rings, slot)
               ? p.position
               : 0;
}

/* A full builder becomes a segment in memory. */
static int keep_in_memory(struct store *s, struct builder *b)
{
    uint32_t id = b->table->id, n_rows = b->n_rows;
    int rc = builder_flush(b, s->scratch, &s->out);
    if (rc)
        return rc;
    struct memory_segment *m = calloc(1, sizeof(*m));
    void *data = malloc(s->out.size);
    if (!m || !data) {
        free(m);
        free(data);
        return err_set(-ENOMEM, "no memory for rows of the rings");
    }
    memcpy(data, s->out.data, s->out.size);
    struct table_state *state = &s->state[id];
    *m = (struct memory_segment){.table_id = id,
                                 .n_rows = n_rows,
                                 .first_row = state->next_row,
                                 .size = s->out.size,
                                 .data = data};
    if (s->memory_last)
        s->memory_last->next = m;
    else
        s->memory = m;
    s->memory_last = m;
    state->next_row += n_rows;
    state->rows += n_rows;
    state->bytes += m->size;
    state->segments++;
    return 0;
}

static int take_left_row(struct store *s, const struct ring_row *row, uint64_t *unknown)
{
    struct builder *b = row->table_id <= TABLES_MAX ? s->builders[row->table_id] : NULL;
    int rc = 0;
    if (!b) {
        struct table *t = tables_by_id(s->tables, row->table_id);
        if (!t || t->scan) {
            ++*unknown;
            return 0;
        }
        rc = builder_new(t, &s->builders[row->table_id]);
        b = s->builders[row->table_id];
    }
    if (rc == 0 && !builder_has_room(b, row->tail_n))
        rc = keep_in_memory(s, b);
    return rc ? rc : builder_add(b, row, s->utc_offset);
}

static int read_ring(struct store *s, uint32_t slot, uint64_t *unknown)
{
    struct ring_reader reader;
    struct ring_row row;
    char text[128];
    uint64_t tail = ring_tail(s->rings, slot), position = position_in_lmdb(s, slot);
    /* Killed between the commit and the release: LMDB is ahead. */
    if (position > tail)
        tail = position;
    int rc = ring_read(s->rings, slot, tail, &reader), got = 0;
    if (rc) {
        note(s, err_why(rc));
        return 0;
    }
    while (rc == 0 && (got = ring_next(&reader, &row)) == 1)
        rc = take_left_row(s, &row, unknown);
    if (got == -EBADMSG) {
        (void)snprintf(text, sizeof(text), "ring %u is damaged: %llu bytes of rows are lost", slot,
                       (unsigned long long)(reader.head - reader.position));
        note(s, text);
    }
    return rc;
}

static int read_rings(struct store *s)
{
    char text[128];
    uint64_t unknown = 0;
    int rc = 0;
    for (uint32_t slot = 0; slot < rings_count(s->rings) && rc == 0; slot++) {
        if (ring_generation(s->rings, slot))
            rc = read_ring(s, slot, &unknown);
    }
    for (uint32_t id = 1; id <= TABLES_MAX && rc == 0; id++) {
        if (s->builders[id] && s->builders[id]->n_rows)
            rc = keep_in_memory(s, s->builders[id]);
        builder_free(s->builders[id]);
        s->builders[id] = NULL;
    }
    if (unknown) {
        (void)snprintf(text, sizeof(text), "%llu rows belong to tables that are not described",
                       (unsigned long long)unknown);
        note(s, text);
    }
    return rc;
}

static int open_file(struct store *s, const char *name, bool rings)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/%s", s->directory, name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long", s->directory);
    return rings ? rings_open(path, &s->rings) : interns_open(path, &s->interns);
}

/* The counters that the process kept in its rings file. */
static int bind_counters(struct store *s)
{
    struct table **list = calloc(TABLES_MAX, sizeof(*list));
    if (!list)
        return err_set(-ENOMEM, "no memory for the list of tables");
    uint32_t n = tables_list(s->tables, list, TABLES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const _Atomic uint64_t *counters = rings_counters(s->rings, list[i]->id);
        atomic_store_explicit(list[i]->appended, s->state[list[i]->id].next_row,
                              memory_order_relaxed);
        for (uint32_t k = 0; k < TABLE_LOSS_REASONS; k++)
            atomic_store_explicit(&list[i]->lost[k],
                                  atomic_load_explicit(&counters[1 + k], memory_order_relaxed),
                                  memory_order_relaxed);
    }
    free(list);
    return 0;
}

int store_open(const char *directory, struct tables *tables, struct store **ret)
{
    struct store *s;
    struct stat st;
    if (stat(directory, &st) == -1)
        return err_set(-errno, "%s: %s", directory, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(-ENOTDIR, "%s is not a directory", directory);
    int rc = store_new(directory, tables, /* live= */ false, &s);
    if (rc)
        return rc;
    int no_lmdb = open_lmdb(s);
    if (no_lmdb) {
        (void)buf_addf(&s->damage, "%s; only rows still in the rings are here\n", err_why(no_lmdb));
        if (s->env)
            mdb_env_close(s->env);
        s->env = NULL;
        memset(s->state, 0, sizeof(s->state));
        load_schema_lines(s);
    }
    int no_rings = open_file(s, "rings", /* rings= */ true);
    if (no_rings)
        (void)buf_addf(&s->damage, "%s; the newest rows may be missing\n", err_why(no_rings));
    if (no_lmdb && no_rings) {
        rc = err_set(-ENOENT, "%s is not a data directory of probing: %s", directory,
                     buf_text(&s->damage));
        store_drop(s);
        return rc;
    }
    int no_names = open_file(s, "strings", /* rings= */ false);
    if (no_names)
        (void)buf_addf(&s->damage, "%s; names are missing\n", err_why(no_names));
    if (s->rings) {
        s->utc_offset = rings_utc_offset(s->rings);
        rc = read_rings(s);
        if (rc == 0)
            rc = bind_counters(s);
    }
    if (rc) {
        store_drop(s);
        return rc;
    }
    *ret = s;
    return 0;
}
