/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/server/stream_test.c - live streams: sharing, slow clients, and what they may cost.
 *
 * A real server in this process; a client that takes nothing for a second is stuck (not 60).
 */
#include <poll.h>

#include "tests/server/served.h"

#define WAIT_MS 20000

static void say(int fd, const void *data, size_t n)
{
    CHECK_INT(send(fd, data, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void ws_say(int fd, const char *text)
{
    size_t n = strlen(text);
    unsigned char head[8] = {0x81, (unsigned char)(0x80 | (n < 126 ? n : 126)),
                             (unsigned char)(n >> 8), (unsigned char)n};
    say(fd, head, n < 126 ? 2 : 4);
    say(fd, "\0\0\0\0", 4);
    say(fd, text, n);
}

static bool read_all(int fd, char *data, size_t n)
{
    while (n > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&p, 1, WAIT_MS) == 1 ? recv(fd, data, n, 0) : 0;
        if (got <= 0)
            return false;
        data += got;
        n -= (size_t)got;
    }
    return true;
}

static char heard[8 << 20];

/* The next message; false: the connection has ended. */
static bool ws_hear(int fd)
{
    unsigned char head[10];
    heard[0] = 0;
    if (!read_all(fd, (char *)head, 2))
        return false;
    size_t n = head[1], more = n == 126 ? 2 : n == 127 ? 8 : 0;
    if (!read_all(fd, (char *)head + 2, more))
        return false;
    for (size_t i = 0, size = 0; i < more; i++)
        n = size = size << 8 | head[2 + i];
    if (!CHECK(n < sizeof(heard)) || !read_all(fd, heard, n))
        return false;
    heard[n] = 0;
    return (head[0] & 15) == 1;
}

static int ws_dial(int receive_bytes)
{
    static const char request[] = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                                  "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    int fd = served_dial(false);
    size_t n = 0;
    if (receive_bytes)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    say(fd, request, sizeof(request) - 1);
    while (n < 4 || memcmp(heard + n - 4, "\r\n\r\n", 4) != 0)
        if (!read_all(fd, heard + n++, 1))
            break;
    return fd;
}

static void append(int64_t from, int64_t n)
{
    for (int64_t i = from; i < from + n; i++) {
        union probing_cell cell = {.i = i};
        (void)host_append(served.rows, clock_now(), &cell, 1, NULL, 0);
    }
}

static struct server_stats stats(void)
{
    struct server_stats s;
    server_stats(served.server, &s);
    return s;
}

/* Wait for something that the loop or a worker does. */
#define WAIT_FOR(condition)                                              \
    do {                                                                 \
        struct event never;                                              \
        (void)event_init(&never);                                        \
        for (int wait_i = 0; wait_i < WAIT_MS && !(condition); wait_i++) \
            (void)event_wait(&never, NS_PER_MS);                         \
        CHECK(condition);                                                \
        event_done(&never);                                              \
    } while (0)

TEST(a_hundred_clients_share_a_feed_and_see_each_row)
{
    enum { CLIENTS = 100 };
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = ws_dial(0);
        ws_say(fds[i], i % 2
                           ? "{\"id\":7,\"subscribe\":\"test.rows\",\"interval_ms\":10}"
                           : "{\"id\":7,\"watch\":\"select * from test.rows\",\"interval_ms\":10}");
    }
    /* Each gets rows from some point on; from there none is missing. */
    uint64_t requests = stats().requests;
    WAIT_FOR(stats().requests >= requests && stats().streams == 1);
    for (int i = 0; i < CLIENTS; i++) {
        ws_say(fds[i], "{\"id\":8,\"run\":[\"echo\",\"here\"]}"); /* it has joined when this ends */
        while (ws_hear(fds[i]) && !strstr(heard, "\"done\""))
            continue;
    }
    CHECK_INT(stats().streams, 1);
    append(1, 3);
    append(4, 1);
    for (int i = 0; i < CLIENTS; i++) {
        int64_t next = 1;
        while (next < 5 && CHECK(ws_hear(fds[i])))
            for (const char *at = heard; (at = strstr(at, "\\\"n\\\":")) != NULL; next++, at++)
                CHECK_INT(at[6] - '0', next);
        (void)close(fds[i]);
    }
    WAIT_FOR(stats().streams == 0 && stats().local == 0);
    CHECK_INT(stats().lost, 0);
}

TEST(different_statements_are_limited)
{
    int fd = ws_dial(0), other = ws_dial(0), refused = 0;
    char text[120];
    for (int i = 0; i < 70; i++) {
        (void)snprintf(text, sizeof(text),
                       "{\"id\":%d,\"watch\":\"select n + %d from test.rows\","
                       "\"interval_ms\":60000}",
                       i, i);
        ws_say(i < 40 ? fd : other, text);
    }
    for (; refused < 6 && ws_hear(other); refused++)
        CHECK(strstr(heard, "different statements are watched already"));
    CHECK_INT(refused, 6);
    CHECK_INT(stats().streams, 64);
    (void)close(fd);
    (void)close(other);
    WAIT_FOR(stats().streams == 0);
}

/* Nothing is read for a while: the oldest go, it is told how many, and it goes on from there. */
TEST(a_slow_client_loses_the_oldest_and_is_told)
{
    int fd = ws_dial(4096);
    long lost = 0, got = 0;
    ws_say(fd, "{\"id\":1,\"watch\":\"select n, repeat('x', 4000) as x from test.rows\","
               "\"interval_ms\":10,\"format\":\"jsonl\"}");
    WAIT_FOR(stats().streams == 1);
    uint64_t before = stats().lost;
    for (int64_t n = 0; stats().lost == before; n += 20) {
        append(n, 20);
        struct pollfd never = {.fd = -1};
        (void)poll(&never, 1, 5);
    }
    append(1000000, 1); /* the last one comes whatever was lost before */
    while (ws_hear(fd) && !strstr(heard, "\\\"n\\\":1000000")) {
        const char *dropped = strstr(heard, "\"dropped\":");
        lost += dropped ? strtol(dropped + 10, NULL, 10) : 0;
        got++;
    }
    CHECK(strstr(heard, "\\\"n\\\":1000000") != NULL);
    CHECK_INT(lost, (long)(stats().lost - before));
    CHECK(lost > 0 && got > 0);
    (void)close(fd);
    WAIT_FOR(stats().local == 0);
}

/* Many that read nothing at all: memory is bounded over all, and they are shown out. */
TEST(dead_clients_cost_little_and_are_dropped)
{
    enum { CLIENTS = 24 };
    int fds[CLIENTS];
    uint64_t most = 0, asked = 0;
    char text[200];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = ws_dial(4096);
        (void)snprintf(text, sizeof(text),
                       "{\"id\":1,\"watch\":\"select n, repeat('y', 8000) as y%d from test.rows\","
                       "\"interval_ms\":10}",
                       i);
        ws_say(fds[i], text);
    }
    WAIT_FOR(stats().streams == CLIENTS);
    for (int64_t n = 0; stats().local > 0 && asked < 4000; n += 4, asked++) {
        struct pollfd never = {.fd = -1};
        append(n, 4);
        (void)poll(&never, 1, 5);
        most = stats().queued > most ? stats().queued : most;
    }
    CHECK_INT(stats().local, 0);
    CHECK_INT(stats().queued, 0);
    CHECK(most < 80u << 20); /* 24 times 4 MiB would be 96 */
    CHECK(most > 1u << 20);
    for (int i = 0; i < CLIENTS; i++)
        (void)close(fds[i]);
}

int main(void)
{
    if (!serve(/* stuck_s= */ 1))
        return 1;
    int fds = served_fds();
    RUN(a_hundred_clients_share_a_feed_and_see_each_row);
    RUN(different_statements_are_limited);
    RUN(a_slow_client_loses_the_oldest_and_is_told);
    RUN(dead_clients_cost_little_and_are_dropped);
    CHECK_INT(served_fds(), fds);
    serve_no_more();
    return test_end();
}
