/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/server/stream_test.c - live streams: sharing, slow clients, and what they may cost.
 *
 * A real server in this process; a client that takes nothing for STUCK_S is stuck (not 60 s).
 */
#include "tests/server/served.h"

#ifdef __SANITIZE_THREAD__ /* fifteen times slower: clients that read seem to be stuck as well */
#define STUCK_S 10
#else
#define STUCK_S 1
#endif

static struct server_stats stats(void)
{
    struct server_stats s;
    server_stats(served.server, &s);
    return s;
}

/* The stream has more to say; what else it said is printed. */
static bool goes_on(void)
{
    bool over = strstr(heard, "\"done\"") != NULL;
    if (over)
        printf("# heard: %.300s\n", heard);
    return CHECK(!over);
}

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
    append_rows(1, 3);
    append_rows(4, 1);
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
    enum { ALL = 128, ONE = 32, FULL = ALL / ONE };
    int fds[FULL + 1];
    char text[120];
    for (int k = 0; k <= FULL; k++) {
        fds[k] = ws_dial(0);
        for (int i = 0; i < ONE + 6; i++) {
            (void)snprintf(text, sizeof(text),
                           "{\"id\":%d,\"watch\":\"select n + %d from test.rows\","
                           "\"interval_ms\":60000}",
                           i, k * 100 + i);
            ws_say(fds[k], text);
        }
        int refused = 0;
        for (; refused < (k < FULL ? 6 : ONE + 6) && ws_hear(fds[k]); refused++)
            CHECK(strstr(heard, k < FULL ? "watched by this connection already"
                                         : "128 different statements are watched already"));
        CHECK_INT(refused, k < FULL ? 6 : ONE + 6);
    }
    CHECK_INT(stats().streams, ALL);
    for (int k = 0; k <= FULL; k++)
        (void)close(fds[k]);
    WAIT_FOR(stats().streams == 0);
}

/* Rows of one tick go in as many messages as they need: a stream has no longest answer.  Where this
 * thread gets no processor for a while it is a slow client, loses some, and is told. */
TEST(a_tick_may_be_long)
{
    enum { ROWS = 3000 };
    int fd = ws_dial(0);
    int64_t next = 0;
    bool told = false;
    append_rows(0, ROWS);
    ws_say(fd, "{\"id\":1,\"watch\":\"select n, repeat('z', 3001) as z from test.rows\","
               "\"interval_ms\":10,\"last\":3000}"); /* 9 MB */
    while (next < ROWS && CHECK(ws_hear(fd)) && goes_on()) {
        told |= strstr(heard, "\"dropped\":") != NULL;
        for (const char *at = heard; (at = strstr(at, "\\\"n\\\":")) != NULL; next++, at++) {
            int64_t n = strtoll(at + 6, NULL, 10);
            CHECK(n == next || (told && n > next));
            told = told && n == next;
            next = n;
        }
    }
    (void)close(fd);
    WAIT_FOR(stats().local == 0);
}

/* Each message begins with a row, also in csv, whose values may have lines. */
TEST(a_piece_of_csv_begins_with_a_row)
{
    enum { ROWS = 3000 };
    int fd = ws_dial(0);
    int messages = 0;
    bool all = false;
    append_rows(0, ROWS);
    ws_say(fd,
           "{\"id\":1,\"watch\":\"select n, repeat('a \\\"b\\\"\\n', 300) as z from test.rows\","
           "\"interval_ms\":10,\"last\":3000,\"format\":\"csv\"}");
    while (!all && CHECK(ws_hear(fd)) && goes_on()) {
        const char *text = strstr(heard, "\"data\":\"");
        if (!text)
            continue;
        text += 8;
        CHECK(strncmp(text, "n,z\\r\\n", 7) == 0 || (*text >= '0' && *text <= '9'));
        all = strstr(text, "2999,") != NULL;
        messages++;
    }
    CHECK(messages > 1);
    (void)close(fd);
    WAIT_FOR(stats().local == 0);
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
    /* No faster than its ticks: one that had to bring all at once would run out of time.  Rows that
     * came before it looked for the first time change nothing. */
    for (int64_t n = 0; stats().lost == before && CHECK(stats().local > 0); n += 250) {
        struct pollfd never = {.fd = -1};
        uint64_t queued = stats().queued;
        append_rows(n, 250);
        for (int i = 0; i < 200 && stats().queued == queued && stats().lost == before; i++)
            (void)poll(&never, 1, 5);
    }
    append_rows(1000000, 1); /* the last one comes whatever was lost before */
    while (ws_hear(fd) && goes_on() && !strstr(heard, "\\\"n\\\":1000000")) {
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
    enum { CLIENTS = 48 };
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
    for (int64_t n = 0; stats().local > 0 && asked < 4000 * STUCK_S; n += 40, asked++) {
        struct pollfd never = {.fd = -1};
        append_rows(n, 40);
        (void)poll(&never, 1, 5);
        most = stats().queued > most ? stats().queued : most;
    }
    CHECK_INT(stats().local, 0);
    WAIT_FOR(stats().queued == 0); /* a last tick may be at work yet */
    CHECK(most < 80u << 20);       /* 48 times 4 MiB would be 192 */
    CHECK(most > 1u << 20);
    for (int i = 0; i < CLIENTS; i++)
        (void)close(fds[i]);
}

int main(void)
{
    if (!serve(STUCK_S))
        return 1;
    int fds = count_fds();
    RUN(a_hundred_clients_share_a_feed_and_see_each_row);
    RUN(different_statements_are_limited);
    RUN(a_tick_may_be_long);
    RUN(a_piece_of_csv_begins_with_a_row);
    RUN(a_slow_client_loses_the_oldest_and_is_told);
    RUN(dead_clients_cost_little_and_are_dropped);
    WAIT_FOR(count_fds() == fds); /* the last may be closing yet */
    serve_no_more();
    return test_end();
}
