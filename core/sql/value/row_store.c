/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/row_store.c - rows kept for later (sort, join, computed tables), columns in
 * chunks.
 *
 * The query's thread only.  Texts are copied unless their vector says they stay.
 */
#include "core/sql/value/keys.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

int sql_rowset_init(struct rowset *r, struct query *q, struct arena *mem,
                    const enum sql_type *types, uint32_t n_cols)
{
    *r = (struct rowset){.q = q, .mem = mem, .n_cols = n_cols, .types = types};
    return 0;
}

int sql_no_room(void)
{
    return err_set(
        -ENOMEM,
        "the query keeps more rows than fit into its memory; filter, aggregate or limit them");
}

static int add_chunk(struct rowset *r)
{
    if (r->n_chunks == r->room) {
        uint32_t room = r->room ? 2 * r->room : 4;
        struct vec **more = arena_alloc(r->mem, room * sizeof(struct vec *));
        if (!more)
            return sql_no_room();
        if (r->n_chunks)
            memcpy(more, r->chunks, r->n_chunks * sizeof(*more));
        r->chunks = more;
        r->room = room;
    }
    struct vec *v = arena_zalloc(r->mem, r->n_cols ? r->n_cols : 1, sizeof(*v));
    for (uint32_t c = 0; v && c < r->n_cols; c++) {
        size_t cell = sql_is_textual(r->types[c]) ? sizeof(struct text) : sizeof(int64_t);
        v[c] = (struct vec){.type = r->types[c], .stable = true};
        v[c].null = arena_zalloc(r->mem, SQL_ROWS, 1);
        v[c].data = arena_alloc(r->mem, SQL_ROWS * cell);
        if (!v[c].null || !v[c].data)
            return sql_no_room();
    }
    if (!v)
        return sql_no_room();
    r->chunks[r->n_chunks++] = v;
    return 0;
}

static int copy_texts(struct rowset *r, struct vec *to, uint32_t at, struct vec *from,
                      const uint16_t *sel, uint32_t n)
{
    bool stays = from->stable || from->ids;
    sql_texts(r->q, from, sel, n);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        if (from->has_null && from->null[i])
            continue;
        struct text t = from->t[i];
        if (!stays) {
            t.data = arena_text(r->mem, t.data, t.size);
            if (!t.data)
                return sql_no_room();
        }
        to->t[at + k] = t;
    }
    return 0;
}

static int copy_column(struct rowset *r, struct vec *to, uint32_t at, struct vec *from,
                       const uint16_t *sel, uint32_t n)
{
    if (from->type == SQL_NULL) {
        memset(to->null + at, 1, n);
        to->has_null = true;
        return 0;
    }
    if (from->has_null) {
        to->has_null = true;
        for (uint32_t k = 0; k < n; k++)
            to->null[at + k] = from->null[sel ? sel[k] : k];
    }
    if (sql_is_textual(from->type))
        return copy_texts(r, to, at, from, sel, n);
    if (!sel) {
        memcpy(to->i + at, from->i, n * sizeof(*to->i));
        return 0;
    }
    for (uint32_t k = 0; k < n; k++)
        to->i[at + k] = from->i[sel[k]];
    return 0;
}

int sql_rowset_add(struct rowset *r, struct vec **v, const uint16_t *sel, uint32_t n)
{
    if (r->n > UINT32_MAX - 1 - n)
        return sql_no_room();
    for (uint32_t done = 0; done < n;) {
        uint32_t at = r->n % SQL_ROWS;
        if (at == 0 && r->n / SQL_ROWS == r->n_chunks && add_chunk(r) < 0)
            return -ENOMEM;
        uint32_t some = n - done < SQL_ROWS - at ? n - done : SQL_ROWS - at;
        const uint16_t *part = sel ? sel + done : done ? r->q->all + done : NULL;
        struct vec *to = r->chunks[r->n / SQL_ROWS];
        for (uint32_t c = 0; c < r->n_cols; c++)
            if (copy_column(r, &to[c], at, v[c], part, some) < 0)
                return -ENOMEM;
        done += some;
        r->n += some;
    }
    return 0;
}

void sql_rowset_get(const struct rowset *r, const uint32_t *index, uint32_t n, uint32_t first_col,
                    uint32_t n_cols, struct vec *ret)
{
    for (uint32_t c = 0; c < n_cols; c++) {
        struct vec *to = &ret[c];
        bool textual = sql_is_textual(r->types[first_col + c]);
        to->has_null = false;
        to->stable = true;
        for (uint32_t k = 0; k < n; k++) {
            if (index[k] == UINT32_MAX) {
                sql_set_null(to, k);
                continue;
            }
            const struct vec *from = &r->chunks[index[k] / SQL_ROWS][first_col + c];
            uint32_t i = index[k] % SQL_ROWS;
            if (from->null[i])
                sql_set_null(to, k);
            else if (textual)
                to->t[k] = from->t[i];
            else
                to->i[k] = from->i[i];
        }
    }
}
