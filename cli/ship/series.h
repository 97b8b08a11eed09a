/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/series.h - rows and figures as series of numbers with labels: the rule by which they are
 * named, for destinations that know nothing else.
 *
 * One thread.  Names and values come from sources: what no series may have is replaced, and there
 * are bounds.
 *
 *     probing_<schema>_<table>_<column>{job, instance, host, pid, rank, role, process,
 *                                         <columns of text>}
 *
 * process is another one for each process, as containers of one host name all have a pid 1;
 * each numeric column is a series, each column of text a label ("exported_rank" where a name is one
 * of ours); of rows of one series in one millisecond the last one counts.
 */
#ifndef CLI_SHIP_SERIES_H
#define CLI_SHIP_SERIES_H

#include "cli/ship/ship.h"

#define LABELS_MAX 40
#define LABEL_NAME_BYTES 128
#define LABEL_VALUE_BYTES 256 /* longer ones are cut */
#define NAME_BYTES 300        /* of a series */

struct label {
    char name[LABEL_NAME_BYTES];
    char value[LABEL_VALUE_BYTES]; /* valid UTF-8 */
};

struct labels {
    struct label list[LABELS_MAX]; /* in order of names, no two of one */
    uint32_t n;
};

void labels_of_source(const struct ship_source *s, struct labels *ret);
/* One more; without a value it is none. */
void labels_add(struct labels *l, const char *name, const char *value, size_t size);
/* Add the labels of OpenMetrics' text: a="x",b="y".  false: it is no such text. */
bool labels_parse(struct labels *l, const char *text);
/* Letters, digits and '_' as series have them. */
void series_name(char *ret, size_t size, const char *first, const char *second, const char *third);

/* Does the column make series, or labels? */
bool series_is_number(const struct sql_column *c);
double series_number(const struct sql_value *v);
void labels_of_row(const struct ship_batch *b, uint32_t part, uint32_t row, struct labels *ret);

#define SERIES_HOUR_NS (UINT64_C(3600) * 1000000000)
/* May a sample of it go?  Who is in once is in for the hour.  now_ns: of any clock that only goes
 * forward.  hash: of name and labels.  -ENOMEM. */
int series_limit_take(struct series_limit *l, uint64_t hash, uint64_t now_ns, bool *ret);
void series_limit_done(struct series_limit *l);
/* The same by d->limit, and now; samples that may not go are counted in d->over. */
int series_take(struct ship_destination *d, uint64_t hash, uint32_t samples, bool *ret);

/* A row by its place, in order of series and time. */
struct series_row {
    uint64_t series; /* hash of its labels */
    int64_t at_ns;
    uint32_t part, row, order;
};
/* Rows that have a time, one a series and millisecond; caller frees.  *ret_left_out: the others. */
int series_rows(const struct ship_batch *b, struct series_row **ret, uint32_t *ret_n,
                uint64_t *ret_left_out);

#endif
