/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/text_protocol_test.c - plain lines of text, and what is neither text nor HTTP.
 */
#include "tests/server/served.h"

TEST(text_answers_line_by_line)
{
    int fd = dial();
    say(fd, "echo one 'two three' \"fo\\\"ur\"\r\n\nthree\nfail\nnothing\necho 'open\nquit\n");
    (void)hear(fd, NULL);
    static const char first[] = "one\ntwo three\nfo\"ur\n.\n"
                                "..no\nerror: the command ended with status 3\n"
                                "a part\nerror: it may not be; ask nicely\n"
                                "error: unknown command 'nothing'";
    CHECK(strncmp(heard, first, sizeof(first) - 1) == 0 &&
          said("\nerror: the quote ' is not closed\n"));
    (void)close(fd);
}

TEST(text_answers_who_has_stopped_sending)
{
    int fd = dial();
    say(fd, "big\necho end");
    (void)shutdown(fd, SHUT_WR);
    (void)hear(fd, NULL);
    CHECK(said("line 49999 of many") && said("\n.\nend\n.\n"));
    (void)close(fd);
}

TEST(text_on_tcp_begins_with_the_token)
{
    int fd = dial_tcp();
    say(fd, "token secret\necho in\nquit\n");
    (void)hear(fd, NULL);
    CHECK_STR(heard, ".\nin\n.\n");
    (void)close(fd);
    fd = dial_tcp();
    say(fd, "echo in\necho again\n");
    (void)hear(fd, NULL);
    CHECK(said("error: the first line must be: token T") && !strstr(heard, "in\n."));
    (void)close(fd);
}

TEST(noise_is_closed)
{
    static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 abc\n";
    int fd = dial();
    say_bytes(fd, tls, sizeof(tls) - 1);
    CHECK_INT(hear(fd, NULL), 0);
    (void)close(fd);
    uint32_t seed = 1;
    for (int i = 0; i < 20; i++) {
        char noise[300];
        for (size_t k = 0; k < sizeof(noise); k++) {
            seed = seed * 1664525 + 1013904223;
            noise[k] = (char)(seed >> 24);
        }
        fd = i % 2 ? dial() : dial_tcp();
        say_bytes(fd, noise, sizeof(noise));
        (void)shutdown(fd, SHUT_WR);
        (void)hear(fd, NULL);
        (void)close(fd);
    }
    fd = dial(); /* a line without end */
    static char line[64 << 10];
    memset(line, 'a', sizeof(line));
    for (int i = 0; i < 18; i++)
        say_bytes(fd, line, sizeof(line));
    (void)hear(fd, NULL);
    (void)close(fd);
    ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said(" 200 "));
}

int main(void)
{
    if (!serve(/* stuck_s= */ 0))
        return 1;
    RUN(text_answers_line_by_line);
    RUN(text_answers_who_has_stopped_sending);
    RUN(text_on_tcp_begins_with_the_token);
    RUN(noise_is_closed);
    serve_no_more();
    return test_end();
}
