/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/sql.h - ask the tables in SQL: all that the rest of the core sees of the engine.
 *
 * A statement is parsed, planned and executed on the caller's thread, or on one of its own for
 * which the caller waits (SQL_SET_NICE); rows go to a sink batch by batch.  Several statements may
 * run at once on one engine (it holds no state of theirs).  [any]
 * One arena a query, thrown away whole; limits and cancellation are looked at every batch.
 */
#ifndef CORE_SQL_SQL_H
#define CORE_SQL_SQL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/catalog/catalog.h"
#include "sdk/lib/buf.h"

struct store;
struct sql;

/* tables, store: live as long as the engine; store may be NULL (computed tables only). */
int sql_new(struct tables *tables, struct store *store, struct sql **ret);
void sql_free(struct sql *s);

/* The settings of an engine for queries whose own options say nothing, changed while they run: the
 * next query sees it.  All are 0 at first; core/builtin/query_settings.c has those of a process.
 *                                                                                          [any] */
enum sql_setting {
    SQL_SET_MEMORY,  /* bytes that one query may use, 0: no limit */
    SQL_SET_TIMEOUT, /* ns, 0: none */
    SQL_SET_ROWS,    /* of an answer, 0: no limit */
    SQL_SET_NICE,    /* run on a thread of its own, nicer than the caller's by so much; 0: on his */
    SQL_SET_LATE,    /* ns after its end that a bucket of time counts as closed */
    SQL_SET_THREADS, /* that one query may use, 0: one */
    SQL_SETTINGS
};
void sql_configure(struct sql *s, enum sql_setting which, uint64_t value);

/* Set the function to ask why a table has no rows, when an answer rests on it.  fn: puts words into
 * text and gives 0, or -ENOENT.  Before the first query.  A view may say it by a select. */
void sql_ask_why(struct sql *s, int (*fn)(void *arg, const struct table *t, char *text, size_t n),
                 void *arg);

/* ---- views (plan/views.c) ---- */

/* `definition` is a select, parsed when it is used; NULL: it is the name of a table that the plugin
 * would make, known for words only.  Names may be "schema.name" or bare. */
struct sql_view {
    const char *name, *definition, *doc;
    const char *why;    /* a select of one text or none: why it has no rows; may be NULL */
    const char *plugin; /* who declares it; NULL: the engine's owner */
    bool loaded;        /* the plugin is or was in this process; else it is only known */
};
/* The first of several with one name whose tables are all there is used: those without a plugin,
 * the newest first; those of plugins that were loaded; those that are only known.  A plugin's views
 * stand in the order of the list, which is added whole, and before what was added earlier.  A
 * plugin's view whose tables are not there has no rows, and the report says why.           [any] */
int sql_add_view(struct sql *s, const char *name, const char *definition, const char *doc);
int sql_declare_views(struct sql *s, const struct sql_view *views, uint32_t n); /* 1: as it was */
/* Is it a select?  -EINVAL: line and column. */
int sql_check_select(const char *text, size_t size);

/* Functions for names that mean nothing, set before the first query.  find: sql_declare_views()
 * what else is known; why: as sql_ask_why()'s fn, of a plugin whose view has no table ("python.x");
 * ended: these are files of a process that is no more, and tables will not come. */
struct sql_unknown {
    void (*find)(void *arg);
    int (*why)(void *arg, const char *plugin, const char *table, char *text, size_t n);
    void *arg;
    bool ended;
};
void sql_ask_unknown(struct sql *s, const struct sql_unknown *u);

enum sql_type {
    SQL_NULL,
    SQL_BOOL,
    SQL_INT,
    SQL_DOUBLE,
    SQL_TEXT,
    SQL_BLOB,
    SQL_TIMESTAMP,
    SQL_INTERVAL, /* of days and less: a number of ns, as all times are UTC */
    SQL_DATE,
    SQL_CALENDAR /* an interval that may have months: sql_interval_unpack() reads it */
};

struct sql_column {
    const char *name;
    enum sql_type type;
    uint32_t unit;   /* PROBING_NS ..., PROBING_PLAIN when computed */
    const char *doc; /* "" when computed */
};

struct sql_value {
    enum sql_type type; /* SQL_NULL when the value is */
    union {
        bool boolean;
        int64_t integer; /* INT; TIMESTAMP: UTC ns; DATE: of its midnight; INTERVAL: ns */
        double number;
        struct {
            const char *data;
            uint32_t size;
        } text; /* TEXT, BLOB, CALENDAR */
    };
};

/* The unit that answers call so ("ns", "bytes"), PROBING_PLAIN: there is none of that name; and
 * what they call it, and a type ("bigint"). */
uint32_t sql_unit_named(const char *name);
const char *sql_unit_name(uint32_t unit);
const char *sql_type_name(enum sql_type type);

/* Everything but TEXT and BLOB, as text.  exact: for programs, all digits.  Gives its size. */
#define SQL_CELL_BYTES 64
size_t sql_cell_text(const struct sql_value *v, bool exact, char out[SQL_CELL_BYTES]);
/* Add a blob as text: "\x6869". */
void sql_cell_blob(struct buf *b, const char *data, uint32_t size);
/* Add any value as JSON has it (see below). */
void sql_cell_json(struct buf *b, const struct sql_value *v);

/* "2024-05-01", "20240501", "epoch", "2024-05-01 10:00:00.5", "...T...Z", "+02:00": ns since the
 * epoch.  -EINVAL or -ERANGE with err_set(). */
int sql_parse_timestamp(const char *text, size_t size, int64_t *ret);

struct sql_rows; /* up to 2,048 rows of the answer */
uint32_t sql_rows_count(const struct sql_rows *r);
void sql_rows_value(const struct sql_rows *r, uint32_t row, uint32_t column, struct sql_value *ret);

/* The receiver of an answer.  A negative return stops the query and is what sql_run() gives. */
struct sql_sink {
    void *arg;
    int (*columns)(void *arg, const struct sql_column *columns, uint32_t n);
    int (*rows)(void *arg, const struct sql_rows *rows);
};

/* Rows that no query made, to a sink, which has been told the columns: each cell is asked for, of
 * its column's type or NULL; texts live until this returns.  0, or what the sink gave. */
struct sql_given {
    const struct sql_column *columns;
    uint32_t n_columns;
    void (*value)(void *arg, uint32_t row, uint32_t column, struct sql_value *ret);
    void *arg;
};
int sql_give_rows(const struct sql_sink *to, const struct sql_given *from, uint32_t n_rows);

struct sql_options {
    uint64_t timeout_ns;       /* 0: the engine's, as the next two */
    uint64_t memory_bytes;     /* of all that the query keeps; what would need more is refused */
    uint64_t max_rows;         /* of the answer; past it the query ends and says so */
    const _Atomic int *cancel; /* not NULL and non-zero: stop with -ECANCELED */
    /* A continuous query over one stored table: only rows numbered >= from_row are read; and only
     * those < to_row, 0: all. */
    uint64_t from_row, to_row;
    /* Give only buckets from from_ts on (UTC ns) that are closed by now, so that each is given
     * once; for a statement that sql_bucketed() takes. */
    bool closed;
    int64_t from_ts;
    /* With `closed`: tell nothing, but count in the report rows numbered from from_row to to_row
     * (exclusive) whose ts lies from late_ts to from_ts (exclusive): they came when their buckets
     * had been told. */
    bool late;
    int64_t late_ts;
    bool hide_secrets; /* whoever asks may only read: no text is seen with its secrets */
    /* Do `set NAME = VALUE`; 0 or -errno with err_set().  NULL: it is refused. */
    int (*set)(void *arg, const char *name, const char *value);
    void *set_arg;
};

#define SQL_EMPTY_BYTES 512

struct sql_report {
    uint64_t rows; /* rows given to the sink */
    uint64_t elapsed_ns;
    uint64_t lost;    /* rows lost by the tables asked, at any time: the answer is incomplete */
    bool cut;         /* max_rows was reached */
    uint32_t missing; /* of many that were asked: of so many not all is in the answer, or nothing */
    /* The number of the row after the last one that a followable or bucketed statement looked at,
     * the next run's from_row.  0: not one, or cut. */
    uint64_t next_row;
    /* The beginning of the first bucket that was not closed, the next run's from_ts, and the length
     * of the one before it; of a run with `closed`. */
    int64_t next_ts, bucket_ns;
    uint64_t late;          /* of a run with `late` */
    const char *lost_table; /* "python.torch_trace", NULL: none; static or owned by the table */
    /* The table without rows that leaves the answer without any, or with a count of none, and why
     * it has none; "": no table does. */
    char empty[SQL_EMPTY_BYTES];
};

/* Run one statement.  0 or -errno with err_set(): line, column, what was found and expected, the
 * nearest name. */
int sql_run(struct sql *s, const char *text, size_t size, const struct sql_options *o,
            const struct sql_sink *sink, struct sql_report *ret);

/* May this statement be followed row by row?  1: yes, *ret_table is the stored table it reads
 * (a select of expressions over one table, with or without where); 0: no, it must be run afresh
 * each time (aggregates, order by, limit, joins, computed tables); -errno: it is wrong. */
int sql_followable(struct sql *s, const char *text, size_t size, const struct table **ret_table);

/* Does this select read a view whose plugin has not made the view's tables?  1: yes; 0: no; -errno:
 * it is wrong. */
int sql_lacks(struct sql *s, const char *text, size_t size);

/* May its answers be had bucket by bucket?  1: yes: it groups the rows of the stored table
 * *ret_table by time_bucket(), date_bin() or date_trunc() of ts, perhaps with where, having, other
 * keys and order by.  0: no. */
int sql_bucketed(struct sql *s, const char *text, size_t size, const struct table **ret_table);

/* Does its answer only gain rows as the stored tables do that it reads?  1: yes (windows, joins,
 * unions, order by over them; a view that is made of such): what is new can be told alone, by the
 * sink of news.  0: no (aggregates, limit, distinct on, computed tables). */
int sql_grows(struct sql *s, const char *text, size_t size);

/* The next placeholder of a statement, behind p->end: `?`, numbered as they come, or `$2`.  Begin
 * with zeros.  false: there is no more.                                                    [any] */
struct sql_placeholder {
    size_t begin, end; /* bytes of the text */
    uint32_t number;   /* from 1 on */
    uint32_t counted;  /* of `?` so far */
};
bool sql_next_placeholder(const char *text, size_t size, struct sql_placeholder *p);

/* ---- answers asked for again and again: what is new (new_rows.c) ---- */

#define SQL_NEWS_ROWS 131072 /* of an answer: more is refused, so a feed takes at most 6 MiB */
struct sql_news;
int sql_news_new(struct sql_news **ret);
void sql_news_free(struct sql_news *n); /* NULL is fine */
/* Begin an answer: its rows that were not in the one before go on to `to`, but for those before
 * number `from`; of several equal rows as many as there are more.  The sink is good for one
 * sql_run(). */
struct sql_sink sql_news_sink(struct sql_news *n, const struct sql_sink *to, uint64_t from);
/* How many rows of the last answer went on. */
uint64_t sql_news_told(const struct sql_news *n);

/* ---- answers as bytes ---- */

#define SQL_ARROW_TYPE "application/vnd.apache.arrow.stream" /* IANA's name */

enum sql_format {
    SQL_FORMAT_TABLE,
    SQL_FORMAT_JSON,
    SQL_FORMAT_JSONL,
    SQL_FORMAT_CSV,
    SQL_FORMAT_ARROW,
    SQL_FORMAT_EXPANDED
};
int sql_format_parse(const char *name, enum sql_format *ret); /* -EINVAL names the ones there are */

/* A writer of one format: give its sink to sql_run(), then finish.  Bytes go to `write` (0 or
 * negative to stop).  TABLE holds back up to 1,000 rows to find the widths; `columns_wide`: make
 * columns of texts narrower and leave out those that do not fit, which is said below; 0: never.
 * EXPANDED: for people, too, but a line for each column, and every text whole.
 * JSON: {"columns":[{"name","type","unit"}], "rows":[[...]],
 * "row_count":n,"elapsed_ms":x,"lost":n,"truncated":bool}, with "missing":n where some of many have
 * not answered, and "empty":"why" where that is known;
 * JSONL: one object a line; NULL is null; timestamps are ISO 8601 UTC with nanoseconds as text, NaN
 * and infinities "NaN", "Infinity", "-Infinity"; in TABLE and CSV NULL is empty (in CSV an empty
 * text is "").  ARROW: an IPC stream, of bytes and not of letters; units and docs are metadata of
 * its fields, and what a report says in JSON ("lost", "missing" ...) is metadata of its last
 * batch where there is any. */
struct sql_writer;
int sql_writer_new(enum sql_format f, uint32_t columns_wide,
                   int (*write)(void *arg, const char *data, size_t size), void *arg,
                   struct sql_writer **ret);
struct sql_sink sql_writer_sink(struct sql_writer *w);
/* Whatever is held back, then the closing part ("(10 rows, 2.1 ms)" below a table; what is not
 * whole is said here). */
int sql_writer_finish(struct sql_writer *w, const struct sql_report *report);
/* Say what is incomplete about an answer, or why it has no rows, where the format itself has no
 * place for a sentence; else "". */
void sql_report_note(const struct sql_report *r, enum sql_format f, char *ret, size_t size);
/* Instead of finish, when more answers of the same columns follow in one stream: what is held back
 * is written and nothing below it.  The next answer's header is left out, in TABLE until a column
 * must become wider; not for JSON and ARROW, whose answers are whole. */
int sql_writer_pause(struct sql_writer *w);
void sql_writer_free(struct sql_writer *w);

#endif
