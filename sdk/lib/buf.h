/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/buf.h - a growing byte buffer with a stated maximum.
 *
 * One failure rule: when an addition does not fit (maximum reached, or no memory) the buffer keeps
 * what it had, remembers the failure, and refuses everything after; check `failed` once at the end.
 * Owner's thread only.
 */
#ifndef SDK_LIB_BUF_H
#define SDK_LIB_BUF_H

#include <stdarg.h>
#include <stddef.h>

struct buf {
    char *data;  /* NUL-terminated when size > 0 or after buf_text() */
    size_t size; /* bytes used, the NUL not counted */
    size_t capacity;
    size_t max; /* bytes: never more than this */
    int failed; /* 0, -ENOBUFS at the maximum, -ENOMEM */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);  /* frees; the struct may be used again after buf_init() */
void buf_reset(struct buf *b); /* empty again, memory kept, failure forgotten */

/* Each gives 0 or the buffer's failure. */
int buf_add(struct buf *b, const void *data, size_t size);
int buf_adds(struct buf *b, const char *text);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
int buf_vaddf(struct buf *b, const char *format, va_list args);

/* Room for `size` more bytes to be written at data + size by the caller, who then adds to size.
 * NULL when it does not fit. */
char *buf_room(struct buf *b, size_t size);

/* The content as a C string, never NULL.  Borrowed until the next change. */
const char *buf_text(struct buf *b);

/* Give the memory away: caller frees.  NULL when failed or out of memory. */
char *buf_steal(struct buf *b, size_t *ret_size);

#endif
