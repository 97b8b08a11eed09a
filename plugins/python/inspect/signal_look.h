/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/signal_look.h - one look at the Python frames of a thread, safe in signal
 * handlers.
 *
 * The caller lends what a look works in (l->scratch, LOOK_SCRATCH_BYTES), the offsets (`w`, which
 * must not change meanwhile), and the address of the main interpreter's GIL, 0: not known.
 */
#ifndef PYTHON_INSPECT_SIGNAL_LOOK_H
#define PYTHON_INSPECT_SIGNAL_LOOK_H

#include <probing/ext/draft/python_frames.h>

#include "inspect/interpreter.h"

#define LOOK_SCRATCH_BYTES 71680u

/* No frames yet, and nothing known of the GIL.                                       [signal] */
void look_empty(struct probing_python_look *l);

/* Look at the calling thread, into an empty look.  With l->last, what the thread's last look found
 * is used, and kept for the next.   [signal] */
void look_here(struct probing_python_look *l, const struct walk *w, uint64_t gil);

/* Look at another thread, which need not wait, into an empty look; frames: room for WALK_FRAMES.
 * 0, or -ESRCH: it has gone.   [worker] */
int look_at(struct probing_python_look *l, struct walk *w, uint64_t gil,
            const struct walk_thread *t, struct walk_frame *frames);

#endif
