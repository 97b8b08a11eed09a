/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/merge_protocol.h - what a relay is asked when it is to merge the answers of members, and
 * what it answers: the payload of a frame of MERGE, and the bytes of its stream (cli/link/frame.h).
 *
 * Numbers least byte first.  The question:
 *
 *      u32 form, u64 timeout_ns, u64 grace_ns, u64 max_bytes, u32 size of the merge, that many
 *      bytes (core/sql/distribute: sql_global_question(); none: it is columns that are asked for),
 *      then of each member u32 host, its place, NUL, its statement ("": of the one before it), NUL,
 *      u32 size of what else is to be known of it, that many bytes (sql_global_question_member())
 *
 * The answer is records: u8 kind, u32 size, payload.
 *
 *      P  u32: so many of the members have come to an end; any number of times, before all others
 *      C  columns, as an Arrow stream without rows; numbered from 0 in their order
 *      M  a member: u32 which (its place in the question), u32 columns (MERGED_NONE: none),
 *         i32 error, u64 rows, bytes, elapsed_ns, lost, then why, or what else there is to say, NUL
 *      R  a piece of an Arrow stream, behind all M: the answer that is made of those that have
 *         answered; its first column says of each row which member it is to count for
 *      E  the end, without which it is not whole
 *
 * Both are checked by whoever reads them: a relay can lie about itself and those behind it only.
 * One thread.
 */
#ifndef CLI_LINK_MERGE_PROTOCOL_H
#define CLI_LINK_MERGE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

#define MERGED_NONE UINT32_MAX
#define MERGED_MEMBERS_MAX 16384
#define MERGED_QUESTION_BYTES ((size_t)96 << 10)

struct merged_question {
    uint64_t timeout_ns; /* of each member, as in cli/many/ask.h */
    uint64_t grace_ns;   /* that who asks waits longer; those below get two thirds of it */
    uint64_t max_bytes;
    const char *merge;
    uint32_t merge_size;
    const char *members; /* borrowed, all of them, as they are written */
    size_t members_size;
    uint32_t n;
};

void merged_ask(const struct merged_question *q, struct buf *ret); /* without members */

struct merged_place { /* a member of a question; of zeros before the first */
    size_t end;
    uint32_t host;
    const char *place, *statement;
    const char *about; /* what else is to be known */
    uint32_t about_size;
};
/* before: the one that was added before it, NULL: none was. */
void merged_ask_member(const struct merged_place *m, const struct merged_place *before,
                       struct buf *ret);
int merged_question_read(const char *data, size_t size, struct merged_question *ret); /* -EBADMSG */
/* The next member; false: there are no more. */
bool merged_question_member(const struct merged_question *q, struct merged_place *m);

struct merged_member {
    uint32_t which, columns;
    int error; /* 0: it has answered */
    uint64_t rows, bytes, elapsed_ns, lost;
    const char *why; /* it has not; else a note, or "" */
};

void merged_write(struct buf *ret, char kind, const void *data, size_t size);
void merged_write_member(struct buf *ret, const struct merged_member *m);

/* How far it has come; *at: behind what has been read of its beginning, from 0.  What it was before
 * where there is no more. */
void merged_write_progress(struct buf *ret, uint32_t ended);
uint32_t merged_progress(const char *data, size_t size, size_t *at, uint32_t before);

struct merged_record {
    char kind;
    const char *data;
    size_t size;
};
/* The record at *at.  1, 0: that was the last, -EBADMSG. */
int merged_read(const char *data, size_t size, size_t *at, struct merged_record *ret);
int merged_read_member(const struct merged_record *r, uint32_t n_members, uint32_t n_columns,
                       struct merged_member *ret); /* -EBADMSG */

#endif
