/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/dead.c - opening what a process left: its file, and the rows still in its rings.
 *
 * Owner's thread.  Nothing in the directory is changed, so that it may lie on a read-only file
 * system or belong to somebody else; nothing in it is trusted, so LMDB itself is not used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info.h"
#include "core/base/mapped.h"
#include "core/store/inside.h"

static void note(struct store *s, const char *what)
{
    (void)buf_addf(&s->damage, "%s\n", what);
}

/* ---- data.mdb ---- */

/* A segment that was found in the file. */
struct found {
    struct segment segment;
    bool in_tree;
};

struct finds {
    struct store *store;
    struct found *list;
    size_t n, room;
    uint64_t bad;       /* values of LMDB's trees that are no whole segments, */
    uint64_t other;     /* those among them that another version of probing wrote, */
    uint64_t records;   /* and records that are not whole */
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
    if (rc != 0 || segment_check(&seg) != 0 || seg.table_id == 0 || seg.table_id > TABLES_MAX ||
        seg.first_row > UINT64_MAX / 2) {
        f->bad += in_tree;
        f->other += in_tree && rc == -EPROTO;
        return;
    }
    if (!in_tree)
        f->end = seg.data + seg.size;
    if (f->n == f->room) {
        size_t room = f->room ? 2 * f->room : 256;
        struct found *list = realloc(f->list, room * sizeof(*list));
        if (!list) {
            f->no_memory = true;
            return;
        }
        f->list = list;
        f->room = room;
    }
    f->list[f->n++] = (struct found){.segment = seg, .in_tree = in_tree};
}

/* Of several versions of a record, the newest: all of them only grow. */
static bool found_record(struct store *s, const MDB_val *key, const MDB_val *value, bool in_tree)
{
    const uint8_t *k = key->mv_data;
    uint32_t id = (uint32_t)k[1] << 24 | (uint32_t)k[2] << 16 | (uint32_t)k[3] << 8 | k[4];
    struct table *t;
    struct row_record r;
    struct position_record p;
    struct format_record f;
    if (k[0] == 't')
        return !in_tree || schema_read(value->mv_data, value->mv_size, s->tables, &t) == 0;
    if (k[0] == 'r' && id >= 1 && id <= TABLES_MAX) {
        if (!store_read_record(key, value, &r, sizeof(r)))
            return false;
        if (r.expired <= r.next_row && r.next_row >= s->state[id].next_row) {
            s->state[id].next_row = r.next_row;
            s->state[id].expired = r.expired;
        }
        return true;
    }
    if (k[0] == 'p' && id < STORE_SLOTS_MAX) {
        if (!store_read_record(key, value, &p, sizeof(p)))
            return false;
        struct position_record *have = &s->positions[id];
        if (p.generation > have->generation ||
            (p.generation == have->generation && p.position > have->position))
            *have = p;
        return true;
    }
    if (k[0] == 'x') /* spare pages */
        return true;
    if (k[0] != 'f' || !store_read_record(key, value, &f, sizeof(f)))
        return false;
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
static int add_memory(struct store *s, const struct segment *seg, void *owned)
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

/* What was found, each row once: leftovers of the past overlap what came of them by merging, and
 * what retention removed is still about in a file whose trees are broken. */
static int keep_found(struct finds *f)
{
    struct store *s = f->store;
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
    }
    int rc = 0;
    for (size_t i = 0; i < kept && rc == 0; i++)
        rc = add_memory(s, &f->list[i].segment, /* owned= */ NULL);
    return rc;
}

static int map_data(struct store *s)
{
    char path[4096];
    struct stat st;
    int n = snprintf(path, sizeof(path), "%s/data.mdb", s->directory);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long", s->directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1)
        return err_set(-errno, "data.mdb: %s", strerror(errno));
    int rc = 0;
    if (fstat(fd, &st) == -1)
        rc = err_set(-errno, "data.mdb: %s", strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size < 4096)
        rc = err_set(-EBADMSG, "data.mdb is empty or no file");
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

/* 0, or 1 when the file is damaged and gave what it could; a negative error: it gave nothing. */
static int read_data(struct store *s)
{
    struct finds f = {.store = s};
    int rc = map_data(s);
    if (rc)
        return rc;
    rc = pages_read(s->file, s->file_bytes, found_value, &f, &s->damage);
    int broken = rc;
    if (mapped_lost(s->file))
        (void)buf_addf(&s->damage, "%llu pages of data.mdb cannot be read from its disk\n",
                       (unsigned long long)mapped_lost(s->file));
    if (rc >= 0)
        rc = f.no_memory ? err_set(-ENOMEM, "no memory for the list of segments") : keep_found(&f);
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
                       "data.mdb is damaged: %zu whole segments were found in it, older "
                       "and newer ones may be missing\n",
                       f.n);
    return broken;
}

/* Descriptions that LMDB does not give come from the text file beside it, the last line of each
 * table first: it may have been told anew. */
static void load_schema_lines(struct store *s)
{
    char path[4096];
    struct buf text;
    struct table *t;
    buf_init(&text, 64 << 20);
    int n = snprintf(path, sizeof(path), "%s/tables", s->directory);
    if (n > 0 && (size_t)n < sizeof(path) && file_read(AT_FDCWD, path, &text) == 0) {
        const char *begin = buf_text(&text), *end = begin + text.size;
        while (end > begin) {
            const char *line = end - (end[-1] == '\n');
            const char *line_end = line;
            while (line > begin && line[-1] != '\n')
                line--;
            if (line_end > line)
                (void)schema_read(line, (size_t)(line_end - line), s->tables, &t);
            end = line;
        }
    }
    buf_done(&text);
}

/* Where the rows of a ring begin that data.mdb does not have: where data.mdb says so, and the tail
 * is behind it only where a kill came between the commit and the release, before it only where rows
 * were dropped or data.mdb is the older copy; these may still be there.  Of a data.mdb that is
 * broken the newest position need not have been found; and where there is none, all rows are
 * welcome that the ring still has. */
static uint64_t first_position(struct store *s, uint32_t slot, int data, bool *ret_cut)
{
    const struct position_record *p = &s->positions[slot];
    uint64_t tail = ring_tail(s->rings, slot), head = ring_head(s->rings, slot), first = 0;
    if (p->rings == rings_identity(s->rings) && p->generation == ring_generation(s->rings, slot))
        first = p->position;
    if (tail % 8 || head % 8 || tail > head || head - tail > RING_BYTES)
        return first ? first : tail & ~UINT64_C(7); /* one of them is damaged; the reader tells */
    if (data == 1 && tail > first)
        first = tail;
    *ret_cut = head > RING_BYTES && first < head - RING_BYTES;
    return *ret_cut ? head - RING_BYTES : first; /* in the midst of a record, mostly */
}

/* A full builder becomes a segment in memory. */
static int keep_in_memory(struct store *s, struct builder *b)
{
    struct segment seg;
    int rc = builder_flush(b, s->state[b->table->id].next_row, s->scratch, &s->out);
    if (rc)
        return rc;
    void *data = malloc(s->out.size);
    if (!data)
        return err_set(-ENOMEM, "no memory for rows of the rings");
    memcpy(data, s->out.data, s->out.size);
    rc = segment_open(data, s->out.size, &seg);
    if (rc == 0)
        rc = add_memory(s, &seg, data);
    if (rc)
        free(data);
    return rc;
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

static int read_ring(struct store *s, uint32_t slot, int data, uint64_t *unknown)
{
    struct ring_reader reader;
    struct ring_row row;
    bool cut = false;
    uint64_t first = first_position(s, slot, data, &cut);
    int rc = ring_read(s->rings, slot, first, &reader);
    if (rc) {
        note(s, err_why(rc));
        return 0;
    }
    reader.midway = cut;
    if (cut && data == 0)
        (void)buf_addf(&s->damage,
                       "ring %u went on after data.mdb was copied: rows in between are missing\n",
                       slot);
    while (rc == 0 && ring_next(&reader, &row) == 1)
        rc = take_left_row(s, &row, unknown);
    if (reader.no_head)
        (void)buf_addf(&s->damage,
                       "the head of ring %u is damaged: rows were read as far as they "
                       "follow each other\n",
                       slot);
    if (reader.damaged)
        (void)buf_addf(&s->damage, "ring %u is damaged: rows in %llu bytes are lost\n", slot,
                       (unsigned long long)reader.damaged);
    return rc;
}

static int read_rings(struct store *s, int data)
{
    uint64_t unknown = 0;
    int rc = 0;
    for (uint32_t slot = 0; slot < rings_count(s->rings) && rc == 0; slot++) {
        if (ring_generation(s->rings, slot) || ring_head(s->rings, slot))
            rc = read_ring(s, slot, data, &unknown);
    }
    for (uint32_t id = 1; id <= TABLES_MAX && rc == 0; id++) {
        if (s->builders[id] && s->builders[id]->n_rows)
            rc = keep_in_memory(s, s->builders[id]);
        builder_free(s->builders[id]);
        s->builders[id] = NULL;
    }
    if (unknown)
        (void)buf_addf(&s->damage, "%llu rows belong to tables that are not described\n",
                       (unsigned long long)unknown);
    if (rings_head_damaged(s->rings))
        note(s, "the head of rings is damaged and was read from its copy");
    if (data == 0 && s->format.rings == rings_identity(s->rings) &&
        s->format.drains < rings_drains(s->rings))
        note(s, "data.mdb is an older copy than rings: rows that were drained in between are "
                "missing where the rings do not have them any more");
    return rc;
}

/* Nothing of the rows depends on it. */
static void look_at_info(struct store *s)
{
    char path[4096];
    struct buf text = {0};
    int n = snprintf(path, sizeof(path), "%s/info", s->directory);
    if (n > 0 && (size_t)n < sizeof(path) && info_read(AT_FDCWD, path, &text) == -EBADMSG)
        note(s, "info is damaged: what it says of the process may be wrong");
    buf_done(&text);
}

/* Ids in the rows that have no text: the file of names is an older copy, or was cut. */
static void look_at_names(struct store *s)
{
    uint64_t last = intern_last(s->interns), most = 0;
    for (const struct memory_segment *m = s->memory; m && s->interns; m = m->next) {
        struct segment seg;
        struct segment_column c = {0};
        if (segment_open(m->data, m->size, &seg) != 0)
            continue;
        for (uint32_t i = 0; i < seg.n_columns; i++) {
            if (segment_column(&seg, i, &c) == 0 && !c.is_tail && c.has_bounds &&
                (c.type == PROBING_STR || c.type == PROBING_BLOB) && c.max.u > most)
                most = c.max.u;
        }
    }
    if (most > last && s->interns)
        (void)buf_addf(&s->damage, "names from %llu to %llu are missing and read as NULL\n",
                       (unsigned long long)last + 1, (unsigned long long)most);
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
    s->positions = calloc(STORE_SLOTS_MAX, sizeof(*s->positions));
    int no_data = s->positions ? read_data(s) : -ENOMEM;
    if (no_data < 0)
        (void)buf_addf(&s->damage, "%s; only rows still in the rings are here\n", err_why(no_data));
    if (no_data == -ENOMEM) {
        store_drop(s);
        return err_set(-ENOMEM, "no memory for reading %s", directory);
    }
    load_schema_lines(s);
    look_at_info(s);
    int no_rings = open_file(s, "rings", /* rings= */ true);
    if (no_rings)
        (void)buf_addf(&s->damage, "%s; the newest rows may be missing\n", err_why(no_rings));
    if (no_data < 0 && no_rings) {
        rc = err_set(-ENOENT, "%s is not a data directory of probing: %s", directory,
                     buf_text(&s->damage));
        store_drop(s);
        return rc;
    }
    int no_names = open_file(s, "strings", /* rings= */ false);
    if (no_names)
        (void)buf_addf(&s->damage, "%s; names are missing\n", err_why(no_names));
    else if (interns_damaged(s->interns))
        (void)buf_addf(&s->damage, "%llu names are damaged and read as NULL\n",
                       (unsigned long long)interns_damaged(s->interns));
    if (s->rings) {
        s->utc_offset = rings_utc_offset(s->rings);
        rc = read_rings(s, no_data);
        look_at_names(s);
        if (rc == 0)
            rc = bind_counters(s);
    }
    if (rc == 0)
        rc = store_about_add(s);
    if (rc) {
        store_drop(s);
        return rc;
    }
    *ret = s;
    return 0;
}
