/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/op_totals_test.c - sums of operations: own times, lanes, many names.
 */
#include "profiler/op_totals.h"

#include <stdlib.h>

#include "tests/test.h"

static const struct ops_sum *find(const struct ops *o, const char *name)
{
    for (uint32_t i = 0; i < ops_count(o); i++)
        if (strcmp(ops_at(o, i)->name, name) == 0)
            return ops_at(o, i);
    return NULL;
}

TEST(own_time_is_without_what_lies_inside)
{
    struct ops *o = ops_new();
    (void)ops_add(o, "inner", "cpu_op", 1, 20, 30); /* in no order */
    (void)ops_add(o, "linear", "cpu_op", 1, 10, 100);
    (void)ops_add(o, "addmm", "cpu_op", 1, 10, 60); /* begins with the one that it lies in */
    (void)ops_add(o, "linear", "cpu_op", 1, 200, 5);
    (void)ops_add(o, "linear", "cpu_op", 2, 0, 1000); /* elsewhere: it holds nothing of lane 1 */
    ops_finish(o);
    CHECK_INT(ops_count(o), 3);
    CHECK_STR(ops_at(o, 0)->name, "linear");
    CHECK_INT(ops_at(o, 0)->calls, 3);
    CHECK_INT(ops_at(o, 0)->total_ns, 1105);
    CHECK_INT(ops_at(o, 0)->self_ns, 1045);
    CHECK_INT(ops_at(o, 0)->longest_ns, 1000);
    CHECK_INT(find(o, "addmm")->self_ns, 30);
    CHECK_INT(find(o, "inner")->self_ns, 30);
    ops_free(o);
}

TEST(one_name_of_two_kinds_is_two)
{
    struct ops *o = ops_new();
    (void)ops_add(o, "copy", "cpu_op", 1, 0, 1);
    (void)ops_add(o, "copy", "kernel", 1, 0, 1);
    ops_finish(o);
    CHECK_INT(ops_count(o), 2);
    ops_free(o);
    o = ops_new();
    ops_finish(o);
    CHECK_INT(ops_count(o), 0);
    ops_free(o);
    ops_free(NULL);
}

TEST(many_names_and_deep_calls)
{
    struct ops *o = ops_new();
    char name[32];
    for (uint64_t i = 0; i < 5000; i++) { /* each inside of the one before */
        (void)snprintf(name, sizeof(name), "op%d", (int)i);
        CHECK_INT(ops_add(o, name, "cpu_op", 1, i, 20000 - 2 * i), 0);
    }
    ops_finish(o);
    CHECK_INT(ops_count(o), 5000);
    CHECK_INT(find(o, "op0")->self_ns, 2);
    CHECK_INT(find(o, "op4999")->self_ns, 10002);
    ops_free(o);
}

int main(void)
{
    RUN(own_time_is_without_what_lies_inside);
    RUN(one_name_of_two_kinds_is_two);
    RUN(many_names_and_deep_calls);
    return test_end();
}
