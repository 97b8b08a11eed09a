/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/safe_write.c - numbers and text into a buffer, and the buffer into a file.
 * Signal handlers and the thread of the reports; one at a time.
 */
#include "core/crash/safe_write.h"

#include <unistd.h>

static void put_char(struct lines *l, char c) /* [signal] */
{
    if (l->n == sizeof(l->data))
        lines_flush(l);
    l->data[l->n++] = c;
}

void lines_flush(struct lines *l)
{
    size_t done = 0;
    while (l->fd != -1 && done < l->n) {
        ssize_t n = write(l->fd, l->data + done, l->n - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    l->n = 0;
}

void lines_text(struct lines *l, const char *text)
{
    while (*text)
        put_char(l, *text++);
}

void lines_clean(struct lines *l, const char *text)
{
    for (; *text; text++)
        put_char(l, (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text);
}

void lines_number(struct lines *l, int64_t value)
{
    char digits[20];
    int n = 0;
    uint64_t rest = value < 0 ? UINT64_C(0) - (uint64_t)value : (uint64_t)value;
    do
        digits[n++] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    put_char(l, ' ');
    if (value < 0)
        put_char(l, '-');
    while (n > 0)
        put_char(l, digits[--n]);
}

static void put_hex(struct lines *l, uint64_t value, int digits) /* [signal] */
{
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
        put_char(l, "0123456789abcdef"[value >> shift & 15]);
}

void lines_hex(struct lines *l, uint64_t value)
{
    int digits = 1;
    while (digits < 16 && value >> 4 * digits)
        digits++;
    lines_text(l, " 0x");
    put_hex(l, value, digits);
}

void lines_bytes(struct lines *l, const void *p, size_t n)
{
    const unsigned char *byte = p;
    for (size_t i = 0; i < n; i++)
        put_hex(l, byte[i], 2);
}
