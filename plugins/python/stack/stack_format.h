/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/stack/stack_format.h - where frames go: text, JSON, or rows of a table.
 *
 * The owner's thread only ([worker]).  A sink's functions give 0, or -errno to stop.
 */
#ifndef PYTHON_STACK_STACK_FORMAT_H
#define PYTHON_STACK_STACK_FORMAT_H

#include <probing/plugin.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"

struct sink_thread {
    int32_t tid;
    const char *name, *state, *syscall; /* syscall: NULL: none */
    bool python, gil;
};

struct sink_frame {
    uint32_t depth;
    bool python;
    const char *func, *file; /* file: "" for native */
    int line;                /* 0: unknown */
    int column, end_column;  /* from 1; 0: unknown */
    uint64_t ip, module_offset;
    const char *module; /* "" for Python, or when in none */
    const char *locals; /* a JSON object, NULL: not asked for, "": not readable */
};

#define SINK_NATIVES 512 /* native frames of a thread, at most; their texts last to its end() */

struct sink {
    int (*thread)(struct sink *s, const struct sink_thread *t);
    int (*frame)(struct sink *s, const struct sink_frame *f);
    void (*note)(struct sink *s, const char *text);
    int (*end)(struct sink *s); /* of a thread */
};

/* Text into memory: the first `limit` frames of each thread. */
struct sink_text {
    struct sink sink;
    struct buf text;
    uint32_t limit;
    char first[300]; /* the innermost frame: "work (train.py:42)" */
};
void sink_text_begin(struct sink_text *s, uint32_t limit);
char *sink_text_end(struct sink_text *s); /* to be freed; NULL: no memory */

/* Text or JSON to a client, thread by thread. */
struct sink_reply {
    struct sink sink;
    const struct probing_host *host;
    struct probing_reply *out;
    struct buf text;
    bool json, any, warned;
    uint32_t frames, notes;
    uint64_t same;  /* what tells the last frame from others */
    uint32_t again; /* how often it came since */
};
void sink_reply_begin(struct sink_reply *s, const struct probing_host *h, struct probing_reply *out,
                      bool json);
void sink_reply_warn(struct sink_reply *s, const char *text); /* before the first thread */
int sink_reply_end(struct sink_reply *s, int status);

/* Rows of python.backtrace, in the order in which their `depth` counts: thread by thread, of each
 * the Python frames and then the native ones. */
struct sink_table {
    struct sink sink;
    const struct probing_host *host;
    struct probing_rows *out;
    struct sink_thread thread;
    char name[128];
    int64_t depth;                         /* of the next row */
    struct sink_frame later[SINK_NATIVES]; /* native */
    uint32_t n_later;
};
void sink_table_begin(struct sink_table *s, const struct probing_host *h, struct probing_rows *out);

#endif
