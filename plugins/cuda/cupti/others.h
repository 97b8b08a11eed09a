/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/others.h - who else uses CUPTI in this process.
 *
 * Threads: one at a time.
 * Of CUPTI's buffers there is one owner, and who asks last is it.  So nobody is asked: what can be
 * seen is looked for.
 */
#ifndef CUDA_CUPTI_OTHERS_H
#define CUDA_CUPTI_OTHERS_H

#include <link.h>
#include <probing/ext/draft/python.h>
#include <probing/plugin.h>
#include <stdbool.h>

#include "cpython.h"
#include "lib/slots/object.h"

struct others {
    const struct probing_python_gil_1 *gil; /* NULL: no Python here, or its plugin is not loaded */
    struct cpython py;                      /* looked up once, without the GIL */
    bool profiles;                          /* torch's profiler ran when it was last looked at */
};

/* Others' parts are there from start() on. */
void others_find(struct others *o, const struct probing_host *host);
/* A clause, as "torch.profiler runs"; NULL: nobody was seen.                          [worker] */
const char *others_look(struct others *o);
/* Is a library in the process that calls CUPTI by its old interface only, as torch's profiler does?
 * CUPTI would refuse it while somebody uses the new one (subscriber.h).                  [any] */
bool others_need_old_interface(void);
bool others_links_cupti(const struct object *o); /* is that one linked with a libcupti? */

#endif
