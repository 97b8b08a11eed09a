/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/mmap_guard.h - our files that are mapped into the host can lose pages under it:
 * where the disk cannot read them, or somebody cuts the file short or copies over it.
 *
 * Whoever touches such a page gets SIGBUS, which would end the host.  A handler of ours puts a page
 * of memory in its place: what was there is lost, and counted, and its owner sees that in
 * mapped_lost() before it believes what it read.  All other SIGBUS go on to whom they went before,
 * as the kernel would have sent them.
 *
 * The handler is there as long as anything is watched.  A program that puts one of its own over
 * ours gets ours over its own at the next mapped_inspect().  Threads that block SIGBUS are ended by
 * the kernel whatever handler there is: ours do not block it.
 *
 * core/crash has a handler for SIGBUS, too.  While it is on it stands in for this one: it asks
 * mapped_mend() first, and sees through ours to the program's own.
 */
#ifndef CORE_GUEST_MMAP_GUARD_H
#define CORE_GUEST_MMAP_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/guest/sigchain.h"

#define MAPPED_HEAD 16 /* bytes */

/* Watch a mapping.  head: what a page that was lost begins with, the rest is zeros; NULL: zeros.
 * 0, or -ENOSPC when too many are watched: it goes on unwatched.                         [any] */
int mapped_watch(void *at, size_t bytes, const uint8_t head[MAPPED_HEAD]);
/* Before it is unmapped.  What was not watched is fine.                                  [any] */
void mapped_forget(const void *at);
/* From now on only its first `bytes` have a file behind them: the rest is nowhere.  What is not
 * watched is fine.                                                                       [any] */
void mapped_there(const void *at, size_t bytes);
/* How many bytes of all that are watched are resident now, which is what they add to the process's
 * RSS; 0 where /proc cannot tell.  It takes some nanoseconds a page.                     [any] */
uint64_t mapped_resident(void);
/* How many of its pages were lost.                                                       [any] */
uint64_t mapped_lost(const void *at);
/* See to it that a SIGBUS comes to us first.                                             [any] */
void mapped_inspect(void);

/* Is it the fault of a page of ours that is lost?  Then there is one now.             [signal] */
bool mapped_mend(const siginfo_t *info);
/* A handler of SIGBUS that asks mapped_mend() first.                                     [any] */
void mapped_stand_in(handler_fn *fn);
/* Is it one of ours?  Then it becomes what that goes on to.                           [signal] */
bool mapped_see_through(struct sigaction *a);

void mapped_disable_in_child(void); /* [child] */

#endif
