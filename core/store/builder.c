/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/builder.c - turns rows into columns until they make a segment.
 *
 * Under the drain lock, or the only user of a dead store.  It knows no files.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/store/internal.h"

#define ROOM_ROWS (SEGMENT_ROWS + SEGMENT_BLOCK) /* rows: whole blocks may be written behind */
#define TAILS_MAX (SEGMENT_TAILS + (1u << 19))   /* bytes: one row over the limit */

int builder_new(const struct table *t, struct builder **ret)
{
    struct builder *b = calloc(1, sizeof(*b));
    if (!b)
        return err_set(-ENOMEM, "no memory for rows of %s.%s", t->schema, t->name);
    b->table = t;
    b->n_columns = t->n_columns - (t->has_tail ? 1 : 0);
    /* Large enough to come from the kernel: pages that no row reaches cost nothing. */
    b->memory = malloc(sizeof(union probing_cell) * ROOM_ROWS * b->n_columns);
    b->tail_offsets = malloc(sizeof(uint32_t) * (ROOM_ROWS + 1));
    buf_init(&b->tails, TAILS_MAX);
    if (!b->memory || !b->tail_offsets) {
        builder_free(b);
        return err_set(-ENOMEM, "no memory for rows of %s.%s", t->schema, t->name);
    }
    b->tail_offsets[0] = 0;
    for (uint32_t i = 0; i < b->n_columns; i++) {
        b->types[i] = (uint8_t)t->columns[i].type;
        b->cells[i] = b->memory + (size_t)i * ROOM_ROWS;
        if (i > 1 && b->types[i] == PROBING_TIME)
            b->times[b->n_times++] = (uint8_t)i;
        if (b->types[i] == PROBING_STR || b->types[i] == PROBING_BLOB)
            b->names[b->n_names++] = (uint8_t)i;
    }
    *ret = b;
    return 0;
}

void builder_free(struct builder *b)
{
    if (!b)
        return;
    free(b->memory);
    free(b->tail_offsets);
    buf_done(&b->tails);
    free(b);
}

bool builder_has_room(const struct builder *b, uint32_t tail_n)
{
    return b->n_rows < SEGMENT_ROWS &&
           (b->tails.size == 0 || tail_n == 0 || b->tails.size + tail_n <= SEGMENT_TAILS);
}

static union probing_cell null_cell(uint8_t type)
{
    union probing_cell c = {.i = PROBING_NULL_I64};
    if (type == PROBING_F64)
        c.u = PROBING_NULL_F64;
    else if (type == PROBING_STR || type == PROBING_BLOB)
        c.u = PROBING_NULL_ID;
    return c;
}

int builder_add(struct builder *b, const struct ring_row *row, int64_t utc_offset)
{
    uint32_t at = b->n_rows, n = b->n_columns - 2;
    if (b->table->has_tail && row->tail) {
        char *to = buf_room(&b->tails, (size_t)row->tail_n + 1);
        if (!to)
            return err_set(-ENOMEM, "no memory for tails of %s.%s", b->table->schema,
                           b->table->name);
        if (row->tail_n)
            memcpy(to, row->tail, row->tail_n);
        to[row->tail_n] = '\0'; /* so that an empty one is not NULL */
        b->tails.size += (size_t)row->tail_n + 1;
    }
    b->tail_offsets[at + 1] = (uint32_t)b->tails.size;
    b->cells[0][at].u = row->ts + (uint64_t)utc_offset; /* wraps where a damaged file makes it */
    b->cells[1][at].i = row->tid;
    uint32_t have = row->n_cells < n ? row->n_cells : n;
    union probing_cell *const *to = b->cells + 2;
    for (uint32_t i = 0; i < have; i++)
        to[i][at] = row->cells[i];
    for (uint32_t i = have; i < n; i++)
        to[i][at] = null_cell(b->types[2 + i]);
    for (uint32_t k = 0; k < b->n_times; k++) {
        union probing_cell *c = &b->cells[b->times[k]][at];
        if (c->i != PROBING_NULL_I64)
            c->u += (uint64_t)utc_offset;
    }
    b->n_rows++;
    return 0;
}

uint32_t builder_take(struct builder *b, struct ring_reader *reader, int64_t utc_offset)
{
    uint32_t at = b->n_rows;
    if (b->table->has_tail)
        return 0;
    uint32_t n = ring_take(reader, b->table->id, b->n_columns - 2, b->cells, at, SEGMENT_ROWS - at);
    for (uint32_t i = at; i < at + n; i++)
        b->cells[0][i].u += (uint64_t)utc_offset;
    for (uint32_t i = at; i < at + n; i++)
        b->cells[1][i].i = reader->tid;
    for (uint32_t k = 0; k < b->n_times; k++) {
        union probing_cell *c = b->cells[b->times[k]];
        for (uint32_t i = at; i < at + n; i++)
            c[i].u += c[i].i == PROBING_NULL_I64 ? 0 : (uint64_t)utc_offset;
    }
    b->n_rows += n;
    return n;
}

/* Ids and `last` are far below 2^63, so the highest bit says it, without a branch for each cell. */
static bool is_above(uint64_t id, uint64_t last)
{
    return (id | (last - id)) >> 63;
}

void builder_drop_ids(struct builder *b, uint64_t last)
{
    for (uint32_t k = 0; k < b->n_names; k++) {
        union probing_cell *cells = b->cells[b->names[k]];
        uint64_t any = 0;
        for (uint32_t i = 0; i < b->n_rows; i++)
            any |= cells[i].u | (last - cells[i].u);
        for (uint32_t i = 0; i < b->n_rows && any >> 63; i++) {
            if (!is_above(cells[i].u, last))
                continue;
            cells[i].u = PROBING_NULL_ID;
            b->n_bad_ids++;
        }
    }
}

/* Decode one column into place by way of a small buffer: the decoder writes whole blocks. */
static int prepend_column(struct builder *b, uint32_t column, const struct segment *s)
{
    union probing_cell some[SEGMENT_BLOCK * 4];
    struct segment_cursor cursor;
    uint32_t nulls;
    int rc = segment_cursor_init(s, column, /* payload= */ NULL, &cursor);
    for (uint32_t at = 0; at < s->n_rows && rc == 0;) {
        uint32_t left = s->n_rows - at;
        uint32_t n = left < SEGMENT_BLOCK * 4 ? left : SEGMENT_BLOCK * 4;
        rc = segment_cursor_next(&cursor, n, some, &nulls);
        if (rc == 0)
            memcpy(b->cells[column] + at, some, n * sizeof(some[0]));
        at += n;
    }
    return rc;
}

static int prepend_tails(struct builder *b, const struct segment *s)
{
    const uint8_t *bytes;
    uint32_t *offsets = malloc(sizeof(uint32_t) * (ROOM_ROWS + 1));
    if (!offsets)
        return err_set(-ENOMEM, "no memory for tails");
    int rc = segment_tails(s, b->n_columns, offsets, &bytes);
    uint32_t before = rc ? 0 : offsets[s->n_rows];
    if (rc == 0 && !buf_room(&b->tails, before))
        rc = err_set(-ENOMEM, "no memory for tails");
    if (rc == 0) {
        if (before) {
            memmove(b->tails.data + before, b->tails.data, b->tails.size);
            memcpy(b->tails.data, bytes, before);
            b->tails.size += before;
        }
        for (uint32_t i = 0; i <= b->n_rows; i++)
            offsets[s->n_rows + i] = before + b->tail_offsets[i];
        memcpy(b->tail_offsets, offsets, sizeof(uint32_t) * (s->n_rows + b->n_rows + 1));
    }
    free(offsets);
    return rc;
}

int builder_prepend(struct builder *b, const struct segment *s)
{
    struct segment_column c;
    struct segment_cursor cursor;
    if (s->n_columns != b->table->n_columns || s->n_rows + b->n_rows > SEGMENT_ROWS)
        return err_set(-EBADMSG, "a segment of %s.%s does not fit the table", b->table->schema,
                       b->table->name);
    /* Look at all before anything is moved: a damaged segment stays as it is. */
    for (uint32_t i = 0; i < s->n_columns; i++) {
        int rc = segment_column(s, i, &c);
        if (rc)
            return rc;
        if (c.is_tail != (i == b->n_columns))
            return err_set(-EBADMSG, "a segment of %s.%s has another shape", b->table->schema,
                           b->table->name);
        if (!c.is_tail)
            rc = segment_cursor_init(s, i, /* payload= */ NULL, &cursor);
        if (rc)
            return rc;
    }
    int rc = 0;
    for (uint32_t i = 0; i < b->n_columns && rc == 0; i++) {
        memmove(b->cells[i] + s->n_rows, b->cells[i], b->n_rows * sizeof(b->cells[i][0]));
        rc = prepend_column(b, i, s);
    }
    if (rc == 0 && b->table->has_tail)
        rc = prepend_tails(b, s);
    if (rc == 0)
        b->n_rows += s->n_rows;
    return rc;
}

int builder_flush(struct builder *b, uint64_t first_row, int64_t *scratch, struct buf *out)
{
    struct segment_rows rows = {
        .n_rows = b->n_rows,
        .n_columns = b->n_columns,
        .table_id = b->table->id,
        .first_row = first_row,
        .types = b->types,
        .cells = b->cells,
        .tail_type =
            b->table->has_tail ? (uint8_t)b->table->columns[b->table->n_columns - 1].type : 0,
        .tails = (const uint8_t *)b->tails.data,
        .tail_offsets = b->tail_offsets,
        .scratch = scratch};
    buf_reset(out);
    b->n_rows = 0;
    int rc = segment_encode(&rows, out);
    buf_reset(&b->tails);
    return rc;
}
