/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/process_view.h - what a process with a core has, before and after something.
 */
#ifndef CLI_TARGET_PROCESS_VIEW_H
#define CLI_TARGET_PROCESS_VIEW_H

#include <stdint.h>

#include "sdk/lib/buf.h"

struct target;
struct buf;

struct process_view {
    struct buf tables, commands, settings; /* a name a line */
    struct buf threads, files;             /* "tid name", "fd path" */
    uint64_t caught;                       /* signals with a handler */
};

/* Look at it.  place: where its data is, which is not the plugin's.  process_view_done() it. */
void process_look(const struct target *t, const char *place, struct process_view *ret);
void process_view_done(struct process_view *v);
/* The first column of an answer in csv, a line each, in a new buf; empty: there is none. */
void process_ask(const struct target *t, const char *sql, struct buf *ret);
/* The lines that have come, with ", " between, in a new buf; gives how many. */
uint32_t process_came(struct buf *before, struct buf *after, struct buf *ret);

#endif
