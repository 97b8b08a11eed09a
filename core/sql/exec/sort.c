/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/sort.c - order by; with a limit only the rows that can still win are kept.
 *
 * The query's thread only.  Equal rows stay in the order they came.
 */
#include "core/sql/exec/ops.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

#define RUN_ROWS 16      /* sorted by insertion before runs are merged */
#define CHECK_ROWS 65536 /* merged between looks at the limits */
#define PARTS 1024       /* dealt out to at once: they stay in the cache, as does the TLB */
#define PARTS_ROWS 4096  /* rows: fewer are in the cache as they are */
#define PRUNE_ROWS 16384 /* rows gathered before a top-k is cut to its k */

struct sort {
    struct sort_key *keys;
    uint32_t n_keys;
    uint64_t keep;
    uint32_t n_cols; /* of the child */
    enum sql_type *types;
    struct vec **in, **out;
    struct arena mem[2]; /* the rows are in one; pruning moves them to the other */
    struct rowset rows;
    int at;
    uint32_t *order;
    uint32_t room, next;
    bool ready;
    uint64_t bound; /* prefix of the last row kept, when as many as wanted are; else the largest */
    uint16_t *sel;
};

int sql_compare_values(const struct vec *a, uint32_t i, const struct vec *b, uint32_t j)
{
    if (sql_is_textual(a->type)) {
        struct text x = a->t[i], y = b->t[j];
        int c = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
        return c ? c : (x.size > y.size) - (x.size < y.size);
    }
    if (a->type == SQL_DOUBLE) {
        double x = a->d[i], y = b->d[j];
        return x != x || y != y ? (x != x) - (y != y) : (x > y) - (x < y);
    }
    return (a->i[i] > b->i[j]) - (a->i[i] < b->i[j]);
}

int sql_compare_cells(const struct vec *a, uint32_t i, const struct vec *b, uint32_t j,
                      const struct sort_key *k)
{
    bool a_null = a->null[i], b_null = b->null[j]; /* kept rows: always there */
    if (a_null || b_null)
        return a_null == b_null ? 0 : a_null == k->nulls_first ? -1 : 1;
    int c = sql_compare_values(a, i, b, j);
    return k->descending ? -c : c;
}

/* ---- an index sorted by merging runs: stable, and it looks at the limits as it goes ---- */

struct placed { /* a row and the beginning of what it is sorted by */
    uint64_t prefix[2];
    uint32_t row;
};

struct merging {
    struct query *q;
    sql_compare compare;
    void *arg;
};

static bool is_after(const struct merging *m, const struct placed *a, const struct placed *b)
{
    if (a->prefix[0] != b->prefix[0])
        return a->prefix[0] > b->prefix[0];
    if (a->prefix[1] != b->prefix[1])
        return a->prefix[1] > b->prefix[1];
    return m->compare(a->row, b->row, m->arg) > 0;
}

static void insert_sorted(const struct merging *m, struct placed *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct placed x = v[i];
        uint32_t at = i;
        for (; at > 0 && is_after(m, &v[at - 1], &x); at--)
            v[at] = v[at - 1];
        v[at] = x;
    }
}

static int merge_runs(const struct merging *m, const struct placed *from, uint32_t middle,
                      uint32_t n, struct placed *to)
{
    uint32_t a = 0, b = middle;
    if (middle >= n || !is_after(m, &from[middle - 1], &from[middle])) { /* in order already */
        memcpy(to, from, n * sizeof(*to));
        return sql_check(m->q);
    }
    for (uint32_t k = 0; k < n; k++) {
        int rc = k % CHECK_ROWS == 0 ? sql_check(m->q) : 0;
        if (rc < 0)
            return rc;
        to[k] = b >= n || (a < middle && !is_after(m, &from[a], &from[b])) ? from[a++] : from[b++];
    }
    return 0;
}

static int sort_runs(const struct merging *m, struct placed *items, struct placed *room, uint32_t n,
                     struct placed **ret)
{
    struct placed *from = items, *to = room;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i += RUN_ROWS) {
        insert_sorted(m, items + i, n - i < RUN_ROWS ? n - i : RUN_ROWS);
        rc = i % CHECK_ROWS == 0 ? sql_check(m->q) : 0;
    }
    for (uint64_t run = RUN_ROWS; run < n && rc == 0; run *= 2) {
        for (uint64_t i = 0; i < n && rc == 0; i += 2 * run) {
            uint32_t some = (uint32_t)(n - i < 2 * run ? n - i : 2 * run);
            rc = merge_runs(m, from + i, (uint32_t)run, some, to + i);
        }
        struct placed *swap = from;
        from = to;
        to = swap;
    }
    *ret = from;
    return rc;
}

static int check_order(const struct merging *m, const struct placed *items, uint32_t n,
                       bool *ret_sorted)
{
    uint32_t i = 1;
    int rc = 0;
    for (; i < n && rc == 0 && !is_after(m, &items[i - 1], &items[i]); i++)
        rc = i % CHECK_ROWS == 0 ? sql_check(m->q) : 0;
    *ret_sorted = i >= n;
    return rc;
}

/* The range of prefixes, but for those of NULL and of the largest numbers at its ends. */
static void find_range(const struct placed *items, uint32_t n, uint64_t *ret_least,
                       uint64_t *ret_largest)
{
    uint64_t least = UINT64_MAX, largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t p = items[i].prefix[0];
        bool end = p <= 1 || p >= UINT64_MAX - 1;
        least = !end && p < least ? p : least;
        largest = !end && p > largest ? p : largest;
    }
    *ret_least = least;
    *ret_largest = largest;
}

struct parts {
    uint64_t least, largest;
    uint32_t shift;
};

static uint32_t part_of(const struct parts *p, uint64_t prefix)
{
    prefix = prefix < p->least ? p->least : prefix > p->largest ? p->largest : prefix;
    return (uint32_t)((prefix - p->least) >> p->shift);
}

/* Sorted where they are.  Many are first dealt out to parts of the range, so that each part is
 * sorted while it is in the cache: a merge of all would go through memory again and again. */
static int sort_here(const struct merging *m, struct placed *items, struct placed *room, uint32_t n)
{
    struct parts p = {.shift = 0};
    struct placed *sorted = items;
    uint32_t ends[PARTS + 1] = {0};
    bool in_order;
    int rc = check_order(m, items, n, &in_order);
    if (rc < 0 || in_order)
        return rc;
    find_range(items, n, &p.least, &p.largest);
    if (n < PARTS_ROWS || p.least >= p.largest) {
        rc = sort_runs(m, items, room, n, &sorted);
        if (rc == 0 && sorted != items)
            memcpy(items, sorted, n * sizeof(*items));
        return rc;
    }
    while ((p.largest - p.least) >> p.shift >= PARTS)
        p.shift++;
    for (uint32_t i = 0; i < n; i++)
        ends[part_of(&p, items[i].prefix[0]) + 1]++;
    for (uint32_t i = 0; i < PARTS; i++)
        ends[i + 1] += ends[i];
    rc = sql_check(m->q);
    for (uint32_t i = 0; i < n && rc == 0; i++) { /* ends[k]: where the next one of part k goes */
        room[ends[part_of(&p, items[i].prefix[0])]++] = items[i];
        rc = i % CHECK_ROWS == CHECK_ROWS - 1 ? sql_check(m->q) : 0;
    }
    for (uint32_t k = 0, from = 0; k < PARTS && rc == 0; from = ends[k++])
        rc = sort_here(m, room + from, items + from, ends[k] - from);
    memcpy(items, room, n * sizeof(*items));
    return rc;
}

int sql_sort_index(struct query *q, uint32_t *index, uint32_t n, sql_prefix prefix,
                   sql_compare compare, void *arg)
{
    const struct merging m = {q, compare, arg};
    struct arena mem; /* the room goes at once: top-k sorts again and again */
    arena_init_in(&mem, q->budget);
    struct placed *items = n < 2 ? NULL : arena_alloc(&mem, 2 * (size_t)n * sizeof(*items));
    int rc = n < 2 || items ? 0 : sql_no_room();
    for (uint32_t i = 0; i < n && items && rc == 0; i++) {
        items[i] = (struct placed){.row = index[i]};
        if (prefix)
            prefix(index[i], arg, items[i].prefix);
        rc = sql_worked(q, 1);
    }
    if (items && rc == 0)
        rc = sort_here(&m, items, items + n, n);
    for (uint32_t i = 0; i < n && items && rc == 0; i++)
        index[i] = items[i].row;
    arena_done(&mem);
    return rc;
}

/* Are cells with this prefix all equal?  At the ends numbers were moved away from NULL's. */
bool sql_is_whole_prefix(const struct vec *v, uint64_t prefix)
{
    return !sql_is_textual(v->type) && prefix != 1 && prefix != UINT64_MAX - 1;
}

/* The order of prefixes is that of the cells, as far as it goes: equal ones need a comparison. */
uint64_t sql_cell_prefix(const struct vec *v, uint32_t i, const struct sort_key *k)
{
    const uint64_t top = UINT64_C(1) << 63;
    uint64_t p = 0;
    if (v->null[i])
        return k->nulls_first ? 0 : UINT64_MAX;
    if (sql_is_textual(v->type)) {
        for (uint32_t c = 0; c < 8; c++)
            p = p << 8 | (c < v->t[i].size ? (unsigned char)v->t[i].data[c] : 0);
    } else if (v->type == SQL_DOUBLE) {
        double d = v->d[i] + 0.0; /* -0 is 0 */
        memcpy(&p, &d, sizeof(p));
        p = d != d ? UINT64_MAX : p & top ? ~p : p | top;
    } else {
        p = (uint64_t)v->i[i] ^ top;
    }
    p = k->descending ? ~p : p;
    return p == 0 ? 1 : p == UINT64_MAX ? p - 1 : p;
}

/* ---- order by ---- */

static int compare_rows(uint32_t a, uint32_t b, void *arg)
{
    const struct sort *s = arg;
    for (uint32_t k = 0; k < s->n_keys; k++) {
        uint32_t c = s->keys[k].column;
        int rc = sql_compare_cells(&s->rows.chunks[a / SQL_ROWS][c], a % SQL_ROWS,
                                   &s->rows.chunks[b / SQL_ROWS][c], b % SQL_ROWS, &s->keys[k]);
        if (rc)
            return rc;
    }
    return 0;
}

static void row_prefix(uint32_t row, void *arg, uint64_t ret[2])
{
    const struct sort *s = arg;
    const struct vec *v = s->rows.chunks[row / SQL_ROWS];
    const struct sort_key *k = s->keys;
    ret[0] = sql_cell_prefix(&v[k->column], row % SQL_ROWS, k);
    if (s->n_keys > 1 && sql_is_whole_prefix(&v[k->column], ret[0]))
        ret[1] = sql_cell_prefix(&v[k[1].column], row % SQL_ROWS, &k[1]);
}

static int sort_rows(struct op *op)
{
    struct sort *s = op->state;
    if (s->rows.n > s->room) {
        s->room = s->rows.n + s->rows.n / 2;
        s->order = sql_get(op->q, s->room, sizeof(*s->order));
        if (!s->order)
            return -ENOMEM;
    }
    for (uint32_t i = 0; i < s->rows.n; i++)
        s->order[i] = i;
    return sql_sort_index(op->q, s->order, s->rows.n, row_prefix, compare_rows, s);
}

/* Keep the best `keep` rows only. */
static int prune_rows(struct op *op)
{
    struct sort *s = op->state;
    struct rowset old = s->rows;
    int to = 1 - s->at;
    int rc = sort_rows(op);
    if (rc < 0)
        return rc;
    arena_done(&s->mem[to]);
    arena_init_in(&s->mem[to], op->q->budget);
    (void)sql_rowset_init(&s->rows, op->q, &s->mem[to], s->types, s->n_cols);
    struct vec *rows = op->out.v;
    struct vec **v = s->out;
    for (uint32_t c = 0; c < s->n_cols; c++)
        v[c] = &rows[c];
    for (uint32_t first = 0; first < s->keep && first < old.n; first += SQL_ROWS) {
        uint64_t left = (s->keep < old.n ? s->keep : old.n) - first;
        uint32_t n = left < SQL_ROWS ? (uint32_t)left : SQL_ROWS;
        sql_rowset_get(&old, s->order + first, n, 0, s->n_cols, rows);
        for (uint32_t c = 0; c < s->n_cols; c++)
            rows[c].stable = false; /* their texts may be in the arena that goes */
        rc = sql_rowset_add(&s->rows, v, NULL, n);
        if (rc < 0)
            return rc;
    }
    s->at = to;
    uint64_t prefix[2] = {0, 0};
    if (s->rows.n == s->keep) {
        row_prefix(s->rows.n - 1, s, prefix);
        s->bound = prefix[0];
    }
    return 0;
}

/* Rows that may still be among the first: of those before the bound, and level with it. */
static uint32_t may_win(const struct sort *s, const struct batch *in)
{
    const struct vec *v = s->in[s->keys[0].column];
    struct vec with_nulls = *v;
    static const uint8_t no_nulls[SQL_ROWS];
    uint32_t m = 0;
    if (!v->has_null)
        with_nulls.null = (uint8_t *)(uintptr_t)no_nulls;
    for (uint32_t k = 0; k < in->n_sel; k++) {
        uint32_t i = in->sel ? in->sel[k] : k;
        uint64_t prefix = sql_cell_prefix(&with_nulls, i, &s->keys[0]);
        s->sel[m] = (uint16_t)i;
        m += prefix <= s->bound;
    }
    return m;
}

static int consume_rows(struct op *op)
{
    struct sort *s = op->state;
    const struct batch *in = &op->child->out;
    int rc;
    (void)sql_rowset_init(&s->rows, op->q, &s->mem[0], s->types, s->n_cols);
    for (uint32_t c = 0; c < s->n_cols; c++)
        s->in[c] = &op->child->out.v[c];
    while ((rc = sql_next(op->child)) > 0) {
        const struct vec *key = s->n_keys ? s->in[s->keys[0].column] : NULL;
        bool bounded = s->bound != UINT64_MAX && key->type != SQL_NULL && !key->ids;
        uint32_t n = bounded ? may_win(s, in) : in->n_sel;
        rc = n ? sql_rowset_add(&s->rows, s->in, bounded ? s->sel : in->sel, n) : 0;
        if (rc == 0 && s->keep && s->rows.n > PRUNE_ROWS && s->rows.n > 4 * s->keep)
            rc = prune_rows(op);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? rc : sort_rows(op);
}

static int next_sort(struct op *op)
{
    struct sort *s = op->state;
    int rc = s->ready ? 0 : consume_rows(op);
    s->ready = true;
    if (rc < 0 || s->next >= s->rows.n)
        return rc;
    uint32_t n = s->rows.n - s->next;
    n = n < SQL_ROWS ? n : SQL_ROWS;
    sql_rowset_get(&s->rows, s->order + s->next, n, 0, op->n_cols, op->out.v);
    s->next += n;
    op->out.n = op->out.n_sel = n;
    return 1;
}

static void sort_done(void *arg)
{
    struct sort *s = arg;
    arena_done(&s->mem[0]);
    arena_done(&s->mem[1]);
}

int sql_sort(struct op *child, const struct sort_key *keys, uint32_t n, uint64_t keep,
             uint32_t n_out, struct op **ret)
{
    struct query *q = child->q;
    struct op *op = sql_op(q, next_sort, "sort", child->n_cols);
    struct sort *s = op ? sql_get(q, 1, sizeof(*s)) : NULL;
    if (!s)
        return -ENOMEM;
    *s = (struct sort){.n_keys = n, .keep = keep, .n_cols = child->n_cols, .bound = UINT64_MAX};
    arena_init_in(&s->mem[0], q->budget);
    arena_init_in(&s->mem[1], q->budget);
    s->keys = sql_get(q, n, sizeof(*s->keys));
    s->types = sql_get(q, child->n_cols, sizeof(*s->types));
    s->in = sql_get(q, child->n_cols, sizeof(*s->in));
    s->out = sql_get(q, child->n_cols, sizeof(*s->out));
    s->sel = sql_get(q, SQL_ROWS, sizeof(*s->sel));
    if (!s->sel || !s->keys || !s->types || !s->in || !s->out || sql_defer(q, sort_done, s) < 0)
        return -ENOMEM;
    memcpy(s->keys, keys, n * sizeof(*keys));
    for (uint32_t c = 0; c < child->n_cols; c++) {
        op->cols[c] = child->cols[c];
        op->cols[c].dict = false;
        s->types[c] = child->cols[c].type;
        sql_want(child, c);
    }
    op->child = child;
    op->state = s;
    if (sql_op_vectors(op) < 0)
        return -ENOMEM;
    op->n_cols = n_out; /* columns only sorted by are not given on */
    op->detail = keep ? sql_getf(q, "the first %llu", (unsigned long long)keep) : NULL;
    *ret = op;
    return 0;
}
