/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/harness_test.c - the harness itself, and how to use it.
 */
#include "tests/fail_alloc.h"
#include "tests/test.h"

#include <stdlib.h>

TEST(checks_give_what_they_found)
{
    CHECK(CHECK_INT(40 + 2, 42));
    CHECK(CHECK_STR("a", "a"));
    CHECK(CHECK_STR(NULL, NULL));
}

/* Code under test: it undoes its first step when its second fails. */
static char *two_steps(void)
{
    char *first = malloc(16);
    if (!first)
        return NULL;
    char *second = strdup("text");
    if (!second) {
        free(first);
        return NULL;
    }
    first[0] = second[0];
    free(second);
    return first;
}

TEST(every_allocation_fails_once)
{
    unsigned failed = 0, worked = 0;
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        char *made = two_steps();
        failed += made == NULL;
        worked += made != NULL;
        CHECK(!made || made[0] == 't');
        free(made);
    }
    CHECK_INT(failed, 2);
    CHECK_INT(worked, 1);
    CHECK(!fail_alloc_happened());
}

TEST(switched_off_nothing_fails)
{
    fail_alloc_at(1);
    fail_alloc_at(0);
    char *made = two_steps();
    CHECK(made);
    free(made);
}

int main(void)
{
    RUN(checks_give_what_they_found);
    RUN(every_allocation_fails_once);
    RUN(switched_off_nothing_fails);
    return test_end();
}
