/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/format.c - answers as bytes: JSON, JSON lines and CSV; tables are
 * format_table.c's, Arrow is arrow.c's.
 *
 * The query's thread only.  Numbers are written with '.', whatever the locale of the host; for
 * programs they are exact, for people they are short.
 */
#include "core/sql/format/format.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/value/timestamp_parts.h"
#include "sdk/lib/json.h"

int sql_format_parse(const char *name, enum sql_format *ret)
{
    static const char *const names[] = {"table", "json", "jsonl", "csv", "arrow", "expanded"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum sql_format)i;
            return 0;
        }
    }
    return err_set(-EINVAL,
                   "unknown format '%s'; use one of table, expanded, json, jsonl, csv and arrow",
                   name);
}

int sql_writer_send(struct sql_writer *w)
{
    int rc = w->out.failed;
    if (rc < 0)
        return err_set(rc, "a part of the answer is too large for memory");
    if (w->out.size)
        rc = w->write(w->arg, w->out.data, w->out.size);
    buf_reset(&w->out);
    return rc;
}

/* ---- cells ---- */

/* printf() writes the host's decimal point, which may even be two bytes: make it a dot. */
static size_t plain_point(char *text)
{
    size_t to = 0;
    for (size_t i = 0; text[i]; i++) {
        if (strchr("0123456789+-eEinfa", text[i]))
            text[to++] = text[i];
        else if (to && text[to - 1] != '.')
            text[to++] = '.';
    }
    text[to] = '\0';
    return to;
}

/* Six digits that mean something, whole numbers whole, no exponent where it can be read without. */
size_t sql_short_double(double v, char out[48])
{
    double size = fabs(v);
    if (!isfinite(v) || size >= 1e15 || (size < 1e-4 && v != 0)) {
        (void)snprintf(out, 48, "%.6g", v);
        return isfinite(v) ? plain_point(out) : strlen(out);
    }
    int before = size >= 1 ? (int)floor(log10(size)) + 1 : 0;
    int after = size > 0 && size < 1 ? 6 - (int)floor(log10(size)) - 1 : 6 - before;
    after = after < 2 ? 2 : after > 10 ? 10 : after;
    (void)snprintf(out, 48, "%.*f", after, v);
    size_t n = plain_point(out);
    while (n && out[n - 1] == '0')
        n--;
    if (n && out[n - 1] == '.')
        n--;
    out[n] = '\0';
    return n;
}

void sql_cell_blob(struct buf *b, const char *data, uint32_t size)
{
    static const char hex[] = "0123456789abcdef";
    (void)buf_adds(b, "\\x");
    for (uint32_t i = 0; i < size; i++) {
        (void)buf_addc(b, hex[(unsigned char)data[i] >> 4]);
        (void)buf_addc(b, hex[(unsigned char)data[i] & 15]);
    }
}

/* Everything but texts, as text.  exact: for programs. */
size_t sql_cell_text(const struct sql_value *v, bool exact, char out[64])
{
    switch (v->type) {
    case SQL_BOOL:
        return (size_t)snprintf(out, 64, "%s", v->boolean ? "true" : "false");
    case SQL_DOUBLE:
        return exact ? format_f64(v->number, out) : sql_short_double(v->number, out);
    case SQL_TIMESTAMP:
        return sql_format_timestamp(v->integer, exact, out);
    case SQL_DATE:
        return sql_format_date(v->integer, out);
    case SQL_INTERVAL:
        return sql_format_interval(sql_interval_of(v->integer), out);
    case SQL_CALENDAR:
        return sql_format_interval(sql_interval_unpack(v->text.data), out);
    case SQL_INT:
        return (size_t)snprintf(out, 64, "%lld", (long long)v->integer);
    case SQL_NULL:
    case SQL_TEXT:
    case SQL_BLOB:
        break;
    }
    out[0] = '\0';
    return 0;
}

/* ---- JSON ---- */

void sql_cell_json(struct buf *b, const struct sql_value *v)
{
    char text[64];
    size_t n;
    switch (v->type) {
    case SQL_NULL:
        (void)buf_adds(b, "null");
        return;
    case SQL_DOUBLE:
        if (isfinite(v->number))
            (void)json_add_f64(b, v->number);
        else /* JSON has no such numbers; these texts are PostgreSQL's */
            (void)buf_adds(b, isnan(v->number) ? "\"NaN\""
                              : v->number < 0  ? "\"-Infinity\""
                                               : "\"Infinity\"");
        return;
    case SQL_TEXT:
        (void)json_add_text(b, v->text.data, v->text.size);
        return;
    case SQL_BLOB:
        (void)buf_addc(b, '"');
        (void)buf_addc(b, '\\');
        sql_cell_blob(b, v->text.data, v->text.size);
        (void)buf_addc(b, '"');
        return;
    case SQL_TIMESTAMP:
    case SQL_INTERVAL:
    case SQL_DATE:
    case SQL_CALENDAR:
        n = sql_cell_text(v, true, text);
        (void)json_add_text(b, text, n);
        return;
    case SQL_BOOL:
    case SQL_INT:
        n = sql_cell_text(v, true, text);
        (void)buf_add(b, text, n);
        return;
    }
}

static void json_rows(struct sql_writer *w, const struct sql_rows *rows)
{
    bool lines = w->format == SQL_FORMAT_JSONL;
    struct sql_value v;
    for (uint32_t r = 0; r < sql_rows_count(rows); r++) {
        if (!lines && w->begun)
            (void)buf_addc(&w->out, ',');
        w->begun = true;
        (void)buf_addc(&w->out, lines ? '{' : '[');
        for (uint32_t c = 0; c < w->n; c++) {
            if (c)
                (void)buf_addc(&w->out, ',');
            if (lines) {
                (void)json_add_text(&w->out, w->names[c], strlen(w->names[c]));
                (void)buf_addc(&w->out, ':');
            }
            sql_rows_value(rows, r, c, &v);
            sql_cell_json(&w->out, &v);
        }
        (void)buf_adds(&w->out, lines ? "}\n" : "]");
    }
}

static void json_head(struct sql_writer *w, const struct sql_column *columns)
{
    (void)buf_adds(&w->out, "{\"columns\":[");
    for (uint32_t c = 0; c < w->n; c++) {
        (void)buf_adds(&w->out, c ? ",{\"name\":" : "{\"name\":");
        (void)json_add_text(&w->out, columns[c].name, strlen(columns[c].name));
        (void)buf_addf(&w->out, ",\"type\":\"%s\",\"unit\":\"%s\"}", sql_type_name(columns[c].type),
                       sql_unit_name(columns[c].unit));
    }
    (void)buf_adds(&w->out, "],\"rows\":[");
}

/* ---- CSV ---- */

static void csv_text(struct buf *b, const char *text, size_t size)
{
    bool quote = size == 0;
    for (size_t i = 0; i < size && !quote; i++)
        quote = strchr(",\"\r\n", text[i]) != NULL || (i == 0 && text[i] == ' ');
    if (!quote) {
        (void)buf_add(b, text, size);
        return;
    }
    (void)buf_addc(b, '"');
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"')
            (void)buf_addc(b, '"');
        (void)buf_addc(b, text[i]);
    }
    (void)buf_addc(b, '"');
}

static void csv_rows(struct sql_writer *w, const struct sql_rows *rows)
{
    struct sql_value v;
    char text[64];
    for (uint32_t r = 0; r < sql_rows_count(rows); r++) {
        for (uint32_t c = 0; c < w->n; c++) {
            if (c)
                (void)buf_addc(&w->out, ',');
            sql_rows_value(rows, r, c, &v);
            if (v.type == SQL_TEXT)
                csv_text(&w->out, v.text.data, v.text.size);
            else if (v.type == SQL_BLOB)
                sql_cell_blob(&w->out, v.text.data, v.text.size);
            else
                (void)buf_add(&w->out, text, sql_cell_text(&v, true, text));
        }
        (void)buf_adds(&w->out, "\r\n");
    }
}

/* ---- the sink ---- */

static bool is_for_people(enum sql_format f)
{
    return f == SQL_FORMAT_TABLE || f == SQL_FORMAT_EXPANDED;
}

static int keep_columns(struct sql_writer *w, const struct sql_column *columns, uint32_t n)
{
    w->names = calloc(n ? n : 1, sizeof(*w->names));
    w->types = calloc(n ? n : 1, sizeof(*w->types));
    w->widths = calloc(n ? n : 1, sizeof(*w->widths));
    if (!w->names || !w->types || !w->widths)
        return err_set(-ENOMEM, "no memory for the answer");
    w->n = n;
    for (uint32_t c = 0; c < n; c++) {
        const char *unit = sql_unit_name(columns[c].unit);
        /* Times are shown as times, whatever they are counted in. */
        bool timed = columns[c].type == SQL_TIMESTAMP || columns[c].type == SQL_INTERVAL;
        bool show =
            is_for_people(w->format) && unit[0] && !timed && columns[c].unit != PROBING_COUNT;
        size_t size = strlen(columns[c].name) + 16;
        w->names[c] = malloc(size);
        if (!w->names[c])
            return err_set(-ENOMEM, "no memory for the answer");
        (void)snprintf(w->names[c], size, show ? "%s [%s]" : "%s", columns[c].name, unit);
        w->types[c] = columns[c].type;
        w->widths[c] = sql_table_letters(w->names[c]);
    }
    return 0;
}

static int on_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct sql_writer *w = arg;
    if (w->again)
        return n == w->n ? 0 : err_set(-ESTALE, "the columns have changed");
    int rc = keep_columns(w, columns, n);
    if (rc < 0)
        return rc;
    if (w->format == SQL_FORMAT_ARROW)
        return sql_arrow_columns(w, columns, n);
    if (w->format == SQL_FORMAT_JSON)
        json_head(w, columns);
    if (w->format == SQL_FORMAT_CSV) {
        for (uint32_t c = 0; c < n; c++) {
            if (c)
                (void)buf_addc(&w->out, ',');
            csv_text(&w->out, w->names[c], strlen(w->names[c]));
        }
        (void)buf_adds(&w->out, "\r\n");
    }
    return sql_writer_send(w);
}

static int on_rows(void *arg, const struct sql_rows *rows)
{
    struct sql_writer *w = arg;
    switch (w->format) {
    case SQL_FORMAT_TABLE:
        return sql_table_rows(w, rows);
    case SQL_FORMAT_EXPANDED:
        sql_expanded_rows(w, rows);
        break;
    case SQL_FORMAT_CSV:
        csv_rows(w, rows);
        break;
    case SQL_FORMAT_JSON:
    case SQL_FORMAT_JSONL:
        json_rows(w, rows);
        break;
    case SQL_FORMAT_ARROW:
        return sql_arrow_rows(w, rows);
    }
    return sql_writer_send(w);
}

int sql_writer_new(enum sql_format f, uint32_t columns_wide,
                   int (*write)(void *arg, const char *data, size_t size), void *arg,
                   struct sql_writer **ret)
{
    struct sql_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return err_set(-ENOMEM, "no memory for the answer");
    w->format = f;
    w->wide = columns_wide;
    w->write = write;
    w->arg = arg;
    buf_init(&w->out, PIECE_BYTES);
    buf_init(&w->held, HELD_BYTES);
    *ret = w;
    return 0;
}

struct sql_sink sql_writer_sink(struct sql_writer *w)
{
    return (struct sql_sink){.arg = w, .columns = on_columns, .rows = on_rows};
}

int sql_writer_finish(struct sql_writer *w, const struct sql_report *report)
{
    int rc = 0;
    switch (w->format) {
    case SQL_FORMAT_TABLE:
        rc = sql_table_flush(w);
        sql_table_footer(w, report);
        break;
    case SQL_FORMAT_EXPANDED:
        sql_table_footer(w, report);
        break;
    case SQL_FORMAT_JSON:
        (void)buf_addf(&w->out,
                       "],\"row_count\":%llu,\"elapsed_ms\":", (unsigned long long)report->rows);
        (void)json_add_f64(&w->out, (double)report->elapsed_ns / 1e6);
        (void)buf_addf(&w->out, ",\"lost\":%llu,\"truncated\":%s", (unsigned long long)report->lost,
                       report->cut ? "true" : "false");
        if (report->missing > 0)
            (void)buf_addf(&w->out, ",\"missing\":%u", report->missing);
        if (report->empty[0]) {
            (void)buf_adds(&w->out, ",\"empty\":");
            (void)json_add_text(&w->out, report->empty, strlen(report->empty));
        }
        (void)buf_adds(&w->out, "}\n");
        break;
    case SQL_FORMAT_JSONL:
    case SQL_FORMAT_CSV:
        break;
    case SQL_FORMAT_ARROW:
        return sql_arrow_end(w, report);
    }
    return rc < 0 ? rc : sql_writer_send(w);
}

void sql_report_note(const struct sql_report *r, enum sql_format f, char *ret, size_t size)
{
    ret[0] = '\0';
    if (is_for_people(f) || f == SQL_FORMAT_JSON)
        return;
    if (r->lost > 0)
        (void)snprintf(
            ret, size,
            "incomplete: %llu rows%s%.80s were lost before they could be kept; see probing.lost",
            (unsigned long long)r->lost, r->lost_table ? " of " : "",
            r->lost_table ? r->lost_table : "");
    else if (r->cut)
        (void)snprintf(ret, size, "incomplete: stopped after %llu rows: there are more",
                       (unsigned long long)r->rows);
    else
        (void)snprintf(ret, size, "%.*s", (int)size - 1, r->empty);
}

int sql_writer_pause(struct sql_writer *w)
{
    int rc = w->format == SQL_FORMAT_TABLE && w->held_rows > 0 ? sql_table_flush(w) : 0;
    if (rc == 0 && w->format == SQL_FORMAT_TABLE)
        sql_table_left_out(w);
    w->fixed = false;
    w->again = true;
    return rc < 0 ? rc : sql_writer_send(w);
}

void sql_writer_free(struct sql_writer *w)
{
    if (!w)
        return;
    for (uint32_t c = 0; w->names && c < w->n; c++)
        free(w->names[c]);
    free(w->names);
    free(w->types);
    free(w->widths);
    buf_done(&w->out);
    buf_done(&w->held);
    sql_arrow_free(w->arrow);
    free(w);
}
