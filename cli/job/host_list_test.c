/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/host_list_test.c - lists of hosts as schedulers write them, and what is none.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cli/job/host_list.c"
#include "cli/job/host_list.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/hash.h"
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
    int n = 0;

    CHECK_INT(host_list_each("n[0-999]", 1000, stop, &n, NULL), -ECANCELED);
    CHECK_INT(n, 3);
    const char *wrong = "";
    n = 2;
    CHECK_INT(host_list_each("a,b", 8, stop, &n, &wrong), -ECANCELED);
    CHECK(wrong == NULL);
}

static int count(void *arg, const char *name)
{
    (void)name;
    ++*(uint32_t *)arg;
    return 0;
}

static void check_many(const char *text, size_t most, size_t at)
{
    const char *wrong = NULL;
    uint32_t n = 0;

    CHECK_INT(host_list_each(text, most, count, &n, &wrong), -E2BIG);
    CHECK(wrong == text + at);
    CHECK_INT(n, 0); /* nothing was done for those that had room */
}

TEST(too_many)
{
    uint32_t n = 0;

    CHECK_INT(host_list_each("n[1-8]", 8, count, &n, NULL), 0);
    CHECK_INT(n, 8);
    check_many("n[1-9]", 8, 0);
    check_many("n[1-8],m", 8, 7);
    check_many("a,n[1-2][1-2][1-2]", 8, 2);
    check_many("a[0-999999999][0-999999999]", SIZE_MAX, 0);
    check_many("a[0-999999999][0-999999999][0-999999999][0-999999999]", SIZE_MAX, 0);
    check_many("n[1-2],m[0-999999999]", SIZE_MAX, 7); /* bytes */
    n = 0;
    CHECK_INT(host_list_each("a,n[1-3,2]", 8, count, &n, NULL), 0);
    CHECK_INT(n, 5);
}

struct sum {
    size_t names, bytes;
    bool sane;
};

static int add_up(void *arg, const char *name)
{
    struct sum *s = arg;

    s->names++;
    s->bytes += strlen(name) + 1;
    s->sane = s->sane && name[0] != '\0' && (name[0] == '[' || strchr(name, ',') == NULL);
    return 0;
}

/* Whatever the text is, what comes of it is within the limits, or nothing has come. */
TEST(any_text)
{
    static const char letters[] = "[[]]--,,0129a.";
    uint64_t state = 0;
    uint32_t taken = 0;

    for (int i = 0; i < 200000; i++) {
        char text[40];
        struct sum s = {.sane = true};
        const char *wrong = NULL;
        size_t n = (size_t)(hash_spread(state++) % sizeof(text)), most = 1 + i % 300;
        for (size_t k = 0; k < n; k++)
            text[k] = letters[hash_spread(state++) % (sizeof(letters) - 1)];
        text[n] = '\0';
        int rc = host_list_each(text, most, add_up, &s, &wrong);
        taken += rc == 0;
        CHECK(s.sane && s.names <= most && s.bytes <= HOST_LIST_BYTES);
        CHECK(rc == 0 ? wrong == NULL && s.names > 0
                      : wrong >= text && wrong <= text + n && s.names == 0);
    }
    CHECK(taken > 1000);
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
    RUN(too_many);
    RUN(any_text);
    RUN(refused);
    RUN(too_long);
    return test_end();
}
