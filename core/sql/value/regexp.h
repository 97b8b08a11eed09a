/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/regexp.h - regular expressions in time linear in the text, whatever the pattern.
 *
 * Letters of UTF-8, . [a-z] [^a-z] [[:alpha:]] \d \w \s \D \W \S, ^ $ \A \Z \b \B \y \Y \m \M,
 * a|b, (a), (?:a), * + ? {n} {n,} {n,m} and the lazy *? +? ?? {n,m}?, \. for a letter as it is,
 * \n \t \r \xHH \uHHHH.  Begins with (?i): case is not minded; (?n): lines; ***=: letters only.
 * No references back and no looking around: these cannot be had in linear time.  Of several matches
 * the first to begin wins, then the one that the pattern would rather have (as in Perl, not the
 * longest as in POSIX).
 * Any thread, a struct each.
 */
#ifndef CORE_SQL_VALUE_REGEXP_H
#define CORE_SQL_VALUE_REGEXP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/arena.h"

#define REGEXP_GROUPS 10 /* the whole match and \1 to \9; further ones only group */

struct regexp;

enum {
    REGEXP_FOLD = 1,
    REGEXP_LINES = 2, /* ^ and $ at each line, . not across */
    REGEXP_PLAIN = 4  /* every letter means itself */
};

/* The program and what running it needs live in the arena.  -EINVAL says where and what, -E2BIG:
 * repeated to more than 5,000 steps, -ENOMEM. */
int regexp_new(struct arena *mem, const char *pattern, size_t size, uint32_t flags,
               struct regexp **ret);
uint32_t regexp_groups(const struct regexp *r); /* without the whole match */

/* Look for a match that begins at `from` or later.  1: found; slots (may be NULL) then has the
 * begin and end of the match and of each group, UINT32_MAX: took no part.  0: none.  When `check`
 * gives a negative value, asked every now and then, that is given. */
int regexp_find(struct regexp *r, const char *text, uint32_t size, uint32_t from,
                uint32_t slots[2 * REGEXP_GROUPS], int (*check)(void *arg), void *arg);

#endif
