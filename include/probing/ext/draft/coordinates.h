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
#define PROBING_COORDINATE_COLUMNS                                                            \
    PROBING_COORDINATE("local_step", PROBING_I64, PROBING_COUNT,                              \
                       "number of training steps that had ended, since plugin torch counts "  \
                       "them; NULL: it does not"),                                            \
        PROBING_COORDINATE("global_step", PROBING_I64, PROBING_COUNT,                         \
                           "number that the program gave to probing.step(); NULL: none"),     \
        PROBING_COORDINATE("rank", PROBING_I64, PROBING_PLAIN,                                \
                           "rank of the process in its job, from torch.distributed, else "    \
                           "from RANK in the environment; NULL: not known"),                  \
        PROBING_COORDINATE("world_size", PROBING_I64, PROBING_COUNT,                          \
                           "number of processes in the job, from torch.distributed, else "    \
                           "from WORLD_SIZE in the environment"),                             \
        PROBING_COORDINATE("local_rank", PROBING_I64, PROBING_PLAIN,                          \
                           "rank of the process on its node, LOCAL_RANK in the environment"), \
        PROBING_COORDINATE("role", PROBING_STR, PROBING_PLAIN,                                \
                           "given to probing.set_role(), else ROLE_NAME in the environment")

struct probing_python_coordinates_1 {
    uint32_t size, n; /* n: PROBING_COORDINATES */
    /* The cells that a counter of steps writes, one at a time, relaxed; role is interned.  They
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
