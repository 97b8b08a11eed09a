/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/object_json.h - one object as JSON, by guarded reads.
 *
 * One thread at a time per struct walk; no code of the user's (__repr__) ever runs.
 */
#ifndef PYTHON_OBJECTS_OBJECT_JSON_H
#define PYTHON_OBJECTS_OBJECT_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "inspect/interpreter.h"
#include "objects/json_out.h"

/* No room for another value of any kind and for what closes the containers around it. */
bool value_full(const struct out *o);

/* depth: 0 for a variable itself; containers in it are one deeper. */
void value_put(const struct walk *w, struct out *o, uint64_t object, int depth);

/* Is it a module, a class or a function: what a program consists of, rather than works on? */
bool value_is_program(const struct walk *w, uint64_t object);

void value_type_name(const struct walk *w, uint64_t type, char *ret, size_t size);

/* ---- array_json.c ---- */

/* Shape, dtype and device, or the number, of what numpy and torch make: further members of its JSON
 * object.  false: it is none of theirs. */
bool array_put(const struct walk *w, struct out *o, uint64_t object, uint64_t type);

/* ---- group_json.c ---- */

/* Name and ranks of a process group of torch.distributed: further members of its JSON object.
 * type: its type's name.  false: it is none. */
bool group_put(const struct walk *w, struct out *o, uint64_t object, const char *type);
/* Find where torch keeps both.  This takes some milliseconds: not while a thread stands still. */
void group_find(struct walk *w, uint64_t interpreter);

#endif
