/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/versions.h - has a dict changed since it was looked at?
 *
 * Threads: any that holds the GIL.
 */
#ifndef PLUGINS_TORCH_VERSIONS_H
#define PLUGINS_TORCH_VERSIONS_H

#include "torch.h"

/* false: this CPython tells no changes. */
bool versions_begin(void);
void versions_end(void);
/* A number that is another one after each change of the dict. */
uint64_t versions_of(PyObject *dict);

#endif
