/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/placeholder_test.c - which `?` and `$1` of a statement are placeholders.
 */
#include "core/sql/sql.h"
#include "tests/test.h"

/* The numbers of all that are found, "1 2 1". */
static const char *found(const char *text)
{
    static char numbers[200];
    struct sql_placeholder p = {0};
    size_t n = 0;

    numbers[0] = '\0';
    while (sql_next_placeholder(text, strlen(text), &p)) {
        CHECK(p.begin < p.end && p.end <= strlen(text));
        CHECK(text[p.begin] == '?' || text[p.begin] == '$');
        n += (size_t)snprintf(numbers + n, sizeof(numbers) - n, "%s%u", n ? " " : "", p.number);
    }
    return numbers;
}

TEST(finds_those_outside_of_texts_and_comments)
{
    static const struct {
        const char *text, *numbers;
    } rows[] = {{"select ?, ?", "1 2"},
                {"select $2, $1, $2", "2 1 2"},
                {"select '?', \"?\", ?", "1"},
                {"select 'it''s ?', ?", "1"},
                {"select e'\\'?', ?", "1"},
                {"select '\\', ?", "1"},
                {"select $$?$$, $a$ $1 $a$, ?", "1"},
                {"select a$1, $1", "1"},
                {"-- ?\n?", "1"},
                {"/* ? /* ? */ ? */ ?", "1"},
                {"? - ?", "1 2"},
                {"select '?", ""},
                {"select \"?", ""},
                {"/* ?", ""},
                {"$0 $1000 $1x $", ""},
                {"$999", "999"},
                {"", ""}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_STR(found(rows[i].text), rows[i].numbers);
}

int main(void)
{
    RUN(finds_those_outside_of_texts_and_comments);
    return test_end();
}
