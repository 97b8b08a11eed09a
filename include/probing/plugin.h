/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/plugin.h - the whole contract between libprobing.so and a plugin.
 *
 * A plugin is one .so that exports one symbol, `probing_plugin_v1`, and links nothing of ours: all
 * it may call is in `struct probing_host`.
 *
 * [brackets] after a comment say where a function runs:
 *   [control]  the core's control thread: one call at a time, short
 *   [worker]   a pool thread of the core: several at once, may block; never two at once of one
 *              every() function
 *   [any]      any thread, several at once; may lock or allocate for a short time
 *   [signal]   as [any], and from signal handlers: async-signal-safe
 *   [child]    in a forked child, before fork() returns: async-signal-safe
 * Times are CLOCK_MONOTONIC nanoseconds, strings UTF-8.  A function gives 0 or more when it worked,
 * a negative errno when not.  What you pass in stays yours and is copied if the core keeps it;
 * what the core hands out stays the core's.
 *
 * A call that breaks a rule of this file does nothing: it gives -EWOULDBLOCK on the wrong thread,
 * and -EINVAL with wrong arguments.  probing.log has the first such call of each function, the
 * plugin's reason in probing.plugins the first of all, and `probing plugin check` fails with each.
 * What the core cannot see is the plugin's own risk: an [any] function in a signal handler; a
 * handle after its life; an address that leads nowhere in append(), emit(), intern(), publish() and
 * reply(); a double where an integer belongs, since a cell does not know its type; a number that is
 * the id of another text; a ts of another clock; and what it does in a [child].
 */
#ifndef PROBING_PLUGIN_H
#define PROBING_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_ABI_MAJOR 1u /* a new major is a new symbol, probing_plugin_v2 */
#define PROBING_ABI_MINOR 4u /* one more whenever a struct grows at its end */
#define PROBING_ABI ((PROBING_ABI_MAJOR << 16) | PROBING_ABI_MINOR)
#define PROBING_EXPORT __attribute__((visibility("default")))

/* Has this host field `f`?  Ask before using anything newer than 1.0. */
#define PROBING_HAS(h, f) ((h)->size >= offsetof(struct probing_host, f) + sizeof(h)->f && (h)->f)

struct probing_table; /* from table(); lives until destroy() returns */
struct probing_reply; /* one command's answer; lives until run() returns */
struct probing_rows;  /* where a computed table puts its rows; lives until scan() returns */

/* Column types.  TIME is CLOCK_MONOTONIC ns in a cell, UTC for whoever asks. */
enum { PROBING_I64 = 1, PROBING_F64 = 2, PROBING_STR = 3, PROBING_BLOB = 4, PROBING_TIME = 5 };
/* Units, shown by every client. */
enum {
    PROBING_PLAIN = 0,
    PROBING_NS = 1,
    PROBING_BYTES = 2,
    PROBING_PERCENT = 3,
    PROBING_COUNT = 4,
    PROBING_SECONDS = 5,
    PROBING_MB = 6
};
enum { PROBING_LIVE = 1u << 0 };   /* setting: may change after start() */
enum { PROBING_WRITES = 1u << 0 }; /* command: changes the process, refused to read-only clients */
enum { PROBING_FORK_BEFORE = 1, PROBING_FORK_PARENT = 2, PROBING_FORK_CHILD = 3 };
enum { PROBING_ERROR = 3, PROBING_WARN = 4, PROBING_INFO = 6, PROBING_DEBUG = 7 };

/* NULL in a cell: one bit pattern for each type. */
#define PROBING_NULL_I64 INT64_MIN                    /* I64 and TIME */
#define PROBING_NULL_F64 UINT64_C(0x7ff80000deadfeed) /* the bits (field u) of a quiet NaN: F64 */
#define PROBING_NULL_ID UINT64_C(0)                   /* STR and BLOB in append() */

/* Every column is one 8-byte cell, so a row has no padding to disagree about. */
union probing_cell {
    int64_t i;
    uint64_t u;
    double f;
    const char *s; /* STR in emit() only: UTF-8 with a NUL at its end, copied; NULL is NULL */
};

struct probing_column {
    const char *name;     /* ^[a-z][a-z0-9_]{0,62}$ */
    uint32_t type;        /* PROBING_I64 ...; in append() a STR or BLOB cell holds an intern() id */
    uint32_t unit;        /* PROBING_NS ... */
    const char *doc;      /* one line: what it is and where it was read from */
    uint64_t reserved[2]; /* 0 */
};

struct probing_table_desc {
    uint32_t size;        /* sizeof(struct probing_table_desc) */
    uint32_t column_size; /* sizeof(struct probing_column), the stride of `columns` */
    const char *name; /* "step"; SQL sees <plugin>.step; "python.torch_trace": schema named too */
    const char *doc;  /* one line */
    const struct probing_column *columns;
    uint32_t n_columns;    /* 1 to 64; a stored table gets `ts` and `tid` before them */
    uint32_t tail_type;    /* 0, or PROBING_STR or _BLOB: one last column of any length, ... */
    const char *tail_name; /* ... of this name */
    uint64_t keep_ns;      /* drop rows older than this; 0: as the user set */
    uint64_t keep_bytes;   /* drop the oldest rows above this; 0: as the user set */
    /* NULL: a stored table, rows come by append().  Else a computed one: fill `out` with emit()
     * when a query asks.  0, or -errno after fail().                               [worker] */
    int (*scan)(void *self, struct probing_rows *out);
};

struct probing_config {             /* one setting; the user writes <plugin>.<name> */
    const char *name, *value, *doc; /* value: the default, as text */
    uint32_t type, unit, flags, reserved;
    int64_t min, max; /* for I64; both 0: any value */
};

struct probing_command {
    uint32_t size, flags;           /* sizeof(struct probing_command); PROBING_WRITES or 0 */
    const char *name, *usage, *doc; /* "backtrace", "[--native] [--json]", one line */
    /* argv[0] is the name.  0; 1 to 125: the command's own "no", becomes the client's exit code;
     * -errno after fail().  May block: it should look at cancelled() now and then.  [worker] */
    int (*run)(void *self, int argc, const char *const *argv, struct probing_reply *out);
};

/* The core's interface: one for each plugin, valid from init() to destroy(). */
struct probing_host {
    uint32_t size, abi;  /* of the core; only ever grows */
    const char *version; /* "0.1.0", for people */
    void *core;          /* the core's own */
    void (*log)(const struct probing_host *h, int level, const char *text); /* [any] */
    /* Keep `text` as the reason; gives `code`, or -EIO for one that is not negative: return
     * h->fail(h, -ENODEV, "no driver; install it").  Clients get what follows the first "; "
     * outside quotes as the hint.                                                       [any] */
    int (*fail)(const struct probing_host *h, int code, const char *text);
    /* Make a table.  The same columns give the same table; with other ones the rows so far go on as
     * NAME_v1 and this one takes the name.  -EEXIST: it is there and of the other kind, computed or
     * stored.  -EWOULDBLOCK, of all [control] functions: not on that thread.   [control] */
    int (*table)(const struct probing_host *h, const struct probing_table_desc *d,
                 struct probing_table **ret);
    int (*wanted)(const struct probing_table *t); /* 0: switched off, do no work     [signal] */
    /* Add one row: n cells (a missing tail of them is NULL), then tail_n bytes (NULL: the last
     * column is NULL; 0 of them: it is empty).  ts: from now().
     * -ENOSPC: no room; -EINVAL: more cells than columns, a tail and no column for it, or a
     * computed table; both are counted in probing.lost.  A STR or BLOB cell that is no id is found
     * when the row is stored: it is NULL then, and counted.                         [signal] */
    int (*append)(struct probing_table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                  const void *tail, uint32_t tail_n);
    /* The same bytes have the same id while the process lives; never PROBING_NULL_ID.
     * -ENOSPC: the table of names is full.                                            [any] */
    int (*intern)(const struct probing_host *h, const void *p, size_t n, uint64_t *ret_id);
    /* Add one row to a computed table's answer, a cell for each column, STR cells as pointers
     * (cell.s); none with n 0, which asks only.  Inside scan(), on its thread; else -EWOULDBLOCK.
     * -ECANCELED: nobody wants more, return.                                       [worker] */
    int (*emit)(struct probing_rows *out, const union probing_cell *cells, uint32_t n);
    /* Add a command that clients can call.                                         [control] */
    int (*command)(const struct probing_host *h, const struct probing_command *c);
    /* Send a piece of the answer.  Inside run(), on its thread; else -EWOULDBLOCK.  -ECANCELED: the
     * client has gone.                                                                [worker] */
    int (*reply)(struct probing_reply *out, const void *text, size_t n);
    /* Has the client gone, or its time run out?  Until run() returns.                 [any] */
    int (*cancelled)(const struct probing_reply *out);
    /* A topic carries its revision, "nccl.comm/1"; a payload starts with its uint32_t size, n; n 0:
     * there is none.  Handlers run later, on [control], in the order of publish().     [any] */
    int (*publish)(const struct probing_host *h, const char *topic, const void *p, uint32_t n);
    /* Call fn with what is published under a topic.                                [control] */
    int (*subscribe)(const struct probing_host *h, const char *topic,
                     void (*fn)(void *self, const char *topic, const void *p, uint32_t n));
    /* Call fn on [worker] every period_ns until stop(); late ticks are dropped.  With an fn that is
     * called already: change its period.                                           [control] */
    int (*every)(const struct probing_host *h, uint64_t period_ns,
                 void (*fn)(void *self, uint64_t now));
    uint64_t (*now)(void); /* [signal] */
    /* Optional parts by name and revision, "probing.stack/1"; NULL: not here.  Other plugins' parts
     * answer from start() on.                                                         [any] */
    const void *(*extension)(const struct probing_host *h, const char *id);
    /* 1.0 ends here.  New fields go below, never between. */
};

/* ---- what a plugin declares, since 1.1 ---- */

/* Declarations are constants, of which the core keeps copies: a plugin needs no code for them.  The
 * core also reads them from the file of an installed plugin that is not loaded: a view then answers
 * no rows and says why.  They must therefore stand in the file as they are; no constructor may fill
 * them in. */

/* A select under a name.  A bare name may have several definitions, by one plugin or by many.  The
 * one that counts has all its tables and reads the most of them, in whatever order the plugins were
 * loaded; among equals it is the first by the plugins' names, then in the order of a plugin's list.
 * The core's own come before all.  A view answers also when the plugin has stopped, and for a dead
 * process. */
struct probing_view {
    const char *name; /* "training_logs", or with a schema: "python.profile_capture" */
    const char *sql;  /* a select whose columns have names: no `*` at its top */
    const char *doc;  /* one line */
    /* A select of one text that says why the view has no rows though its tables are there, or of no
     * row if there is nothing to say.  It is asked whenever an answer is empty, also because of a
     * `where`.  NULL: nothing can be said. */
    const char *why;
};

enum { PROBING_GAUGE = 1, PROBING_COUNTER = 2 };
/* Figures for /metrics, while the plugin runs. */
struct probing_metric {
    const char *name; /* "step_seconds"; it is shown as probing_<plugin>_step_seconds */
    const char *help; /* one line */
    const char *sql;  /* a select: the column `value` is a number, all others are labels' texts */
    uint32_t kind;    /* PROBING_GAUGE or PROBING_COUNTER */
    uint32_t unit;    /* PROBING_SECONDS and PROBING_BYTES are told, when the name ends so */
};

/* Another name for one of the plugin's settings: an older one, or the field's. */
struct probing_alias {
    const char *name;    /* "probing.sample_rate"; PROBING_SAMPLE_RATE in the environment */
    const char *setting; /* "sample_rate": one of `config` */
};

/* A mode of `flamegraph NAME`.  In the selects {when} stands for a condition on `ts`.  Columns, in
 * this order:
 *     stack        text: frames with ';' between, the outermost first
 *     value        number: what the last frame takes, in `unit`
 * and, where calls are to be put into each other, in the order of their begins or, the last first,
 * of their ends:
 *     track        text: calls of different tracks are never inside of each other
 *     end_ns       when the call ended, from any moment on
 *     duration_ns  how long it took; NULL: the order tells what is inside, as begins are in order
 *     via          text or NULL: a frame between a call and what is around it, unless that has the
 *                  same one
 * A call inside of another stands below that one: of its stack only the last frame counts, and its
 * value, which the outer one's holds too, is taken off there. */
struct probing_flame {
    const char *name;   /* "torch": ^[a-z][a-z0-9_]*$ */
    const char *doc;    /* what the picture shows: "torch modules, wall time" */
    const char *sql;    /* a select, as above */
    const char *rest;   /* what calls leave of a whole: frame, value, whole; or NULL */
    const char *newest; /* a select of one time, what --last counts from; NULL: no --last */
    const char *empty;  /* what to do where there is nothing, one line; or NULL */
    uint32_t unit;      /* PROBING_NS or PROBING_BYTES */
    uint32_t reserved;  /* 0 */
    /* 1.1 ends here. */
    /* A select of stacks that are told apart by number, in the order of stack_id and depth; then
     * `sql` is one of samples, and the picture may also be one of threads, of lines, of moments:
     *     stacks: stack_id, depth (0: the innermost), frame_type ('python', else native), func,
     *             file, lineno, module
     *     sql:    ts, thread_id, thread_name, stack_id, value, count (how many samples it is)
     * In both {when} stands for a condition on `ts`.  NULL: `sql` is as above. */
    const char *stacks;
    /* "mode=cpu": the plugin's setting for such samples.  `--seconds` then loads the plugin for
     * that long with this setting, and `--rate` sets its `rate`.  Or NULL. */
    const char *setting;
    uint64_t flags; /* PROBING_FLAME_DEFAULT: what is drawn where no mode is named; or 0 */
    /* 1.3 ends here. */
    /* A select of one text that says what the picture lacks and why ("20 threads are not sampled:
     * ..."), or of no row if it is whole.  {when} as above.  NULL: nothing can be said. */
    const char *missing;
    /* 1.4 ends here. */
};
enum { PROBING_FLAME_DEFAULT = 1u << 0 };

/* A table that the plugin makes, stored or computed.  A query for it, where the plugin is not
 * loaded, fails and names the plugin.  Since 1.2. */
struct probing_table_name {
    const char *name; /* "cpu.utilization": with its schema */
};

/* Events on the time line that `export --format perfetto` and `chrome` write: those of all plugins
 * in one file, on one clock.  In the select {when} stands for a condition on `ts`.  Its columns, by
 * name, in any order:
 *     begun        time: when the event began; or
 *     ts           time: when it ended
 *     duration_ns  number: how long it took; NULL: it took no time, and is a mark
 *     name         text
 *     kind         text, or none: what sort of event it is
 *     tid          number: it is on the line of this thread, where calls lie within each other
 *     track        text: it is on a line of this name, as "GPU 0, stream 7", whatever its tid.
 *                  NULL: on its thread's.  Events that overlap without one being inside of another
 *                  get more lines of that name; they should come in the order of their begins.
 * All others are shown beside the event.  A track whose table is not there is left out.  Since
 * 1.3. */
struct probing_track {
    const char *name;   /* "kernels": ^[a-z][a-z0-9_]*$; `--tracks kernels` takes it alone */
    const char *doc;    /* what is on it, one line */
    const char *sql;    /* a select, as above */
    const char *newest; /* a select of one time, what --last counts from; NULL: all is shown */
};

/* A panel of `probing top`, beside threads and functions.  It is asked each time it is drawn, at
 * most once a second.  If its table is not there, or has no rows, nothing is shown.  Since 1.3. */
struct probing_panel {
    const char *name; /* "modules": ^[a-z][a-z0-9_]*$ */
    const char *doc;  /* what it shows, one line; of a table it stands behind the columns' names */
    const char *sql;  /* a select */
    uint32_t kind;    /* PROBING_LINES: each row is one text, a line at the head of the screen;
                       * PROBING_COLUMNS: a table below, the columns' names in capitals over it */
    uint32_t rows;    /* at most so many, 1 to 64 */
};
enum { PROBING_LINES = 1, PROBING_COLUMNS = 2 };

/* The most that the plugin takes of one limit of the process while it runs as usual.  If too little
 * is left, the plugin is not loaded and the error names the limit: a limit that a plugin hits would
 * hit the program, too.  A plugin that takes as much as there is room for declares the least that
 * it can work with.  For a plugin that declares none the core assumes 136 MiB of address space, 16
 * MiB of data, 8 MiB of memory, 32 mappings, 4 descriptors and 2 threads.  Since 1.4. */
struct probing_resource {
    /* "address_space", "data" (private memory that may be written, stacks too), "memory" (in use),
     * "mappings", "descriptors", "threads", "file_size" (of the largest), "signals" (queued ones,
     * and POSIX timers; where there are too few of them the plugin is loaded and says what it
     * lacks) */
    const char *name;
    uint64_t takes;       /* bytes, or how many; the plugin's own file and threads included */
    uint64_t each_thread; /* more of it for each thread of the program */
};

struct probing_declarations {
    uint32_t size;                    /* sizeof(struct probing_declarations) */
    uint32_t n_views, view_size;      /* at most 64 of each; sizeof(struct probing_view) */
    uint32_t n_metrics, metric_size;  /* sizeof(struct probing_metric) */
    uint32_t n_aliases, alias_size;   /* sizeof(struct probing_alias) */
    uint32_t n_flames, flame_size;    /* sizeof(struct probing_flame) */
    uint32_t reserved;                /* 0 */
    const struct probing_view *views; /* NULL with n_views 0, as all below */
    const struct probing_metric *metrics;
    const struct probing_alias *aliases;
    const struct probing_flame *flames;
    /* 1.1 ends here. */
    uint32_t n_tables, table_size; /* sizeof(struct probing_table_name) */
    const struct probing_table_name *tables;
    /* 1.2 ends here. */
    uint32_t n_tracks, track_size; /* sizeof(struct probing_track) */
    uint32_t n_panels, panel_size; /* sizeof(struct probing_panel) */
    const struct probing_track *tracks;
    const struct probing_panel *panels;
    /* 1.3 ends here. */
    uint32_t n_resources, resource_size; /* sizeof(struct probing_resource) */
    const struct probing_resource *resources;
    /* 1.4 ends here. */
};

/* A plugin's own declaration.  Only name, init and destroy may not be NULL.  init() and start()
 * give 0 or a negative errno: with any other number the plugin is refused. */
struct probing_plugin {
    uint32_t size, abi;                  /* sizeof(struct probing_plugin), PROBING_ABI */
    const char *name, *version, *doc;    /* "cuda", "1.2", one line */
    const struct probing_config *config; /* ends with name == NULL */
    uint32_t config_size;                /* sizeof(struct probing_config), the stride */
    uint32_t min_minor;                  /* the oldest host minor that is enough */
    /* Make tables and commands; no hooks, no threads yet.                            [control] */
    int (*init)(const struct probing_host *h, void **ret_self);
    /* A setting that passed type and range: all before start(), LIVE ones later.      [control] */
    int (*configure)(void *self, const char *name, const char *value);
    /* Put hooks in, start threads.                                                   [control] */
    int (*start)(void *self);
    /* Undo start().  -EBUSY: my code may still run.                                  [control] */
    int (*stop)(void *self);
    /* BEFORE and PARENT run on the forking thread, CHILD in the child before fork() returns.
     *                                                                                  [child] */
    void (*fork)(void *self, int phase);
    /* Free all; the code itself stays mapped.                                        [control] */
    void (*destroy)(void *self);
    /* Parts offered to other plugins, by name and revision.                              [any] */
    const void *(*extension)(void *self, const char *id);
    /* 1.0 ends here. */
    const struct probing_declarations *declares; /* 1.1; NULL: nothing */
};

extern PROBING_EXPORT const struct probing_plugin probing_plugin_v1;

#ifdef __cplusplus
}
#endif
#endif
