/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/coordinates.h - "python.coordinates/1", by the python plugin: where in a job
 * and in its training the process is, for the rows of every table that has these columns.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_COORDINATES_H
#define PROBING_EXT_COORDINATES_H

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_PYTHON_COORDINATES_1 "python.coordinates/1"

enum {
    PROBING_LOCAL_STEP,
    PROBING_GLOBAL_STEP,
    PROBING_RANK,
    PROBING_WORLD_SIZE,
    PROBING_LOCAL_RANK,
    PROBING_ROLE,
    PROBING_COORDINATES
};

/* The columns, struct probing_column, in that order: the same in every table.  As they rarely
 * change they take no room in the store. */
#define PROBING_COORDINATE(name, type, unit, doc) \
    {                                             \
        name, type, unit, doc,                    \
        {                                         \
            0, 0                                  \
        }                                         \
    }
#define PROBING_COORDINATE_COLUMNS                                                              \
    PROBING_COORDINATE("local_step", PROBING_I64, PROBING_COUNT,                                \
                       "steps of the training that had ended, since they are counted; NULL: "   \
                       "they are not (plugin torch)"),                                          \
        PROBING_COORDINATE("global_step", PROBING_I64, PROBING_COUNT,                           \
                           "the step as told by probing.step(number); NULL: not told"),         \
        PROBING_COORDINATE("rank", PROBING_I64, PROBING_PLAIN,                                  \
                           "of the process in its job, by torch.distributed, else RANK of the " \
                           "environment; NULL: not known"),                                     \
        PROBING_COORDINATE("world_size", PROBING_I64, PROBING_COUNT,                            \
                           "processes in the job, by the same, else WORLD_SIZE"),               \
        PROBING_COORDINATE("local_rank", PROBING_I64, PROBING_PLAIN,                            \
                           "of the process on its node: LOCAL_RANK of the environment"),        \
        PROBING_COORDINATE("role", PROBING_STR, PROBING_PLAIN,                                  \
                           "as told by probing.set_role(), else ROLE_NAME of the environment")

struct probing_python_coordinates_1 {
    uint32_t size, n; /* n: PROBING_COORDINATES */
    /* Where whoever counts steps writes them, a cell at a time, relaxed; role is interned.  They
     * live as long as the process. */
    union probing_cell *cells;
    /* Put into rank, world_size, local_rank and role what the environment has now; others stay.
     * With the GIL: Python's own setenv() has it, too. */
    void (*read)(void);
};

#ifdef __cplusplus
}
#endif
#endif
