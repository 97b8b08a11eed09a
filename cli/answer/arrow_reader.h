/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/arrow_reader.h - an answer, an Arrow stream, as columns and rows of values.
 *
 * One thread a reader.  The stream comes from a process that need not be trusted: only what
 * core/sql/format/arrow.c writes is taken, every size is bounded before memory is had for it, and
 * every offset is proved before rows are handed on.
 */
#ifndef CLI_ANSWER_ARROW_READER_H
#define CLI_ANSWER_ARROW_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/answer/answer_rows.h"

#define ANSWER_COLUMNS_MAX 1024
#define ANSWER_BATCH_ROWS (1u << 17) /* a core sends 16,384 at most */
#define ANSWER_BATCH_BYTES \
    ((size_t)64 << 20) /* a core sends about 1 MiB, but one row may be long */

struct answer_sink {
    void *arg;
    /* Once, before the first rows; the columns live as long as the reader.  A name is valid UTF-8,
     * not empty, and has no NUL in it.  Less than 0 ends it. */
    int (*columns)(void *arg, const struct sql_column *columns, uint32_t n); /* NULL: proved only */
    int (*rows)(void *arg, const struct answer_rows *rows); /* row, too, NULL: there may be none */
    /* In place of rows(), one row after the other: each text has a NUL at its end. */
    int (*row)(void *arg, const struct sql_value *cells, uint32_t n);
    size_t batch_bytes; /* of one batch at most, 0: ANSWER_BATCH_BYTES */
};

/* A sink's rows() for bytes that go elsewhere, too: their rows are only proved and counted. */
int answer_pass_rows(void *arg, const struct answer_rows *rows);

struct arrow_reader;
int arrow_reader_new(const struct answer_sink *sink, struct arrow_reader **ret);
void arrow_reader_free(struct arrow_reader *r); /* NULL is fine */

/* The next bytes.  -EBADMSG: they are none of such a stream, or say what cannot be. */
int arrow_reader_feed(struct arrow_reader *r, const char *data, size_t size);
int arrow_reader_end(const struct arrow_reader *r); /* -EBADMSG: it is not whole */

/* Readers take a stream that just ends for a whole one: gives what to write behind one that broke
 * off, so that they do not.  0: it has ended, has not begun, or broke off where they see it. */
#define ANSWER_CUT_BYTES 8
size_t arrow_reader_cut(const struct arrow_reader *r, char ret[ANSWER_CUT_BYTES]);

/* The end says these beside the rows. */
uint64_t arrow_reader_rows(const struct arrow_reader *r);
uint64_t arrow_reader_lost(const struct arrow_reader *r);
bool arrow_reader_truncated(const struct arrow_reader *r);
const char *arrow_reader_empty(const struct arrow_reader *r); /* "": it does not say why */
bool arrow_reader_has_note(const struct arrow_reader *r);     /* one of these three is there */
size_t arrow_reader_held(const struct arrow_reader *r);       /* bytes of memory */

#endif
