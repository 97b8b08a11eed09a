/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/message_test.c - the readers of client bytes and the checks at the door, one by one.
 *
 * One thread, no socket: what a whole server does with them is in server_test.c.
 */
#include "core/server/message.h"

#include <errno.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/server/internal.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

static int parse(struct arena *a, const char *text, struct message *m)
{
    int64_t id;
    return server_message_parse(a, text, strlen(text), m, &id);
}

TEST(messages_are_read)
{
    struct message m;
    struct arena a;
    arena_init(&a, 0);
    CHECK_INT(parse(&a, "{\"id\":1,\"run\":[\"query\",\"select 1\",5],\"timeout_ms\":250}", &m), 0);
    CHECK(m.kind == MESSAGE_RUN && m.id == 1 && m.argc == 3 && m.timeout_ns == 250 * NS_PER_MS);
    CHECK_STR(m.argv[1], "select 1");
    CHECK_STR(m.argv[2], "5");
    CHECK(m.argv[3] == NULL);
    CHECK_INT(parse(&a, "{\"watch\":\"select 1\",\"id\":0}", &m), 0);
    CHECK(m.kind == MESSAGE_WATCH && m.interval_ns == NS_PER_S && m.last == 0);
    CHECK_STR(m.format, "jsonl");
    CHECK_INT(parse(&a, "{\"id\":3,\"follow\":\"script.x\"}", &m), 0);
    CHECK(m.kind == MESSAGE_FOLLOW);
    CHECK_INT(parse(&a, "{\"id\":3,\"cancel\":true}", &m), 0);
    CHECK(m.kind == MESSAGE_CANCEL);
    CHECK_INT(parse(&a, "{\"id\":3,\"cancel\":false}", &m), -EINVAL);
    CHECK_INT(parse(&a, "{\"id\":3,\"run\":[\"a\"],\"timeout_ms\":-1}", &m), -EINVAL);
    CHECK_STR(err_text(), "\"timeout_ms\" is -1; it must be 0 to 86400000");
    arena_done(&a);
}

TEST(lines_are_split_as_a_shell_does)
{
    static const struct {
        const char *line;
        int n;
        const char *words[3];
    } lines[] = {
        {"", 0, {NULL}},
        {"  \t ", 0, {NULL}},
        {"one two", 2, {"one", "two"}},
        {"a'b c'd \"\" ''", 3, {"ab cd", "", ""}},
        {"\"a\\\"b\\\\c\\n\" '\\'", 2, {"a\"b\\c\\n", "\\"}},
        {"a\\ b \\'", 2, {"a b", "'"}},
        {"a\\", 1, {"a\\"}},
        {"'open", -EINVAL, {NULL}},
        {"a b c d", -EINVAL, {NULL}},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        const char *words[3];
        struct arena a;
        arena_init(&a, 0);
        int n = server_args_split(&a, lines[i].line, strlen(lines[i].line), words, 3);
        CHECK_INT(n, lines[i].n);
        for (int k = 0; k < n; k++)
            CHECK_STR(words[k], lines[i].words[k]);
        arena_done(&a);
    }
}

TEST(a_request_is_read_when_it_is_whole)
{
    static const char text[] = "POST /query?a=1&q=x+%41%2b&z= HTTP/1.1\r\nHost:  [::1]:9922 \r\n"
                               "connection: Keep-Alive , Upgrade\r\nUPGRADE: websocket\r\n"
                               "Content-Length: 12\r\n\r\nbody";
    struct http_request r;
    struct buf q;
    int whole = (int)sizeof(text) - 1 - 4;
    for (int n = 0; n < whole; n++)
        CHECK_INT(server_http_parse(text, (size_t)n, &r), 0);
    CHECK_INT(server_http_parse(text, sizeof(text) - 1, &r), whole);
    CHECK(server_slice_is(r.method, "POST") && server_slice_is(r.path, "/query"));
    CHECK(server_slice_is(r.host, "[::1]:9922") && r.upgrade && r.keep_alive && !r.old);
    CHECK_INT(r.content_length, 12);
    buf_init(&q, 100);
    CHECK_INT(server_http_parameter(r.query, "q", &q), 1);
    CHECK_STR(buf_text(&q), "x A+");
    CHECK_INT(server_http_parameter(r.query, "nix", &q), 0);
    CHECK_INT(server_http_parameter((struct slice){"q=%0", 4}, "q", &q), -EINVAL);
    CHECK_INT(server_http_parameter((struct slice){"q=%00", 5}, "q", &q), -EINVAL);
    buf_done(&q);
}

static bool host_ok(const char *host)
{
    return server_host_allowed(host, strlen(host), "10.0.0.7", "[fe80::1]");
}

static bool origin_ok(const char *origin, const char *host)
{
    return server_origin_allowed(origin, strlen(origin), host, strlen(host));
}

TEST(strangers_are_told_apart)
{
    CHECK(host_ok("localhost") && host_ok("LOCALHOST:1") && host_ok("127.0.0.1:9922"));
    CHECK(host_ok("[::1]:9922") && host_ok("10.0.0.7:1") && host_ok("[fe80::1]"));
    CHECK(!host_ok("") && !host_ok("localhost.evil.example") && !host_ok("evil.example"));
    CHECK(!host_ok("127.0.0.1.evil.example:9922") && !host_ok("[::1") && !host_ok(":9922"));
    CHECK(origin_ok("http://a:1", "a:1") && origin_ok("HTTPS://a", "A"));
    CHECK(!origin_ok("http://a:2", "a:1") && !origin_ok("null", "null"));
    CHECK(!origin_ok("http://", ""));
    CHECK(!origin_ok("file://a", "a") && !origin_ok("http://a/b", "a"));
    CHECK(server_token_same("abc", "abc", 3));
    CHECK(!server_token_same("abc", "abd", 3) && !server_token_same("abc", "ab", 2));
    CHECK(!server_token_same("abc", "abcabc", 6) && !server_token_same("", "", 0));
    char one[SERVER_TOKEN_BYTES], two[SERVER_TOKEN_BYTES];
    CHECK_INT(server_token_make(one, sizeof(one)), 0);
    CHECK_INT(server_token_make(two, sizeof(two)), 0);
    CHECK(strlen(one) == 32 && strcmp(one, two) != 0);
}

TEST(readers_do_without_memory)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        const char *words[3];
        struct message m;
        struct arena a;
        arena_init(&a, 0);
        int rc = parse(&a, "{\"id\":1,\"run\":[\"query\",\"select 1\"]}", &m);
        CHECK(rc == 0 || rc == -ENOMEM);
        rc = server_args_split(&a, "a 'b c'", 7, words, 3);
        CHECK(rc == 2 || rc == -ENOMEM);
        arena_done(&a);
    }
}

int main(void)
{
    RUN(messages_are_read);
    RUN(lines_are_split_as_a_shell_does);
    RUN(a_request_is_read_when_it_is_whole);
    RUN(strangers_are_told_apart);
    RUN(readers_do_without_memory);
    return test_end();
}
