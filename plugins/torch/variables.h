/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables.h - rows of python.variables.
 *
 * Threads: any that holds the GIL.
 */
#ifndef PLUGINS_TORCH_VARIABLES_H
#define PLUGINS_TORCH_VARIABLES_H

#include "torch.h"

/* func: interned.  type, number: NULL: it has none. */
void variables_add(uint64_t func, const char *name, const char *type, const double *number,
                   const char *text);

#endif
