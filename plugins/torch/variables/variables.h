/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/variables.h - variables of the program at the end of each step.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_VARIABLES_VARIABLES_H
#define TORCH_VARIABLES_VARIABLES_H

#include "steps/step.h"

/* Listeners: other settings hold; a step ends, a row for each name of torch.variables. */
void variables_settings(struct settings *set);
void variables_ends(const struct thread *t, uint64_t end_ns);
void variables_forget(void);

#endif
