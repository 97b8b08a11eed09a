/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/locals.h - local variables of a frame, read without the GIL.
 *
 * One thread at a time per struct walk; no code of the user's (__repr__) ever runs.
 */
#ifndef PYTHON_LOCALS_H
#define PYTHON_LOCALS_H

#include <stddef.h>

#include "walk.h"

#define LOCALS_BYTES 4096 /* room for one frame's variables as JSON */

/* A JSON object, name to value: numbers, true, false and null as they are, short str as text,
 * others as {"type": ..., "len": ...}.  At most 24 variables, "..." says that there are more.
 * "" when the frame went on while it was read. */
void locals_json(struct walk *w, const struct walk_frame *f, char *ret, size_t size);

#endif
