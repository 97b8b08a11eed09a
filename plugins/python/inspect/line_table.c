/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/line_table.c - line tables of CPython 3.8 to 3.15.
 *
 * Any thread.  The tables are bytes that another thread may have changed while they were copied, so
 * every read is bounded; a broken table gives a line, never a fault.
 * Formats: CPython's Objects/lnotab_notes.txt (3.8 to 3.10), Objects/locations.md (3.11 on).
 */
#include "inspect/line_table.h"

#include <stdbool.h>

#define COLUMN_MAX (1u << 20)
#define LINE_MAX INT32_C(100000000) /* more is a torn table; keeps the sums in range */

/* Goes over a table, range by range. */
struct cursor {
    const uint8_t *p, *end;
    int line;   /* of the last entry that has one */
    int64_t at; /* end of the last entry */
};

/* To 3.9: pairs (bytes of code, signed lines), the line changes behind these bytes.  false: the
 * table is over.  So for the other two. */
static bool next_lnotab(struct cursor *c, struct lines_range *ret)
{
    if (c->end - c->p < 2)
        return false;
    c->at += c->p[0];
    *ret = (struct lines_range){c->at, c->line, {0, 0}};
    c->line += (int8_t)c->p[1];
    c->p += 2;
    return true;
}

/* 3.10: pairs (bytes of code, signed lines; -128: no line), each a range of its own. */
static bool next_pair(struct cursor *c, struct lines_range *ret)
{
    if (c->end - c->p < 2)
        return false;
    int delta = (int8_t)c->p[1];
    c->at += c->p[0];
    c->p += 2;
    if (delta != -128)
        c->line += delta;
    *ret = (struct lines_range){c->at, delta == -128 ? 0 : c->line, {0, 0}};
    return true;
}

static uint32_t unsigned_varint(struct cursor *c)
{
    uint32_t value = 0;
    for (unsigned shift = 0; c->p < c->end && shift < 30; shift += 6) {
        uint8_t byte = *c->p++;
        value |= (uint32_t)(byte & 63) << shift;
        if (!(byte & 64))
            break;
    }
    return value;
}

static int signed_varint(struct cursor *c)
{
    uint32_t value = unsigned_varint(c);
    return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/* Read one entry (kind: bits 3 to 6 of its first byte); false: it has no line.  Columns are kept
 * from 0, in bytes of UTF-8, the last one exclusive. */
static bool read_entry(struct cursor *c, unsigned kind, int *line, struct lines_columns *columns)
{
    uint32_t first, last;
    *columns = (struct lines_columns){0, 0};
    switch (kind) {
    case 15: /* no location */
        return false;
    case 14: { /* long form: line, end line, column, end column */
        *line += signed_varint(c);
        bool other = unsigned_varint(c) != 0;
        first = unsigned_varint(c); /* already from 1; 0: unknown */
        last = unsigned_varint(c);
        if (first < COLUMN_MAX && last < COLUMN_MAX && first && last)
            *columns = (struct lines_columns){(int)first, other ? 0 : (int)last - 1};
        return true;
    }
    case 13: /* no columns */
        *line += signed_varint(c);
        return true;
    case 12:
    case 11:
    case 10: /* one line: delta in the kind, two columns */
        *line += (int)kind - 10;
        if (c->end - c->p >= 2)
            *columns = (struct lines_columns){c->p[0] + 1, c->p[1]};
        c->p += 2;
        return true;
    default: /* short form: same line, columns in the kind and one more byte */
        if (c->end - c->p >= 1) {
            int begin = (int)(kind << 3) | (c->p[0] >> 4 & 7);
            *columns = (struct lines_columns){begin + 1, begin + (c->p[0] & 15)};
        }
        c->p += 1;
        return true;
    }
}

/* From 3.11 on. */
static bool next_location(struct cursor *c, struct lines_range *ret)
{
    if (c->p >= c->end)
        return false;
    uint8_t head = *c->p++;
    bool has_line = read_entry(c, head >> 3 & 15, &c->line, &ret->columns);
    c->at += ((head & 7) + 1) * 2;
    ret->end = c->at;
    ret->line = has_line ? c->line : 0;
    return true;
}

/* The next range, the last one without end; false: there was the last one. */
static bool next_range(unsigned minor, struct cursor *c, struct lines_range *ret)
{
    if (ret->end == INT64_MAX)
        return false;
    bool more = minor >= 11   ? next_location(c, ret)
                : minor == 10 ? next_pair(c, ret)
                              : next_lnotab(c, ret);
    if (!more) { /* behind the table: as its last entry said */
        if (minor < 11)
            *ret = (struct lines_range){.line = c->line};
        ret->end = INT64_MAX;
    }
    if (c->line > LINE_MAX || c->line < -LINE_MAX) { /* torn: no more of it */
        *ret = (struct lines_range){.end = INT64_MAX};
        c->p = c->end;
    }
    if (ret->line < 0 || ret->line > LINE_MAX)
        ret->line = 0;
    if (ret->line == 0)
        ret->columns = (struct lines_columns){0, 0};
    return true;
}

static bool begin_table(struct cursor *ret, const uint8_t *table, size_t size, int first_line)
{
    *ret = (struct cursor){.p = table, .end = table + size, .line = first_line};
    return first_line >= 0 && first_line <= LINE_MAX;
}

int lines_find(unsigned minor, const uint8_t *table, size_t size, int first_line, int64_t offset,
               struct lines_columns *ret)
{
    struct lines_range range = {.line = first_line};
    struct cursor c;
    if (ret)
        *ret = range.columns;
    if (offset < 0)
        return first_line;
    if (!begin_table(&c, table, size, first_line))
        return 0;
    while (range.end <= offset && next_range(minor, &c, &range))
        ;
    if (ret)
        *ret = range.columns;
    return range.line;
}

size_t lines_decode(unsigned minor, const uint8_t *table, size_t size, int first_line,
                    struct lines_range *ret, size_t max)
{
    struct lines_range range = {.line = first_line};
    struct cursor c;
    size_t n = 0;
    if (!begin_table(&c, table, size, first_line))
        return 0;
    while (next_range(minor, &c, &range)) {
        if (n < max)
            ret[n] = range;
        n++;
    }
    return n;
}

int lines_search(const struct lines_range *ranges, size_t n, int first_line, int64_t offset,
                 struct lines_columns *ret)
{
    size_t low = 0, high = n;
    *ret = (struct lines_columns){0, 0};
    if (offset < 0)
        return first_line;
    while (low < high) { /* the first one that ends behind the instruction */
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == n)
        return 0;
    *ret = ranges[low].columns;
    return ranges[low].line;
}
