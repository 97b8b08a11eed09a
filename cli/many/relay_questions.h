/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/relay_questions.h - the questions to relays, shared by who asks them (ask_relays.c) and
 * who reads their answers (relay_answer.c).
 *
 * Private to these; one thread.
 */
#ifndef CLI_MANY_RELAY_QUESTIONS_H
#define CLI_MANY_RELAY_QUESTIONS_H

#include "cli/link/link.h"
#include "cli/link/merge_protocol.h"
#include "cli/many/asking.h"

#define RELAY_STDERR_BYTES ((size_t)64 << 10) /* kept of what a relay says beside its answer */

/* A question to one relay, and how far its answer has come. */
struct question {
    struct relays *all;
    uint32_t relay, first, n; /* its members: of the order */
    enum merged_kind kind;
    struct buf text;
    const char *statement; /* of the member that was added last; NULL: none was */
    struct link_run run;
    enum { QUESTION_WAITS, QUESTION_RUNS, QUESTION_OVER } state;
    struct buf in, stderr_text; /* in: a record that is not whole yet */
    uint64_t bytes, deadline_ns, paused_ns;
    uint32_t ended, told;       /* members, as it has reported; whose end has come */
    struct merged_member *ends; /* [n]; its `why` is the member's result's */
    struct reply *replies;      /* [n] of MERGED_ROWS */
    struct columns_list {
        struct arrow_reader *reader;
        const struct sql_column *list;
        uint32_t n;
    } * columns; /* of MERGED_COLUMNS */
    uint32_t n_columns, room_columns;
    struct arrow_reader *merged; /* of MERGED_GROUPS */
};

struct relays {
    struct asking *a;
    struct order {
        uint32_t relay, member;
        bool merges;
    } * order; /* the members behind relays, by relay */
    uint32_t n;
    struct question *questions;
    uint32_t n_questions, room_questions, at_once;
    uint64_t grace_ns, lost_ns; /* lost_ns: asking.lost_ns, as far as it is in deadlines */
    int fatal;                  /* the sink's done() ends all */
};

#define NOT_TOLD 1 /* the error of a member whose end has not come */

/* ---- relay_answer.c ---- */

/* The member by its place in the question, and whether its end has come. */
struct member *relay_member(const struct question *q, uint32_t which);
bool relay_has_told(const struct question *q, uint32_t which);
/* Below 0, with `why`: its members have failed for that reason, but for those whose end has come
 * and has told all. */
void relay_end_question(struct question *q, int rc, const char *why);
/* Takes the bytes of an answer, record by record: fn of link_run_turn(). */
int relay_on_bytes(void *question, bool error, const char *data, size_t size);

#endif
