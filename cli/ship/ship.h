/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/ship.h - `probing ship`: rows of tables to where they are kept for good.
 *
 * A *source* is the life of one process, known by its data directory and the boot of its machine; a
 * *range* is rows of one table of a source by their numbers (probing.tables: first_row, next_row).
 * A range is written into the state file before any of it is sent, and goes out whole, as one
 * batch: whoever is killed in between sends the very same one again.
 *
 * One thread.  0 or -errno with err_set(); of a destination
 *     -EAGAIN     not now: it is down, slow or asks to wait; nothing is lost, try again
 *     -EREMOTEIO  it refuses this batch for what is in it
 *     -EFBIG      the batch is too long for it: ask with half the rows
 *     -EPROTO     the address or the token is wrong: nothing will ever be taken
 */
#ifndef CLI_SHIP_SHIP_H
#define CLI_SHIP_SHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/answer/answer_rows.h"
#include "cli/many/members.h"
#include "cli/ship/http_post.h"

#define SHIP_SOURCES_MAX 65536
#define SHIP_TABLES_MAX 2048 /* of a source; a core has 1,536 stored ones at most */
#define SHIP_DIRECTORY_BYTES 1024
#define SHIP_RANGE_ROWS 16384 /* as many as a segment of the store has */
#define SHIP_NAME_BYTES 64    /* of a schema or table, as cores call them */

struct ship_table {
    uint32_t id; /* in the source's data directory: a table that is made again has another one */
    char schema[SHIP_NAME_BYTES], name[SHIP_NAME_BYTES];
    uint64_t next;       /* number of the first row that has not been sent */
    uint64_t pending_to; /* next <= row < pending_to may have been sent; 0: none is under way */
    uint64_t sent, lost; /* rows; lost: gone from the store before they could be read */
    /* Not kept: */
    uint64_t first_row, end_row; /* what the source has now */
    uint64_t until;              /* of --once: what it had when that began */
    uint64_t not_before_ns;      /* it was refused: when to try again */
    uint32_t begun;              /* ship_claims.made under which a new range of it was taken */
    bool tried; /* the range under way has been given to the destination, or may have been */
    bool wanted, listed, said;
};

struct ship_source {
    char id[300]; /* never shown to a destination as a path: see ship_batch */
    char directory[SHIP_DIRECTORY_BYTES]; /* "": it is not on this machine */
    struct rank tags;
    int64_t pid;
    bool ended; /* it is dead, and all of it has been sent */
    struct ship_table *tables;
    uint32_t n_tables, room;
    /* Not kept: */
    struct member_clock clock; /* as it was measured last */
    uint32_t member;           /* its place among who is there now; UINT32_MAX: it is not */
    char address[80];          /* behind TCP: what it says of itself may be another's */
    bool seen, dead, checked;  /* checked: of this run it is known to be the one with this id */
    bool said;                 /* that it does not answer */
    uint32_t claimed;          /* ship_claims.made under which its rows are ours to send */
    bool said_claimed;         /* that they are another's */
};

struct ship_totals {
    uint64_t rows, lost, batches, refused, samples, samples_refused;
    uint64_t samples_over; /* of series beyond --max-series */
};

/* ---- state.c: what has been sent, in a file that is whole at any moment ---- */

struct ship_state {
    int dir, lock; /* the folder that has it; the lock beside it; -1: none */
    char leaf[256];
    const char *destination; /* borrowed: what the file is about */
    struct ship_source **sources;
    uint32_t n, room;
    bool changed;
    struct ship_totals totals; /* over all runs */
};

/* path: NULL: a file of its own in $XDG_STATE_HOME/probing.  -EBUSY: another ship has it; -EPERM:
 * others may write to its folder; -EBADMSG: it is damaged, or about another destination. */
int ship_state_open(const char *path, const char *destination, struct ship_state *ret);
/* Also when nothing has changed: then nothing is done.  -EAGAIN: the disk is full; what stands
 * there is older, and as right: at most the ranges under way are sent again. */
int ship_state_save(struct ship_state *s);
void ship_state_close(struct ship_state *s);
struct ship_source *ship_source_of(struct ship_state *s, const char *id, bool make);
struct ship_table *ship_table_of(struct ship_source *s, uint32_t id, bool make);

/* ---- batch.c: rows with whose they are in front ---- */

struct ship_batch {
    const struct ship_source *source;
    const struct ship_table *table;
    uint64_t from, to;          /* numbers of rows */
    uint64_t rows;              /* that are there, of them */
    bool first;                 /* no new range of this table was taken in this run */
    struct sql_column *columns; /* SHIP_TAGS of ours, then theirs; no two of one name */
    uint32_t n_columns;
    struct answer_rows **parts;
    uint32_t n_parts;
};

/* _host, _rank, _pid, _job, _role, _clock_offset_ns, _clock_error_ns, _process */
#define SHIP_TAGS 8
/* Names for these columns, from theirs.  reserved: as ship_kind has it. */
int ship_batch_columns(struct arena *a, const struct sql_column *theirs, uint32_t n,
                       const char *const *reserved, struct sql_column **ret);
/* part, row: of batch->parts.  An interval comes as ns. */
void ship_batch_value(const struct ship_batch *b, uint32_t part, uint32_t row, uint32_t column,
                      struct sql_value *ret);
/* Identify the source to strangers: by a number that is the same for the whole life. */
void ship_process_text(const struct ship_source *s, char ret[24]);
/* And to people: "rank 3 (process 4711)". */
const char *source_label(const struct ship_source *s, char *room, size_t n);
/* Which column of theirs is the rows' time; -1: none. */
int ship_batch_time(const struct ship_batch *b);

/* ---- claims.c: whose rows are ours to send ---- */

struct ship_claims {
    int fd;        /* -1: the file system has no locks */
    uint32_t made; /* which this is of those that were opened in this run; 0: none is */
};

/* name: of a file in `folder`, which all have in common whose rows would be there twice.  What was
 * open is closed. */
int ship_claims_open(int folder, const char *name, struct ship_claims *ret);
/* -EBUSY: another one sends the rows of this process; the words name it. */
int ship_claims_take(const struct ship_claims *c, struct ship_source *s);
void ship_claims_close(struct ship_claims *c);

/* ---- destination.c ---- */

struct ship_sample { /* one figure of probing.metrics */
    const char *name, *type, *unit, *help;
    const char *labels; /* as in OpenMetrics: checked by who writes them */
    double value;
};

struct ship_metrics {
    const struct ship_source *source;
    int64_t at_ns; /* UTC */
    struct ship_sample *list;
    uint32_t n;
};

struct ship_destination;
struct ship_kind {
    const char
        *schemes[4]; /* ends with NULL; one that ends in "http://" is known with "https://", too */
    const char *example, *doc, *promise;
    const char *const *reserved; /* names that no column may have; NULL: none */
    bool all_tables;             /* when --tables is not given */
    bool metrics;                /* takes ship_metrics, too */
    bool series;                 /* has such, and a limit on them */
    bool once;                   /* what two send is there twice */
    int (*open)(struct ship_destination *d, const char *rest);
    /* 1: it, or a part of it, lies there already. */
    int (*send)(struct ship_destination *d, const struct ship_batch *b);
    int (*send_metrics)(struct ship_destination *d, const struct ship_metrics *m); /* may be NULL */
    void (*close)(struct ship_destination *d);
};

/* Different series of an hour: each text in a row makes one of its own, and a server keeps each in
 * memory.  series.h says who may go. */
struct series_limit {
    uint64_t *seen; /* hashes; 0: a free place */
    uint64_t most, n, began_ns;
    size_t mask;
};

struct ship_destination {
    const struct ship_kind *kind;
    char shown[512];           /* the address without a secret */
    struct http_options http;  /* for those who speak it */
    uint64_t wait_ns;          /* after -EAGAIN: as long as it asks for, 0: it says nothing */
    struct series_limit limit; /* of a destination that has series */
    uint64_t samples, refused; /* since it was opened */
    uint64_t over;             /* samples of series beyond the limit */
    char why_refused[200];     /* the server's words to the last that it refused; "": none */
    struct ship_claims claims; /* of one that has a folder in common; else beside the state file */
    void *self;
};

/* -EINVAL: no such scheme; the words list what there is.  http: its texts are borrowed, tls is said
 * by the scheme.  most: series in an hour, 0: it is not said. */
int ship_destination_open(const char *url, const struct http_options *http, uint64_t most,
                          struct ship_destination *ret);
void ship_destination_close(struct ship_destination *d);
/* Samples that it has refused, for the reason of err_text(). */
void ship_refused(struct ship_destination *d, uint64_t n);

extern const struct ship_kind ship_clickhouse, ship_remote_write, ship_otlp, ship_parquet;

#endif
