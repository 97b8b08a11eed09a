/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/thread_names.h - the names that threading gave to threads, read without
 * the GIL.
 *
 * One thread at a time per struct walk.
 */
#ifndef PYTHON_INSPECT_THREAD_NAMES_H
#define PYTHON_INSPECT_THREAD_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "objects/dict_reader.h"

/* threading._active of one interpreter as it was read once, in order of thread_id; zeroed: not
 * read yet. */
struct thread_names {
    uint64_t interpreter;
    struct entries active;
};

/* threading.Thread.name of a thread; false: threading does not know it, or it could not be read.
 * Takes its interpreter's _active from `known`, and reads it into that if another one is there. */
bool names_thread(struct walk *w, struct thread_names *known, const struct walk_thread *t,
                  char *ret, size_t size);
void names_done(struct thread_names *known);

#endif
