/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/model_reader.h - reading models while their own threads are at a place
 * where that is safe.
 */
#ifndef TORCH_MODULE_CALLS_MODEL_READER_H
#define TORCH_MODULE_CALLS_MODEL_READER_H

#include "steps/step.h"

#include <probing/ext/draft/python.h>

#define SAFE_POINT_MODELS 1024u /* models at a time */

struct safe_point_read {
    /* With the GIL.  own: gradients may be asked for; else the model's thread did not come by. */
    void (*read)(void *arg, PyObject *root, bool own);
    void *arg;
    /* the rest is safe_point_read_all()'s */
    uint64_t begin_ns, quiet_ns;
    uint32_t n;
    _Atomic uint32_t left;
    PyObject *
        roots[SAFE_POINT_MODELS]; /* addresses; with the serials, valid while names_find() agrees */
    struct safe_point_model {
        uint64_t serial, cpu_ns, since_ns;
        int64_t tid; /* of the thread that called it last; 0: none has */
        _Atomic bool done;
        bool quiet;
    } all[SAFE_POINT_MODELS];
};

/* Have `read` called for each model.  0 or -errno.                                    [worker] */
int safe_point_read_all(struct safe_point_read *w, const struct probing_python_gil_1 *gil);
/* With the GIL: this thread's optimizer has stepped, or it is about to call a model. */
void safe_point_reached(const struct thread *t, bool stepped);
/* An optimizer has done its work at end_ns. */
void safe_point_optimized(struct thread *t, uint64_t end_ns);

extern _Atomic(struct safe_point_read *) safe_point_pending; /* taken out by whoever works on it */

static inline bool safe_point_wanted(void)
{
    return atomic_load_explicit(&safe_point_pending, memory_order_relaxed) != NULL;
}

#endif
