/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/http_test.c - HTTP: what it answers, in what form, and whom it refuses.
 */
#include "tests/server/served.h"

TEST(http_answers_with_the_commands_status)
{
    ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said("HTTP/1.1 200 OK\r\n") && said("\r\n\r\nok\n"));
    ask(dial(), "GET / HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said("probing 9.9 in process"));
    ask(dial(), "POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 24\r\n\r\n"
                "{\"run\":[\"echo\",\"a b\",2]}");
    CHECK(said(" 200 ") && said("a b\n2\n"));
    ask(dial(), "POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 16\r\n\r\n{\"run\":[\"fail\"]}");
    CHECK(said(" 403 ") && said("{\"error\":{\"code\":\"EACCES\",\"message\":\"it may not be\","
                                "\"hint\":\"ask nicely\"}}"));
    ask(dial(), "POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 17\r\n\r\n{\"run\":[\"three\"]}");
    CHECK(said(" 422 ") && said("\r\n\r\n.no"));
    ask(dial(), "POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 16\r\n\r\n{\"run\":[\"ehco\"]}");
    CHECK(said(" 404 ") && said("ehco"));
    ask(dial(), "GET /query?q=select+1%2B1&format=csv HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said(" 200 ") && said("--format\ncsv\n--\nselect 1+1\n"));
    ask(dial(), "POST /query HTTP/1.1\r\n" LOCAL "Content-Length: 8\r\n\r\nselect 2");
    CHECK(said("application/json") && said("--format\njson\n--\nselect 2\n"));
    ask(dial(), "POST /eval HTTP/1.1\r\n" LOCAL "Content-Length: 8\r\n\r\nprint(1)");
    CHECK(said("print(1)\n"));
}

TEST(http_times_out_a_command)
{
    ask(dial(), "POST /run HTTP/1.1\r\n" LOCAL
                "Content-Length: 32\r\n\r\n{\"run\":[\"wait\"],\"timeout_ms\":50}");
    CHECK(said(" 504 "));
}

TEST(http_keeps_the_connection_and_answers_in_order)
{
    int fd = dial();
    say(fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
            "POST /eval HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\none"
            "POST /eval HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\ntwo");
    (void)hear(fd, "two\n");
    const char *one = strstr(heard, "one\n"), *ok = strstr(heard, "ok\n");
    CHECK(ok && one && ok < one);
    /* and one that comes byte by byte */
    static const char slow[] = "POST /eval HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nthree";
    for (size_t i = 0; i + 1 < sizeof(slow); i++)
        say_bytes(fd, slow + i, 1);
    (void)hear(fd, "three\n");
    CHECK(said("three\n"));
    (void)close(fd);
}

TEST(http_streams_a_long_answer)
{
    ask(dial(), "POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 15\r\n\r\n{\"run\":[\"big\"]}");
    CHECK(said("Transfer-Encoding: chunked\r\n"));
    CHECK(said("line 0 of many") && said("line 49999 of many"));
    CHECK(said("\r\n0\r\nProbing-Status: 0\r\n\r\n"));
    /* one that breaks off never looks whole */
    ask(dial(), "POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 21\r\n\r\n"
                "{\"run\":[\"big\",\"cut\"]}");
    CHECK(said("error: the answer is incomplete: the rest is lost"));
    CHECK(strstr(heard, "\r\n0\r\n") == NULL);
    ask(dial(), "POST /run HTTP/1.0\r\nContent-Length: 15\r\n\r\n{\"run\":[\"big\"]}");
    CHECK(strstr(heard, "chunked") == NULL && said("line 49999 of many"));
}

TEST(http_refuses_what_it_cannot_read)
{
    static const struct {
        const char *request, *status;
    } bad[] = {
        {"GET /nothing HTTP/1.1\r\n" LOCAL "\r\n", " 404 "},
        {"GET /api/v1/query?query=up HTTP/1.1\r\n" LOCAL "\r\n", "GET /metrics"},
        {"GET /-/healthy HTTP/1.1\r\n" LOCAL "\r\n", "GET /healthz"},
        {"DELETE / HTTP/1.1\r\n" LOCAL "\r\n", " 405 "},
        {"GET /eval HTTP/1.1\r\n" LOCAL "\r\n", " 405 "},
        {"GET /ws HTTP/1.1\r\n" LOCAL "\r\n", " 426 "},
        {"GET healthz HTTP/1.1\r\n" LOCAL "\r\n", " 400 "},
        {"GET /healthz HTTP/3.0\r\n" LOCAL "\r\n", " 400 "},
        {"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", " 400 "},
        {"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n", " 400 "},
        {"GET /healthz HTTP/1.1\r\nA : b\r\n\r\n", " 400 "},
        {"POST /eval HTTP/1.1\r\nContent-Length: -1\r\n\r\n", " 400 "},
        {"POST /eval HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", " 413 "},
        {"POST /eval HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", " 501 "},
        {"POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 4\r\n\r\n{\"a\"", " 400 "},
        {"POST /run HTTP/1.1\r\n" LOCAL "Content-Length: 10\r\n\r\n{\"run\":[]}", " 400 "},
        {"GET /query HTTP/1.1\r\n" LOCAL "\r\n", " 400 "},
        {"GET /query?q=%zz HTTP/1.1\r\n" LOCAL "\r\n", " 400 "},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ask(dial(), bad[i].request);
        if (!CHECK(said(bad[i].status)))
            printf("# to: %s\n", bad[i].request);
        CHECK(said("\"message\":"));
    }
    static char filler[20000];
    memset(filler, 'a', sizeof(filler));
    int fd = dial();
    say(fd, "GET / HTTP/1.1\r\nX: ");
    say_bytes(fd, filler, sizeof(filler));
    (void)hear(fd, "431");
    CHECK(said(" 431 "));
    (void)close(fd);
}

TEST(tcp_wants_the_token_and_a_host_of_its_own)
{
    ask(dial_tcp(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said(" 401 "));
    ask(dial_tcp(), "GET /healthz HTTP/1.1\r\n" LOCAL "Authorization: Bearer secreT\r\n\r\n");
    CHECK(said(" 401 "));
    ask(dial_tcp(), "GET /healthz HTTP/1.1\r\n" LOCAL "Authorization: Bearer \r\n\r\n");
    CHECK(said(" 401 "));
    ask(dial_tcp(), "GET /healthz HTTP/1.1\r\n" LOCAL "Authorization: Bearer secret\r\n\r\n");
    CHECK(said(" 200 "));
    ask(dial_tcp(), "GET /healthz?token=secret HTTP/1.1\r\n" LOCAL "\r\n");
    char cookie[256];
    (void)snprintf(cookie, sizeof(cookie),
                   "Set-Cookie: probing_token_%u=secret; HttpOnly; "
                   "SameSite=Strict",
                   served.port);
    CHECK(said(" 200 ") && said(cookie));
    (void)snprintf(cookie, sizeof(cookie),
                   "GET /healthz HTTP/1.1\r\n" LOCAL "Cookie: a=b; probing_token_%u=secret\r\n\r\n",
                   served.port);
    ask(dial_tcp(), cookie);
    CHECK(said(" 200 "));
    (void)snprintf(cookie, sizeof(cookie),
                   "GET /healthz HTTP/1.1\r\n" LOCAL "Sec-Fetch-Site: "
                   "same-site\r\nCookie: probing_token_%u=secret\r\n\r\n",
                   served.port);
    ask(dial_tcp(), cookie); /* a page of another port of this machine */
    CHECK(said(" 401 "));
    ask(dial_tcp(), "GET /healthz?token=secret HTTP/1.1\r\nHost: rebind.example\r\n" CLOSE "\r\n");
    CHECK(said(" 403 "));
    ask(dial_tcp(), "GET /healthz?token=secret HTTP/1.1\r\n" CLOSE "\r\n");
    CHECK(said(" 403 "));
    ask(dial_tcp(), "GET /healthz?token=secret HTTP/1.1\r\nHost: 127.0.0.1:1\r\n" CLOSE
                    "Origin: http://evil.example\r\n\r\n");
    CHECK(said(" 403 "));
    ask(dial_tcp(), "GET /healthz?token=secret HTTP/1.1\r\nHost: 127.0.0.1:1\r\n" CLOSE
                    "Origin: http://127.0.0.1:1\r\n\r\n");
    CHECK(said(" 200 "));
    ask(dial_tcp(), "GET /ws?token=secret HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUpgrade: websocket\r\n"
                    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                    "Origin: http://evil.example\r\n\r\n");
    CHECK(said(" 403 "));
}

int main(void)
{
    if (!serve(/* stuck_s= */ 0))
        return 1;
    RUN(http_answers_with_the_commands_status);
    RUN(http_times_out_a_command);
    RUN(http_keeps_the_connection_and_answers_in_order);
    RUN(http_streams_a_long_answer);
    RUN(http_refuses_what_it_cannot_read);
    RUN(tcp_wants_the_token_and_a_host_of_its_own);
    serve_no_more();
    return test_end();
}
