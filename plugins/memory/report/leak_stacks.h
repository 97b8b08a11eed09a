/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/leak_stacks.h - the stacks that leak_find.c judges: how much each has grown
 * by when, and by which functions it comes.
 *
 * One thread.  What is here is read by its fields; all of it lives until leak_stacks_done().
 */
#ifndef MEMORY_REPORT_LEAK_STACKS_H
#define MEMORY_REPORT_LEAK_STACKS_H

#include "leak_find.h"
#include "lib/arena.h"

struct hashed { /* key -> number below, open addressing; 0 is nobody's */
    uint32_t *slots, room;
};

struct function {
    uint64_t hash;
    const char *name, *file;
    bool own;
};

struct step { /* of a stack, on its way */
    uint32_t function, depth;
    double line;
    uint32_t next; /* of the same stack; 0: none */
};

struct stack {
    int64_t id;
    struct leak_growth growth;
    uint32_t origin, steps; /* a function, the first step; 0: not known */
    double line;            /* in the origin */
    uint32_t leak;          /* which has it; 0: none */
    bool in;                /* it is in the group that is looked at */
};

struct leak_stacks {
    struct arena arena;
    struct hashed by_id, by_name;
    struct stack *stacks;
    struct function *functions;
    struct step *steps;
    uint32_t n_stacks, n_functions, n_steps; /* one more than there are: 0 is nobody */
    uint32_t stacks_room, functions_room, steps_room;
    uint32_t past; /* periods */
};

void leak_stacks_done(struct leak_stacks *s);
/* Its number, made if it is new (not without `make`); 0: no memory, or none. */
uint32_t leak_stack_of(struct leak_stacks *s, int64_t id, bool make);
uint32_t leak_function_of(struct leak_stacks *s, const char *name, const char *file, bool own);
int leak_step_add(struct leak_stacks *s, uint32_t stack, const struct step *step);
void leak_growth_count(const struct leak_stacks *s, struct leak_growth *to,
                       const struct leak_samples *x);
void leak_growth_add(const struct leak_stacks *s, struct leak_growth *to,
                     const struct leak_growth *from);

#endif
