/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/leak_find.h - which stacks go on growing, alone or as a group.
 *
 * A leak that one function makes on hundreds of ways has too few samples on each to be told from
 * chance.  So stacks are judged together, too: all that a function allocates itself, whoever calls
 * it, and all that is allocated below a function on the way.  What is told is the smallest group
 * that has most of the growth.
 *
 * Many questions are asked at once, so each has to be answered the more surely: chance makes one
 * leak out of nothing in a hundred reports, however many stacks there are (Bonferroni's correction;
 * stacks with too few samples for any answer are no question: Tarone).  leak_judge.h says what is
 * a leak.
 *
 * One thread; no I/O.  Times are cut into periods of one length: `past` of them before the time
 * that is looked at, then LEAK_PERIODS.  Moment 0 is the beginning of the first, moment i the end
 * of the i-th.
 */
#ifndef MEMORY_REPORT_LEAK_FIND_H
#define MEMORY_REPORT_LEAK_FIND_H

#include <stdbool.h>
#include <stdint.h>

#define LEAK_PERIODS 8u
#define LEAK_QUARTERS 4u
#define LEAK_PAST 24u /* at most */
#define LEAK_MOMENTS (LEAK_PAST + LEAK_PERIODS + 1)
#define LEAKS 12u      /* that are told */
#define LEAK_OTHERS 5u /* that have grown and are told as no leak */
#define LEAK_LEAST 1e6 /* bytes that one has grown by, at the least */

/* Allocations and frees of one stack, or of several added up. */
struct leak_growth {
    double level[LEAK_MOMENTS];      /* bytes alive, above those at moment 0 */
    double kept[LEAK_QUARTERS];      /* bytes alive at the end that came in each part of the time */
    double gone;                     /* bytes that were there when it began, and went in it */
    double variance, newer_variance; /* of the growth in the time, and in its newer half */
    double samples, net;          /* that came and stayed or were there and went; came less went */
    double came;                  /* samples in the time */
    double largest[LEAK_MOMENTS]; /* block that came in each period: its size; 0: none came */
};

enum leak_verdict {
    LEAK_FOUND,     /* and all others are none: */
    LEAK_SMALL,     /* it has not grown by LEAK_LEAST */
    LEAK_BY_CHANCE, /* chance may explain it */
    LEAK_AS_BEFORE, /* it was as high before */
    LEAK_FEW,       /* a few blocks came */
    LEAK_PAUSES,    /* it does not grow in every part of the time */
    LEAK_FREED      /* what came early has been freed */
};

/* Samples of one stack, all born in one period and ended in one. */
struct leak_samples {
    int64_t stack_id;
    uint32_t born;  /* 0: before moment 0; i: between moments i - 1 and i */
    uint32_t ended; /* as `born`; 0: a row that says that they came, not that they went */
    double bytes, variance, count; /* count: samples */
    double largest;                /* of them: its size */
};

struct leak_frame {
    const char *function, *file;
    double line;         /* NAN: not known, or not the same in all stacks */
    double bytes;        /* that it has grown by */
    bool own, is_shared; /* it is no library's; most of the leak has come by it */
};

/* A function that has grown. */
struct leak_other {
    struct leak_frame at;
    double variance;
    uint32_t n_stacks;
    enum leak_verdict why; /* it is no leak by itself */
};

struct leak_stack { /* of a leak */
    int64_t stack_id;
    double bytes;
    struct leak_frame apart; /* its innermost frame that most others do not have; function: NULL */
};

struct leak {
    struct leak_growth growth;
    struct leak_frame at; /* the function that allocates, or below which all of it is allocated */
    bool is_below;
    uint32_t number, n_stacks, n_frames;
    struct leak_stack *stacks; /* largest first */
    struct leak_frame *frames; /* innermost first */
};

struct leak_find;

/* NULL: no memory. */
struct leak_find *leak_find_new(uint32_t past);
void leak_find_free(struct leak_find *f);

/* Each below: 0 or -ENOMEM.  Texts are copied. */
int leak_find_add(struct leak_find *f, const struct leak_samples *s);
/* Name the origin of a stack that leak_find_add() knows: it is charged with its growth. */
int leak_find_origin(struct leak_find *f, int64_t stack_id, const char *function, const char *file,
                     double line);
/* A frame of it, each function once; of stacks that were never added nothing is kept. */
int leak_find_frame(struct leak_find *f, int64_t stack_id, uint32_t depth,
                    const struct leak_frame *frame);

/* Largest first, into `ret`; they live with f.  How many, or -ENOMEM. */
int leak_find_run(struct leak_find *f, struct leak ret[LEAKS]);

/* The functions that have grown the most, by more than two errors, largest first: of all stacks, or
 * of those that leak_find_run() has found in no leak.  How many, or -ENOMEM. */
int leak_find_grown(struct leak_find *f, bool leaks_too, struct leak_other ret[LEAK_OTHERS]);

/* After leak_find_run(): how many stacks and groups were judged, and how many samples that came and
 * never went are the fewest that would have been told. */
uint32_t leak_find_questions(const struct leak_find *f);
double leak_find_fewest(const struct leak_find *f);

/* The `number` of the leak that a stack is of; 0: of none. */
uint32_t leak_find_of(struct leak_find *f, int64_t stack_id);

/* By how many bytes in the time that is looked at. */
double leak_grown(const struct leak_find *f, const struct leak_growth *g);

#endif
