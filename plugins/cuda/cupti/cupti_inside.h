/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_inside.h - which thread of ours is inside CUPTI, and where: a call hangs
 * when the driver does.
 *
 * Threads: any.  One at a time goes in.  This state outlives the plugin that was loaded: a call
 * that did not return is still inside when it is loaded again.
 */
#ifndef CUDA_CUPTI_CUPTI_INSIDE_H
#define CUDA_CUPTI_CUPTI_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

bool cupti_enter(void); /* false: another thread is inside */
void cupti_leave(void);
/* For so long somebody has been inside, ns; ret_function: what was called last.  0: nobody is. */
uint64_t cupti_inside_ns(const char **ret_function);
void cupti_inside_forked(void); /* that thread is not in the child                    [child] */

void cupti_note(const char *function); /* is called next; by who is inside */
/* Calls `function` of a struct cupti, which has it. */
#define CUPTI(c, function, ...) (cupti_note("cupti" #function), (c)->function(__VA_ARGS__))

#endif
