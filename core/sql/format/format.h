/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/format.h - an answer on its way to bytes: what format.c, format_table.c
 * and arrow.c share.
 *
 * Private to them; the query's thread only.
 */
#ifndef CORE_SQL_FORMAT_FORMAT_H
#define CORE_SQL_FORMAT_FORMAT_H

#include "core/sql/value/vector.h"

#define HELD_BYTES (64u << 20)   /* at most this much of them */
#define PIECE_BYTES (256u << 20) /* of one write: a batch of long texts */

struct sql_writer {
    enum sql_format format;
    uint32_t wide;
    int (*write)(void *arg, const char *data, size_t size);
    void *arg;
    struct buf out;
    uint32_t n;
    char **names; /* of columns, owned */
    enum sql_type *types;
    uint32_t *widths;
    /* TABLE: cells held back, each followed by a zero byte. */
    struct buf held;
    uint32_t held_rows;
    uint32_t shown;     /* columns that fit into the terminal */
    uint64_t cut_cells; /* since the header */
    bool cut, told;     /* a line did not fit; what does not is said below this header */
    uint64_t records;   /* EXPANDED: rows that were written */
    bool header_done;   /* and no column has become wider since */
    bool fixed;         /* TABLE: rows of this answer were written, its widths stay */
    bool begun, again;  /* again: a later answer of the same stream */
    struct arrow_stream *arrow;
};

int sql_writer_send(struct sql_writer *w);
/* Six digits that mean something. */
size_t sql_short_double(double v, char out[48]);

/* format_table.c */
int sql_table_rows(struct sql_writer *w, const struct sql_rows *rows);
int sql_table_flush(struct sql_writer *w);                                 /* what is held back */
void sql_expanded_rows(struct sql_writer *w, const struct sql_rows *rows); /* a column a line */
/* Columns that do not fit into the terminal, and lines that are cut: once for a header. */
void sql_table_left_out(struct sql_writer *w);
void sql_table_footer(struct sql_writer *w, const struct sql_report *r);
uint32_t sql_table_letters(const char *text);

/* arrow.c */
int sql_arrow_columns(struct sql_writer *w, const struct sql_column *columns, uint32_t n);
int sql_arrow_rows(struct sql_writer *w, const struct sql_rows *rows);
int sql_arrow_end(struct sql_writer *w, const struct sql_report *report);
void sql_arrow_free(struct arrow_stream *a);

#endif
