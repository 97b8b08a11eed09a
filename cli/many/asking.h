/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/asking.h - what poll_members.c, which asks the members of this machine, and
 * ask_relays.c, which asks those behind relays, share of one question.
 *
 * Private to them; one thread.
 */
#ifndef CLI_MANY_ASKING_H
#define CLI_MANY_ASKING_H

#include <poll.h>

#include "cli/many/query_members.h"

struct asking {
    struct members *all;
    const struct members_ask *ask;
    const struct members_sink *sink;
    uint64_t timeout_ns;
    /* Time in which nobody was read, and which counts for no deadline: this process waited for the
     * one who takes the answer, or for a CPU, or was stopped. */
    uint64_t lost_ns;
    uint32_t asked, done;
};

/* A member's answer as it comes, from itself or through its relay. */
struct reply {
    struct asking *a;
    struct member *m;
    struct arrow_reader *reader;
    bool columns; /* have been handed on */
};

int reply_begin(struct reply *r, struct asking *a, struct member *m);
/* Check the next bytes of its Arrow stream and hand on what is in them. */
int reply_take(struct reply *r, const char *data, size_t size);
/* The member has come to its end as its result says, which an answer that is whole completes. */
int reply_end(struct reply *r);
void reply_done(struct reply *r); /* of zeros, too */

/* ---- ask_relays.c ---- */

/* Questions to relays, one or more for each that stands before members which are asked. */
struct relays;
bool relays_stand_before(const struct member *m);
/* Begin to ask them.  *ret is to be ended by relays_end() also where that fails. */
int relays_begin(struct asking *a, struct relays **ret);
/* How many polls relays_polls() may fill; it lowers *until to when it must be called again. */
uint32_t relays_poll_room(const struct relays *r);
uint32_t relays_polls(struct relays *r, uint64_t now, struct pollfd *ret, uint64_t *until);
/* Take what has come, and give up what is too late.  Below 0 ends all. */
int relays_turn(struct relays *r, const struct pollfd *polls);
bool relays_are_done(const struct relays *r);
/* Members that have ended, as far as relays say, and are not in a->done yet. */
uint32_t relays_ended(const struct relays *r);
/* Members that have not answered fail for that reason. */
void relays_end(struct relays *r, const char *why);

#endif
