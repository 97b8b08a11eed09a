/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/batch_test.c - names of columns that a source chose so that they meet.  A test's own
 * thread.
 */
#include "cli/answer/arrow_reader.h"
#include "cli/answer/column_roles.c"
#include "cli/ship/batch.c"
#include "tests/test.h"

static struct sql_column theirs[ANSWER_COLUMNS_MAX];
static char names[ANSWER_COLUMNS_MAX][512];
static const char *const reserved[] = {"day", "schema", NULL};

/* This stands in for rows of an answer, of which there are none here. */
void answer_rows_value(const struct answer_rows *rows, uint32_t row, uint32_t column,
                       struct sql_value *ret)
{
    (void)rows;
    *ret = (struct sql_value){.type = row + column > 0 ? SQL_NULL : SQL_INT};
}

/* Check the names that the destination would get: no two are alike, and the first of a name keeps
 * it. */
static void check_columns(uint32_t n)
{
    struct sql_column *all = NULL;
    struct arena mem;
    uint32_t alike = 0;

    arena_init(&mem, (size_t)8 << 20);
    for (uint32_t i = 0; i < n; i++)
        theirs[i] = (struct sql_column){.name = names[i], .type = SQL_INT, .doc = ""};
    CHECK_INT(ship_batch_columns(&mem, theirs, n, reserved, &all), 0);
    for (uint32_t i = 0; i < n + SHIP_TAGS; i++)
        for (uint32_t k = 0; k < i; k++)
            alike += strcasecmp(all[i].name, all[k].name) == 0;
    CHECK_INT(alike, 0);
    for (uint32_t i = SHIP_TAGS; i < n + SHIP_TAGS; i++)
        for (const char *const *at = reserved; *at != NULL; at++)
            CHECK(strcasecmp(all[i].name, *at) != 0);
    if (n > 0 && names[0][0] == 'a' && strlen(names[0]) < 384) /* longer ones are cut */
        CHECK_STR(all[SHIP_TAGS].name, names[0]);
    arena_done(&mem);
}

TEST(all_are_called_alike)
{
    for (uint32_t i = 0; i < ANSWER_COLUMNS_MAX; i++) { /* by pairs this took seconds */
        memset(names[i], i % 2 ? 'a' : 'A', 300);
        names[i][0] = 'a';
        names[i][300] = '\0';
    }
    check_columns(ANSWER_COLUMNS_MAX);
    for (uint32_t i = 0; i < ANSWER_COLUMNS_MAX; i++) {
        memset(names[i], 'a', 500);
        names[i][500] = '\0';
    }
    check_columns(ANSWER_COLUMNS_MAX);
}

TEST(names_that_others_get)
{
    static const char *const list[] = {"x_2", "X",     "x", "x", "x_3",      "_rank", "_RANK_2",
                                       "Day", "day_2", "",  "",  "_process", "schema"};
    uint32_t n = sizeof(list) / sizeof(list[0]);

    for (uint32_t i = 0; i < n; i++)
        (void)snprintf(names[i], sizeof(names[i]), "%s", list[i]);
    check_columns(n);
    check_columns(0);
}

int main(void)
{
    RUN(names_that_others_get);
    RUN(all_are_called_alike);
    return test_end();
}
