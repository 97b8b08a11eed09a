/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/format_table.c - answers as a table for people: widths, lines, what is said
 * below.
 *
 * The query's thread only.  Rows are held back until the widths are known.
 */
#include "core/sql/format/format.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/printable.h"

#define NAMED 30         /* columns that do not fit */
#define HELD_ROWS 1000   /* rows of a table looked at for its widths */
#define CELL_LETTERS 200 /* a longer text is cut in a table */
#define TEXT_LETTERS 16  /* a column of texts is not made narrower than this */

static bool is_start(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

uint32_t sql_table_letters(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++)
        n += is_start(*text);
    return n;
}

/* Bytes of its first n letters. */
static uint32_t bytes_of(const char *text, uint32_t n)
{
    uint32_t i = 0;
    for (uint32_t k = 0; text[i]; i++)
        if (is_start(text[i]) && k++ == n)
            break;
    return i;
}

/* One line a row, for eyes: what would steer a terminal is written as escapes, very long texts are
 * cut. */
static void add_shown(struct buf *b, const char *text, uint32_t size)
{
    uint32_t n = 0, i = 0;
    for (; i < size && n < CELL_LETTERS; n++) {
        bool plain;
        size_t letter = printable_letter(text + i, size - i, &plain);
        i += letter > 0 ? (uint32_t)letter : 1;
    }
    (void)printable_add(b, text, i, PRINTABLE_LINE);
    if (i < size)
        (void)buf_adds(b, "...");
}

static bool on_the_right(enum sql_type t)
{
    return t == SQL_INT || t == SQL_DOUBLE || t == SQL_INTERVAL;
}

/* Add one line, cut at the terminal's width. */
static void add_line(struct sql_writer *w, struct buf *line)
{
    const char *text = buf_text(line);
    size_t size = line->size;
    while (size && text[size - 1] == ' ')
        size--;
    uint32_t n = 0;
    for (size_t i = 0; w->wide && i < size; i++)
        if (is_start(text[i]) && n++ == w->wide) {
            size = i;
            w->cut = true;
        }
    (void)buf_add(&w->out, text, size);
    (void)buf_addc(&w->out, '\n');
    buf_reset(line);
}

static void add_cell(struct sql_writer *w, struct buf *line, uint32_t c, const char *text,
                     bool right)
{
    uint32_t n = sql_table_letters(text), size = (uint32_t)strlen(text);
    const char *dots = "";
    bool cut = n > CELL_LETTERS && strcmp(text + size - 3, "...") == 0; /* by add_shown() */
    if (w->wide && n > w->widths[c] && w->types[c] == SQL_TEXT && w->widths[c] >= TEXT_LETTERS) {
        size = bytes_of(text, w->widths[c] - 3);
        n = w->widths[c];
        dots = "...";
        cut = true;
    }
    w->cut_cells += cut;
    int pad = n < w->widths[c] ? (int)(w->widths[c] - n) : 0;
    (void)buf_addf(line, "%s%*s%.*s%s%*s", c ? " | " : " ", right ? pad : 0, "", (int)size, text,
                   dots, right ? 0 : pad, "");
}

/* Make the widest columns of text narrower until a line fits, rather than lose the last columns.
 * Where that is not enough those that do not fit whole are left out, which is said below: half a
 * number is another one. */
static void fit_columns(struct sql_writer *w)
{
    uint64_t sum = 1;
    for (uint32_t c = 0; c < w->n; c++)
        sum += w->widths[c] + (c ? 3 : 0);
    w->shown = w->n;
    while (w->wide && sum > w->wide) {
        uint32_t widest = w->n;
        for (uint32_t c = 0; c < w->n; c++)
            if (w->types[c] == SQL_TEXT && w->widths[c] > TEXT_LETTERS &&
                (widest == w->n || w->widths[c] > w->widths[widest]))
                widest = c;
        if (widest == w->n)
            break;
        w->widths[widest]--;
        sum--;
    }
    while (w->wide && sum > w->wide && w->shown > 1)
        sum -= w->widths[--w->shown] + 3;
}

static void add_header(struct sql_writer *w)
{
    fit_columns(w);
    struct buf line;
    buf_init(&line, PIECE_BYTES);
    for (uint32_t c = 0; c < w->shown; c++)
        add_cell(w, &line, c, w->names[c], on_the_right(w->types[c]));
    w->cut_cells = 0;
    add_line(w, &line);
    for (uint32_t c = 0; c < w->shown; c++) {
        (void)buf_adds(&line, c ? "-+-" : "-");
        for (uint32_t i = 0; i < w->widths[c]; i++)
            (void)buf_addc(&line, '-');
    }
    (void)buf_addc(&line, '-');
    add_line(w, &line);
    buf_done(&line);
    w->header_done = true;
    w->told = w->cut = false; /* of rows before it is said what was said */
}

int sql_table_flush(struct sql_writer *w)
{
    if (w->held.failed)
        return err_set(w->held.failed, "the table is too large for memory; use format csv");
    if (!w->header_done)
        add_header(w);
    struct buf line;
    buf_init(&line, PIECE_BYTES);
    const char *cell = w->held.data;
    for (uint32_t r = 0; r < w->held_rows; r++) {
        for (uint32_t c = 0; c < w->n; c++) {
            if (c < w->shown)
                add_cell(w, &line, c, cell, on_the_right(w->types[c]));
            cell += strlen(cell) + 1;
        }
        add_line(w, &line);
    }
    buf_done(&line);
    w->fixed = w->fixed || w->held_rows > 0;
    w->held_rows = 0;
    buf_reset(&w->held);
    return sql_writer_send(w);
}

/* The text of one cell, for eyes.  whole: however long it is. */
static void add_value(struct buf *b, const struct sql_value *v, bool whole)
{
    char text[SQL_CELL_BYTES];

    if (v->type == SQL_TEXT && whole)
        (void)printable_add(b, v->text.data, v->text.size, PRINTABLE_LINE);
    else if (v->type == SQL_TEXT)
        add_shown(b, v->text.data, v->text.size);
    else if (v->type == SQL_BLOB)
        sql_cell_blob(b, v->text.data, v->text.size < 64 || whole ? v->text.size : 64);
    else
        (void)buf_add(b, text, sql_cell_text(v, false, text));
}

int sql_table_rows(struct sql_writer *w, const struct sql_rows *rows)
{
    struct sql_value v;
    for (uint32_t r = 0; r < sql_rows_count(rows); r++) {
        for (uint32_t c = 0; c < w->n; c++) {
            size_t at = w->held.size;
            sql_rows_value(rows, r, c, &v);
            add_value(&w->held, &v, /* whole= */ false);
            (void)buf_addc(&w->held, '\0');
            if (w->held.failed)
                return err_set(w->held.failed, "no memory for the table");
            uint32_t n = sql_table_letters(w->held.data + at);
            if (!w->fixed && n > w->widths[c]) {
                w->widths[c] = n;
                w->header_done = false;
            }
        }
        w->held_rows++;
        if (w->held_rows == HELD_ROWS || w->held.size > HELD_BYTES / 2) {
            int rc = sql_table_flush(w);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

void sql_expanded_rows(struct sql_writer *w, const struct sql_rows *rows)
{
    struct sql_value v;
    uint32_t widest = 0;
    for (uint32_t c = 0; c < w->n; c++)
        widest = w->widths[c] > widest ? w->widths[c] : widest;
    for (uint32_t r = 0; r < sql_rows_count(rows); r++) {
        size_t at = w->out.size;
        (void)buf_addf(&w->out, "-[ RECORD %llu ]-", (unsigned long long)++w->records);
        while (!w->out.failed && w->out.size - at < widest + 1)
            (void)buf_addc(&w->out, '-');
        (void)buf_adds(&w->out, "+-\n");
        for (uint32_t c = 0; c < w->n; c++) {
            int pad = (int)(widest - w->widths[c]);
            sql_rows_value(rows, r, c, &v);
            (void)buf_addf(&w->out, "%s%*s | ", w->names[c], pad, "");
            add_value(&w->out, &v, /* whole= */ true);
            (void)buf_addc(&w->out, '\n');
        }
    }
}

/* A sentence below a table, wrapped at the terminal's width. */
static void add_note(struct sql_writer *w, struct buf *note)
{
    const char *text = buf_text(note);
    while (*text != '\0') {
        uint32_t all = (uint32_t)strlen(text), n = w->wide ? bytes_of(text, w->wide) : all;
        while (n < all && n > 0 && text[n] != ' ')
            n--;
        n = n > 0 ? n : (uint32_t)strcspn(text, " "); /* a word is wider */
        (void)buf_addf(&w->out, "%.*s\n", (int)n, text);
        text += n + (text[n] == ' ');
    }
    buf_reset(note);
}

void sql_table_left_out(struct sql_writer *w)
{
    struct buf note;
    if (w->told || !w->header_done)
        return;
    w->told = true;
    buf_init(&note, PIECE_BYTES);
    if (w->shown < w->n) {
        (void)buf_addf(&note, "(%u of %u columns do not fit into the terminal: ", w->n - w->shown,
                       w->n);
        for (uint32_t c = w->shown; c < w->n && c < w->shown + NAMED; c++)
            (void)buf_addf(&note, "%s%s", c > w->shown ? ", " : "", w->names[c]);
        (void)buf_addf(&note, "%s; -x or \\x shows all)", w->n - w->shown > NAMED ? " ..." : "");
        add_note(w, &note);
    }
    if (w->cut) {
        (void)buf_adds(&note, "(lines are cut at the terminal's edge; a pipe has all of them)");
        add_note(w, &note);
    }
    buf_done(&note);
}

/* How many cells are cut, on a terminal. */
static void add_cut_cells(struct sql_writer *w)
{
    struct buf note;
    if (w->wide == 0 || w->cut_cells == 0)
        return;
    buf_init(&note, PIECE_BYTES);
    (void)buf_addf(&note, "(%llu cell%s cut; -x or \\x shows all, and --json)",
                   (unsigned long long)w->cut_cells, w->cut_cells == 1 ? " is" : "s are");
    add_note(w, &note);
    buf_done(&note);
}

void sql_table_footer(struct sql_writer *w, const struct sql_report *r)
{
    char ms[48];
    (void)sql_short_double(r->elapsed_ns >= 10000000 ? rint((double)r->elapsed_ns / 1e6)
                                                     : rint((double)r->elapsed_ns / 1e5) / 10,
                           ms);
    (void)buf_addf(&w->out, "(%llu row%s, %s ms)\n", (unsigned long long)r->rows,
                   r->rows == 1 ? "" : "s", ms);
    sql_table_left_out(w);
    add_cut_cells(w);
    if (r->cut)
        (void)buf_addf(&w->out,
                       "(stopped after %llu rows: there are more; ask with limit or an "
                       "aggregate)\n",
                       (unsigned long long)r->rows);
    if (r->empty[0])
        (void)buf_addf(&w->out, "(%s)\n", r->empty);
    if (r->lost)
        (void)buf_addf(&w->out,
                       "(%llu rows%s%s were lost before they could be kept; see "
                       "probing.lost)\n",
                       (unsigned long long)r->lost, r->lost_table ? " of " : "",
                       r->lost_table ? r->lost_table : "");
}
