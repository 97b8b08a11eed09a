/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/dataloader.h - next() of DataLoaders, and their workers.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_STEPS_DATALOADER_H
#define TORCH_STEPS_DATALOADER_H

#include "python/hook.h"

extern const struct probing_table_desc data_table;
/* Hook of an iterator's next(). */
PyObject *data_next(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
void data_forget(void);
/* Is it a class of DataLoaders' iterators?  data_remember(): one of these is there. */
bool data_is_iterator(PyObject *class);
void data_remember(PyObject *iterator);

#endif
