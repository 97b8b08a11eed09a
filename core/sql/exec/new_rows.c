/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/new_rows.c - of an answer that is asked for again and again: the rows that are new.
 *
 * One thread at a time.  Of a row that was told its hash is kept (64 bits: among 131,072 rows two
 * different ones have the same in one of a thousand million answers), and how often it was there.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/sql/sql.h"
#include "core/sql/value/hash.h"

#define FIRST_SLOTS 1024

struct slot {
    uint64_t hash;
    uint32_t answer;      /* the last that had such rows; 0: the slot is free */
    uint32_t before, now; /* how many: in the one before `answer`, in that */
};

struct sql_news {
    struct slot *slots;
    uint32_t mask, used, answer;
    uint32_t n_columns;
    uint64_t rows, told, from;
    struct sql_sink to;
    uint16_t sel[SQL_ROWS];
};

int sql_news_new(struct sql_news **ret)
{
    struct sql_news *n = calloc(1, sizeof(*n));
    if (n)
        n->slots = calloc(FIRST_SLOTS, sizeof(*n->slots));
    if (!n || !n->slots) {
        free(n);
        return err_set(-ENOMEM, "no memory for what has been told");
    }
    n->mask = FIRST_SLOTS - 1;
    *ret = n;
    return 0;
}

void sql_news_free(struct sql_news *n)
{
    if (!n)
        return;
    free(n->slots);
    free(n);
}

static struct slot *find_slot(struct slot *slots, uint32_t mask, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & mask;
    while (slots[at].answer && slots[at].hash != hash)
        at = (at + 1) & mask;
    return &slots[at];
}

/* Room for what this answer and the one before have; older rows are forgotten. */
static int make_room(struct sql_news *n)
{
    uint32_t live = 0, size = FIRST_SLOTS;
    if (n->used < (n->mask + 1) / 4 * 3)
        return 0;
    for (uint32_t i = 0; i <= n->mask; i++)
        live += n->slots[i].answer && n->slots[i].answer + 1 >= n->answer;
    while (size / 2 < live + 1)
        size *= 2;
    struct slot *slots = calloc(size, sizeof(*slots));
    if (!slots)
        return err_set(-ENOMEM, "no memory for what has been told");
    for (uint32_t i = 0; i <= n->mask; i++)
        if (n->slots[i].answer && n->slots[i].answer + 1 >= n->answer)
            *find_slot(slots, size - 1, n->slots[i].hash) = n->slots[i];
    free(n->slots);
    n->slots = slots;
    n->mask = size - 1;
    n->used = live;
    return 0;
}

static uint64_t hash_row(const struct sql_rows *rows, uint32_t row, uint32_t n_columns)
{
    uint64_t h = 0;
    for (uint32_t c = 0; c < n_columns; c++) {
        struct sql_value v;
        sql_rows_value(rows, row, c, &v);
        uint64_t word = v.type == SQL_NULL || v.type == SQL_BOOL
                            ? (uint64_t)(v.type == SQL_BOOL && v.boolean)
                        : sql_is_textual(v.type) ? sql_hash_bytes(v.text.data, v.text.size)
                                                 : (uint64_t)v.integer; /* a double's bits, too */
        h = keys_hash_word(keys_hash_word(h, (uint64_t)v.type), word);
    }
    return sql_hash_bytes(&h, sizeof(h));
}

/* Is there one more of this row than in the answer before? */
static int is_new(struct sql_news *n, uint64_t hash)
{
    int rc = make_room(n);
    if (rc < 0)
        return rc;
    struct slot *s = find_slot(n->slots, n->mask, hash);
    n->used += s->answer == 0;
    if (s->answer != n->answer)
        *s = (struct slot){.hash = hash,
                           .answer = n->answer,
                           .before = s->answer && s->answer + 1 == n->answer ? s->now : 0};
    return ++s->now > s->before;
}

static int on_columns(void *arg, const struct sql_column *columns, uint32_t n_columns)
{
    struct sql_news *n = arg;
    n->n_columns = n_columns;
    return n->to.columns ? n->to.columns(n->to.arg, columns, n_columns) : 0;
}

static int on_rows(void *arg, const struct sql_rows *rows)
{
    struct sql_news *n = arg;
    struct batch batch = *rows->batch;
    uint32_t m = 0;
    for (uint32_t r = 0; r < rows->n; r++) {
        int rc = is_new(n, hash_row(rows, r, n->n_columns));
        if (rc < 0)
            return rc;
        if (rc > 0 && n->rows >= n->from)
            n->sel[m++] = rows->batch->sel ? rows->batch->sel[r] : (uint16_t)r;
        if (++n->rows > SQL_NEWS_ROWS)
            return err_set(-E2BIG,
                           "new rows of this statement can be found only while it has at most %u "
                           "rows; add a condition such as: where ts > now() - interval '1 minute'",
                           SQL_NEWS_ROWS);
    }
    n->told += m;
    batch.sel = n->sel;
    batch.n_sel = m;
    struct sql_rows chosen = {.q = rows->q, .batch = &batch, .n = m};
    return m && n->to.rows ? n->to.rows(n->to.arg, &chosen) : 0;
}

struct sql_sink sql_news_sink(struct sql_news *n, const struct sql_sink *to, uint64_t from)
{
    n->answer++;
    n->rows = n->told = 0;
    n->from = from;
    n->to = *to;
    return (struct sql_sink){.arg = n, .columns = on_columns, .rows = on_rows};
}

uint64_t sql_news_told(const struct sql_news *n)
{
    return n->told;
}
