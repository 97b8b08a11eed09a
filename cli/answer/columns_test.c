/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/columns_test.c - columns of several answers as those of one.
 */
/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/answer/columns.c"
#include "tests/test.h"

static struct own_columns keep(struct arena *a, const struct sql_column *columns, uint32_t n)
{
    struct own_columns own = {.n = 0};
    CHECK_INT(own_columns_keep(a, columns, n, &own), 0);
    return own;
}

static const struct sql_column first[] = {{"n", SQL_INT, PROBING_NS, ""},
                                          {"s", SQL_TEXT, 0, ""},
                                          {"x", SQL_NULL, 0, ""},
                                          {"n", SQL_BOOL, 0, ""}};
static const struct sql_column second[] = {
    {"x", SQL_INT, 0, ""}, {"n", SQL_DOUBLE, PROBING_BYTES, ""}, {"more", SQL_TEXT, 0, ""}};

TEST(by_name_and_place_among_equals)
{
    struct arena a;
    struct joined_columns all = {.n = 0};
    arena_init(&a, 1u << 20);
    struct own_columns one = keep(&a, first, 4), two = keep(&a, second, 3);
    CHECK_INT(joined_columns_add(&a, &all, &one), 0);
    CHECK_INT(joined_columns_add(&a, &all, &two), 0);
    CHECK_INT(all.n, 5); /* n, s, x, the second n, more */
    CHECK(strcmp(all.list[4].name, "more") == 0);
    CHECK_INT(all.list[0].type, SQL_DOUBLE);
    CHECK_INT(all.list[0].unit, PROBING_PLAIN);
    CHECK_INT(all.list[2].type, SQL_INT); /* nothing but NULL has any type */
    CHECK_INT(all.list[3].type, SQL_BOOL);
    CHECK_INT(joined_columns_place(&a, &all, &one), 0);
    CHECK_INT(joined_columns_place(&a, &all, &two), 0);
    const uint32_t of_two[] = {1, NO_COLUMN, 0, NO_COLUMN, 2};
    CHECK(memcmp(two.from, of_two, sizeof(of_two)) == 0);
    CHECK_INT(one.from[3], 3);
    CHECK_INT(one.from[4], NO_COLUMN);
    arena_done(&a);
}

TEST(values_of_another_type)
{
    char room[SQL_CELL_BYTES];
    struct sql_value v = {.type = SQL_INT, .integer = 3};
    joined_value(&v, SQL_DOUBLE, room);
    CHECK(v.type == SQL_DOUBLE && v.number == 3.0);
    joined_value(&v, SQL_TEXT, room);
    CHECK(v.type == SQL_TEXT && v.text.size == 1 && v.text.data[0] == '3');
    v = (struct sql_value){.type = SQL_BLOB, .text = {"\xff", 1}};
    joined_value(&v, SQL_TEXT, room);
    CHECK_INT(v.type, SQL_NULL);
}

int main(void)
{
    RUN(by_name_and_place_among_equals);
    RUN(values_of_another_type);
    return test_end();
}
