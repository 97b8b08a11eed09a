/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/utf8.h - letters of UTF-8.
 *
 * Any thread; async-signal-safe.
 */
#ifndef SDK_LIB_UTF8_H
#define SDK_LIB_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the UTF-8 letter at `text` (n bytes, 1 or more), 0: it is none (too long, surrogate,
 * cut, past U+10FFFF). */
size_t text_utf8_length(const char *text, size_t n);

/* Letter number c, at most U+10FFFF, as UTF-8: how many bytes, 4 at most. */
size_t text_utf8_put(char *out, uint32_t c);

#endif
