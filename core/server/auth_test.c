/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/auth_test.c - the checks at the door by themselves: tokens, Host, Origin, rates.
 */
#include "core/base/clock.h"
#include "core/server/internal.h"
#include "tests/test.h"

static bool host(const char *text)
{
    return server_host_allowed(text, strlen(text), "10.1.2.3", "192.168.0.9");
}

TEST(a_host_is_a_number_or_localhost)
{
    static const char *const good[] = {"localhost",      "LocalHost:1", "127.0.0.1",
                                       "127.0.0.1:9922", "[::1]",       "[::1]:9922",
                                       "10.1.2.3:9922",  "192.168.0.9"};
    static const char *const bad[] = {"",
                                      "evil.example",
                                      "localhost.evil.example",
                                      "127.0.0.1.nip.io",
                                      "localhost@evil",
                                      "[::2]:9922",
                                      "10.1.2.4",
                                      "[::1",
                                      ":9922",
                                      "[::1]evil.example",
                                      "[::1]evil.example:9922",
                                      "[::1]:9922@evil.example",
                                      "[::1]:",
                                      "[::1%lo]",
                                      "[::ffff:127.0.0.1]",
                                      "[]",
                                      "::1",
                                      "localhost:x@evil.example",
                                      "localhost:9922@evil.example",
                                      "user@localhost",
                                      "localhost:",
                                      "localhost:0",
                                      "localhost:65536",
                                      "localhost:-1",
                                      "localhost:1 ",
                                      "localhost:9922:9922",
                                      "localhost/",
                                      "localhost?",
                                      "localhost#",
                                      "localhost\\",
                                      "localhost.",
                                      "localhost,evil.example",
                                      "127.0.0.1.",
                                      "127.1",
                                      "2130706433",
                                      "0x7f.1",
                                      "0177.0.0.1",
                                      "127.0.0.1%lo",
                                      "%6cocalhost",
                                      "*"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK(host(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (!CHECK(!host(bad[i])))
            printf("# %s\n", bad[i]);
}

static bool origin(const char *text)
{
    return server_origin_allowed(text, strlen(text), "localhost:9922", 14);
}

TEST(an_origin_is_the_host)
{
    CHECK(origin("http://localhost:9922") && origin("https://LOCALHOST:9922"));
    CHECK(!origin("http://localhost:9923") && !origin("http://localhost") && !origin("null"));
    CHECK(!origin("") && !origin("http://") && !origin("ftp://localhost:9922"));
    CHECK(!origin("http://localhost:9922.evil.example") && !origin("localhost:9922"));
    CHECK(!origin("http://localhost:9922/") && !origin("http://u@localhost:9922"));
    static const char twice[] = "localhost:x@evil.example"; /* the same nonsense as Host */
    CHECK(!server_origin_allowed("http://localhost:x@evil.example", 7 + sizeof(twice) - 1, twice,
                                 sizeof(twice) - 1));
}

TEST(tokens_are_told_apart)
{
    struct server s = {.tokens = {"", "looks", "changes"}};
    CHECK_INT(server_token_access(&s, "changes", 7), ACCESS_FULL);
    CHECK_INT(server_token_access(&s, "looks", 5), ACCESS_READ);
    CHECK_INT(server_token_access(&s, "look", 4), ACCESS_NONE);
    CHECK_INT(server_token_access(&s, "lookslooks", 10), ACCESS_NONE);
    CHECK_INT(server_token_access(&s, "", 0), ACCESS_NONE);
    CHECK_INT(server_token_access(&(struct server){0}, "", 0), ACCESS_NONE);
}

TEST(a_rate_holds_over_time_and_forgives)
{
    struct rate r = {0};
    uint64_t now = 1000 * NS_PER_S;
    int taken = 0;
    for (int i = 0; i < 1000; i++)
        taken += server_rate_take(&r, now, 100);
    CHECK_INT(taken, 200); /* a burst: two seconds' worth */
    for (int i = 0; i < 1000; i++)
        taken += server_rate_take(&r, now += 10 * NS_PER_MS / 4, 100);
    CHECK(taken >= 449 && taken <= 451); /* then a hundred a second, for two and a half */
    taken = 0;
    for (int i = 0; i < 1000; i++)
        taken += server_rate_take(&r, now + 60 * NS_PER_S, 100);
    CHECK_INT(taken, 200);
}

int main(void)
{
    RUN(a_host_is_a_number_or_localhost);
    RUN(an_origin_is_the_host);
    RUN(tokens_are_told_apart);
    RUN(a_rate_holds_over_time_and_forgives);
    return test_end();
}
