/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_scan_test.c - statements that are joined by `;` come apart as they were, and what
 * comes is what the engine takes for one.
 */
#include "core/sql/sql.h"

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/shell/sql_scan.c"
#include "tests/test.h"

static const char *const statements[] = {
    "select 1",
    "select 'a;b'",
    "select 'it''s; \\'",
    "select e'it\\'s;' as x",
    "select E'\\\\' as x, ';'",
    "select name';' from (select 1) t(name)", /* the engine says no, and still it is one */
    "select $$;$$",
    "select $t$ ; $$ ; $t$",
    "select 1 as \"a;\"\"b\"",
    "select 1 as `a;b`",
    "select 1 /* ; /* ' ; */ ; \" */",
    "select 1 -- ; ' /*\n + 1",
    "-- first ;\nselect 2",
    "select 4 - -1 / 2",
    "select 'two\nlines;'",
    "select 1 as a$b$c",
};
#define N_STATEMENTS (sizeof(statements) / sizeof(statements[0]))
#define ENGINE_REFUSES 5

TEST(the_engine_takes_each_for_one)
{
    for (size_t i = 0; i < N_STATEMENTS; i++)
        if (i != ENGINE_REFUSES)
            CHECK_INT(sql_check_select(statements[i], strlen(statements[i])), 0);
}

/* A piece at a time, as lines come; gives how many statements have ended. */
static void split_lines(const char *text, size_t *ends, size_t *ret_n)
{
    struct sql_scan s = {.in = SCAN_PLAIN};
    size_t size = strlen(text), n = 0;

    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t line = end != NULL ? (size_t)(end - text) + 1 : size;
        while (at < line) {
            at += sql_scan_next(&s, text + at, line - at);
            if (at == line)
                break;
            CHECK(s.begun);
            ends[n++] = at++;
            s = (struct sql_scan){.in = SCAN_PLAIN};
        }
    }
    CHECK_INT(sql_scan_open(&s), 0);
    *ret_n = n;
}

TEST(any_two_come_apart)
{
    char text[256];
    size_t ends[4], n;

    for (size_t i = 0; i < N_STATEMENTS; i++)
        for (size_t j = 0; j < N_STATEMENTS; j++) {
            (void)snprintf(text, sizeof(text), "%s;%s\n;", statements[i], statements[j]);
            split_lines(text, ends, &n);
            if (!CHECK_INT(n, 2))
                printf("# in %s\n", text);
            CHECK_INT(ends[0], strlen(statements[i]));
            CHECK_INT(ends[1], strlen(text) - 1);
        }
}

TEST(what_stands_open)
{
    static const struct {
        const char *text;
        char open;
    } cases[] = {{"select 'a", '\''},  {"select \"a", '"'},    {"select /* '", '*'},
                 {"select $$ '", '$'}, {"select e'\\'", '\''}, {"select 1 -- '", '\0'},
                 {"select", '\0'}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sql_scan s = {.in = SCAN_PLAIN};
        size_t size = strlen(cases[i].text);
        CHECK_INT(sql_scan_next(&s, cases[i].text, size), size);
        CHECK_INT(sql_scan_open(&s), cases[i].open);
    }
}

TEST(blanks_and_comments_begin_nothing)
{
    struct sql_scan s = {.in = SCAN_PLAIN};

    CHECK_INT(sql_scan_next(&s, " \t-- a\n/* b */ \n;", 17), 16);
    CHECK(!s.begun);
    CHECK_INT(sql_scan_next(&s, "\\d", 2), 0); /* a command */
}

int main(void)
{
    RUN(the_engine_takes_each_for_one);
    RUN(any_two_come_apart);
    RUN(what_stands_open);
    RUN(blanks_and_comments_begin_nothing);
    return test_end();
}
