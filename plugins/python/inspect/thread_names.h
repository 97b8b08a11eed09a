/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/thread_names.h - the names that threading gave to threads, read without
 * the GIL.
 *
 * One thread at a time per struct walk; nothing is kept.
 */
#ifndef PYTHON_INSPECT_THREAD_NAMES_H
#define PYTHON_INSPECT_THREAD_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "inspect/interpreter.h"

/* threading.Thread.name of a thread; false: threading does not know it, or it could not be read. */
bool names_thread(struct walk *w, const struct walk_thread *t, char *ret, size_t size);

#endif
