/* SPDX-License-Identifier: Apache-2.0
 *
 * core/catalog/catalog_test.c - which descriptions make a table, which find it again, which are
 * refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/catalog/catalog.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

static const struct probing_column columns[] = {
    {.name = "local_step", .type = PROBING_I64, .unit = PROBING_COUNT, .doc = "which"},
    {.name = "module", .type = PROBING_STR},
};

static int scan(void *self, struct probing_rows *out)
{
    (void)self;
    (void)out;
    return 0;
}

static struct probing_table_desc stored(const char *name)
{
    return (struct probing_table_desc){.size = sizeof(struct probing_table_desc),
                                       .column_size = sizeof(struct probing_column),
                                       .name = name,
                                       .doc = "a table",
                                       .columns = columns,
                                       .n_columns = 2,
                                       .keep_ns = 7};
}

TEST(a_stored_table_has_time_and_thread)
{
    struct tables *t;
    struct table *a, *b, *list[4];
    struct probing_table_desc d = stored("python.torch_trace");
    d.tail_type = PROBING_STR;
    d.tail_name = "text";
    CHECK_INT(tables_new(&t), 0);
    if (!CHECK_INT(tables_add(t, "torch", &d, NULL, &a), 0))
        return;
    CHECK_STR(a->schema, "python"); /* the name says it */
    CHECK_STR(a->name, "torch_trace");
    CHECK_INT(a->n_columns, 5);
    CHECK_INT(a->n_cells, 2);
    CHECK_STR(a->columns[0].name, "ts");
    CHECK_STR(a->columns[4].name, "text");
    CHECK_INT(table_column_index(a, "timestamp"), 0);
    CHECK_INT(table_column_index(a, "step"), 2);
    CHECK_INT(table_column_index(a, "modul"), -1);
    CHECK_INT(a->keep_ns, 7);
    atomic_store_explicit(&a->retired, true, memory_order_relaxed);
    CHECK_INT(tables_add(t, "torch", &d, NULL, &b), 0); /* the plugin came again */
    CHECK(a == b && !a->retired);
    d.n_columns = 1;
    CHECK_INT(tables_add(t, "torch", &d, NULL, &b), -EEXIST);
    d = stored("steps");
    CHECK_INT(tables_add(t, "torch", &d, NULL, &b), 0);
    CHECK_STR(b->schema, "torch");
    CHECK(tables_find(t, "torch", "steps") == b && tables_find(t, "python", "steps") == NULL);
    CHECK(tables_by_id(t, b->id) == b && tables_by_id(t, 0) == NULL);
    CHECK(tables_by_id(t, TABLES_MAX + 1) == NULL);
    CHECK_INT(tables_list(t, list, 4), 2);
    CHECK(list[0] == a && list[1] == b);
    tables_free(t);
}

TEST(a_computed_table_has_its_own_columns_only)
{
    struct tables *t;
    struct table *a;
    int self;
    struct probing_table_desc d = stored("backtrace");
    d.scan = scan;
    CHECK_INT(tables_new(&t), 0);
    CHECK_INT(tables_add(t, "python", &d, &self, &a), 0);
    CHECK(a->n_columns == 2 && a->scan == scan && a->self == &self && a->lost != NULL);
    d.scan = NULL;
    CHECK_INT(tables_add(t, "python", &d, NULL, &a), -EEXIST);
    tables_free(t);
}

TEST(bad_descriptions_are_refused_with_a_reason)
{
    struct tables *t;
    struct table *a;
    struct probing_column bad[2] = {columns[0], columns[1]};
    struct probing_table_desc d;
    CHECK_INT(tables_new(&t), 0);
    static const char *const names[] = {"", "A", "a.b.c", ".a", "a.", "1a", "a b", NULL};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        d = stored(names[i]);
        CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    }
    d = stored("ok");
    d.columns = bad;
    bad[1].type = 99;
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    CHECK(strstr(err_text(), "module") != NULL);
    bad[1] = columns[0];
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    bad[1].name = "tid";
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    d.n_columns = 65;
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    d = stored("ok");
    d.column_size = 3;
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    d = stored("ok");
    d.size = 4;
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    d = stored("ok");
    d.tail_type = PROBING_I64;
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -EINVAL);
    tables_free(t);
}

TEST(there_is_an_end_to_tables)
{
    struct tables *t;
    struct table *a;
    char name[32];
    CHECK_INT(tables_new(&t), 0);
    for (int i = 0; i < TABLES_STORED_MAX; i++) {
        (void)snprintf(name, sizeof(name), "t%d", i);
        struct probing_table_desc d = stored(name);
        CHECK_INT(tables_add(t, "x", &d, NULL, &a), 0);
    }
    struct probing_table_desc d = stored("more");
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -ENOSPC);
    CHECK(strstr(err_text(), "already has 1536 stored tables, the maximum") != NULL);
    /* Tables that tell of the process are computed, and have room of their own. */
    d.scan = scan;
    d.tail_type = 0;
    for (int i = TABLES_STORED_MAX; i < TABLES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "c%d", i);
        d.name = name;
        if (!CHECK_INT(tables_add(t, "x", &d, NULL, &a), 0))
            break;
        CHECK(a->id > TABLES_STORED_MAX && tables_by_id(t, a->id) == a);
    }
    d.name = "more";
    CHECK_INT(tables_add(t, "x", &d, NULL, &a), -ENOSPC);
    CHECK(tables_find(t, "x", "c1700") != NULL && tables_find(t, "x", "t0") != NULL);
    CHECK_INT(tables_last(t), TABLES_STORED_MAX);
    struct table **list = calloc(TABLES_MAX, sizeof(*list));
    CHECK(list && tables_list(t, list, TABLES_MAX) == TABLES_MAX);
    free(list);
    CHECK(tables_refused(t)->id == 0 && tables_find(t, "probing", "refused") == NULL);
    tables_free(t);
}

TEST(missing_memory_is_an_error)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct tables *t = NULL;
        struct table *a;
        struct probing_table_desc d = stored("ok");
        int rc = tables_new(&t);
        if (rc == 0)
            rc = tables_add(t, "x", &d, NULL, &a);
        CHECK(rc == 0 || rc == -ENOMEM);
        tables_free(t);
    }
}

TEST(a_table_with_other_columns_takes_the_name)
{
    struct tables *t;
    struct table *a, *b, *c, *old;
    struct probing_table_desc d = stored("python.steps");
    CHECK_INT(tables_new(&t), 0);
    CHECK_INT(tables_add(t, "python", &d, NULL, &a), 0);
    d.n_columns = 1;
    CHECK_INT(tables_supersede(t, "python", &d, &old, &b), 0);
    CHECK(old == a && a->id != b->id && b->n_cells == 1 && a->n_cells == 2);
    CHECK_STR(a->name, "steps_v1");
    CHECK(strstr(a->doc, "before its columns changed") != NULL);
    CHECK(tables_find(t, "python", "steps") == b && tables_find(t, "python", "steps_v1") == a);
    for (int version = 2; version <= 9; version++) {
        d.n_columns = 1 + (uint32_t)version % 2;
        d.tail_type = version % 4 < 2 ? PROBING_STR : 0;
        d.tail_name = d.tail_type ? "text" : NULL;
        CHECK_INT(tables_supersede(t, "python", &d, &old, &c), 0);
    }
    CHECK_INT(tables_supersede(t, "python", &d, &old, &c), -EEXIST);
    CHECK(strstr(err_text(), "changed 9 times") != NULL);
    d = stored("python.nowhere");
    CHECK_INT(tables_supersede(t, "python", &d, &old, &c), -EEXIST);
    tables_free(t);
}

int main(void)
{
    RUN(a_stored_table_has_time_and_thread);
    RUN(a_computed_table_has_its_own_columns_only);
    RUN(bad_descriptions_are_refused_with_a_reason);
    RUN(there_is_an_end_to_tables);
    RUN(missing_memory_is_an_error);
    RUN(a_table_with_other_columns_takes_the_name);
    return test_end();
}
