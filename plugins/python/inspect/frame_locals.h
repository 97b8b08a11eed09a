/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/frame_locals.h - local variables of a frame, read without the GIL.
 *
 * One thread at a time per struct walk; no code of the user's (__repr__) ever runs.
 */
#ifndef PYTHON_INSPECT_FRAME_LOCALS_H
#define PYTHON_INSPECT_FRAME_LOCALS_H

#include <stddef.h>

#include "inspect/interpreter.h"

#define LOCALS_BYTES 16384 /* room for one frame's variables as JSON */

/* A JSON object, name to value.  Numbers, true, false, null and short str as they are; others say
 * their type and what is cheap to know: {"type": "list", "len": 1000, "items": [0, 1, 2]}, a long
 * str or bytes its "start", an int of more than 1,050 bits its "bits", arrays and tensors "shape",
 * "dtype" and "device", a process group of torch.distributed its "name" and the "ranks" of the job
 * that are in it ("0-3,8-56/8", those with a step as cron writes them; of more than 256, or of an
 * odd many, none), an instance its first "attributes", a function, class or module its "name".
 * Of a module or class body neither these three nor names with "__".  At most 64 variables, "..."
 * says that there are more.  "" when the frame went on while it was read. */
void locals_json(struct walk *w, const struct walk_frame *f, char *ret, size_t size);

#endif
