/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/tables.c - probing.tables and probing.lost: what is kept, what waits, what was lost
 * and why; of a living store and of a dead one.
 *
 * Threads: workers, one scan each; the counters are read as they are.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/store/internal.h"

#define STR(n, d)                                \
    {                                            \
        .name = n, .type = PROBING_STR, .doc = d \
    }
#define I64(n, u, d)                                        \
    {                                                       \
        .name = n, .type = PROBING_I64, .unit = u, .doc = d \
    }
#define TIME(n, d)                                                    \
    {                                                                 \
        .name = n, .type = PROBING_TIME, .unit = PROBING_NS, .doc = d \
    }

static int64_t or_null(uint64_t value)
{
    return value ? (int64_t)value : PROBING_NULL_I64;
}

/* A stored table's times are UTC in the store; a TIME cell of a computed one is monotonic. */
static int64_t monotonic_ns(uint64_t utc)
{
    return utc ? (int64_t)utc - clock_utc_offset() : PROBING_NULL_I64;
}

static int table_row(struct store *s, struct table *t, struct probing_rows *out)
{
    bool retired = atomic_load_explicit(&t->retired, memory_order_acquire);
    union probing_cell row[18] = {{.s = t->schema}, {.s = t->name}};

    row[2].s = t->scan ? "computed" : "stored";
    for (int i = 3; i < 12; i++)
        row[i].i = PROBING_NULL_I64;
    for (int i = 15; i < 18; i++)
        row[i].i = PROBING_NULL_I64;
    if (!t->scan) {
        struct store_table_stats stats = {0};
        int rc = store_stats(s, t, &stats);
        if (rc < 0)
            return rc;
        row[3].i = (int64_t)stats.rows;
        row[4].i = (int64_t)stats.bytes;
        row[5].i = (int64_t)stats.segments;
        row[6].i = (int64_t)stats.waiting;
        row[7].i = (int64_t)table_lost_rows(t);
        row[8].i = (int64_t)stats.expired;
        row[9].i = monotonic_ns(stats.first_ts);
        row[10].i = monotonic_ns(stats.last_ts);
        row[11].i = or_null(atomic_load_explicit(&t->keep_ns, memory_order_relaxed));
        row[15].i = t->id;
        row[16].i = (int64_t)(stats.expired < stats.next_row ? stats.expired : stats.next_row);
        row[17].i = (int64_t)stats.next_row;
    }
    row[12].i = or_null(atomic_load_explicit(&t->keep_bytes, memory_order_relaxed));
    row[13].s = retired                                                  ? "retired"
                : atomic_load_explicit(&t->wanted, memory_order_relaxed) ? "on"
                                                                         : "off";
    row[14].s = t->doc;
    return out->row(out, row, 18);
}

static int each_table(struct store *s,
                      int (*fn)(struct store *, struct table *, struct probing_rows *),
                      struct probing_rows *out)
{
    struct table **all = calloc(TABLES_MAX, sizeof(struct table *));
    int rc = all ? 0 : err_set(-ENOMEM, "no memory to list tables");
    uint32_t n = all ? tables_list(s->tables, all, TABLES_MAX) : 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = fn(s, all[i], out);
    free(all);
    return rc;
}

/* A reader that follows a table by these numbers must not miss rows that have just come. */
static int scan_tables(void *self, struct probing_rows *out)
{
    (void)store_drain(self); /* where that fails, `buffered` tells */
    return each_table(self, table_row, out);
}

static int lost_row(struct store *s, struct table *t, struct probing_rows *out)
{
    char name[160];
    int rc = 0;

    (void)s;
    (void)snprintf(name, sizeof(name), "%s.%s", t->schema, t->name);
    for (int i = 0; i < TABLE_LOSS_REASONS && rc == 0; i++) {
        uint64_t rows = atomic_load_explicit(&t->lost[i], memory_order_relaxed);
        const union probing_cell row[] = {
            {.s = t->id ? name : NULL}, {.s = table_loss_names[i]}, {.i = (int64_t)rows}};
        if (rows)
            rc = out->row(out, row, 3);
    }
    return rc;
}

static int scan_lost(void *self, struct probing_rows *out)
{
    struct store *s = self;
    int rc = each_table(s, lost_row, out);
    return rc < 0 ? rc : lost_row(s, tables_refused(s->tables), out);
}

int store_about_add(struct store *s)
{
    static const struct probing_column tables_columns[] = {
        STR("schema", "schema, the first part of the name"),
        STR("name", "the second part of the name"),
        STR("kind", "stored: rows are kept; computed: rows are made when they are queried"),
        I64("rows", PROBING_COUNT, "rows in the store"),
        I64("bytes", PROBING_BYTES, "bytes in the store"),
        I64("segments", PROBING_COUNT, "number of segments that hold the rows"),
        I64("buffered", PROBING_COUNT, "rows that were appended and could not be stored yet"),
        I64("lost", PROBING_COUNT,
            "number of rows that could not be stored; probing.lost says why"),
        I64("expired", PROBING_COUNT, "number of rows removed by retention"),
        TIME("first_ts", "time of the oldest row"),
        TIME("last_ts", "time of the newest row"),
        I64("keep", PROBING_NS,
            "rows older than this are removed; NULL: as probing.retention says"),
        I64("keep_bytes", PROBING_BYTES,
            "size above which the oldest rows are removed; NULL: the table has no limit of its "
            "own"),
        STR("state", "on, off (its rows are not recorded) or retired (its plugin has stopped)"),
        STR("doc", "what a row is"),
        I64("id", PROBING_PLAIN, "number of the table in this data directory, whatever its name"),
        I64("first_row", PROBING_PLAIN,
            "number of the oldest row in the store; rows are numbered from 0 in the order in which "
            "they were stored"),
        I64("next_row", PROBING_PLAIN, "number that the next row to be stored will get")};
    static const struct probing_column lost_columns[] = {
        STR("table_name", "schema.name; NULL: all tables that could not be made, see probing.log"),
        STR("reason",
            "why rows were lost; value: the rows were stored without a value that could not be"),
        I64("rows", PROBING_COUNT, "number of rows, since the process was entered")};
    static const struct probing_table_desc descs[] = {
        {.size = sizeof(descs[0]),
         .column_size = sizeof(struct probing_column),
         .name = "probing.tables",
         .doc = "all tables, with what is stored of each and what was lost",
         .columns = tables_columns,
         .n_columns = 18,
         .scan = scan_tables},
        {.size = sizeof(descs[0]),
         .column_size = sizeof(struct probing_column),
         .name = "probing.lost",
         .doc = "rows that were lost, by table and reason",
         .columns = lost_columns,
         .n_columns = 3,
         .scan = scan_lost}};
    struct table *t;
    int rc = 0;
    for (size_t i = 0; i < 2 && rc == 0; i++)
        rc = tables_add(s->tables, "probing", &descs[i], s, &t);
    return rc;
}
