/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/exprs.h - the names in the setting `exprs`, and what stands for them.
 *
 * Threads: as each comment says.
 */
#ifndef TORCH_VARIABLES_EXPRS_H
#define TORCH_VARIABLES_EXPRS_H

#include "device/device.h"

#define EXPRS_NAME_BYTES DEVICE_NAME_BYTES

struct expression { /* loss, loss@train, meter.avg@Trainer.step, metrics["acc"][-1] */
    const char *name,
        *func; /* into the list; func: "" for whatever function, the innermost first */
    size_t name_n, func_n, first_n; /* first_n: of the name, up to its first part */
    uint32_t number;                /* among those of the setting */
    PyObject *first;                /* the variable's name; owned by who keeps the expression */
};

/* How far it is to one of `stops` that is not in brackets.                                [any] */
size_t exprs_length(const char *p, const char *stops);
/* false: it is no such name.                                                              [any] */
bool exprs_parse(const char *p, size_t n, struct expression *ret);

/* From a variable along the expression's parts, new reference; takes the variable's.  NULL: it has
 * none; ret_why: why it is not read, though it is there; else it stays.  With the GIL. */
PyObject *exprs_follow(const struct expression *e, PyObject *variable, const char **ret_why);

/* frame_variable.c.  Can this Python's frames be read?  With the GIL. */
bool exprs_usable(void);
/* With the GIL, tensors quiet: the value, new reference.  ret_func: the name of the function that
 * has it, interned.  NULL: none; ret_why: why it is not read, though it is there; else NULL. */
PyObject *exprs_find(const struct expression *e, uint64_t *ret_func, const char **ret_why);
/* With the GIL: other expressions come, or none do. */
void exprs_forget(void);

/* simple_property.c: the names of the attributes, a tuple, that a property follows, and does
 * nothing else; new reference, NULL: it is no such property.  With the GIL. */
#define GETTER_NAMES_MAX 2u
PyObject *getter_names(PyObject *property);

#endif
