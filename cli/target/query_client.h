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

#include "cli/export/export.h"

struct target;

struct answer_ask {
    const char *statement;
    const char *format;  /* table, expanded, csv, jsonl, json, arrow */
    uint32_t width;      /* of a table in columns; 0: as wide as it is */
    uint64_t limit;      /* rows, 0: all */
    uint64_t timeout_ns; /* 0: none */
    uint64_t from_row;   /* of the table that it reads, by number; */
    uint64_t to_row;     /* exclusive, 0: all */
    bool quiet;          /* say nothing about what is incomplete: it is asked again */
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

/* The answer row by row: begin(), row() and end() of `w` are called, and nothing is written. */
int answer_rows(const struct target *t, const char *statement, struct export_writer *w);
/* Say why there are no rows, where the closing part of an answer knows it; closing: may be NULL. */
void answer_say_empty(const struct json *closing);
/* A cell of such a row; "" or 0 where it is null or of another kind. */
const char *answer_text(const struct json *cell);
int64_t answer_int(const struct json *cell);

/* The one text that a query gives; "" when it gives none. */
int answer_word(const struct target *t, const char *sql, char *ret, size_t size);

/* `probing -t ... words` on the machine of such a target, for what happens there and not here; what
 * it prints goes nowhere, and what it says when it fails is the reason. */
int remote_command(const struct target *t, int n, const char *const *words);

bool answer_plugin_runs(const struct target *t, const char *name);

#endif
