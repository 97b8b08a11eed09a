/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/join_asof.c - asof joins: for each left row the nearest right row in time.
 *
 * The right side's rows are put in order by key and value once; each left row then looks by
 * halves.  Of equal values the last that came wins looking back, the first looking ahead.
 * The query's thread only.
 */
#include "core/sql/exec/join.h"

#include <errno.h>
#include <string.h>

struct asof {
    struct rowset values; /* one column, by right row */
    enum sql_type type;
    uint32_t *keys; /* by right row */
    uint32_t room;
    uint32_t *order;  /* right rows by key, then value */
    uint32_t *starts; /* by key, and one more */
};

int sql_asof_keep(struct op *op, struct vec *values, const uint32_t *numbers, const uint16_t *sel,
                  uint32_t n)
{
    struct join *j = op->state;
    struct query *q = op->q;
    if (!j->asof) {
        if (!(j->asof = sql_get(q, 1, sizeof(*j->asof))))
            return -ENOMEM;
        j->asof->type = values->type;
        (void)sql_rowset_init(&j->asof->values, q, &q->mem, &j->asof->type, 1);
    }
    struct asof *a = j->asof;
    uint32_t first = a->values.n;
    if (first + n > a->room) {
        uint32_t room = 2 * (first + n);
        uint32_t *more = sql_grow(q, a->keys, first, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        a->keys = more;
        a->room = room;
    }
    for (uint32_t k = 0; k < n; k++)
        a->keys[first + k] = numbers ? numbers[k] : 0;
    return sql_rowset_add(&a->values, &values, sel, n);
}

static const struct vec *value_of(const struct asof *a, uint32_t row)
{
    return &a->values.chunks[row / SQL_ROWS][0];
}

static int compare_rows(uint32_t x, uint32_t y, void *arg)
{
    const struct asof *a = arg;
    if (a->keys[x] != a->keys[y])
        return a->keys[x] < a->keys[y] ? -1 : 1;
    return sql_compare_values(value_of(a, x), x % SQL_ROWS, value_of(a, y), y % SQL_ROWS);
}

static void key_prefix(uint32_t row, void *arg, uint64_t ret[2])
{
    ret[0] = ((const struct asof *)arg)->keys[row];
}

int sql_asof_sort(struct op *op)
{
    struct join *j = op->state;
    struct asof *a = j->asof;
    if (!a)
        return 0;
    uint32_t n = a->values.n, n_keys = j->n_keys ? j->keys.n : 1;
    a->starts = sql_get(op->q, (size_t)n_keys + 1, sizeof(*a->starts));
    a->order = sql_get(op->q, n, sizeof(*a->order));
    if (!a->starts || !a->order)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        a->order[i] = i;
        a->starts[a->keys[i] + 1]++;
        int rc = sql_worked(op->q, 1);
        if (rc < 0)
            return rc;
    }
    for (uint32_t k = 0; k < n_keys; k++)
        a->starts[k + 1] += a->starts[k];
    return sql_sort_index(op->q, a->order, n, key_prefix, compare_rows, a);
}

uint32_t sql_asof_find(const struct join *j, uint32_t key, const struct vec *left, uint32_t row)
{
    const struct asof *a = j->asof;
    if (!a || key == JOIN_NONE || (left->has_null && left->null[row]))
        return JOIN_NONE;
    bool back = j->asof_compare[0] == '>', equal = j->asof_compare[1] == '=';
    uint32_t begin = a->starts[key], end = a->starts[key + 1], low = begin, high = end;
    /* The first row that lies behind the left one (or is equal, where that is not looked for). */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, r = a->order[middle];
        int c = sql_compare_values(value_of(a, r), r % SQL_ROWS, left, row);
        if (c < 0 || (c == 0 && back == equal))
            low = middle + 1;
        else
            high = middle;
    }
    if (back)
        return low > begin ? a->order[low - 1] : JOIN_NONE;
    return low < end ? a->order[low] : JOIN_NONE;
}
