/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/spans.h - spans and events of `import probing`, as rows of
 * python.trace_event.
 */
#ifndef PYTHON_PACKAGE_API_SPANS_H
#define PYTHON_PACKAGE_API_SPANS_H

#include <stdint.h>

#include "cpython.h"

/* The span that the running code is in, 0: none; and the outermost one around it.  With the GIL. */
uint64_t spans_current(uint64_t *ret_trace);
void spans_forget(void); /* whose spans they are: the package has been let go of.  With the GIL. */

extern struct cpython_method spans_natives[]; /* for the package */

#endif
