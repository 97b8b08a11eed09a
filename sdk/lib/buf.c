/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/buf.c - the growing byte buffer of buf.h: doubling, bounded, with a sticky failure.
 *
 * Owner's thread only.  It never shrinks and never keeps a pointer to what was added.
 */
#include "sdk/lib/buf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST 256 /* bytes: the first allocation, enough for a line */

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_done(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_reset(struct buf *b)
{
    b->size = 0;
    b->failed = 0;
    if (b->data)
        b->data[0] = '\0';
}

/* Make room for `size` more bytes and the NUL. */
static bool grow_buf(struct buf *b, size_t size)
{
    if (b->failed)
        return false;
    if (size > b->max || b->size > b->max - size) {
        b->failed = -ENOBUFS;
        return false;
    }
    size_t need = b->size + size + 1;
    if (need <= b->capacity)
        return true;
    size_t capacity = b->capacity ? b->capacity : BUF_FIRST;
    while (capacity < need && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    if (capacity > b->max && b->max < SIZE_MAX)
        capacity = b->max + 1;
    if (capacity < need)
        capacity = need;
    char *data = realloc(b->data, capacity);
    if (!data) {
        b->failed = -ENOMEM;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

int buf_add(struct buf *b, const void *data, size_t size)
{
    if (!grow_buf(b, size))
        return b->failed;
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
    b->data[b->size] = '\0';
    return 0;
}

int buf_adds(struct buf *b, const char *text)
{
    return buf_add(b, text, strlen(text));
}

int buf_addc(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

int buf_addf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int rc = buf_vaddf(b, format, args);
    va_end(args);
    return rc;
}

int buf_vaddf(struct buf *b, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    size_t room = b->failed || !b->data ? 0 : b->capacity - b->size;
    int n = vsnprintf(room ? b->data + b->size : NULL, room, format, args);
    if (n < 0) {
        b->failed = b->failed ? b->failed : -EINVAL;
    } else if ((size_t)n < room && b->size + (size_t)n <= b->max) {
        b->size += (size_t)n;
    } else if (grow_buf(b, (size_t)n)) {
        (void)vsnprintf(b->data + b->size, (size_t)n + 1, format, again);
        b->size += (size_t)n;
    }
    va_end(again);
    if (b->failed && b->data)
        b->data[b->size] = '\0'; /* what did not fit may have been begun */
    return b->failed;
}

char *buf_room(struct buf *b, size_t size)
{
    return grow_buf(b, size) ? b->data + b->size : NULL;
}

const char *buf_text(struct buf *b)
{
    if (!b->data)
        return "";
    b->data[b->size] = '\0';
    return b->data;
}

char *buf_steal(struct buf *b, size_t *ret_size)
{
    if (!b->data && !grow_buf(b, 0))
        return NULL;
    if (b->failed)
        return NULL;
    char *data = b->data;
    data[b->size] = '\0';
    if (ret_size)
        *ret_size = b->size;
    *b = (struct buf){.max = b->max};
    return data;
}
