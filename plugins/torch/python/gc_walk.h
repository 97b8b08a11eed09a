/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/gc_walk.h - all objects that the garbage collector knows, a slice at a time.
 *
 * Threads: with the GIL, which may be given up between two slices, and only there.
 */
#ifndef TORCH_PYTHON_GC_WALK_H
#define TORCH_PYTHON_GC_WALK_H

#include "python/python_api.h"

#define GC_WALK_GENERATIONS 3
#define GC_WALK_RINGS (GC_WALK_GENERATIONS + 1) /* and what gc.freeze() has put away */

struct gc_walk {
    uint64_t heads[GC_WALK_RINGS];
    PyObject *mark; /* ours, in the collector's list behind the last object that was shown */
    int generation; /* that is gone through now */
    int64_t collections;
    uint32_t begun_again; /* the oldest generation, as all was collected between two slices */
};

/* false: this CPython's lists are not known; ask gc.get_objects() or the interpreter. */
bool gc_walk_begin(struct gc_walk *w);
/* Shows objects, borrowed, until `visit` gives 0 or all were shown.  One that was shown may come
 * again where garbage was collected between two slices.  true: there are more. */
bool gc_walk_slice(struct gc_walk *w, int (*visit)(PyObject *object, void *arg), void *arg);
void gc_walk_end(struct gc_walk *w);

#endif
