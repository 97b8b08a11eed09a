/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/json_text.c - which letters of a text JSON takes, and what stands for the others.
 *
 * Any thread.
 */
#include "sdk/lib/json_text.h"

#include <string.h>

#include "sdk/lib/utf8.h"

size_t json_letter(const char *text, size_t n, char ret[JSON_LETTER_BYTES], size_t *ret_size)
{
    static const char hex[] = "0123456789abcdef", from[] = "\"\\\n\t\r", to[] = "\"\\ntr";
    size_t length = text_utf8_length(text, n);
    unsigned char c = (unsigned char)text[0];
    if (length == 0) {
        memcpy(ret, "\xef\xbf\xbd", *ret_size = 3);
        return 1;
    }
    const char *known = c != '\0' ? strchr(from, c) : NULL;
    if (length == 2 && c == 0xc2 && (unsigned char)text[1] < 0xa0)
        c = (unsigned char)text[1]; /* C1 */
    if (known) {
        ret[0] = '\\';
        ret[1] = to[known - from];
        *ret_size = 2;
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
        const char escape[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        memcpy(ret, escape, *ret_size = sizeof(escape));
    } else {
        memcpy(ret, text, *ret_size = length);
    }
    return length;
}
