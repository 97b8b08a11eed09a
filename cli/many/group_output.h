/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/group_output.h - what the children of many members have printed, to the user: equal
 * answers once, or line by line as it comes.
 *
 * One thread.
 */
#ifndef CLI_MANY_GROUP_OUTPUT_H
#define CLI_MANY_GROUP_OUTPUT_H

#include "cli/many/members.h"
#include "sdk/lib/buf.h"

struct printed {
    struct buf out, err;
    int status; /* exit code; -1: it was ended */
    bool said;  /* it is on the screen */
};

/* All that has come to an end, in the order of the list; equal ones below one line that names
 * them. */
void printed_show(const struct members *m, struct printed *all);

/* The same where each has printed JSON: a line for each member, {"rank": 3, "process": "4242",
 * "host": "n1", and then what it has said: the members of its object, or "answer": its value.  Of
 * one that has failed, or said what is no JSON, "error": why. */
void printed_json(const struct members *m, struct printed *all);

enum line_form { LINES_PLAIN, LINES_JSON, LINES_CSV };
/* Lines of one member that are whole (last: all that is left), each with whose it is: "3: ...", or
 * as a first member of a JSON object, or the first column of CSV, whose header comes once. */
struct lines {
    enum line_form form;
    bool has_header;
};
int printed_lines(const struct members *m, const struct member *one, struct lines *l,
                  struct buf *text, bool *header_seen, bool last);

#endif
