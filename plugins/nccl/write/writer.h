/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/writer.h - the thread that makes rows of what has ended, and sees what has
 * not.
 *
 * One thread of the plugin's own, at the process's priority, with all signals blocked; started and
 * stopped on [control].
 */
#ifndef NCCL_WRITER_H
#define NCCL_WRITER_H

#include "write/tables.h"

struct writer;

int writer_new(struct tables *t, struct recorder *r, struct writer **ret);
void writer_free(struct writer *w);
/* 0, or -errno after fail(). */
int writer_start(struct writer *w);
/* Write what has ended by now into the tables, and stop.  0, or -EBUSY after fail(). */
int writer_stop(struct writer *w);
void writer_forked(struct writer *w);

/* One turn, for tests: now: of CLOCK_MONOTONIC; scan: what is under way is looked at, too.  true:
 * some of what has ended is left for the next. */
bool writer_turn(struct writer *w, uint64_t now, bool scan);

#endif
