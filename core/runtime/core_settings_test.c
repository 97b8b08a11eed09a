/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/core_settings_test.c - the lines of settings that a start is given.
 *
 * Threads: the test's.
 */
#include <errno.h>

#include "core/runtime/internal.h"
#include "tests/test.h"

static int keep_last(void *arg, const char *key, const char *value)
{
    (void)snprintf(arg, 128, "%s|%s", key, value);
    return 0;
}

static int ignore(void *arg, const char *key, const char *value)
{
    (void)arg;
    (void)key;
    (void)value;
    return 0;
}

TEST(reads_lines_of_settings)
{
    char last[128] = "";
    CHECK_INT(settings_read("a.b=c\nx.y=z=1", ignore, keep_last, last), 0);
    CHECK_STR(last, "x.y|z=1");
    CHECK_INT(settings_read(NULL, ignore, keep_last, last), 0);
    CHECK_INT(settings_read("nonsense", ignore, keep_last, last), -EINVAL);
}

int main(void)
{
    RUN(reads_lines_of_settings);
    return test_end();
}
