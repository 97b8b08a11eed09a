/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/query_client.h - a query's answer as bytes, of the living and the dead alike.
 *
 * One thread.
 */
#ifndef CLI_TARGET_QUERY_CLIENT_H
#define CLI_TARGET_QUERY_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/answer/arrow_reader.h"

struct target;

struct answer_ask {
    const char *statement;
    const char *format;                /* table, expanded, csv, jsonl, json, arrow */
    uint32_t width;                    /* of a table in columns; 0: as wide as it is */
    uint64_t limit;                    /* rows, 0: all */
    uint64_t timeout_ns;               /* 0: none */
    uint64_t from_row;                 /* of the table that it reads, by number; */
    uint64_t to_row;                   /* exclusive, 0: all */
    bool quiet;                        /* say nothing about what is incomplete: it is asked again */
    const struct arrow_reader *reader; /* takes an Arrow answer, and knows what its end says;
                                        * NULL: that is said */
    /* For a statement over all ranks (global.SCHEMA.TABLE): */
    bool strict;        /* no answer, where one of them gives none */
    uint64_t max_bytes; /* of rows that it needs of them, 0: SQL_GLOBAL_MAX_BYTES */
};

/* The answer, piece by piece; fn gives below 0 to stop.  What it lacks and does not say itself in
 * it goes to stderr.  A process that dies before its first piece is answered for by its files.
 * EXIT_FAILED: of several not all have answered, which was said. */
int answer_bytes(const struct target *t, const struct answer_ask *ask,
                 int (*fn)(void *arg, const char *data, size_t size), void *arg);

/* The same question as words, for the `query` of a process or of another machine. */
struct answer_words {
    char numbers[5][32];
    const char *list[18]; /* `n` are there already */
    int n;
};
/* width: ask for it, too, which the command `query` cannot be.  Gives how many words. */
int answer_words(const struct answer_ask *ask, bool width, struct answer_words *w);

/* The answer as columns and rows. */
int answer_read(const struct target *t, const char *statement, const struct answer_sink *to);
/* Say on stderr how many rows the tables have lost that were asked. */
void answer_say_lost(const struct arrow_reader *r);
/* Say what an answer lacks, or why it has no rows, where neither its format nor its reader does. */
void answer_say_note(const struct answer_ask *ask, const struct sql_report *report);
#define ANSWER_ALONE_BYTES ((size_t)256 << 20) /* of a batch of one process: of its longest row */

/* The one text, or number or time, that a query gives; "", or SQL_NULL, when it gives none. */
int answer_word(const struct target *t, const char *sql, char *ret, size_t size);
int answer_value(const struct target *t, const char *sql, struct sql_value *ret); /* no text */

/* `probing -t ... words` on the machine of such a target, for what happens there and not here; what
 * it prints goes nowhere, and what it says when it fails is the reason. */
int remote_command(const struct target *t, int n, const char *const *words);

bool answer_plugin_runs(const struct target *t, const char *name);

#endif
