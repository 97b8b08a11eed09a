/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/export.h - file formats that the command makes of an answer's rows; others are as the
 * process sends them.
 *
 * One thread.
 */
#ifndef CLI_EXPORT_EXPORT_H
#define CLI_EXPORT_EXPORT_H

#include <stdint.h>

#include "cli/answer/arrow_reader.h"
#include "sdk/lib/buf.h"

/* A file format that is made of rows.  Bytes are added to the buffer that it was given; the caller
 * takes them from there, and frees it. */
struct export_writer {
    struct answer_sink to; /* its arg is the writer */
    int (*end)(void *self);
    void (*free)(void *self); /* NULL: nothing was made */
};

/* Rows with a time and a duration as a trace: Perfetto's own, or Chrome's events as JSON.  Of the
 * process that `t` names, whose names of threads are asked for where it lives.  Several answers,
 * one after the other, make one trace. */
struct target;
int export_trace_new(const struct target *t, bool perfetto, struct buf *out,
                     struct export_writer *ret);
/* Set the kind of events whose rows say none: the name of a track, which lives as long as the
 * writer. */
void export_trace_kind(const struct export_writer *w, const char *kind);

int export_parquet_new(struct buf *out, struct export_writer *ret);

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
/* Gives the line for an event of that time.  -ENOMEM, also for more lines than can be looked at. */
int export_lines_place(struct export_lines *l, const char *name, int64_t begin_ns, int64_t end_ns,
                       int64_t *ret);

/* Perfetto's format (perfetto.c): begin, then for each event its arguments and itself. */
struct perfetto;
struct perfetto *perfetto_new(void); /* NULL: no memory */
void perfetto_free(struct perfetto *p);
int perfetto_begin(struct perfetto *p, struct buf *out);
void perfetto_argument(struct perfetto *p, const char *name, const struct sql_value *v);
int perfetto_event(struct perfetto *p, const struct export_event *e, struct buf *out);
/* One end of an event alone, at e->at_ns: for those that come as they open and close. */
int perfetto_edge(struct perfetto *p, const struct export_event *e, bool opens, struct buf *out);

#endif
