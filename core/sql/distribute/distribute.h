/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/distribute.h - one statement over many processes: `global.SCHEMA.TABLE` is
 * the table of all of them.
 *
 * The table of all has the tag columns first (_host, _addr, _rank, _node_rank, _local_rank, _role:
 * NULL where not known; _clock_offset_ns and _clock_error_ns, not part of `*`), then those of the
 * table, and the rows of the members in their order.  Columns of type timestamp are in the asker's
 * clock: a member takes its _clock_offset_ns off before it compares or groups.  From a statement
 * come parts: SQL that each member runs in its own engine, and a last statement over their answers
 * that an engine of ours runs.  A select that groups rows of one such table is split: members
 * aggregate, and what they send is merged.  Of everything else the columns that it names, and the
 * rows that its conditions leave, are pulled, up to max_bytes.
 *
 * The order of calls: new, member, (tables, schema or lacks), plan, (parts, statement, columns,
 * row, answered or failed), run.  Nothing here speaks to anybody: whoever calls does.  What
 * members send is not believed: an answer that is not what was asked for is refused, and its
 * member named. One thread.  Gives 0 or -errno with err_set().
 */
#ifndef CORE_SQL_DISTRIBUTE_DISTRIBUTE_H
#define CORE_SQL_DISTRIBUTE_DISTRIBUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sql/sql.h"

#define SQL_GLOBAL_MAX_BYTES (UINT64_C(256) << 20) /* where nobody says --max-bytes */

enum sql_tag {
    SQL_TAG_HOST,
    SQL_TAG_ADDR,
    SQL_TAG_RANK,
    SQL_TAG_NODE_RANK,
    SQL_TAG_LOCAL_RANK,
    SQL_TAG_ROLE,
    SQL_TAG_CLOCK_OFFSET, /* ns: what is taken off its times, so that they are the asker's; NULL:
                           * its clock is not known, and nothing is */
    SQL_TAG_CLOCK_ERROR,  /* ns: how far they may be from the asker's clock still */
    SQL_TAGS
};
#define SQL_TAGS_SHOWN SQL_TAG_CLOCK_OFFSET       /* those before it are part of `*` */
extern const char *const sql_tag_names[SQL_TAGS]; /* "_host" ... */
extern const enum sql_type sql_tag_types[SQL_TAGS];
extern const char *const sql_tag_docs[SQL_TAGS]; /* of `describe` */

struct sql_global_options {
    uint64_t max_bytes; /* of all answers together, 0: SQL_GLOBAL_MAX_BYTES */
    uint64_t timeout_ns, max_rows;
    const _Atomic int *cancel; /* may be NULL */
    bool strict;               /* a member that does not answer is an error */
    /* Quantiles that are asked for exactly are answered within 1 % (see sql_global_can_sketch()).
     * */
    bool sketch;
};

struct sql_global;

/* Is a table of all named in it?  false also where it cannot be parsed: the engine says why. */
bool sql_is_global(const char *text, size_t size);

/* Options and text are copied.  -EINVAL: line, column, what is wrong. */
int sql_global_new(const char *text, size_t size, const struct sql_global_options *o,
                   struct sql_global **ret);
void sql_global_free(struct sql_global *g);

/* One who is asked, numbered from 0 in order of calls.  name: for sentences ("rank 3"), copied as
 * the tags are; a tag's type is SQL_NULL where it is not known, else that of sql_tag_types[]. */
int sql_global_member(struct sql_global *g, const char *name,
                      const struct sql_value tags[SQL_TAGS]);

/* Which tables does it need, and what to ask every member for its columns: an answer without
 * rows. */
uint32_t sql_global_tables(const struct sql_global *g);
const char *sql_global_probe(const struct sql_global *g, uint32_t table);
int sql_global_schema(struct sql_global *g, uint32_t table, uint32_t member,
                      const struct sql_column *columns, uint32_t n);
/* It could not answer, or has no such table: why, in one sentence.  gone: it was not reached. */
int sql_global_lacks(struct sql_global *g, uint32_t table, uint32_t member, const char *why,
                     bool gone);

/* Now that the columns are known: what is asked.  Errors have the place in the text. */
int sql_global_plan(struct sql_global *g);
uint32_t sql_global_parts(const struct sql_global *g);
/* The statement that a member runs; NULL: it is not asked (its tags say that it has no such rows,
 * or it has no such table).  Equal statements are the same pointer. */
const char *sql_global_statement(const struct sql_global *g, uint32_t part, uint32_t member);

/* An answer comes: columns once, rows, then answered() or failed(); what came before failed() is
 * dropped.  -EBADMSG: it is not what was asked for; -EFBIG: all together are too large: that ends
 * the whole.  explain alone asks nobody. */
int sql_global_columns(struct sql_global *g, uint32_t part, uint32_t member,
                       const struct sql_column *columns, uint32_t n);
int sql_global_row(struct sql_global *g, uint32_t part, uint32_t member,
                   const struct sql_value *cells);
void sql_global_answered(struct sql_global *g, uint32_t part, uint32_t member, uint64_t elapsed_ns);
void sql_global_failed(struct sql_global *g, uint32_t part, uint32_t member, const char *why);
/* The same over somebody on the way, who makes one answer of many.  The question for a part (1; 0:
 * its answers go by themselves), and what it needs to know of each member; both are kept apart, and
 * the second may be empty.  There, over n_members of part 0, of which take_member() has each who is
 * asked: columns, row, answered and failed as above, then run_merge() gives one answer, in front of
 * each row its member's number.  Who asks takes these rows as that member's; answered_within() then
 * says what each has sent to whom is on the way. */
struct buf;
int sql_global_question(const struct sql_global *g, uint32_t part, struct buf *ret);
int sql_global_question_member(const struct sql_global *g, uint32_t part, uint32_t member,
                               struct buf *ret);
int sql_global_from_question(const char *data, size_t size, uint32_t n_members,
                             const struct sql_global_options *o, struct sql_global **ret);
int sql_global_take_member(struct sql_global *g, uint32_t member, const char *data, size_t size);
int sql_global_run_merge(struct sql_global *g, const struct sql_sink *sink, struct sql_report *ret);
struct sql_global_said {
    uint64_t elapsed_ns, rows, bytes;
};
void sql_global_answered_within(struct sql_global *g, uint32_t part, uint32_t member,
                                const struct sql_global_said *said);
bool sql_global_only_explains(const struct sql_global *g);
/* After -EFBIG: would the same statement do with `sketch`, as it has exact quantiles? */
bool sql_global_can_sketch(const struct sql_global *g);

/* The last statement, or what explain says.  -ENODATA: strict, and one did not answer; or nobody.
 * */
int sql_global_run(struct sql_global *g, const struct sql_sink *sink, struct sql_report *ret);

/* How many members it was about, how many of them are in the answer whole. */
uint32_t sql_global_asked(const struct sql_global *g);
uint32_t sql_global_answers(const struct sql_global *g);
/* Why a member is not in the answer, or not with all that was asked of it; NULL: it is, or has
 * nothing to say to it. */
const char *sql_global_why(const struct sql_global *g, uint32_t member);
/* Sentences on what is not as it seems: columns that members lack, by their names, values that are
 * close ones.  One a line; "": nothing. */
const char *sql_global_notes(struct sql_global *g);

#endif
