/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/code_names.h - which code object it is, and what it is called, though it
 * may be gone.
 *
 * A code object may die a moment after it was seen in a stack, and another one may come to its
 * address.  So it is told by a mark, what was read of it, and what names it is copied at the first
 * sight of it, in the signal handler that saw it.
 */
#ifndef PYTHON_INSPECT_CODE_NAMES_H
#define PYTHON_INSPECT_CODE_NAMES_H

#include <probing/ext/draft/python_frames.h>

#include "inspect/interpreter.h"

#define CODES_HEAD OFFSETS_CODE

/* A mark that tells code objects at one address apart; compared as bytes. */
struct codes_mark {
    uint64_t file, name, qualname, lines;
    int32_t first_line;
    uint32_t version; /* from 3.12 on no other code object gets it; before, 0 */
};

int codes_open(const struct walk *w); /* 0, or -ENOMEM; w must live until codes_close() */
void codes_close(void);               /* also after a failed open */

void codes_mark(const uint8_t *head, struct codes_mark *ret); /* [signal] */
uint32_t codes_hash(const struct codes_mark *m);              /* [signal] */
/* Is it the one that CPython runs, from 3.12 on, between a class and its __init__?  All names of it
 * are one str, and it begins at no line.                                            [signal] */
bool codes_is_setup(const struct codes_mark *m);
/* Number of a code object that is known; 0: it is not.                              [signal] */
uint32_t codes_find(uint64_t address, const struct codes_mark *mark);
/* Is that its number?  One that was kept may be of an earlier life of the plugin.  [signal] */
bool codes_is_number(uint32_t number, uint64_t address);
/* Before 3.12 these addresses may have become another code object's.  Where the names of a look's
 * frames are not those of their numbers any more: the right number, or 0 and a copy of the names.
 * pieces, room: CODES_AT_ONCE * CODES_PARTS of them, CODES_ROOM bytes.              [signal] */
#define CODES_PARTS 3
#define CODES_PART_BYTES 80
#define CODES_AT_ONCE 20
#define CODES_ROOM (CODES_AT_ONCE * CODES_PARTS * CODES_PART_BYTES)
void codes_check(struct probing_python_look *l, struct iovec *pieces, uint8_t *room);

/* Copy what names the code object with this mark; how many bytes, 0: no room or not readable.
 *                                                                                   [signal] */
uint32_t codes_copy(const struct codes_mark *mark, uint8_t *to, uint32_t room);

/* As name() of "python.frames/1"; one caller at a time. */
int64_t codes_name(const struct probing_python_look *l, const struct probing_python_frame *frame,
                   struct probing_python_text *ret);

#endif
