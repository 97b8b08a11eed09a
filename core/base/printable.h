/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/printable.h - text of others for people: what would steer a terminal, hide or reorder
 * letters is written as an escape, anything else as it is.
 *
 * Any thread.  Controls of C0 (but those that the caller keeps), DEL, C1 in either form, bytes that
 * are no UTF-8, and characters that have no picture of their own: bidirectional controls, joiners,
 * zero-width spaces and fillers, line separators, tags.  A backslash stays one, so that code reads
 * as it was written: the escapes are for eyes, nobody reads them back.
 */
#ifndef CORE_BASE_PRINTABLE_H
#define CORE_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "sdk/lib/buf.h"

#define PRINTABLE_LINE ""     /* keep nothing: one line */
#define PRINTABLE_TEXT "\n\t" /* keep what forms lines and columns */

/* Bytes of the letter at `text`, n >= 1 of which are there; *ret_plain: it may be shown as it is.
 * 0: these bytes are the beginning of a letter whose rest is not there. */
size_t printable_letter(const char *text, size_t n, bool *ret_plain);
/* Bytes at the end of `text` that begin a letter whose rest may come with the next piece. */
size_t printable_open_end(const char *text, size_t n);
/* Add `text`, with escapes; a letter cut at its end counts as bad bytes.  keep: control characters
 * of C0 that stay as they are.  0, or what buf_add() gives. */
int printable_add(struct buf *b, const char *text, size_t n, const char *keep);

#endif
