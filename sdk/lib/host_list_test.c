/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/host_list_test.c - lists of hosts as schedulers write them, and what is none.
 */
#include <errno.h>
#include <stdint.h>

#include "sdk/lib/buf.h"
#include "sdk/lib/host_list.h"
#include "tests/test.h"

static int add(void *arg, const char *name)
{
    struct buf *b = arg;

    (void)buf_addf(b, "%s%s", b->size > 0 ? " " : "", name);
    return 0;
}

static void check_list(const char *text, const char *names)
{
    struct buf b;

    buf_init(&b, 4096);
    CHECK_INT(host_list_each(text, 100, add, &b, NULL), 0);
    CHECK_STR(buf_text(&b), names);
    buf_done(&b);
}

TEST(lists)
{
    check_list("node1", "node1");
    check_list("node1,node2", "node1 node2");
    check_list("node[1-3]", "node1 node2 node3");
    check_list("node[08-11]", "node08 node09 node10 node11");
    check_list("n[01-03,7],gpu5", "n01 n02 n03 n7 gpu5");
    check_list("r[1-2]n[0-1].lan", "r1n0.lan r1n1.lan r2n0.lan r2n1.lan");
    check_list("node[1-2]:9922", "node1:9922 node2:9922");
    check_list("[::1]:9922,10.0.0.1", "[::1]:9922 10.0.0.1");
    check_list("node[5]", "node5");
}

static int stop(void *arg, const char *name)
{
    (void)name;
    return ++*(int *)arg == 3 ? -ECANCELED : 0;
}

TEST(ends)
{
    struct buf b;
    int n = 0;

    CHECK_INT(host_list_each("n[0-999999999]", SIZE_MAX, stop, &n, NULL), -ECANCELED);
    CHECK_INT(n, 3);
    const char *wrong = "";
    n = 2;
    CHECK_INT(host_list_each("a,b", 8, stop, &n, &wrong), -ECANCELED);
    CHECK(wrong == NULL);
    buf_init(&b, 1u << 20);
    CHECK_INT(host_list_each("n[1-8]", 8, add, &b, NULL), 0);
    CHECK_INT(host_list_each("n[1-9]", 8, add, &b, NULL), -E2BIG);
    CHECK_INT(host_list_each("a[0-999999999][0-999999999]", 8, add, &b, NULL), -E2BIG);
    buf_done(&b);
}

static void check_wrong(const char *text, size_t at)
{
    struct buf b;
    const char *wrong = NULL;

    buf_init(&b, 1u << 20);
    CHECK_INT(host_list_each(text, 100, add, &b, &wrong), -EINVAL);
    CHECK(wrong == text + at);
    buf_done(&b);
}

TEST(refused)
{
    check_wrong("", 0);
    check_wrong("a,,b", 2);
    check_wrong("a,", 2);
    check_wrong("node[1-", 4);
    check_wrong("node[]", 5);
    check_wrong("node[3-1]", 5);
    check_wrong("node[1-2-3]", 5);
    check_wrong("node[a]", 5);
    check_wrong("node[1,]", 7);
    check_wrong("node[-1]", 5);
    check_wrong("node[1234567890]", 5);
}

/* Brackets upon brackets make a long name, not a deep stack. */
TEST(too_long)
{
    char text[4 * HOST_NAME_BYTES] = "n";
    struct buf b;

    for (size_t i = 1; i + 4 < sizeof(text); i += 3)
        memcpy(text + i, "[1]", 4);
    buf_init(&b, 1u << 20);
    CHECK_INT(host_list_each(text, 100, add, &b, NULL), -ENAMETOOLONG);
    buf_done(&b);
}

int main(void)
{
    RUN(lists);
    RUN(ends);
    RUN(refused);
    RUN(too_long);
    return test_end();
}
