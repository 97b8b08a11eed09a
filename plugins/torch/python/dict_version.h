/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/dict_version.h - has a dict changed since it was looked at?
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_PYTHON_DICT_VERSION_H
#define TORCH_PYTHON_DICT_VERSION_H

#include "python/python_api.h"

/* false: this CPython tells no changes. */
bool versions_begin(void);
void versions_end(void);
/* A number that is another one after each change of the dict. */
uint64_t versions_of(PyObject *dict);

#endif
