/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/merge_answers.h - how a relay answers a question about members: it asks those of its
 * own host, and relays below it for the others, and writes one answer (cli/link/merge_protocol.h).
 *
 * One thread, in a process of its own: asking takes as long as members do.
 */
#ifndef CLI_RELAY_MERGE_ANSWERS_H
#define CLI_RELAY_MERGE_ANSWERS_H

#include <stddef.h>
#include <stdint.h>

struct relay_question {
    const char *data; /* the payload of its frame */
    size_t size;
    uint32_t host; /* the relay's own */
};

/* fn of child_start(): the answer goes to standard output.  0 or -errno with err_set(). */
int answer_question(void *question);

#endif
