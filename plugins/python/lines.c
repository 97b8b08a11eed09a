/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/lines.c - line tables of CPython 3.8 to 3.14.
 *
 * Any thread.  The tables are bytes that another thread may have changed while they were copied, so
 * every read is bounded; a broken table gives a line, never a fault.
 * Formats: CPython's Objects/lnotab_notes.txt (3.8 to 3.10), Objects/locations.md (3.11 on).
 */
#include "lines.h"

#include <stdbool.h>

#define COLUMN_MAX (1u << 20)
#define LINE_MAX INT32_C(100000000) /* more is a torn table; keeps the sums in range */

/* To 3.9: pairs (bytes of code, signed lines), until the code is past the instruction. */
static int lnotab(const uint8_t *p, size_t size, int line, int64_t offset)
{
    int64_t at = 0;
    for (size_t i = 0; i + 1 < size; i += 2) {
        at += p[i];
        if (at > offset)
            break;
        line += (int8_t)p[i + 1];
    }
    return line;
}

/* 3.10: pairs (bytes of code, signed lines; -128: no line), each a range of its own. */
static int pairs(const uint8_t *p, size_t size, int line, int64_t offset)
{
    int64_t end = 0;
    for (size_t i = 0; i + 1 < size; i += 2) {
        int delta = (int8_t)p[i + 1];
        end += p[i];
        if (delta != -128)
            line += delta;
        if (offset < end)
            return delta == -128 ? 0 : line;
    }
    return line;
}

struct cursor {
    const uint8_t *p, *end;
};

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
static bool entry(struct cursor *c, unsigned kind, int *line, struct lines_columns *columns)
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

static int locations(const uint8_t *p, size_t size, int line, int64_t offset,
                     struct lines_columns *columns)
{
    struct cursor c = {p, p + size};
    int64_t end = 0;
    int found = line;
    while (c.p < c.end) {
        uint8_t head = *c.p++;
        found = entry(&c, head >> 3 & 15, &line, columns) ? line : 0;
        end += ((head & 7) + 1) * 2;
        if (offset < end || line > LINE_MAX || line < -LINE_MAX)
            break;
    }
    return found;
}

int lines_find(unsigned minor, const uint8_t *table, size_t size, int first_line, int64_t offset,
               struct lines_columns *ret)
{
    struct lines_columns columns = {0, 0};
    if (ret)
        *ret = columns;
    if (offset < 0)
        return first_line;
    if (first_line < 0 || first_line > LINE_MAX)
        return 0;
    int line = minor >= 11   ? locations(table, size, first_line, offset, &columns)
               : minor == 10 ? pairs(table, size, first_line, offset)
                             : lnotab(table, size, first_line, offset);
    if (line < 0 || line > LINE_MAX)
        return 0;
    if (ret)
        *ret = columns;
    return line;
}
