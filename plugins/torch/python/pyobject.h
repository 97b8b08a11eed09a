/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/pyobject.h - what is asked of Python's objects where speed does not matter.
 *
 * Threads: any that holds the GIL, except where a comment says otherwise.
 * No exception is left behind.  NULL is an object that has nothing.
 */
#ifndef TORCH_PYTHON_PYOBJECT_H
#define TORCH_PYTHON_PYOBJECT_H

#include "python/python_api.h"

/* Run fn with the GIL; not at all, and 0, when the plugin does not work.  Gives fn's result, or
 * -errno after the host's fail().                                                     [worker] */
int object_lookup(int (*fn)(void *arg), void *arg);

/* A table's scan(): `look` gathers with the GIL what Python's objects say, `emit` makes rows of it
 * without.  found: `size` bytes, zeroed.  0, or -errno after the host's fail().        [worker] */
int object_scan(struct probing_rows *out, size_t size, int (*look)(void *found),
                int (*emit)(struct probing_rows *out, const void *found));

/* An imported module, borrowed; NULL: nobody has imported it. */
PyObject *object_module(const char *name);
/* An attribute, new reference or NULL; _from takes the object's reference. */
PyObject *object_get(PyObject *object, const char *name);
PyObject *object_get_from(PyObject *object, const char *name);
/* Something that a type has, as `type` itself gives it: no metaclass is asked.  New reference. */
PyObject *object_of_type(PyObject *type, const char *name);
/* A whole number, PROBING_NULL_I64: it is none.  Takes the reference. */
int64_t object_number(PyObject *value);
/* The whole number that a method without arguments gives. */
int64_t object_ask(PyObject *object, const char *method);
/* The value that a dict has under a name, borrowed; NULL: none, or it is no dict. */
PyObject *object_item(PyObject *dict, const char *name);
/* The whole number that it has there. */
int64_t object_number_in(PyObject *dict, const char *name);
/* Give up n references, and let what held them be NULL. */
void object_drop_all(PyObject **const *held, size_t n);
/* str(value), cut; "" of None.  Takes the reference. */
void object_text(PyObject *value, char *room, size_t size);
/* Interned; PROBING_NULL_ID of "" and of NULL.                                            [any] */
uint64_t object_intern(const char *text);
uint64_t object_intern_often(const char *text); /* likewise, with the GIL: of a step's few names */
/* An object's own attribute, new reference, without a dict made for it (which would slow down its
 * every attribute from then on) and without code of its class's.  NULL: none, no exception left. */
PyObject *object_attribute(PyObject *object, PyObject *name);
/* A dict of an object's own attributes, new reference; NULL: none, no exception left. */
PyObject *object_dict(PyObject *object);
/* "AdamW", without its module, interned. */
uint64_t object_class(PyObject *object);
const char *object_class_text(PyObject *object); /* lives with the class */
const char *object_type_text(PyObject *object);  /* likewise; "numpy.float32", of C's with module */
bool object_is(PyObject *object, PyObject *class);
/* The exception that is being raised, which stays so: its class and the first line of what it says,
 * interned; PROBING_NULL_ID: none is. */
uint64_t object_error(void);

#endif
