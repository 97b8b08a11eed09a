/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/leak_find.c - growth that is none of chance is found in stacks and groups
 * of them.
 *
 * In three rounds, each without the stacks that the rounds before it have told: first what each
 * function allocates itself, by any way; then each stack alone, as a function's other stacks may
 * hide it; then what is allocated below each function on the way, of which the innermost is told
 * that has most of the growth.
 */
#include "leak_find.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "leak_judge.h"
#include "leak_stacks.h"

#define FEWEST 8    /* samples with which anything can be surer than chance: see leak_surely() */
#define MOST 0.8    /* of a group's growth */
#define A_PART 0.15 /* of a group's growth, with which others make up most of it */
#define PARTS 6u
#define SEEN 4 /* variances that the square of a growth has at least which is shown: two errors */

struct sum {
    struct leak_growth growth;
    uint32_t n;      /* stacks */
    uint64_t depths; /* of them all together */
};

struct leak_find {
    struct leak_stacks s;
    struct sum *sums; /* by function */
    struct leak_judge judge;
    uint32_t questions, told;
};

static bool is_leak(const struct leak_find *f, const struct leak_growth *g, bool is_group)
{
    return leak_judge(&f->judge, g, is_group) == LEAK_FOUND;
}

double leak_grown(const struct leak_find *f, const struct leak_growth *g)
{
    return leak_growth_bytes(&f->judge, g);
}

static bool sum_is_leak(const struct leak_find *f, const struct sum *sum)
{
    return sum->n > 0 && is_leak(f, &sum->growth, sum->n > 1);
}

/* ---- sums by function ---- */

static void add_to(struct leak_find *f, uint32_t function, const struct stack *x, uint32_t depth)
{
    struct sum *sum = &f->sums[function];
    leak_growth_add(&f->s, &sum->growth, &x->growth);
    sum->n++;
    sum->depths += depth;
}

/* Add up the stacks that are `in`, by their origin or by every function on their way. */
static void sum_up(struct leak_find *f, bool by_origin)
{
    memset(f->sums, 0, f->s.n_functions * sizeof(*f->sums));
    for (uint32_t i = 1; i < f->s.n_stacks; i++) {
        const struct stack *x = &f->s.stacks[i];
        if (!x->in)
            continue;
        if (by_origin && x->origin)
            add_to(f, x->origin, x, 0);
        for (uint32_t at = by_origin ? 0 : x->steps; at; at = f->s.steps[at].next)
            add_to(f, f->s.steps[at].function, x, f->s.steps[at].depth);
    }
}

static bool comes_by(const struct leak_find *f, const struct stack *x, uint32_t function)
{
    uint32_t at = x->steps;
    while (at && f->s.steps[at].function != function)
        at = f->s.steps[at].next;
    return at != 0;
}

static void all_in(struct leak_find *f)
{
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        f->s.stacks[i].in = f->s.stacks[i].leak == 0;
}

/* Only what comes by the function stays in, or only the rest. */
static void keep_in(struct leak_find *f, uint32_t function, bool rest)
{
    for (uint32_t i = 1; i < f->s.n_stacks; i++) {
        struct stack *x = &f->s.stacks[i];
        x->in = x->in && comes_by(f, x, function) != rest;
    }
}

static uint32_t largest_leak(const struct leak_find *f, bool own)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < f->s.n_functions; i++)
        if ((f->s.functions[i].own || !own) && sum_is_leak(f, &f->sums[i]) &&
            (!best || leak_grown(f, &f->sums[i].growth) > leak_grown(f, &f->sums[best].growth)))
            best = i;
    return best;
}

/* ---- what each function allocates, and each stack ---- */

static void tell_in(struct leak_find *f, struct leak *leak, uint32_t function)
{
    leak->at.function = function ? f->s.functions[function].name : NULL;
    leak->at.file = function ? f->s.functions[function].file : NULL;
    leak->number = ++f->told;
    for (uint32_t i = 1; i < f->s.n_stacks; i++) {
        struct stack *x = &f->s.stacks[i];
        if (!x->in)
            continue;
        x->leak = f->told;
        leak->n_stacks++;
        leak_growth_add(&f->s, &leak->growth, &x->growth);
    }
}

static uint32_t largest_stack(const struct leak_find *f, bool of_those_in, bool if_leak)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < f->s.n_stacks; i++) {
        const struct stack *x = &f->s.stacks[i];
        if ((of_those_in ? x->in : x->leak == 0) && (!if_leak || is_leak(f, &x->growth, false)) &&
            (!best || leak_grown(f, &x->growth) > leak_grown(f, &f->s.stacks[best].growth)))
            best = i;
    }
    return best;
}

static void only_in(struct leak_find *f, uint32_t stack)
{
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        f->s.stacks[i].in = i == stack;
}

static bool tell_origin(struct leak_find *f, struct leak *leak)
{
    all_in(f);
    sum_up(f, /* by_origin= */ true);
    uint32_t origin = largest_leak(f, /* own= */ false);
    if (!origin)
        return false;
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        f->s.stacks[i].in = f->s.stacks[i].in && f->s.stacks[i].origin == origin;
    uint32_t one = largest_stack(f, /* of_those_in= */ true, /* if_leak= */ true);
    if (one &&
        leak_grown(f, &f->s.stacks[one].growth) > MOST * leak_grown(f, &f->sums[origin].growth))
        only_in(f, one); /* the others are none to speak of */
    tell_in(f, leak, origin);
    return true;
}

static bool tell_stack(struct leak_find *f, struct leak *leak)
{
    uint32_t one = largest_stack(f, /* of_those_in= */ false, /* if_leak= */ true);
    if (!one)
        return false;
    only_in(f, one);
    tell_in(f, leak, f->s.stacks[one].origin);
    return true;
}

/* ---- what is allocated below a function ---- */

/* Fewer stacks, or the same ones further in. */
static bool is_closer(const struct sum *a, const struct sum *b)
{
    return a->n != b->n ? a->n < b->n : a->depths < b->depths;
}

/* The innermost function below which most of what is in has grown; 0: there is none. */
static uint32_t innermost_function(struct leak_find *f, bool own, double grown)
{
    uint32_t best = 0;
    sum_up(f, /* by_origin= */ false);
    for (uint32_t i = 1; i < f->s.n_functions; i++)
        if ((f->s.functions[i].own || !own) && leak_grown(f, &f->sums[i].growth) >= MOST * grown &&
            sum_is_leak(f, &f->sums[i]) && (!best || is_closer(&f->sums[i], &f->sums[best])))
            best = i;
    return best;
}

static bool is_leak_in(const struct leak_find *f)
{
    struct leak_growth all = {.samples = 0};
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        if (f->s.stacks[i].in)
            leak_growth_add(&f->s, &all, &f->s.stacks[i].growth);
    return is_leak(f, &all, /* is_group= */ true);
}

/* Is what is in made up of a few that are leaks themselves, or the larger half of it, and the rest
 * is none?  The largest of them; 0: no. */
static uint32_t part_of(struct leak_find *f, bool own, double grown)
{
    uint32_t first = 0;
    double told = 0;
    for (uint32_t i = 0; i < PARTS && told < MOST * grown; i++) {
        uint32_t best = 0;
        sum_up(f, /* by_origin= */ false);
        for (uint32_t k = 1; k < f->s.n_functions; k++) {
            double part = leak_grown(f, &f->sums[k].growth);
            if ((f->s.functions[k].own || !own) && part >= A_PART * grown && part < MOST * grown &&
                sum_is_leak(f, &f->sums[k]) &&
                (!best || part > leak_grown(f, &f->sums[best].growth)))
                best = k;
        }
        if (!best)
            break;
        told += leak_grown(f, &f->sums[best].growth);
        first = first ? first : best;
        keep_in(f, best, /* rest= */ true);
    }
    return told >= MOST * grown || (told >= grown / 2 && !is_leak_in(f)) ? first : 0;
}

/* Leave in only the stacks that come by all of these functions. */
static void in_again(struct leak_find *f, const uint32_t *way, uint32_t n)
{
    all_in(f);
    for (uint32_t i = 0; i < n; i++)
        keep_in(f, way[i], /* rest= */ false);
}

#define WAY 8u /* groups in groups */

static bool tell_below(struct leak_find *f, struct leak *leak, bool own)
{
    uint32_t way[WAY], n = 0;
    all_in(f);
    sum_up(f, /* by_origin= */ false);
    for (uint32_t at = largest_leak(f, own); at && n < WAY;) {
        double grown = leak_grown(f, &f->sums[at].growth);
        way[n++] = at;
        in_again(f, way, n);
        uint32_t closer = innermost_function(f, own, grown);
        if (closer && n < WAY) {
            way[n++] = closer;
            in_again(f, way, n);
            sum_up(f, /* by_origin= */ false);
            grown = leak_grown(f, &f->sums[closer].growth);
        }
        at = part_of(f, own, grown);
        in_again(f, way, n);
        sum_up(f, /* by_origin= */ false);
    }
    if (n == 0)
        return false;
    leak->is_below = true;
    tell_in(f, leak, way[n - 1]);
    return true;
}

/* ---- what is said of one ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct leak_stack *x = a, *y = b;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

struct placed { /* a function on a leak's way */
    uint32_t function;
    double depth, line;
};

static int by_depth(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return x->depth < y->depth ? -1 : x->depth > y->depth;
}

/* The line of its functions, where all of its stacks agree. */
static void find_lines(const struct leak_find *f, uint32_t leak, double *lines)
{
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        for (uint32_t at = f->s.stacks[i].leak == leak ? f->s.stacks[i].steps : 0; at;
             at = f->s.steps[at].next) {
            double *line = &lines[f->s.steps[at].function];
            *line = *line == 0 || *line == f->s.steps[at].line ? f->s.steps[at].line : (double)NAN;
        }
}

static int describe_frames(struct leak_find *f, struct leak *leak, const double *lines)
{
    double grown = leak_grown(f, &leak->growth);
    struct placed *placed = arena_zalloc(&f->s.arena, f->s.n_functions, sizeof(*placed));
    leak->frames = arena_zalloc(&f->s.arena, f->s.n_functions, sizeof(*leak->frames));
    if (!placed || !leak->frames)
        return -ENOMEM;
    for (uint32_t i = 1; i < f->s.n_functions; i++)
        if (f->sums[i].n)
            placed[leak->n_frames++] = (struct placed){
                .function = i, .depth = (double)f->sums[i].depths / f->sums[i].n, .line = lines[i]};
    qsort(placed, leak->n_frames, sizeof(*placed), by_depth);
    for (uint32_t i = 0; i < leak->n_frames; i++) {
        const struct function *is = &f->s.functions[placed[i].function];
        double bytes = leak_grown(f, &f->sums[placed[i].function].growth);
        leak->frames[i] = (struct leak_frame){.function = is->name,
                                              .file = is->file,
                                              .line = placed[i].line,
                                              .bytes = bytes,
                                              .own = is->own,
                                              .is_shared = bytes >= MOST * grown};
    }
    return 0;
}

/* Its innermost function that few others of the leak have: the program's, if one of them is. */
static void tell_apart(const struct leak_find *f, const struct leak *leak, const struct stack *x,
                       struct leak_frame *ret)
{
    double grown = leak_grown(f, &leak->growth);
    uint32_t best = 0, is_own = 0, depth = UINT32_MAX;
    for (uint32_t at = x->steps; at; at = f->s.steps[at].next) {
        const struct step *step = &f->s.steps[at];
        uint32_t own = f->s.functions[step->function].own;
        if (leak_grown(f, &f->sums[step->function].growth) >= MOST * grown || own < is_own ||
            (own == is_own && step->depth >= depth))
            continue;
        best = at;
        is_own = own;
        depth = step->depth;
    }
    if (best)
        *ret = (struct leak_frame){.function = f->s.functions[f->s.steps[best].function].name,
                                   .file = f->s.functions[f->s.steps[best].function].file,
                                   .line = f->s.steps[best].line};
}

/* The line that most of it was allocated in. */
static double line_of(const struct leak_find *f, const struct leak *leak)
{
    double in = 0, line = (double)NAN, most = -1;
    for (uint32_t i = 1; i < f->s.n_stacks; i++) {
        const struct stack *x = &f->s.stacks[i];
        if (x->leak == leak->number && leak_grown(f, &x->growth) > most) {
            most = leak_grown(f, &x->growth);
            line = x->line;
        }
    }
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        if (f->s.stacks[i].leak == leak->number && f->s.stacks[i].line == line)
            in += leak_grown(f, &f->s.stacks[i].growth);
    return in >= MOST * leak_grown(f, &leak->growth) ? line : (double)NAN;
}

static int describe_leak(struct leak_find *f, struct leak *leak)
{
    double *lines = calloc(f->s.n_functions, sizeof(*lines));
    leak->stacks = arena_zalloc(&f->s.arena, leak->n_stacks, sizeof(*leak->stacks));
    if (!lines || !leak->stacks) {
        free(lines);
        return -ENOMEM;
    }
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        f->s.stacks[i].in = f->s.stacks[i].leak == leak->number;
    sum_up(f, /* by_origin= */ false);
    find_lines(f, leak->number, lines);
    int rc = describe_frames(f, leak, lines);
    free(lines);
    for (uint32_t i = 1, n = 0; i < f->s.n_stacks; i++) {
        const struct stack *x = &f->s.stacks[i];
        if (!x->in)
            continue;
        leak->stacks[n] =
            (struct leak_stack){.stack_id = x->id, .bytes = leak_grown(f, &x->growth)};
        tell_apart(f, leak, x, &leak->stacks[n++].apart);
    }
    qsort(leak->stacks, leak->n_stacks, sizeof(*leak->stacks), by_bytes);
    leak->at.line = leak->is_below ? (double)NAN : line_of(f, leak);
    return rc;
}

/* ---- all ---- */

static int by_growth(const void *a, const void *b)
{
    const struct leak *x = a, *y = b;
    return x->at.bytes > y->at.bytes ? -1 : x->at.bytes < y->at.bytes;
}

static uint32_t asked_of(struct leak_find *f, bool by_origin)
{
    uint32_t n = 0;
    sum_up(f, by_origin);
    for (uint32_t i = 1; i < f->s.n_functions; i++)
        n += f->sums[i].n > 1 && f->sums[i].growth.samples >= FEWEST;
    return n;
}

static void count_questions(struct leak_find *f)
{
    all_in(f);
    f->questions = asked_of(f, true) + asked_of(f, false);
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        f->questions += f->s.stacks[i].growth.samples >= FEWEST;
    f->judge.surely = leak_surely(f->questions);
}

static bool has_sums(struct leak_find *f)
{
    free(f->sums);
    f->sums = calloc(f->s.n_functions + 1, sizeof(*f->sums));
    return f->sums != NULL;
}

int leak_find_run(struct leak_find *f, struct leak ret[LEAKS])
{
    uint32_t n = 0;
    int rc = 0;
    memset(ret, 0, LEAKS * sizeof(*ret));
    if (!has_sums(f))
        return -ENOMEM;
    count_questions(f);
    while (n < LEAKS && tell_origin(f, &ret[n]))
        n++;
    while (n < LEAKS && tell_stack(f, &ret[n]))
        n++;
    while (n < LEAKS && tell_below(f, &ret[n], /* own= */ true))
        n++;
    while (n < LEAKS && tell_below(f, &ret[n], /* own= */ false))
        n++;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        ret[i].at.bytes = leak_grown(f, &ret[i].growth);
        rc = describe_leak(f, &ret[i]);
    }
    qsort(ret, n, sizeof(*ret), by_growth);
    return rc < 0 ? rc : (int)n;
}

/* The line that all of its stacks say. */
static double origin_line(const struct leak_find *f, uint32_t function)
{
    double line = (double)NAN;
    bool first = true;
    for (uint32_t i = 1; i < f->s.n_stacks; i++) {
        const struct stack *x = &f->s.stacks[i];
        if (!x->in || x->origin != function || leak_grown(f, &x->growth) <= 0)
            continue;
        if (!first && line != x->line)
            return (double)NAN;
        first = false;
        line = x->line;
    }
    return line;
}

int leak_find_grown(struct leak_find *f, bool leaks_too, struct leak_other ret[LEAK_OTHERS])
{
    uint32_t n = 0;
    if (!has_sums(f))
        return -ENOMEM;
    for (uint32_t i = 1; i < f->s.n_stacks; i++)
        f->s.stacks[i].in = leaks_too || f->s.stacks[i].leak == 0;
    sum_up(f, /* by_origin= */ true);
    for (; n < LEAK_OTHERS; n++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < f->s.n_functions; i++) {
            double grown = leak_grown(f, &f->sums[i].growth);
            if (grown > LEAK_LEAST && grown * grown > SEEN * f->sums[i].growth.variance &&
                (!best || grown > leak_grown(f, &f->sums[best].growth)))
                best = i;
        }
        if (!best)
            break;
        struct sum *sum = &f->sums[best];
        ret[n] = (struct leak_other){.at = {.function = f->s.functions[best].name,
                                            .file = f->s.functions[best].file,
                                            .line = origin_line(f, best),
                                            .bytes = leak_grown(f, &sum->growth)},
                                     .variance = sum->growth.variance,
                                     .n_stacks = sum->n,
                                     .why = leak_judge(&f->judge, &sum->growth, sum->n > 1)};
        *sum = (struct sum){.n = 0};
    }
    return (int)n;
}

uint32_t leak_find_of(struct leak_find *f, int64_t stack_id)
{
    uint32_t stack = leak_stack_of(&f->s, stack_id, /* make= */ false);
    return stack ? f->s.stacks[stack].leak : 0;
}

uint32_t leak_find_questions(const struct leak_find *f)
{
    return f->questions;
}

double leak_find_fewest(const struct leak_find *f)
{
    return f->judge.surely;
}

int leak_find_add(struct leak_find *f, const struct leak_samples *s)
{
    uint32_t stack = leak_stack_of(&f->s, s->stack_id, /* make= */ true);
    if (!stack)
        return -ENOMEM;
    leak_growth_count(&f->s, &f->s.stacks[stack].growth, s);
    return 0;
}

int leak_find_origin(struct leak_find *f, int64_t stack_id, const char *function, const char *file,
                     double line)
{
    uint32_t stack = leak_stack_of(&f->s, stack_id, /* make= */ true);
    uint32_t origin = stack ? leak_function_of(&f->s, function, file, /* own= */ true) : 0;
    if (!origin)
        return -ENOMEM;
    f->s.stacks[stack].origin = origin;
    f->s.stacks[stack].line = line;
    return 0;
}

int leak_find_frame(struct leak_find *f, int64_t stack_id, uint32_t depth,
                    const struct leak_frame *frame)
{
    uint32_t stack = leak_stack_of(&f->s, stack_id, /* make= */ false);
    if (!stack)
        return 0;
    struct step step = {.depth = depth, .line = frame->line};
    step.function = leak_function_of(&f->s, frame->function, frame->file, frame->own);
    if (!step.function)
        return -ENOMEM;
    f->s.functions[step.function].own = frame->own;
    return leak_step_add(&f->s, stack, &step);
}

struct leak_find *leak_find_new(uint32_t past)
{
    struct leak_find *f = calloc(1, sizeof(*f));
    if (f) {
        arena_init(&f->s.arena, /* limit_bytes= */ 0);
        f->s.past = past < LEAK_PAST ? past : LEAK_PAST;
        f->judge = (struct leak_judge){.past = f->s.past, .surely = leak_surely(1)};
    }
    return f;
}

void leak_find_free(struct leak_find *f)
{
    if (!f)
        return;
    leak_stacks_done(&f->s);
    free(f->sums);
    free(f);
}
