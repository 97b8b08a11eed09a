/* SPDX-License-Identifier: Apache-2.0
 *
 * core/catalog/catalog.h - the directory of tables: what each is called, its columns, where its
 * rows are.
 *
 * A stored table gets rows by ring_append(); a computed one has a function that makes them when
 * asked.  Tables are never removed while the directory lives, so a struct table pointer stays
 * valid; a table whose plugin has stopped is `retired` and still answers from the store.
 * Lookups take a read lock; the fields below are constant after tables_add() unless noted (but see
 * tables_supersede()).
 */
#ifndef CORE_CATALOG_CATALOG_H
#define CORE_CATALOG_CATALOG_H

#include <probing/plugin.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_COLUMNS_MAX 67 /* ts, tid, 64 of the plugin's, one tail */
/* Ids of stored tables: 1,024 that the program makes, 256 of its scripts, and those of plugins. */
#define TABLES_STORED_MAX 1536
/* Behind them those of the computed, which are never kept: room of their own, so that whatever a
 * process has made, it can be asked, alive and dead. */
#define TABLES_MAX (TABLES_STORED_MAX + 256)

struct table_column {
    const char *name; /* owned by the table */
    const char *doc;
    uint32_t type; /* PROBING_I64 ... */
    uint32_t unit;
};

/* Why rows were lost: names for probing.lost are in table_loss_names[]. */
enum table_loss {
    TABLE_LOST_RING_FULL, /* the drain did not keep up */
    TABLE_LOST_NO_RING,   /* no ring could be had for the thread */
    TABLE_LOST_NESTED,    /* signal inside a signal inside append */
    TABLE_LOST_STORE,     /* the store refused: disk full, I/O error */
    TABLE_LOST_TOO_LONG,  /* row longer than a quarter of a ring */
    TABLE_LOST_DAMAGED,   /* something wrote over the rings: places where rows were, at least */
    TABLE_LOST_NO_TABLE,  /* their table could not be made: of tables_refused() only */
    TABLE_LOST_BAD_ROW,   /* append() was given what is no row of the table */
    TABLE_LOST_VALUE,     /* no row: a value that could not be kept, of a row that was */
    TABLE_LOSS_REASONS
};
extern const char *const table_loss_names[TABLE_LOSS_REASONS];
#define TABLE_LOST_ROWS TABLE_LOST_VALUE /* reasons before this one are of whole rows */

/* The mistakes of a plugin with a table of its own: bits of `misuse`. */
enum table_misuse {
    TABLE_MORE_CELLS = 1, /* than it has columns; misuse_cells: how many */
    TABLE_NO_TAIL = 2,    /* a tail, and it has none */
    TABLE_NO_ID = 4,      /* a cell of a text column was nothing that intern() gave */
};

struct table {
    uint32_t id; /* 1 ..., the same in the files; of a computed one above TABLES_STORED_MAX */
    const char *schema; /* "python" */
    /* "torch_trace".  Changed by tables_supersede() only; read as any other field. */
    const char *_Atomic name;
    const char *_Atomic doc; /* the same */
    uint32_t n_columns;
    struct table_column
        *columns;     /* stored: ts (TIME), tid (I64), then the plugin's, then the tail */
    uint32_t n_cells; /* cells of append(): columns without ts, tid and tail; computed: none */
    bool has_tail;
    /* computed: makes the rows; NULL when stored.  `self` goes with it. */
    int (*scan)(void *self, struct probing_rows *out);
    void *self;
    void *_Atomic owner;         /* the plugin that made it last, for plugin_host; NULL: none did */
    _Atomic uint64_t keep_ns;    /* 0: the global setting */
    _Atomic uint64_t keep_bytes; /* 0: the global setting */
    _Atomic bool wanted;         /* false: append() does nothing */
    _Atomic bool retired;        /* its plugin has stopped: scan may not be called */
    _Atomic uint32_t misuse, misuse_cells; /* enum table_misuse, until somebody has said so */
    /* Counters in the rings file (so that the dead can be asked); never NULL.  `appended` is
     * counted by the drain when it takes rows out of the rings: one counter that all threads add
     * to would cost more than the append itself. */
    _Atomic uint64_t *appended;
    _Atomic uint64_t *lost; /* [TABLE_LOSS_REASONS] */
};

struct tables;

/* Remember that a table was misused so; n: as in misuse_cells.                        [signal] */
void table_misused(struct table *t, enum table_misuse how, uint32_t n);
/* Has one been since the last call?                                                      [any] */
bool tables_misused(void);

int tables_new(struct tables **ret);
void tables_free(struct tables *t);

/* Add a table, or find the same one again (then its scan/self are renewed and it is no longer
 * retired).  Names in `d` may be "schema.name"; `schema` is used for a bare one.
 * -EEXIST other columns, -EINVAL bad name/type (says which), -ENOSPC.  Does not touch the store:
 * use store_table_add() for stored tables of a live process.                          [any] */
int tables_add(struct tables *t, const char *schema, const struct probing_table_desc *d, void *self,
               struct table **ret);

/* A stored table comes again with other columns: what is there goes on as `name`_v1 (or the first
 * of _v2 ... that is free), whoever still appends to it included, and the new one takes the name.
 * Only names and docs change in the old one.  -EEXIST: one of them is computed, or it was done too
 * often.                                                                                 [any] */
int tables_supersede(struct tables *t, const char *schema, const struct probing_table_desc *d,
                     struct table **ret_old, struct table **ret);

/* tables_add() of a stored table under the id it had in a file; for store_open().  -EEXIST: the
 * id or the name is taken. */
int tables_restore(struct tables *t, uint32_t id, const char *schema,
                   const struct probing_table_desc *d, struct table **ret);

/* Stands for all tables that could not be made, and counts what was meant for them.  It has the id
 * 0, no columns, and is in no list.                                                      [any] */
struct table *tables_refused(struct tables *t);

/* Rows of the table that were lost.                                                      [any] */
uint64_t table_lost_rows(const struct table *t);

/* Count in the table's own memory again, from what `appended` and `lost` say now. */
void table_own_counters(struct table *t);

struct table *tables_find(struct tables *t, const char *schema,
                          const char *name);                              /* NULL: none [any] */
struct table *tables_by_id(struct tables *t, uint32_t id);                /* [any] */
uint32_t tables_list(struct tables *t, struct table **ret, uint32_t max); /* in order of id [any] */

uint32_t tables_last(struct tables *t); /* largest id of a stored one, 0: none [any] */

/* Index of a column, -1: none.  "timestamp" is an alias of ts, "step" of local_step. */
int table_column_index(const struct table *t, const char *name);

/* The other side of probing_host.emit: a computed table's scan() calls rows_emit() on this. */
struct probing_rows {
    const struct table *table;
    /* One row: n_columns cells, STR as pointers.  Gives 0 or -ECANCELED. */
    int (*row)(struct probing_rows *out, const union probing_cell *cells, uint32_t n);
    void *arg;
    const bool *want; /* columns that are asked for; NULL: all */
};

#endif
