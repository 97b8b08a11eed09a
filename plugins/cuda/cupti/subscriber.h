/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/subscriber.h - CUPTI's activities by either of its two interfaces.
 *
 * Threads: one at a time.
 * The old one has no subscribers: there is one set of kinds and one pair of callbacks for buffers a
 * process, which are whose came last.  By the new one, of CUPTI 13.2 and newer, each subscriber has
 * its own.  CUPTI refuses the one while somebody uses the other (CUPTI_MULTIPLE_SUBSCRIBERS), so
 * which is right depends on who else is in the process.
 */
#ifndef CUDA_CUPTI_SUBSCRIBER_H
#define CUDA_CUPTI_SUBSCRIBER_H

#include "cupti/library.h"

#define SUBSCRIBER_NAME 64 /* bytes of another one's name, as CUPTI wants them */

struct subscriber {
    const struct cupti *cupti;
    void *handle; /* NULL: by the old interface */
};

enum sharing {
    SHARING_NOT,  /* this CUPTI has no subscribers with activities of their own */
    SHARING_OFF,  /* somebody has it alone */
    SHARING_ON,   /* those who are there share it */
    SHARING_OPEN, /* nobody has said */
};

enum sharing subscriber_sharing(const struct cupti *c);
/* Become one of several.  CUPTI_SUCCESS, or its result; with CUPTI_MULTIPLE_SUBSCRIBERS
 * other[SUBSCRIBER_NAME] is who is there, "": it does not say. */
int subscriber_join(struct subscriber *s, char *other);
void subscriber_leave(struct subscriber *s); /* nothing, by the old interface */
/* Name who has CUPTI, after it was refused by the old interface.  "": it does not say. */
void subscriber_who(const struct cupti *c, char *ret_other);
/* Do others of those who share it want records now?  After ours were switched off. */
bool subscriber_has_company(const struct subscriber *s);

/* Buffers of the pool (buffer_pool.h) are CUPTI's, while they are wanted. */
int subscriber_register(const struct subscriber *s);
void subscriber_want(bool wanted); /*                                                [child] */
uint64_t subscriber_refused(void); /* times that one was wanted and none was free */
int subscriber_enable(const struct subscriber *s, int kind);
int subscriber_disable(const struct subscriber *s, int kind);
/* And tell what is there already; nothing where CUPTI cannot. */
int subscriber_enable_and_dump(const struct subscriber *s, int kind);
int subscriber_next_record(const struct subscriber *s, uint8_t *buffer, size_t valid,
                           uint8_t **record);
uint64_t subscriber_dropped(const struct subscriber *s); /* since it was asked before */
int subscriber_timestamp(const struct subscriber *s, uint64_t *now);
/* How threads are numbered; result as CUPTI's. */
int subscriber_thread_type(const struct subscriber *s, int *ret);
int subscriber_set_thread_type(const struct subscriber *s, int type);

/* Have threads numbered as the kernel does: true, they are.  ret_before: to be set again later; -1:
 * nothing was changed. */
bool subscriber_number_threads(const struct subscriber *s, int *ret_before);

#endif
