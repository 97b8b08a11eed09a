/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/args_test.c - conditions that a command's row sets on the words behind it.
 */
/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/terminal/args.c"
#include "tests/test.h"

static const struct cli_command command = {
    .name = "eval", .options = {{"--file", "-f", "FILE", ""}, {"--once", NULL, NULL, ""}}};

static bool meets(const char *condition, const char *first, const char *second)
{
    char *words[] = {(char *)(uintptr_t)command.name, (char *)(uintptr_t)first,
                     (char *)(uintptr_t)second, NULL};

    return cli_words_meet(&command, condition, first == NULL ? 1 : second == NULL ? 2 : 3, words);
}

TEST(a_condition_holds_always_never_or_with_a_word)
{
    CHECK(meets("", NULL, NULL));
    CHECK(!meets(NULL, "--once", NULL));
    CHECK(meets("--once", "--once", NULL));
    CHECK(!meets("--once", "--only", NULL));
    CHECK(meets("--stop|--once", "x", "--once"));
    CHECK(!meets("!--stop|--once", "x", "--once"));
    CHECK(meets("!--stop|--once", "x", NULL));
    CHECK(meets("diff", "diff", "a"));
}

TEST(an_option_is_known_by_its_letter_and_by_its_value)
{
    CHECK(meets("--file", "-f", "a.py"));
    CHECK(meets("--file=-", "-f", "-"));
    CHECK(meets("--file=-", "--file", "-"));
    CHECK(meets("--file=-", "--file=-", NULL));
    CHECK(!meets("--file=-", "--file=a.py", NULL));
    CHECK(!meets("--file=-", "-f", "a.py"));
    CHECK(!meets("--file=-", "-f", NULL));
    CHECK(cli_words_meet(
        NULL, "--json", 2,
        (char *[]){(char *)(uintptr_t) "spans", (char *)(uintptr_t) "--json", NULL}));
}

int main(void)
{
    RUN(a_condition_holds_always_never_or_with_a_word);
    RUN(an_option_is_known_by_its_letter_and_by_its_value);
    return test_end();
}
