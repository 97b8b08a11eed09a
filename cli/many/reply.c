/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/reply.c - see asking.h: the answer of one member.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>

#include "cli/many/asking.h"
#include "core/base/err.h"

static int on_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct reply *r = arg;
    const struct members_sink *s = r->a->sink;

    r->columns = true;
    return s->columns != NULL ? s->columns(s->arg, r->m, columns, n) : 0;
}

static int on_rows(void *arg, const struct answer_rows *rows)
{
    struct reply *r = arg;
    const struct members_sink *s = r->a->sink;

    r->m->result.rows += answer_rows_count(rows);
    return s->rows != NULL ? s->rows(s->arg, r->m, rows) : 0;
}

int reply_begin(struct reply *r, struct asking *a, struct member *m)
{
    const struct answer_sink to = {.arg = r, .columns = on_columns, .rows = on_rows};

    *r = (struct reply){.a = a, .m = m};
    return arrow_reader_new(&to, &r->reader);
}

int reply_take(struct reply *r, const char *data, size_t size)
{
    const struct members_sink *s = r->a->sink;
    const uint64_t most = r->a->ask->max_bytes;

    r->m->result.bytes += size;
    if (most > 0 && r->m->result.bytes > most)
        return err_set(-EFBIG, "its answer is longer than %llu bytes, and was given up",
                       (unsigned long long)most);
    int rc = s->bytes != NULL ? s->bytes(s->arg, r->m, data, size) : 0;
    return rc == 0 ? arrow_reader_feed(r->reader, data, size) : rc;
}

int reply_end(struct reply *r)
{
    struct member_result *to = &r->m->result;
    const struct members_sink *s = r->a->sink;

    if (to->state == MEMBER_ANSWERED && r->reader != NULL) {
        to->lost = arrow_reader_lost(r->reader);
        to->truncated = arrow_reader_truncated(r->reader);
        (void)snprintf(to->empty, sizeof(to->empty), "%s", arrow_reader_empty(r->reader));
    }
    r->a->done++;
    return s->done != NULL ? s->done(s->arg, r->m) : 0;
}

void reply_done(struct reply *r)
{
    arrow_reader_free(r->reader);
    r->reader = NULL;
}
