/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/merge_protocol.h - one question to a relay about members, and its one answer: the
 * payload of a frame of MERGE, and the bytes of its stream (cli/link/frame.h).
 *
 * Numbers least byte first.  The question:
 *
 *      u32 form, u32 kind (enum merged_kind), u64 timeout_ns, u64 grace_ns, u64 max_bytes,
 *      u64 limit, u32 size of the merge, that many bytes (core/sql/distribute:
 *      sql_global_question()), then of each member u32 host, u64 from, u64 to, its place, NUL, its
 *      statement ("": of the one before it), NUL, u32 size of what else is to be known of it, that
 *      many bytes (sql_global_question_member())
 *
 * The answer is records: u8 kind, u32 size, payload.
 *
 *      P  u32: so many of the members have come to an end; any number of times
 *      C  columns, as an Arrow stream without rows; numbered from 0 in their order
 *      D  u32 which (the member's place in the question), a piece of its own Arrow stream
 *      M  the end of a member: u32 which, u32 columns (MERGED_NONE: none), i32 error, u64 rows,
 *         bytes, elapsed_ns, lost, then why, or what else there is to say, NUL
 *      R  a piece of an Arrow stream, behind all M: the answer that is made of those that have
 *         answered; its first column says of each row which member it is to count for
 *      E  the end, without which it is not whole
 *
 * MERGED_COLUMNS is answered by C and M, MERGED_GROUPS by M and R.  MERGED_ROWS is answered by D
 * and M: the beginning of each stream, which has the columns, goes out as it comes; what follows
 * goes out in the order of the question, each member's M behind its last D.
 *
 * One thread.  Whoever reads a record checks its size and numbers.
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
#define MERGED_RECORD_BYTES ((size_t)16 << 20)

enum merged_kind { MERGED_ROWS, MERGED_COLUMNS, MERGED_GROUPS };

struct merged_question {
    enum merged_kind kind;
    uint64_t timeout_ns; /* of each member, as in cli/many/query_members.h */
    uint64_t grace_ns;   /* that the asker waits longer; relays below get two thirds of it */
    uint64_t max_bytes;  /* of each member's answer; 0: no limit */
    uint64_t limit;      /* rows of each, 0: all */
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
    uint64_t from, to; /* rows of its table, by number; 0: all */
    const char *place, *statement;
    const char *about; /* what else is to be known */
    uint32_t about_size;
};
/* before: the statement of the one that was added before it, NULL: none was. */
void merged_ask_member(const struct merged_place *m, const char *before, struct buf *ret);
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

void merged_write_progress(struct buf *ret, uint32_t ended);

struct merged_record {
    char kind;
    const char *data;
    size_t size;
};
/* The record at *at, which moves behind it.  1; 0: it is not whole yet; -EBADMSG: there is no such
 * kind, or it is larger than MERGED_RECORD_BYTES. */
int merged_read(const char *data, size_t size, size_t *at, struct merged_record *ret);
int merged_read_member(const struct merged_record *r, uint32_t n_members, uint32_t n_columns,
                       struct merged_member *ret); /* -EBADMSG */

#endif
