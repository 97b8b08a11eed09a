/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/autograd_graph.h - autograd's graph, as its Python objects tell it.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_MODULE_REGISTRY_AUTOGRAD_GRAPH_H
#define TORCH_MODULE_REGISTRY_AUTOGRAD_GRAPH_H

#include "python/python_api.h"

#define GRAPH_OUTPUTS_MAX 16u
#define GRAPH_NEVER UINT64_MAX /* order of nodes that add up gradients: they are of no forward */

struct graph_output {
    PyObject *node; /* owned */
    uint64_t order; /* torch counts a thread's nodes as they are made */
};

/* false: this torch does not tell (before 2). */
bool graph_find(void);
void graph_forget(void);
/* The count of the next node of this thread. */
uint64_t graph_count(void);
/* Call a function without arguments for the number that it gives; GRAPH_NEVER: it failed. */
uint64_t graph_number(PyObject *function);
/* Nodes of what a module gave, those made since `from`; 0: none, or not all of it can be looked
 * into.  ret: room for GRAPH_OUTPUTS_MAX + 1. */
uint32_t graph_outputs(PyObject *result, uint64_t from, struct graph_output *ret);
/* The oldest node since `from` that these depend on, new reference; NULL: the search failed.
 * ret_too_large: there are more than it looks at. */
PyObject *graph_oldest(const struct graph_output *outputs, uint32_t n, uint64_t from,
                       uint64_t *ret_order, bool *ret_too_large);

#endif
