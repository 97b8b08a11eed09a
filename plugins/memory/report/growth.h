/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/growth.h - what has grown in a time, judged by stack and by group.
 *
 * One thread, of the command.
 */
#ifndef MEMORY_REPORT_GROWTH_H
#define MEMORY_REPORT_GROWTH_H

#include "leak_find.h"
#include "report.h"

struct span {
    double from, begun, end; /* seconds since 1970: of the time, of its past, of both */
    double period;           /* seconds */
    double asked;            /* from when it was asked for */
    double heard;            /* NAN: it lives; else `end` is before what it freed on its way out */
    uint32_t past;           /* periods */
};

struct alive { /* of a leak */
    double bytes, count, age_ns;
};

struct growth {
    const struct memory_args *w;
    struct leak_find *find;
    struct span span;
    struct alive alive[LEAKS + 1]; /* by leak.number */
    struct leak found[LEAKS];
    uint32_t n;
    struct leak_other others[LEAK_OTHERS]; /* of growth_leaks(): in no leak */
    uint32_t n_others;
    double unsampled; /* what a stack may have that is in no sample of the time: an error */
    /* bytes that the program keeps more than it did, as the kernel counted them at two moments, or
     * NAN; what its stacks had more at these moments, and the variance of that */
    double kept, stacks, variance;
};

/* The functions that have grown the most, leaks or not, in `others`.  0 or what failed. */
int growth_most(const struct memory_args *w, struct growth *ret);
/* Tell leaks from growth that is none. */
int growth_leaks(const struct memory_args *w, struct growth *ret);
/* After either, also if it failed. */
void growth_done(struct growth *g);
/* A line of a function, and all of `others` as an array; reasons: by enum leak_verdict, or NULL. */
void growth_show_other(const struct growth *g, const struct leak_other *x);
void growth_json_others(const struct growth *g, struct report_json *j, const char *const *reasons);
/* The standard error of a growth with this variance. */
double growth_error(const struct growth *g, double variance);

#endif
