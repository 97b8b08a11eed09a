/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/below.h - questions that a relay answers for many members (cli/link/merge_protocol.h):
 * those of its own host are asked by a child, those behind relays below by these, and another child
 * makes one answer of all.
 *
 * The relay's thread; nothing waits.  0 or -errno with err_set().
 */
#ifndef CLI_RELAY_BELOW_H
#define CLI_RELAY_BELOW_H

#include <poll.h>

#include "cli/link/relay_tree.h"
#include "cli/many/child.h"

#define MERGE_STREAMS 0x80000000u /* of what a relay asks itself; who asks it has those below */
#define MERGE_POLLS 2

struct merge;

/* A question of who asks.  Relays below are asked at once. */
int merge_new(const struct frame *f, uint32_t me, struct tree *below, struct merge **ret);
void merge_free(struct merge *m); /* what it has asked below is given up; NULL is fine */
/* Is the frame, from below, for it?  Then it has been taken. */
bool merge_take(struct merge *m, const struct frame *f);
/* The descriptors that it waits for: MERGE_POLLS. */
void merge_polls(const struct merge *m, struct pollfd *ret);
/* Its own child has said all, and has not ended yet. */
bool merge_ends(const struct merge *m);
/* Do what can be done.  true: all has come, or is too late, and `child` may be started. */
bool merge_turn(struct merge *m);
/* A record that says how far it has come, if there is more to say than last time and that was some
 * time ago; `ret` as it was, if not. */
void merge_progress(struct merge *m, struct buf *ret);
/* Start the child whose output is the answer.  Where there is nobody below it may be begun at once,
 * without merge_turn(). */
bool merge_is_own(const struct merge *m);
int merge_answer(struct merge *m, struct child *ret);

#endif
