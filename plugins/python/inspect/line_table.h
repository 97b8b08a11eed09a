/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/line_table.h - which source line an instruction belongs to, by CPython's
 * line tables.
 *
 * Pure functions on copied bytes: any thread, nothing kept.  The three formats: lnotab (to 3.9),
 * the pairs of PEP 626 (3.10) and the location table (3.11 on).
 */
#ifndef PYTHON_INSPECT_LINE_TABLE_H
#define PYTHON_INSPECT_LINE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* Columns of the code that runs in the line, from 1, in bytes of UTF-8; 0: unknown, or `last` is in
 * another line. */
struct lines_columns {
    int first, last;
};

/* Instructions up to `end` (bytes, exclusive; INT64_MAX in the last range) belong to `line`, 0: to
 * none. */
struct lines_range {
    int64_t end;
    int line;
    struct lines_columns columns;
};

/* minor: of CPython 3.  offset: of the instruction in bytes, -1: the frame has not begun.
 * The line, or 0 when the table gives none to that instruction.  ret: may be NULL. */
int lines_find(unsigned minor, const uint8_t *table, size_t size, int first_line, int64_t offset,
               struct lines_columns *ret);

/* A whole table, for lines_search(): how many ranges it has; at most `max` of them are written. */
size_t lines_decode(unsigned minor, const uint8_t *table, size_t size, int first_line,
                    struct lines_range *ret, size_t max);

/* As lines_find(), in a table that was decoded whole; first_line for an instruction below 0. */
int lines_search(const struct lines_range *ranges, size_t n, int first_line, int64_t offset,
                 struct lines_columns *ret);

#endif
