/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/json_rows.c - takes an answer in JSON apart row by row, without having all of it at
 * once.
 *
 * One thread.  The answer comes from a process that need not be trusted: sizes are bounded.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/export/export.h"
#include "core/base/err.h"
#include "core/base/json.h"

#define PENDING_MAX ((size_t)256 << 20) /* bytes: of one row */

enum phase { IN_HEAD, IN_ROWS, IN_CLOSING };

struct export_reader {
    struct export_writer *writer;
    struct buf *out;
    struct buf pending;
    struct arena arena, row_arena; /* arena: columns and closing */
    enum phase phase;
    struct export_column *columns;
    const struct json **cells;
    uint32_t n;
    uint64_t rows;
    struct json *closing;
    /* IN_ROWS: where the search for the row's end stands. */
    size_t at, row_begin;
    int depth;
    bool in_text, escaped;
};

int export_reader_new(struct export_writer *w, struct buf *out, struct export_reader **ret)
{
    struct export_reader *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return err_set(-ENOMEM, "no memory for reading the answer");
    r->writer = w;
    r->out = out;
    buf_init(&r->pending, PENDING_MAX);
    arena_init(&r->arena, 64u << 20);
    arena_init(&r->row_arena, PENDING_MAX);
    *ret = r;
    return 0;
}

void export_reader_free(struct export_reader *r)
{
    if (r == NULL)
        return;
    buf_done(&r->pending);
    arena_done(&r->arena);
    arena_done(&r->row_arena);
    free(r);
}

static enum export_type type_named(const char *name)
{
    static const struct {
        const char *name;
        enum export_type type;
    } types[] = {{"boolean", AS_BOOL},
                 {"bool", AS_BOOL},
                 {"bigint", AS_INT},
                 {"integer", AS_INT},
                 {"int", AS_INT},
                 {"double", AS_DOUBLE},
                 {"double precision", AS_DOUBLE},
                 {"blob", AS_BLOB},
                 {"bytea", AS_BLOB},
                 {"timestamp", AS_TIME}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return AS_TEXT; /* intervals and what is never more than NULL, too */
}

/* Drop the first n bytes of what waits. */
static void consume(struct export_reader *r, size_t n)
{
    memmove(r->pending.data, r->pending.data + n, r->pending.size - n);
    r->pending.size -= n;
    r->at = r->at > n ? r->at - n : 0;
    r->row_begin = r->row_begin > n ? r->row_begin - n : 0;
}

/* The columns are there when the rows begin: inside of a text, the quotes would be escaped. */
static int read_head(struct export_reader *r)
{
    static const char END[] = "],\"rows\":[";
    const char *text = buf_text(&r->pending), *end = strstr(text, END);
    struct json *head;
    struct buf copy;
    if (end == NULL)
        return 0;
    buf_init(&copy, PENDING_MAX);
    (void)buf_add(&copy, text, (size_t)(end - text));
    int rc = buf_adds(&copy, "]}");
    if (rc == 0)
        rc = json_parse(&r->arena, buf_text(&copy), copy.size, &head);
    buf_done(&copy);
    if (rc != 0)
        return rc;
    const struct json *list = json_get(head, "columns");
    if (list == NULL || list->type != JSON_ARRAY || list->size == 0 ||
        list->size > EXPORT_COLUMNS_MAX)
        return err_set(-EBADMSG, "the answer has no columns, or more than %d", EXPORT_COLUMNS_MAX);
    r->columns = arena_zalloc(&r->arena, list->size, sizeof(*r->columns));
    r->cells = arena_zalloc(&r->arena, list->size, sizeof(*r->cells));
    if (r->columns == NULL || r->cells == NULL)
        return err_set(-ENOMEM, "no memory for the columns");
    for (const struct json *c = list->first; c != NULL; c = c->next)
        r->columns[r->n++] = (struct export_column){.name = json_text(c, "name", ""),
                                                    .unit = json_text(c, "unit", ""),
                                                    .type = type_named(json_text(c, "type", ""))};
    consume(r, (size_t)(end - text) + sizeof(END) - 1);
    r->phase = IN_ROWS;
    return r->writer->begin != NULL ? r->writer->begin(r->writer->self, r->columns, r->n, r->out)
                                    : 0;
}

static int take_row(struct export_reader *r, const char *text, size_t size)
{
    struct json *row;
    uint32_t n = 0;
    int rc = json_parse(&r->row_arena, text, size, &row);
    if (rc == 0 && (row->type != JSON_ARRAY || row->size != r->n))
        rc = err_set(-EBADMSG, "row %llu of the answer has %zu values, not %u",
                     (unsigned long long)r->rows, row->size, r->n);
    if (rc == 0) {
        for (const struct json *c = row->first; c != NULL; c = c->next)
            r->cells[n++] = c;
        rc = r->writer->row(r->writer->self, r->cells, r->out);
        r->rows++;
    }
    arena_done(&r->row_arena);
    arena_init(&r->row_arena, PENDING_MAX);
    return rc;
}

static int read_rows(struct export_reader *r)
{
    int rc = 0;
    for (; rc == 0 && r->at < r->pending.size; r->at++) {
        char c = r->pending.data[r->at];
        if (r->in_text) {
            r->in_text = r->escaped || c != '"';
            r->escaped = !r->escaped && c == '\\';
        } else if (c == '"') {
            r->in_text = true;
        } else if (c == '[') {
            if (r->depth++ == 0)
                r->row_begin = r->at;
        } else if (c == ']' && r->depth > 0) {
            if (--r->depth == 0)
                rc = take_row(r, r->pending.data + r->row_begin, r->at + 1 - r->row_begin);
            if (r->depth == 0)
                r->row_begin = r->at + 1;
        } else if (c == ']') {
            consume(r, r->at + 1);
            r->phase = IN_CLOSING;
            return 0;
        }
    }
    if (rc == 0 && (r->depth == 0 || r->row_begin > 0))
        consume(r, r->depth == 0 ? r->at : r->row_begin);
    return rc;
}

int export_reader_feed(struct export_reader *r, const char *data, size_t size)
{
    int rc = buf_add(&r->pending, data, size);
    if (rc != 0)
        return err_set(rc, "a row of the answer is too large for memory");
    if (r->phase == IN_HEAD)
        rc = read_head(r);
    if (rc == 0 && r->phase == IN_ROWS)
        rc = read_rows(r);
    return rc;
}

int export_reader_end(struct export_reader *r)
{
    struct buf text;
    if (r->phase != IN_CLOSING)
        return err_set(-EBADMSG, "the answer ended prematurely");
    const char *rest = buf_text(&r->pending), *comma = strchr(rest, ',');
    buf_init(&text, PENDING_MAX);
    (void)buf_adds(&text, "{");
    int rc = buf_adds(&text, comma != NULL ? comma + 1 : "}");
    while (text.size > 0 && strchr(" \n\r", text.data[text.size - 1]) != NULL)
        text.size--;
    if (rc == 0)
        rc = json_parse(&r->arena, text.data, text.size, &r->closing);
    buf_done(&text);
    return rc != 0 || r->writer->end == NULL ? rc : r->writer->end(r->writer->self, r->out);
}

uint64_t export_reader_rows(const struct export_reader *r)
{
    return r->rows;
}

const struct json *export_reader_closing(const struct export_reader *r)
{
    return r->closing;
}

const struct json *export_truncated(const struct json *closing)
{
    const struct json *truncated = closing ? json_get(closing, "truncated") : NULL;
    return truncated || !closing ? truncated : json_get(closing, "cut");
}

static bool digits(const char **p, int n, int64_t *ret)
{
    int64_t v = 0;
    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        v = 10 * v + (**p - '0');
    }
    *ret = v;
    return true;
}

static bool letter(const char **p, char c)
{
    bool is = **p == c;
    *p += is;
    return is;
}

bool export_time(const char *text, int64_t *ret)
{
    const char *p = text;
    int64_t y, m, d, h, min, s, fraction = 0;
    if (!digits(&p, 4, &y) || !letter(&p, '-') || !digits(&p, 2, &m) || !letter(&p, '-') ||
        !digits(&p, 2, &d) || (!letter(&p, 'T') && !letter(&p, ' ')) || !digits(&p, 2, &h) ||
        !letter(&p, ':') || !digits(&p, 2, &min) || !letter(&p, ':') || !digits(&p, 2, &s))
        return false;
    if (letter(&p, '.')) {
        int64_t unit = 100000000;
        for (; *p >= '0' && *p <= '9'; p++, unit /= 10)
            fraction += (*p - '0') * unit;
    }
    /* Days since 1970: years begin in March, so that the leap day is a year's last. */
    int64_t year = y - (m <= 2), era = year / 400, of_era = year - era * 400;
    int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    int64_t days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + day - 719468;
    *ret = (((days * 24 + h) * 60 + min) * 60 + s) * 1000000000 + fraction;
    return true;
}
