/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/json_text.h - texts as JSON strings, letter by letter: the one rule of what is escaped.
 *
 * Any thread; no state, no allocation.  Escaped are quote, backslash, C0, DEL and C1 (which steer
 * terminals); what is no UTF-8, lone surrogates among it, becomes U+FFFD, a byte each, so that what
 * comes out is always JSON.  Everything else stays as it is, U+2028 too.
 */
#ifndef SDK_LIB_JSON_TEXT_H
#define SDK_LIB_JSON_TEXT_H

#include <stddef.h>

#define JSON_LETTER_BYTES 6 /* the longest: \u001b */

/* The letter at text[0..n), n >= 1, as it stands between a JSON string's quotes: *ret_size bytes.
 * Gives how many bytes of text it was. */
size_t json_letter(const char *text, size_t n, char ret[JSON_LETTER_BYTES], size_t *ret_size);

#endif
