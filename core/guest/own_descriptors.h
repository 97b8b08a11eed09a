/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/own_descriptors.h - which descriptors of the process are ours.
 *
 * Any thread, handlers too.
 */
#ifndef CORE_GUEST_OWN_DESCRIPTORS_H
#define CORE_GUEST_OWN_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

/* Did we open it, and not close it?  core/compat/descriptors.c knows, which is in libprobing.so
 * only: elsewhere nothing is told apart, and none is ours. */
bool descriptor_is_ours(int fd);

/* Around a call that gives a descriptor and that the linker does not send there: a system call by
 * its number, recvmsg(2).  A fork waits meanwhile, so nothing else is done in between.  fd: what
 * was given, or -1; gives the number that it has from here on, a high one; errno stays.  [any] */
void descriptor_begin(void);
int descriptor_end(int fd);
/* The same, where it shall keep its number, or where there may be several: between begin and
 * end_low each is noted. */
void descriptor_note(int fd);
void descriptor_end_low(void);

/* Around a fork.  before: gives what the child hands to drop, which closes all of ours and none of
 * the program's; after: in the parent. */
uint64_t descriptors_fork_before(void);
void descriptors_fork_after(void);
void descriptors_drop(uint64_t seen); /* [child] */
/* Memory that is a file of ours becomes the child's own (core/compat/shared_mappings.c). [child] */
void shared_mappings_drop(void);

#endif
