/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/module_tables.h - the tables of the modules that live, and of their
 * gradients.
 *
 * Threads: [worker].
 */
#ifndef TORCH_MODULE_CALLS_MODULE_TABLES_H
#define TORCH_MODULE_CALLS_MODULE_TABLES_H

#include "internal.h"

extern const struct probing_table_desc modules_table, gradients_table;

#endif
