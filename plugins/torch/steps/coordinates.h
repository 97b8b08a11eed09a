/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/coordinates.h - the first columns of every stored table of ours: where in a
 * job and in its training the process is.
 *
 * Threads: any that holds the GIL, except where a comment says otherwise.
 */
#ifndef TORCH_STEPS_COORDINATES_H
#define TORCH_STEPS_COORDINATES_H

#include <probing/ext/draft/coordinates.h>
#include <stdbool.h>
#include <stdint.h>

struct thread;

enum {
    COL_MICRO_STEP,
    COL_COORDINATES,
    COL_LOCAL_STEP = COL_COORDINATES + PROBING_LOCAL_STEP,
    COL_GLOBAL_STEP = COL_COORDINATES + PROBING_GLOBAL_STEP,
    N_COORDINATES = COL_COORDINATES + PROBING_COORDINATES
};

#define COORDINATE_COLUMNS                                                                       \
    PROBING_COORDINATE("micro_step", PROBING_I64, PROBING_COUNT,                                 \
                       "which forward of the same model in this step, from 0; NULL: outside of " \
                       "training, or not known"),                                                \
        PROBING_COORDINATE_COLUMNS

/* Read them anew, from the environment; part: where others want them, too. */
void coordinates_begin(const struct probing_python_coordinates_1 *part);
/* Is torch.distributed there?  Then it is asked from now on. */
void coordinates_find(void);
/* Has torch.distributed another default group than before, or none? */
void coordinates_look(void);
void coordinates_set_global(int64_t step); /* PROBING_NULL_I64: not known */
void coordinates_set_role(const char *text);
/* The number of the step that runs, for others' rows; counted: false: it is counted no more. */
void coordinates_set_step(bool counted);
void coordinates_forget(void);
/* Listeners to the end of a step. */
void coordinates_ends(const struct thread *t, uint64_t end_ns);
void coordinates_ended(const struct thread *t, uint64_t end_ns);
/* The first N_COORDINATES cells of a row of this thread's, in the step that runs. */
void coordinates_put(union probing_cell *row);
void coordinates_of(int64_t step, union probing_cell *row); /* of another one            [any] */

#endif
