/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/arrow_rows.c - follows an Arrow stream on its way to a file: how many rows have come,
 * and whether it is whole.
 *
 * One thread.  The stream comes from a process that need not be trusted: sizes are bounded, and
 * what is read of a message's description lies within it.  core/sql/format/arrow.c draws the form.
 */
#include <errno.h>
#include <string.h>

#include "cli/export/export.h"
#include "cli/export/flatbuffer_read.h"
#include "core/base/err.h"

#define HEAD_BYTES 8
#define META_MAX ((size_t)16 << 20)
#define HEADER_BATCH 3 /* Message.fbs */

void export_arrow_init(struct export_arrow *a)
{
    *a = (struct export_arrow){.rows = 0};
    buf_init(&a->meta, META_MAX + HEAD_BYTES);
}

void export_arrow_done(struct export_arrow *a)
{
    buf_done(&a->meta);
}

/* A description has come: its rows, and how much follows it. */
static int take_message(struct export_arrow *a)
{
    const struct buf *b = &a->meta;
    uint64_t kind = 0, rows = 0;
    size_t message = flat_table_at(b, HEAD_BYTES), at = flat_field_at(b, message, 1);
    if (at == 0 || !flat_number(b, at, 1, &kind))
        return err_set(-EBADMSG, "the answer is no Arrow stream");
    at = flat_field_at(b, message, 3);
    if (at != 0 && !flat_number(b, at, 8, &a->body))
        return err_set(-EBADMSG, "the answer is no Arrow stream");
    at = kind == HEADER_BATCH ? flat_field_at(b, flat_table_at(b, flat_field_at(b, message, 2)), 0)
                              : 0;
    if (at != 0 && flat_number(b, at, 8, &rows))
        a->rows += rows;
    buf_reset(&a->meta);
    return 0;
}

/* Give the bytes still missing of the head, or of the description behind it. */
static int wanted(struct export_arrow *a, size_t *ret)
{
    uint64_t mark, size;
    *ret = HEAD_BYTES - a->meta.size;
    if (a->meta.size < HEAD_BYTES)
        return 0;
    (void)flat_number(&a->meta, 0, 4, &mark);
    (void)flat_number(&a->meta, 4, 4, &size);
    if (mark != UINT32_MAX || size > META_MAX)
        return err_set(-EBADMSG, "the answer is no Arrow stream");
    a->over = size == 0;
    *ret = HEAD_BYTES + (size_t)size - a->meta.size;
    return 0;
}

int export_arrow_feed(struct export_arrow *a, const char *data, size_t size)
{
    int rc = 0;
    a->begun = a->begun || size > 0;
    while (rc == 0 && size > 0) {
        size_t n, want = 0;
        if (a->over)
            return err_set(-EBADMSG, "the answer goes on behind its end");
        if (a->body > 0) {
            n = a->body < size ? (size_t)a->body : size;
            a->body -= n;
        } else {
            rc = wanted(a, &want);
            n = want < size ? want : size;
            if (rc == 0 && buf_add(&a->meta, data, n) != 0)
                rc = err_set(a->meta.failed, "no memory for the answer's description");
            if (rc == 0)
                rc = wanted(a, &want);
            if (rc == 0 && want == 0 && !a->over)
                rc = take_message(a);
        }
        data += n;
        size -= n;
    }
    return rc;
}

int export_arrow_end(const struct export_arrow *a)
{
    return a->over ? 0 : err_set(-EBADMSG, "the answer ended prematurely");
}

size_t export_arrow_cut(const struct export_arrow *a, char ret[EXPORT_CUT_BYTES])
{
    static const uint32_t head[2] = {UINT32_MAX, 16}; /* and no 16 bytes behind it */
    if (!a->begun || a->over || a->body > 0 || a->meta.size > 0)
        return 0;
    memcpy(ret, head, sizeof(head));
    return sizeof(head);
}
