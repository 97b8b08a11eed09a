/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/module_names.h - what registry.c, module_names.c, gc_scan.c and
 * module_tables.c share: modules that live, and their trees.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_MODULE_REGISTRY_MODULE_NAMES_H
#define TORCH_MODULE_REGISTRY_MODULE_NAMES_H

#include "internal.h"

/* The entry of an object, made when there is none; NULL: no memory, or no weak reference. */
struct module *names_entry(PyObject *object);
void registry_forget_all(void);

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

#endif
