/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/stack/backtrace_words_test.c - right and wrong words of `backtrace`, for each who reads
 * them.
 */
#include "sdk/lib/stack/backtrace_words.h"

#include <errno.h>

#include "tests/test.h"

static char why[300];

/* The words of a line, blanks between. */
static int read_line(const char *line, enum backtrace_asked asked, struct backtrace_words *ret)
{
    static char text[200];
    const char *argv[16] = {"backtrace"};
    int argc = 1;
    (void)snprintf(text, sizeof(text), "%s", line);
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word && argc < 16;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    why[0] = '\0';
    return backtrace_words(argc, argv, asked, ret, why, sizeof(why));
}

static const enum backtrace_asked all[] = {BACKTRACE_INSIDE, BACKTRACE_OUTSIDE, BACKTRACE_COMMAND};

TEST(right_words)
{
    struct backtrace_words w;
    for (int i = 0; i < 3; i++) {
        CHECK_INT(read_line("", all[i], &w), 0);
        CHECK(w.want == WANT_BOTH && !w.only && !w.json && !w.watch);
        CHECK_INT(w.external, all[i] == BACKTRACE_OUTSIDE);
        CHECK_INT(read_line("--json --thread 4711 --native --all --locals", all[i], &w), 0);
        CHECK(w.want == WANT_NATIVE && w.only == 4711 && w.json && w.all && w.locals);
        CHECK_INT(read_line("--python --native --python", all[i], &w), -EINVAL);
        CHECK_INT(read_line("--python --python", all[i], &w), 0);
        CHECK_INT(w.want, WANT_PYTHON);
    }
    CHECK_INT(read_line("--tasks --locals=repr", BACKTRACE_INSIDE, &w), 0);
    CHECK(w.tasks && w.repr && !w.locals);
    CHECK_INT(read_line("--external --interval 2s", BACKTRACE_COMMAND, &w), 0);
    CHECK(w.external && w.watch && !w.full);
    CHECK_STR(w.interval, "2s");
    CHECK_INT(read_line("--full --external", BACKTRACE_COMMAND, &w), 0);
    CHECK(w.external && w.full && !w.watch);
}

TEST(wrong_words)
{
    static const struct {
        const char *line, *why;
    } lines[] = {
        {"--thrad", "backtrace: unexpected argument '--thrad'; it takes [--thread TID]"},
        {"--locals=all", "backtrace: unexpected argument '--locals=all'; "},
        {"4711", "backtrace: unexpected argument '4711'; "},
        {"--thread", "backtrace: --thread needs a thread id: --thread 1234"},
        {"--thread --json", "backtrace: --thread needs a thread id"},
        {"--thread 0", "backtrace: --thread needs a thread id"},
        {"--thread -1", "backtrace: --thread needs a thread id"},
        {"--thread 4294967297", "backtrace: --thread needs a thread id"},
        {"--thread 99999999999999999999", "backtrace: --thread needs a thread id"},
        {"--native --json --python", "backtrace: --native and --python exclude each other"},
    };
    struct backtrace_words w;
    for (size_t k = 0; k < sizeof(lines) / sizeof(lines[0]); k++)
        for (int i = 0; i < 3; i++) {
            CHECK_INT(read_line(lines[k].line, all[i], &w), -EINVAL);
            if (!CHECK(strncmp(why, lines[k].why, strlen(lines[k].why)) == 0))
                printf("# %s\n", why);
            CHECK(!w.json && !w.only); /* nothing is half taken */
        }
}

TEST(words_of_one_alone)
{
    struct backtrace_words w;
    CHECK_INT(read_line("--watch", BACKTRACE_INSIDE, &w), -EINVAL);
    CHECK_INT(read_line("--external", BACKTRACE_OUTSIDE, &w), -EINVAL);
    CHECK_INT(read_line("--interval", BACKTRACE_COMMAND, &w), -EINVAL);
    CHECK_STR(why, "backtrace: --interval needs a time: --interval 2s");
    CHECK_INT(read_line("--tasks", BACKTRACE_OUTSIDE, &w), -EINVAL);
    CHECK(strstr(why, "does not enter") != NULL);
    CHECK_INT(read_line("--tasks --external", BACKTRACE_COMMAND, &w), -EINVAL);
    CHECK(strstr(why, "does not enter") != NULL);
}

int main(void)
{
    RUN(right_words);
    RUN(wrong_words);
    RUN(words_of_one_alone);
    return test_end();
}
