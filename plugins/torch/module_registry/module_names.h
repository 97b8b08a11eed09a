/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/module_names.h - from a module's address to its name as
 * named_modules() gives it.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_MODULE_REGISTRY_MODULE_NAMES_H
#define TORCH_MODULE_REGISTRY_MODULE_NAMES_H

#include "module_registry/registry.h"
#include "steps/step.h"

/* Walk a tree and name what is in it.  The caller holds `object`.  NULL: there is no memory, or
 * stop() came meanwhile. */
struct module *names_walk(PyObject *object);
/* A module's own attribute that is a dict, and the one of its children; new references, NULL: it
 * has none. */
PyObject *names_attribute_dict(PyObject *object, PyObject *name);
PyObject *names_children(PyObject *object);
bool names_is_module(PyObject *object);
/* For `listed` of what a listing of trees has come by. */
uint64_t names_new_listing(void);
/* start(): what an earlier walk still holds is as true as ever. */
void names_begin(void);

/* A module that is called inside a call of t->top and is not known (m: NULL), or not as a part of
 * that one's tree.  NULL: no name can be told. */
struct module *names_inside(struct module *m, PyObject *object, struct thread *t);
/* Before a top-level call: its entry, with the names in its tree as they are now. */
struct module *names_top(PyObject *object, uint64_t now_ns);
struct names_sought { /* objects that somebody looks for, by their classes */
    bool (*is)(PyObject *class);
    void (*found)(PyObject *object);
};
/* Read all modules that live now; sought: ends with an empty one.  0 or -errno. */
int names_scan(const struct names_sought *sought);
void names_forget_all(void);
bool names_training(PyObject *module); /* is it in training mode? */
bool names_is_ddp(PyObject *module);   /* is it a DistributedDataParallel? */

#endif
