/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/offsets_proof.h - are this CPython's structures where we take them to be?
 *
 * A CPython that is newer than offsets_table.h is taken to be like the newest one there, with what
 * it publishes about itself.  Before anything of it is believed, a stack of our own, every frame of
 * which is known, is read as any other is and compared with what the interpreter says of it:
 * threads, functions, files, lines, columns and variables.  Every read is guarded (safe_read.h):
 * where the offsets are wrong the stack reads wrong, and nothing else happens.
 */
#ifndef PYTHON_EXEC_OFFSETS_PROOF_H
#define PYTHON_EXEC_OFFSETS_PROOF_H

#include <stddef.h>

#include "cpython.h"

struct plugin;
struct walk;

/* Try the proof if it is needed and possible by now, and tell its result in log and
 * probing.plugins.  Holds the GIL for 1 to 3 ms; waits for it as long as that.  0: nothing is left
 * to be tried; -EAGAIN: the GIL was not to be had, or the interpreter has not begun.   [control]
 * [worker] */
int proof_try(struct plugin *p, uint64_t timeout_ns);

/* Read the known stack with this walk: 0, or -ENOTSUP with one line in `why`.  With the GIL, on a
 * thread whose Python stack is empty. */
int proof_read(const struct cpython *py, struct walk *w, char *why, size_t why_size);

#endif
