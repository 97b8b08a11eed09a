/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/program_calls.h - what a program says of its steps by the package `probing`.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_STEPS_PROGRAM_CALLS_H
#define TORCH_STEPS_PROGRAM_CALLS_H

#include <stdbool.h>

/* sys._probing_step and _role, which the package calls when they are there; false: away again. */
void program_calls_offer(bool offer);

#endif
