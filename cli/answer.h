/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer.h - a query's answer as bytes, of the living and the dead alike.
 *
 * One thread.
 */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include "cli/cli.h"
#include "cli/export.h"

/* What is not whole about an answer and is not said in it. */
struct answer_report {
    uint64_t lost;    /* of files: rows, at any time, of the tables asked */
    char damage[512]; /* of files, or what the living process notes; "" */
};

/* The answer in `format` (csv, jsonl, json), piece by piece; fn gives non-zero to stop. */
int answer_bytes(const struct target *t, const char *format, const char *statement,
                 uint64_t timeout_ns, int (*fn)(void *arg, const char *data, size_t size),
                 void *arg, struct answer_report *ret);

/* The answer row by row: begin(), row() and end() of `w` are called, and nothing is written. */
int answer_rows(const struct target *t, const char *statement, struct export_writer *w);

#endif
