/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/signal_frames.h - "python.frames/1": Python frames for profilers, safe in
 * handlers.
 *
 * frames_open() on [control] or, where it was in vain there, on a [worker]; frames_close() on
 * [control]; what the part itself offers says its own threads.
 */
#ifndef PYTHON_INSPECT_SIGNAL_FRAMES_H
#define PYTHON_INSPECT_SIGNAL_FRAMES_H

#include <probing/ext/draft/python_frames.h>

#include "internal.h"

/* Offer the part from now on.  It stays useless, and says so, where this Python is not known; then
 * it may be called again.                                                  [control] [worker] */
void frames_open(struct plugin *p);
/* No other plugin uses it any more. */
void frames_close(void);
/* The child's threads are not the parent's: the part is closed.                      [child] */
void frames_forked(void);

extern const struct probing_python_frames_1 frames_part;

#endif
