/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/query_members.h - one statement to many members: each runs it in its own engine, and
 * their answers come back as columns and rows.
 *
 * One thread, all connections at once, no process a member (but one for each of the dead, whose
 * files are read here, for each host that is given by a name, and for each port of this machine
 * while PROBING_TOKEN is not set: these have to wait for others first).  Members of other machines
 * are asked by their relays, with one question and one answer for all that are behind one
 * (cli/link/merge_protocol.h).  A member is not believed: what it sends is bounded and checked
 * (arrow_reader.h), so it can lie about itself only, a relay about those behind it, and one that
 * hangs, floods or dies costs the others nothing but its time limit.
 */
#ifndef CLI_MANY_QUERY_MEMBERS_H
#define CLI_MANY_QUERY_MEMBERS_H

#include "cli/answer/arrow_reader.h"
#include "cli/many/members.h"

#define ASK_TIMEOUT_NS (30 * UINT64_C(1000000000))
#define ASK_AT_ONCE 256

/* Rows of a table by their numbers: from <= number < to. */
struct members_range {
    uint64_t from, to;
};

struct members_ask {
    const char *statement;
    const char *const *statements; /* [members->n] each one's own; NULL: `statement` is all's */
    const struct members_range *ranges; /* [members->n] of the table that it reads; NULL: all */
    uint64_t timeout_ns; /* for each, from when it is asked until its answer is whole; 0:
                          * ASK_TIMEOUT_NS.  What it runs ends with its connection. */
    uint64_t limit;      /* rows of each, 0: all */
    uint64_t max_bytes;  /* of each answer, 0: no limit.  Past it the member has failed. */
    uint32_t at_once;    /* connections, 0: ASK_AT_ONCE or what open files allow */
    const bool *only;    /* [members->n] who is asked; NULL: all */
    bool columns;        /* it is asked for its columns, and no rows come */
    /* The question that relays of our build merge by, as sql_global_question() of
     * core/sql/distribute gives it; NULL: each member's rows are wanted as they are. */
    const struct buf *merge;
    uint64_t grace_ns; /* that relays are waited for beyond timeout_ns; 0: an eighth of it */
    bool keep;         /* connections, as far as at_once goes: the same are asked more, until
                          * members_hang_up() */
};

/* Any may be NULL.  m: its index is m - members->list.  Of one member: columns, then rows any
 * number of times, then done; of several mixed.  Rows may have come when it fails in the middle:
 * whoever must not count half an answer keeps them until done() says MEMBER_ANSWERED.  Less than 0
 * from columns() or rows() ends this member with that error, from done() and tick() all. */
struct members_sink {
    void *arg;
    int (*columns)(void *arg, const struct member *m, const struct sql_column *columns, uint32_t n);
    int (*rows)(void *arg, const struct member *m, const struct answer_rows *rows);
    /* The next bytes of its Arrow stream, before columns() and rows() get what is in them. */
    int (*bytes)(void *arg, const struct member *m, const char *data, size_t size);
    /* If relays merge: about() gives what they are to know of the i-th member; row() gets, in place
     * of rows(), a row with the member for which it counts, its values from column 1 on; and
     * within() comes after done() for each that has answered so. */
    int (*about)(void *arg, uint32_t i, struct buf *ret);
    int (*row)(void *arg, const struct member *m, const struct answer_rows *rows, uint32_t row);
    void (*within)(void *arg, const struct member *m);
    int (*done)(void *arg, const struct member *m); /* m->result says how */
    /* Shall more of this member be read now?  One that is not read waits, and loses nothing; its
     * time limit stands still meanwhile. */
    bool (*wanted)(void *arg, const struct member *m);
    int (*tick)(void *arg, uint32_t done, uint32_t asked); /* some times a second */
};

/* Ask them.  Whether they answered stands in each one's `result`; what this gives is 0, or why
 * asking as such could not go on (-ECANCELED: Ctrl-C). */
int members_query(struct members *m, const struct members_ask *ask,
                  const struct members_sink *sink);

/* Give how many of the wanted members can be asked at once: as many as open files allow, whose
 * limit is raised where that can be done.  At least 1. */
uint32_t members_at_once(uint32_t wanted);

/* Ask those for their place in a job of whom it is not known from here (by TCP, the dead), and put
 * the list in order again. */
int members_identify(struct members *m, uint64_t timeout_ns, uint32_t at_once);

/* How many have answered, and how many were to be asked. */
uint32_t members_answered(const struct members *m);
/* "6 of 8 answered", and a line for each reason, "rank 3 (process 4242): the process has died ...",
 * on stderr, unless all have: then true. */
bool members_say_missing(const struct members *m);
/* The notes of those that have: "rank 3: process 4245 is stopped; this is read from its files". */
void members_say_notes(const struct members *m);

#endif
