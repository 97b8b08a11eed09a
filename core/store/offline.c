/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/offline.c - opening what a process left: its file, and the rows still in its rings.
 *
 * Owner's thread.  Nothing in the directory is changed, so that it may lie on a read-only file
 * system or belong to somebody else; nothing in it is trusted, so LMDB itself is not used.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/datadir/datadir.h"
#include "core/store/internal.h"

static void note_damage(struct store *s, const char *what)
{
    (void)buf_addf(&s->damage, "%s\n", what);
}

/* Descriptions that LMDB does not give come from the text file beside it, the last line of each
 * table first: it may have been told anew. */
static void load_schema_lines(struct store *s, const struct datadir *d)
{
    struct buf text;
    struct table *t;
    buf_init(&text, 64 << 20);
    int rc = datadir_read(d, "tables", &text);
    if (rc == 0) {
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
    } else if (rc != -ENOENT) {
        note_damage(s, err_why(rc));
    }
    buf_done(&text);
}

/* The first position in a ring that data.mdb does not have: the one that data.mdb records.  The
 * tail is behind it only if a kill came between the commit and the release, and before it only if
 * rows were dropped or data.mdb is the older copy; these rows may still be there.  In a broken
 * data.mdb the newest position need not have been found; without any, all rows are taken that the
 * ring still has. */
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

static int take_left_row(struct store *s, const struct ring_row *row, uint64_t *unknown)
{
    struct builder *b = row->table_id <= TABLES_STORED_MAX ? s->builders[row->table_id] : NULL;
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
        rc = dead_add_rows(s, b, s->state[b->table->id].next_row);
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
        note_damage(s, err_why(rc));
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
    for (uint32_t id = 1; id <= TABLES_STORED_MAX && rc == 0; id++) {
        if (s->builders[id] && s->builders[id]->n_rows)
            rc = dead_add_rows(s, s->builders[id], s->state[id].next_row);
        builder_free(s->builders[id]);
        s->builders[id] = NULL;
    }
    if (unknown)
        (void)buf_addf(&s->damage, "%llu rows belong to tables that are not described\n",
                       (unsigned long long)unknown);
    if (rings_head_damaged(s->rings))
        note_damage(s, "the head of rings is damaged and was read from its copy");
    if (data == 0 && s->format.rings == rings_identity(s->rings) &&
        s->format.drains < rings_drains(s->rings))
        note_damage(s,
                    "data.mdb is an older copy than rings: rows that were drained in between are "
                    "missing where the rings do not have them any more");
    return rc;
}

/* Nothing of the rows depends on it. */
static void look_at_info(struct store *s, const struct datadir *d)
{
    struct buf text;
    int rc = datadir_info(d, &text);
    if (rc == -EBADMSG)
        note_damage(s, "info is damaged: what it says of the process may be wrong");
    else if (rc < 0 && rc != -ENOENT)
        note_damage(s, err_why(rc));
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

static int open_file(struct store *s, const struct datadir *d, const char *name, bool rings)
{
    int fd = datadir_file_stable(d, name);
    return rings ? rings_open(fd, name, &s->rings) : interns_open(fd, name, &s->interns);
}

/* The counters that the process kept in its rings file. */
static int bind_counters(struct store *s)
{
    struct table **list = calloc(TABLES_MAX + 1, sizeof(*list));
    if (!list)
        return err_set(-ENOMEM, "no memory for the list of tables");
    uint32_t n = tables_list(s->tables, list, TABLES_MAX);
    list[n++] = tables_refused(s->tables);
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

/* Read a directory that was proved; `damage` says what is missing in it. */
static int read_all(struct store *s, const struct datadir *d)
{
    s->positions = calloc(STORE_SLOTS_MAX, sizeof(*s->positions));
    int rc = 0, no_data = s->positions ? dead_read_data(s, d) : -ENOMEM;
    if (no_data < 0)
        (void)buf_addf(&s->damage, "%s; only rows still in the rings are here\n", err_why(no_data));
    if (no_data == -ENOMEM)
        return err_set(-ENOMEM, "no memory for reading %s", d->path);
    load_schema_lines(s, d);
    look_at_info(s, d);
    int no_rings = open_file(s, d, "rings", /* rings= */ true);
    if (no_rings)
        (void)buf_addf(&s->damage, "%s; the newest rows may be missing\n", err_why(no_rings));
    if (no_data < 0 && no_rings)
        return err_set(-ENOENT, "%s is not a data directory of probing: %s", d->path,
                       buf_text(&s->damage));
    int no_names = open_file(s, d, "strings", /* rings= */ false);
    if (no_names)
        (void)buf_addf(&s->damage, "%s; names are missing\n", err_why(no_names));
    else if (interns_damaged(s->interns))
        (void)buf_addf(&s->damage, "%llu names are damaged and read as NULL\n",
                       (unsigned long long)interns_damaged(s->interns));
    if (no_data == 2)
        note_damage(s,
                    "which rows of the rings data.mdb has cannot be told, so those are left out");
    if (s->rings) {
        s->utc_offset = rings_utc_offset(s->rings);
        rc = no_data == 2 ? 0 : read_rings(s, no_data);
        look_at_names(s);
        if (rc == 0)
            rc = bind_counters(s);
    }
    return rc;
}

int store_open(const char *directory, struct tables *tables, struct store **ret)
{
    struct store *s;
    struct datadir d;
    int rc = datadir_open(directory, DATADIR_ANY, &d);
    if (rc)
        return rc;
    rc = store_new(directory, tables, /* live= */ false, &s);
    if (rc == 0) {
        rc = read_all(s, &d);
        if (rc == 0)
            rc = store_about_add(s);
        if (rc)
            store_drop(s);
    }
    datadir_close(&d);
    if (rc == 0)
        *ret = s;
    return rc;
}
