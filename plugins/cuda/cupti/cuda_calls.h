/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cuda_calls.h - what the calls of CUDA do, by their names; and which of them
 * CUPTI is to tell of.
 *
 * Threads: as library.h says.
 */
#ifndef CUDA_CUPTI_CUDA_CALLS_H
#define CUDA_CUPTI_CUDA_CALLS_H

#include "cupti/library.h"

#define CALLS 1024u /* numbers of calls that CUPTI has, of the runtime and of the driver */

enum call_class {
    CALL_ASKS,   /* cudaGetDevice, cudaEventQuery ...: over at once, and no work comes of it */
    CALL_WORKS,  /* work for the device, memory, code, contexts: and returns */
    CALL_WAITS,  /* returns when the device has done something */
    CALL_COPIES, /* likewise, a copy or a set of memory */
};

/* By its name as calls_name() gives it. */
enum call_class call_class_of(const char *name);

/* CUPTI's names of the functions of the driver (1) and of the runtime (0), by its numbers; NULL: it
 * does not tell.  The texts are CUPTI's: they stay as long as it is there. */
struct call_names {
    const char *all[2][CALLS];
};
void calls_read(const struct cupti *c, struct call_names *ret);
/* As people write it, without the CUDA since which it is there; false: it is not known. */
bool calls_name(const struct call_names *n, bool driver, uint32_t id, char *ret, size_t size);

enum calls {
    CALLS_ALL,  /* for another profiler, that has switched them on */
    CALLS_WORK, /* all but CALL_ASKS */
    CALLS_NONE, /* for a program that nobody traces: without it CUPTI goes on looking at each */
};

/* Torch makes a dozen calls of class CALL_ASKS for each kernel, each of which would be a record:
 * have CUPTI leave them out, where it can (CUDA 12.5 and newer).  After the kinds RUNTIME and
 * DRIVER were switched on or off, which holds for all calls; by the old interface. */
void calls_choose(const struct cupti *c, const struct call_names *n, enum calls which);

#endif
