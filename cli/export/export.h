/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/export.h - what `export` is made of: an answer as JSON comes in piece by piece, rows
 * go out to a writer of a file format; or an answer that is a file already is looked through.
 *
 * One thread.
 */
#ifndef CLI_EXPORT_EXPORT_H
#define CLI_EXPORT_EXPORT_H

#include <stdint.h>

#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define EXPORT_COLUMNS_MAX 512

enum export_type { AS_BOOL, AS_INT, AS_DOUBLE, AS_TEXT, AS_BLOB, AS_TIME };

struct export_column {
    const char *name, *unit; /* live as long as the reader */
    enum export_type type;
};

/* A file format.  Bytes are added to `out`; who calls takes them from there. */
struct export_writer { /* begin, end: may be NULL */
    int (*begin)(void *self, const struct export_column *columns, uint32_t n, struct buf *out);
    /* cells: n JSON values; of AS_TIME texts, of AS_BLOB "\x..." in hex, or null. */
    int (*row)(void *self, const struct json *const *cells, struct buf *out);
    int (*end)(void *self, struct buf *out);
    void *self;
};

/* An Arrow stream that the process writes: where in it we are. */
struct export_arrow {
    uint64_t rows; /* that have come */
    struct buf meta;
    uint64_t body; /* bytes of the batch that have not come */
    bool begun, over;
};
void export_arrow_init(struct export_arrow *a);
void export_arrow_done(struct export_arrow *a);
/* The next bytes of it.  -EBADMSG: they are none of such a stream. */
int export_arrow_feed(struct export_arrow *a, const char *data, size_t size);
int export_arrow_end(const struct export_arrow *a); /* -EBADMSG: it is not whole */
/* Readers take a stream that just ends for whole: what to write behind one that broke off, so that
 * they do not.  Gives its size, 0: it has ended, has
 * not begun, or broke off where they see it. */
#define EXPORT_CUT_BYTES 8
size_t export_arrow_cut(const struct export_arrow *a, char ret[EXPORT_CUT_BYTES]);

/* Rows with a time and a duration as a trace: Perfetto's own, or Chrome's events as JSON.  Of the
 * process that `t` names, whose names of threads are asked for where it lives. */
struct target;
int export_trace_new(const struct target *t, bool perfetto, struct export_writer *ret);
/* Set the kind of events whose rows say none: the name of a track, which lives as long as the
 * writer. */
void export_trace_kind(struct export_writer *w, const char *kind);
void export_trace_free(struct export_writer *w);

/* Parquet, which others make of a file: of an Arrow stream, or (w->self != NULL) of what the writer
 * gives.  -ENOENT: nobody is there who can. */
struct export_parquet {
    enum { BY_NOBODY, BY_PYARROW, BY_DUCKDB_MODULE, BY_DUCKDB } by;
};
int export_parquet_new(struct export_parquet *p, struct export_writer *ret);
int export_parquet_make(const struct export_parquet *p, const struct export_writer *w,
                        const char *from, const char *to);
void export_parquet_free(struct export_writer *w);

/* A row as a trace shows it. */
struct export_event {
    int64_t at_ns, duration_ns; /* UTC; -1: it took no time */
    const char *name, *kind;
    size_t name_n, kind_n;
    int64_t pid, tid;
    const char *process, *thread; /* their names, "": not known */
    bool on_line;                 /* on a line of its own: `thread` is its name, tid its number */
};

/* Lines that are not threads' (trace_lines.c): a number for each line of a name, LINES_FIRST the
 * first.  Events that overlap without one being inside of the other have lines of their own; they
 * are looked at in the order in which they come. */
#define LINES_FIRST (INT64_C(1) << 31) /* larger than any thread's number */
struct export_lines;
struct export_lines *export_lines_new(void); /* NULL: no memory */
void export_lines_free(struct export_lines *l);
/* Where an event of that time goes.  -ENOMEM, also for more lines than can be looked at. */
int export_lines_place(struct export_lines *l, const char *name, int64_t begin_ns, int64_t end_ns,
                       int64_t *ret);

/* Perfetto's format (perfetto.c): begin, then for each event its arguments and itself. */
struct perfetto;
struct perfetto *perfetto_new(void); /* NULL: no memory */
void perfetto_free(struct perfetto *p);
int perfetto_begin(struct perfetto *p, struct buf *out);
void perfetto_argument(struct perfetto *p, const char *name, const struct json *c);
int perfetto_event(struct perfetto *p, const struct export_event *e, struct buf *out);
/* One end of an event alone, at e->at_ns: for those that come as they open and close. */
int perfetto_edge(struct perfetto *p, const struct export_event *e, bool opens, struct buf *out);

/* "2026-01-31T10:00:00.5Z" as ns since the epoch, UTC.  false: it is not such a text. */
bool export_time(const char *text, int64_t *ret);

/* ---- the answer ---- */

struct export_reader;

int export_reader_new(struct export_writer *w, struct buf *out, struct export_reader **ret);
void export_reader_free(struct export_reader *r);
/* The next bytes of {"columns":[...],"rows":[...],...}. */
int export_reader_feed(struct export_reader *r, const char *data, size_t size);
/* After the last of them.  -EBADMSG: the answer ended in the middle. */
int export_reader_end(struct export_reader *r);
uint64_t export_reader_rows(const struct export_reader *r);
/* Give the object behind the rows: "lost", "truncated", "row_count"; NULL: it has not come. */
const struct json *export_reader_closing(const struct export_reader *r);
/* "truncated" of it, or "cut", as cores of before wrote; NULL: it has none. */
const struct json *export_truncated(const struct json *closing);

#endif
