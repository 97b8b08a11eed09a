/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/intercept.h - others in the process who are linked with CUPTI, as torch's
 * profiler is: heard of before they take its buffers, not half a second after it.
 *
 * The slots through which they call a few functions of CUPTI's old interface lead to ours, which
 * call CUPTI's.  Libraries that are linked otherwise (statically, by dlsym()) are not seen:
 * others.c looks for what can be seen of those.
 *
 * intercept_look() and _out() on one thread at a time, the rest on any.
 */
#ifndef CUDA_CUPTI_INTERCEPT_H
#define CUDA_CUPTI_INTERCEPT_H

#include "cupti/library.h"

/* Called on the thread that is about to take CUPTI, before it has.  NULL: nobody listens. */
void intercept_listen(void (*begins)(void));
/* From now on see those who came since, as far as they call this CUPTI. */
void intercept_look(const struct cupti *c);
void intercept_out(void); /* all slots are as they were; threads may still stand in our functions */
/* Name who traces, as a clause ("libtorch_cpu.so traces by CUPTI"); NULL: nobody who is seen. */
const char *intercept_other(void);
bool intercept_enabled(int kind); /* one of them has switched it on */
void intercept_forked(void);      /*                                                  [child] */

#endif
