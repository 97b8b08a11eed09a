/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/offline_lmdb.c - the rows that a dead process's data.mdb has.
 *
 * Owner's thread.  The file is only read, and nothing in it is trusted, so LMDB itself is not used.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/datadir/datadir.h"
#include "core/guest/mmap_guard.h"
#include "core/store/internal.h"
#include "sdk/lib/array.h"

#define HOLLOW 64 /* times longer than what is in it: file systems that compress come to 10 or 20 */
#define HOLLOW_LEAST (UINT64_C(16) << 20) /* bytes: what is longer by less is soon looked at */

/* A segment that was found in the file. */
struct found {
    struct segment segment;
    bool in_tree;
};

struct finds {
    struct store *store;
    struct found *list;
    uint32_t n, room;
    uint64_t bad;       /* values of LMDB's trees that are no whole segments, */
    uint64_t other;     /* those among them that another version of probing wrote, */
    uint64_t records;   /* and records that are incomplete */
    uint64_t holes;     /* rows that must have been there, and are not */
    bool beyond;        /* segments have rows that their table's record does not know */
    const uint8_t *end; /* of the last segment found outside of the trees */
    bool no_memory;
};

static void found_segment(struct finds *f, const MDB_val *value, bool in_tree)
{
    struct segment seg;
    const uint8_t *data = value->mv_data;
    if (!in_tree && data < f->end)
        return; /* inside of the one before */
    int rc = segment_open(data, value->mv_size, &seg);
    if (rc != 0 || segment_check(&seg) != 0 || seg.table_id == 0 ||
        seg.table_id > TABLES_STORED_MAX || seg.first_row > UINT64_MAX / 2) {
        f->bad += in_tree;
        f->other += in_tree && rc == -EPROTO;
        return;
    }
    if (in_tree)
        commit_sum_rows_added(&f->store->seal, seg.table_id, seg.first_row, seg.n_rows);
    else
        f->end = seg.data + seg.size;
    struct found *list = array_grow(f->list, f->n, &f->room, sizeof(*list), UINT32_MAX);
    if (!list) {
        f->no_memory = true;
        return;
    }
    f->list = list;
    f->list[f->n++] = (struct found){.segment = seg, .in_tree = in_tree};
}

/* Keep the newest of several versions of a record: all of them only grow. */
static bool found_record(struct store *s, const MDB_val *key, const MDB_val *value, bool in_tree)
{
    const uint8_t *k = key->mv_data;
    uint32_t id = (uint32_t)k[1] << 24 | (uint32_t)k[2] << 16 | (uint32_t)k[3] << 8 | k[4];
    struct table *t;
    struct row_record r;
    struct position_record p;
    struct format_record f;
    struct commit_sum_record seal;
    if (k[0] == 't')
        return !in_tree || schema_read(value->mv_data, value->mv_size, s->tables, &t) == 0;
    if (k[0] == 'r' && id >= 1 && id <= TABLES_STORED_MAX) {
        if (!store_read_record(key, value, &r, sizeof(r)))
            return false;
        s->seal.records += in_tree ? r.sum : 0;
        if (r.expired <= r.next_row && r.next_row >= s->state[id].next_row) {
            s->state[id].next_row = r.next_row;
            s->state[id].expired = r.expired;
        }
        return true;
    }
    if (k[0] == 'p' && id < STORE_SLOTS_MAX) {
        if (!store_read_record(key, value, &p, sizeof(p)))
            return false;
        s->seal.records += in_tree ? p.sum : 0;
        struct position_record *have = &s->positions[id];
        if (p.generation > have->generation ||
            (p.generation == have->generation && p.position > have->position))
            *have = p;
        return true;
    }
    if (k[0] == 'x') /* spare pages */
        return true;
    if (k[0] == 's') {
        if (!store_read_record(key, value, &seal, sizeof(seal)))
            return false;
        s->has_commit_sum |= in_tree;
        s->sealed = in_tree ? seal.seal : s->sealed;
        return true;
    }
    if (k[0] != 'f' || !store_read_record(key, value, &f, sizeof(f)))
        return false;
    s->seal.records += in_tree ? f.sum : 0;
    if (f.drains >= s->format.drains)
        s->format = f;
    return true;
}

static void found_value(void *arg, const MDB_val *key, const MDB_val *value, bool in_tree)
{
    struct finds *f = arg;
    if (key && key->mv_size == sizeof(struct meta_key))
        f->records += !found_record(f->store, key, value, in_tree) && in_tree;
    else if (!key || key->mv_size == sizeof(struct segment_key))
        found_segment(f, value, in_tree);
}

/* By table and row; of those that begin together the one to prefer first. */
static int compare_found(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->segment.table_id != y->segment.table_id)
        return x->segment.table_id < y->segment.table_id ? -1 : 1;
    if (x->segment.first_row != y->segment.first_row)
        return x->segment.first_row < y->segment.first_row ? -1 : 1;
    if (x->in_tree != y->in_tree)
        return x->in_tree ? -1 : 1;
    return x->segment.n_rows > y->segment.n_rows ? -1 : x->segment.n_rows < y->segment.n_rows;
}

/* Append to the list that scans read. */
int dead_add(struct store *s, const struct segment *seg, void *owned)
{
    struct table_state *state = &s->state[seg->table_id];
    struct memory_segment *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(-ENOMEM, "no memory for the list of segments");
    *m = (struct memory_segment){.table_id = seg->table_id,
                                 .n_rows = seg->n_rows,
                                 .first_row = seg->first_row,
                                 .size = seg->size,
                                 .data = seg->data,
                                 .owned = owned};
    if (s->memory_last)
        s->memory_last->next = m;
    else
        s->memory = m;
    s->memory_last = m;
    if (state->next_row < seg->first_row + seg->n_rows)
        state->next_row = seg->first_row + seg->n_rows;
    state->rows += seg->n_rows;
    state->bytes += seg->size;
    state->segments++;
    return 0;
}

int dead_add_rows(struct store *s, struct builder *b, uint64_t first_row)
{
    struct segment seg;
    int rc = builder_flush(b, first_row, s->scratch, &s->out);
    if (rc)
        return rc;
    void *data = malloc(s->out.size);
    if (!data)
        return err_set(-ENOMEM, "no memory for rows of the rings");
    memcpy(data, s->out.data, s->out.size);
    rc = segment_open(data, s->out.size, &seg);
    if (rc == 0)
        rc = dead_add(s, &seg, data);
    if (rc)
        free(data);
    return rc;
}

/* Only the rows of a segment that are before `end`. */
static int add_part(struct store *s, const struct segment *seg, uint64_t end)
{
    const struct table *t = tables_by_id(s->tables, seg->table_id);
    struct builder *b;
    int rc = t ? builder_new(t, &b) : 0;
    if (rc || !t)
        return rc;
    rc = builder_prepend(b, seg);
    if (rc == 0) {
        b->n_rows = (uint32_t)(end - seg->first_row);
        rc = dead_add_rows(s, b, seg->first_row);
    }
    builder_free(b);
    return rc == -ENOMEM ? rc : 0; /* else it is of another shape than the table, and left out */
}

/* Keep every found row once: leftovers of the past overlap the segments they were merged
 * into, and rows that retention removed are still about in a file whose trees are broken. */
static size_t drop_overlaps(struct finds *f)
{
    const struct store *s = f->store;
    if (f->n)
        qsort(f->list, f->n, sizeof(*f->list), compare_found);
    size_t kept = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct segment *seg = &f->list[i].segment;
        const struct found *last = kept ? &f->list[kept - 1] : NULL;
        if (!f->list[i].in_tree && seg->first_row + seg->n_rows <= s->state[seg->table_id].expired)
            continue;
        if (last && last->segment.table_id == seg->table_id &&
            last->segment.first_row + last->segment.n_rows > seg->first_row) {
            if (!f->list[i].in_tree || last->in_tree)
                continue;
            kept--;
        }
        f->list[kept++] = f->list[i];
        f->beyond |= seg->first_row + seg->n_rows > s->state[seg->table_id].next_row;
    }
    return kept;
}

/* cut: rows that the tables' records do not know are of a later moment, and still in the rings. */
static int keep_found(struct finds *f, bool cut)
{
    struct store *s = f->store;
    size_t kept = drop_overlaps(f);
    int rc = 0;
    for (size_t i = 0; i < kept && rc == 0; i++) {
        const struct segment *seg = &f->list[i].segment;
        uint64_t end = s->state[seg->table_id].next_row;
        if (!cut || seg->first_row + seg->n_rows <= end)
            rc = dead_add(s, seg, /* owned= */ NULL);
        else if (seg->first_row < end)
            rc = add_part(s, seg, end);
    }
    for (uint32_t id = 1; id <= TABLES_STORED_MAX; id++) {
        const struct table_state *state = &s->state[id];
        uint64_t rows = state->next_row - state->expired;
        f->holes += rows > state->rows ? rows - state->rows : 0;
    }
    return rc;
}

/* LMDB leaves hardly a hole in its file.  Of one that is nothing else each page would be looked at,
 * for hours. */
static bool is_hollow(const struct stat *st)
{
    uint64_t there = (uint64_t)st->st_blocks * 512;
    return (uint64_t)st->st_size / HOLLOW > there + HOLLOW_LEAST;
}

static int map_data(struct store *s, const struct datadir *d)
{
    struct stat st;
    int fd = datadir_file_stable(d, "data.mdb"), rc = 0;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) == -1)
        rc = err_set(-errno, "data.mdb: %s", strerror(errno));
    else if (st.st_size < 4096)
        rc = err_set(-EBADMSG, "data.mdb is empty or cut short");
    else if (is_hollow(&st))
        rc = err_set(-EBADMSG, "data.mdb is %llu bytes long and has only %llu in it",
                     (unsigned long long)st.st_size, (unsigned long long)st.st_blocks * 512);
    if (rc == 0) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            rc = err_set(-errno, "data.mdb cannot be mapped: %s", strerror(errno));
        } else {
            (void)mapped_watch(map, (size_t)st.st_size, /* head= */ NULL);
            s->file = map;
            s->file_bytes = (size_t)st.st_size;
        }
    }
    (void)close(fd);
    return rc;
}

int dead_read_data(struct store *s, const struct datadir *d)
{
    struct finds f = {.store = s};
    int rc = map_data(s, d);
    if (rc)
        return rc;
    rc = pages_read(s->file, s->file_bytes, found_value, &f, &s->damage);
    int broken = rc;
    if (mapped_lost(s->file))
        (void)buf_addf(&s->damage, "%llu pages of data.mdb cannot be read from its disk\n",
                       (unsigned long long)mapped_lost(s->file));
    bool sealed = s->has_commit_sum && !broken && !f.records;
    bool torn_records = sealed && s->sealed.records != s->seal.records;
    bool torn_segments = sealed && !f.bad && s->sealed.segments != s->seal.segments;
    if (rc >= 0)
        rc = f.no_memory ? err_set(-ENOMEM, "no memory for the list of segments")
                         : keep_found(&f, /* cut= */ torn_segments && !torn_records);
    free(f.list);
    if (rc < 0)
        return rc;
    if (s->format.format != STORE_FORMAT && (f.n || f.bad) && (f.other || !broken))
        (void)buf_addf(&s->damage,
                       "data.mdb was written by another version of probing (format %llu, this one "
                       "reads %d): only what both know is here\n",
                       (unsigned long long)(s->format.format ? s->format.format : 1), STORE_FORMAT);
    if (f.bad)
        (void)buf_addf(&s->damage, "%llu segments of data.mdb are %s and left out\n",
                       (unsigned long long)f.bad,
                       f.other == f.bad ? "of another format" : "damaged");
    if (f.records)
        (void)buf_addf(&s->damage, "%llu records of data.mdb are damaged\n",
                       (unsigned long long)f.records);
    if (broken)
        (void)buf_addf(&s->damage,
                       "data.mdb is damaged, or was copied while the process wrote it: %u whole "
                       "segments were found in it, older and newer ones may be missing\n",
                       f.n);
    if (torn_records)
        (void)buf_adds(&s->damage, "data.mdb was copied while the process wrote it, and holds "
                                   "parts of several moments: rows may be missing\n");
    else if (torn_segments && f.holes)
        (void)buf_addf(&s->damage,
                       "data.mdb was copied while the process wrote it: %llu of its rows are "
                       "missing\n",
                       (unsigned long long)f.holes);
    return torn_records || (broken && f.beyond) ? 2 : broken;
}
