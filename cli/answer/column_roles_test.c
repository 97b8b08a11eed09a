/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/column_roles_test.c - which column is the time, the duration, the name.
 */
#include "cli/answer/column_roles.h"

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/answer/column_roles.c"
#include "tests/test.h"

TEST(the_first_name_in_the_table_wins_if_the_type_fits)
{
    static const struct sql_column columns[] = {
        {"name", SQL_TEXT, PROBING_PLAIN, ""},      {"elapsed", SQL_DOUBLE, PROBING_SECONDS, ""},
        {"duration", SQL_TEXT, PROBING_PLAIN, ""},  {"module", SQL_TEXT, PROBING_PLAIN, ""},
        {"seen", SQL_TIMESTAMP, PROBING_PLAIN, ""}, {"ts", SQL_TIMESTAMP, PROBING_PLAIN, ""},
        {"started", SQL_INT, PROBING_NS, ""}};

    CHECK_INT(column_in_role(columns, 7, ROLE_NAME), 3);
    CHECK_INT(column_in_role(columns, 3, ROLE_NAME), 0);
    CHECK_INT(column_in_role(columns, 7, ROLE_DURATION), 1); /* a text takes no time */
    CHECK_INT(column_in_role(columns, 7, ROLE_BEGIN), -1);   /* nor is a number a time */
    CHECK_INT(column_in_role(columns, 7, ROLE_END), 5);
    CHECK_INT(column_in_role(columns, 5, ROLE_END), 4); /* any time is better than none */
    CHECK_INT(column_in_role(columns, 4, ROLE_END), -1);
    CHECK_INT(column_in_role(columns, 0, ROLE_PID), -1);
}

TEST(a_duration_is_in_its_unit_or_in_that_of_its_type)
{
    static const struct sql_column columns[] = {{"dur", SQL_INT, PROBING_PLAIN, ""},
                                                {"dur", SQL_INT, PROBING_SECONDS, ""},
                                                {"dur", SQL_DOUBLE, PROBING_PLAIN, ""},
                                                {"dur", SQL_DOUBLE, PROBING_NS, ""}};
    static const double ns[] = {1, 1e9, 1e9, 1};

    for (int i = 0; i < 4; i++)
        CHECK(column_unit_ns(&columns[i]) == ns[i]);
}

int main(void)
{
    RUN(the_first_name_in_the_table_wins_if_the_type_fits);
    RUN(a_duration_is_in_its_unit_or_in_that_of_its_type);
    return test_end();
}
