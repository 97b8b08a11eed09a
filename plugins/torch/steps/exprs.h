/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/exprs.h - the names in the setting `exprs`, and what stands for them.
 *
 * Threads: as each comment says.
 */
#ifndef TORCH_STEPS_EXPRS_H
#define TORCH_STEPS_EXPRS_H

#include "internal.h"

#define EXPRS_NAME_BYTES 128u

struct expression { /* loss, loss@train, meter.avg@Trainer.step, metrics["acc"][-1] */
    const char *name,
        *func; /* into the list; func: "" for whatever function, the innermost first */
    size_t name_n, func_n, first_n; /* first_n: of the name, up to its first part */
};

/* How far it is to one of `stops` that is not in brackets.                                [any] */
size_t exprs_length(const char *p, const char *stops);
/* false: it is no such name.                                                              [any] */
bool exprs_parse(const char *p, size_t n, struct expression *ret);

/* Can this Python's frames be read?  With the GIL. */
bool exprs_usable(void);
/* With the GIL, tensors quiet: the value, new reference.  ret_func: name of the function that has
 * it, new reference.  NULL: none; ret_why: why it is not read, though it is there; else NULL. */
PyObject *exprs_find(const struct expression *e, PyObject **ret_func, const char **ret_why);

/* simple_property.c: the names of the attributes, a tuple, that a property follows, and does
 * nothing else; new reference, NULL: it is no such property.  With the GIL. */
#define GETTER_NAMES_MAX 2u
PyObject *getter_names(PyObject *property);

#endif
