/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/safe_write.h - text into a file with write(2) alone: no stdio, no malloc, no locale.
 *
 * One writer at a time.  What cannot be written is forgotten: there is nobody left to tell.
 */
#ifndef CORE_CRASH_SAFE_WRITE_H
#define CORE_CRASH_SAFE_WRITE_H

#include <stddef.h>
#include <stdint.h>

struct lines {
    int fd; /* -1: none */
    size_t n;
    char data[4096];
};

void lines_text(struct lines *l, const char *text);  /* [signal] */
void lines_clean(struct lines *l, const char *text); /* control characters become '?' [signal] */
void lines_number(struct lines *l, int64_t value);   /* a blank, then decimal        [signal] */
void lines_hex(struct lines *l, uint64_t value);     /* a blank, then 0x...          [signal] */
void lines_bytes(struct lines *l, const void *p, size_t n); /* as hexadecimal digits   [signal] */
void lines_flush(struct lines *l);                          /* [signal] */

#endif
