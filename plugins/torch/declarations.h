/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/declarations.h - what the plugin says of its tables: views, metrics, and why one of
 * them has no rows.
 *
 * Threads: any.
 */
#ifndef PLUGINS_TORCH_DECLARATIONS_H
#define PLUGINS_TORCH_DECLARATIONS_H

#include "internal.h"

extern const struct probing_declarations torch_declares;
/* Why a table has no rows, as probing/ext/draft/empty.h says; empty_reason.c. */
int empty_why(void *self, const char *table, char *text, uint32_t size);

#endif
