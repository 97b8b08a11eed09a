/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/websocket_test.c - websocket messages: commands, events, rows as they come.
 */
#include <sys/ioctl.h>

#include "tests/server/served.h"

TEST(websocket_runs_commands)
{
    int fd = ws_dial(0);
    ws_say(fd, "{\"id\":7,\"run\":[\"echo\",\"h\\u00e9\"]}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":7,\"data\":\"h\xc3\xa9\\n\"}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":7,\"done\":0}");
    ws_say(fd, "{\"id\":7,\"run\":[\"nothing\"]}");
    CHECK(ws_hear(fd) && said("{\"id\":7,\"done\":-2,\"error\":\"unknown command 'nothing'"));
    ws_say(fd, "{\"id\":8,\"run\":[\"wait\"]}");
    ws_say(fd, "{\"id\":8,\"run\":[\"echo\"]}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"error\":\"id 8 is in use; choose another\"}");
    ws_say(fd, "{\"id\":8,\"cancel\":true}");
    CHECK(ws_hear(fd) && said("{\"id\":8,\"done\":-125,"));
    ws_say(fd, "{\"id\":8,\"cancel\":true}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"error\":\"nothing with id 8 is running\"}");
    (void)close(fd);
}

/* before: bytes of a message before the piece, which itself may stand in JSON. */
static void check_characters(const char *option, size_t before)
{
    int fd = ws_dial(0);
    size_t n = 300000, sent_euros = 0;
    char *text = malloc(n + 64);
    (void)snprintf(text, 64, "{\"id\":1,\"run\":[\"echo\",\"");
    size_t at = strlen(text);
    for (; at + 4 < n; at += 3, sent_euros++)
        memcpy(text + at, "\xe2\x82\xac", 3);
    (void)snprintf(text + at, 32, "\"]%s}", option);
    ws_say(fd, text);
    bool whole = true;
    size_t euros = 0;
    while (ws_hear(fd) && !strstr(heard, "\"done\"")) {
        const char *piece = heard + before;
        whole = whole && !strstr(piece, "\xef\xbf\xbd") && (uint8_t)(piece[0] & 0xc0) != 0x80;
        for (const char *p = piece; (p = strstr(p, "\xe2\x82\xac")) != NULL; p += 3)
            euros++;
    }
    CHECK(whole);
    CHECK_INT(euros, sent_euros);
    free(text);
    (void)close(fd);
}

TEST(websocket_sends_characters_whole)
{
    check_characters("", 0);
    check_characters(",\"bytes\":true", sizeof(int64_t));
}

TEST(websocket_sends_bytes_to_those_who_ask)
{
    static const char answer[] = "\7\0\0\0\0\0\0\0a \"b\"\n";
    int fd = ws_dial(0);
    ws_say(fd, "{\"id\":7,\"run\":[\"echo\",\"a \\\"b\\\"\"],\"bytes\":true}");
    CHECK(ws_hear(fd));
    CHECK(memcmp(heard, answer, sizeof(answer)) == 0);
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":7,\"done\":0}");
    (void)close(fd);
}

TEST(websocket_survives_wrong_messages)
{
    int fd = ws_dial(0);
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "3",
        "{}",
        "{\"id\":-1}",
        "{\"id\":1.5,\"run\":[\"a\"]}",
        "{\"id\":1} x",
        "\"\xff\"",
        "{\"run\":[\"echo\"]}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ws_say(fd, bad[i]);
        CHECK(ws_hear(fd) && strncmp(heard, "{\"", 2) == 0 && said("rror\":\""));
    }
    static const char *const wrong[] = {
        "{\"id\":4}",
        "{\"id\":4,\"run\":[]}",
        "{\"id\":4,\"run\":[{}]}",
        "{\"id\":4,\"watch\":1}",
        "{\"id\":4,\"watch\":\"select 1\",\"interval_ms\":0}",
        "{\"id\":4,\"run\":\"echo\"}",
        "{\"id\":4,\"follow\":\"core.secret\"}",
        "{\"id\":4,\"run\":[\"a\\u0000b\"]}",
        "{\"id\":4,\"watch\":\"select 1\",\"format\":\"nix\"}",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ws_say(fd, wrong[i]);
        CHECK(ws_hear(fd) && said("{\"id\":4,\"done\":-22,\"error\":\""));
    }
    ws_say(fd, "{\"id\":1,\"run\":[\"echo\",\"alive\"]}");
    CHECK(ws_hear(fd) && said("alive"));
    (void)close(fd);
    fd = ws_dial(0);
    ws_send(fd, 2, "{}", 2);
    CHECK(!ws_hear(fd));
    (void)close(fd);
    fd = ws_dial(0);
    size_t n = (4u << 20) + 10;
    char *huge = malloc(n);
    memset(huge, ' ', n);
    ws_send(fd, 1, huge, n);
    CHECK(!ws_hear(fd));
    free(huge);
    (void)close(fd);
}

TEST(events_are_followed)
{
    static const char payload[] = "\x10\0\0\0{\"ms\": 2.5}";
    int fd = ws_dial(0);
    ws_say(fd, "{\"id\":3,\"follow\":\"script.slow\"}");
    ws_say(fd, "{\"id\":1,\"run\":[\"echo\"]}"); /* when it is answered the follow is in place */
    CHECK(ws_hear(fd) && said("{\"id\":1,\"done\":0}"));
    CHECK_INT(host_publish(served.host, "script.other", payload, sizeof(payload) - 1), 0);
    CHECK_INT(host_publish(served.host, "script.slow", payload, sizeof(payload) - 1), 0);
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":3,\"event\":\"script.slow\",\"data\":{\"ms\": 2.5}}");
    ws_say(fd, "{\"id\":3,\"cancel\":true}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":3,\"done\":0}");
    (void)close(fd);
}

static void count_event(void *arg, const char *topic, const void *payload, uint32_t size)
{
    (void)topic, (void)payload, (void)size;
    (void)atomic_fetch_add_explicit((_Atomic int *)arg, 1, memory_order_release);
}

TEST(a_slow_client_loses_the_oldest_and_is_told)
{
    static char payload[32 << 10];
    struct event turn;
    int fd = ws_dial(0);
    (void)event_init(&turn);
    ws_say(fd, "{\"id\":3,\"follow\":\"script.slow\"}");
    ws_say(fd, "{\"id\":1,\"run\":[\"echo\"]}");
    CHECK(ws_hear(fd) && said("{\"id\":1,\"done\":0}"));
    uint64_t sent = 0, got = 0, dropped = 0, last = 0;
    _Atomic int handled = 0; /* asked later, so told later, of each event */
    int mine = host_subscribe(served.host, "script.slow", count_event, &handled);
    for (; sent < 400; sent++) { /* 13 MB: more than the queue and the sockets hold */
        memset(payload, ' ', sizeof(payload));
        (void)snprintf(payload + 4, 40, "%llu", (unsigned long long)sent + 1);
        payload[4 + strlen(payload + 4)] = ' ';
        while (host_publish(served.host, "script.slow", payload, sizeof(payload)) != 0)
            (void)event_wait(&turn, NS_PER_MS); /* 1,024 wait: the host's own limit */
    }
    wait_until(&handled, (int)sent);
    host_unsubscribe(served.host, mine);
    while (got + dropped < sent && ws_hear(fd)) {
        const char *at = strstr(heard, "\"dropped\":"), *data = strstr(heard, "\"data\":");
        uint64_t n = strtoull(at ? at + 10 : data ? data + 7 : "0", NULL, 10);
        if (at) {
            dropped += n;
        } else {
            CHECK(n > last);
            last = n;
            got++;
        }
    }
    CHECK_INT(got + dropped, sent);
    CHECK(dropped > 0 && got > 0);
    CHECK_INT(last, sent);
    event_done(&turn);
    (void)close(fd);
}

TEST(a_watch_shows_each_new_row_once)
{
    int fd = ws_dial(0), next = 98;
    append_rows(0, 100);
    ws_say(fd, "{\"id\":2,\"watch\":\"select n from test.rows where n >= 0\",\"interval_ms\":10,"
               "\"last\":2}");
    for (int appended = 100; next < 400;) {
        if (!ws_hear(fd) || !CHECK(said("{\"id\":2,\"data\":\"{")))
            break;
        for (const char *p = heard; (p = strstr(p, "\\\"n\\\":")) != NULL; p += 6)
            CHECK_INT(strtoll(p + 6, NULL, 10), next++);
        if (next == appended && appended < 400) {
            append_rows(appended, 30);
            appended += 30;
        }
    }
    CHECK_INT(next, 400);
    ws_say(fd, "{\"id\":2,\"cancel\":true}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":2,\"done\":0}");
    ws_say(fd, "{\"id\":5,\"watch\":\"select count(*) as n from test.rows\",\"interval_ms\":10}");
    CHECK(ws_hear(fd) && said("{\"id\":5,\"snapshot\":true,\"data\":\"{\\\"n\\\":400}\\n\"}"));
    CHECK(ws_hear(fd) && said("400"));
    ws_say(fd, "{\"id\":6,\"watch\":\"select from where\"}");
    while (ws_hear(fd) && !strstr(heard, "\"id\":6"))
        ;
    CHECK(said("{\"id\":6,\"done\":-22,\"error\":\"line 1, column "));
    (void)close(fd);
}

/* Rows whose bucket was told before they came are in no answer: the stream says how many. */
TEST(a_watch_counts_rows_that_come_too_late)
{
    int fd = ws_dial(0);
    const uint64_t then = clock_now();
    const union probing_cell told = {.i = 7777}, late = {.i = 7778};
    uint64_t n = 0;
    sql_configure(served.sql, SQL_SET_LATE, 0);
    ws_say(fd, "{\"id\":7,\"watch\":\"select time_bucket('10ms', ts) as t, max(n) as n from "
               "test.rows where n > 7000 group by 1\",\"interval_ms\":10,\"last\":60000}");
    (void)ring_append(served.rows, then, &told, 1, NULL, 0);
    while (ws_hear(fd) && !said("7777"))
        ;
    for (int i = 0; i < 3; i++)
        (void)ring_append(served.rows, then, &late, 1, NULL, 0);
    while (n < 3 && ws_hear(fd)) {
        const char *at = strstr(heard, "{\"id\":7,\"late_rows\":");
        CHECK(at != NULL);
        n += at ? strtoull(at + 20, NULL, 10) : 3;
    }
    CHECK_INT(n, 3);
    sql_configure(served.sql, SQL_SET_LATE, NS_PER_S);
    (void)close(fd);
}

/* Bytes that lie there for the client, once no more come: the server has no room for the rest. */
static void wait_for_the_middle(int fd)
{
    int before = -1, now = 0, same = 0;
    WAIT_FOR(ioctl(fd, FIONREAD, &now) == 0 &&
             (same = now > 0 && now == before ? same + 1 : 0, before = now, same >= 20));
}

TEST(who_hangs_up_in_the_middle_of_a_frame_keeps_nobody_waiting)
{
    for (int i = 0; i < 3; i++) {
        int fd = dial_tcp(), small = 16384; /* a local socket takes a frame whole or not at all */
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        (void)ws_begin(fd);
        for (int id = 1; id <= 4; id++) {
            char text[64];
            (void)snprintf(text, sizeof(text), "{\"id\":%d,\"run\":[\"big\"]}", id);
            ws_say(fd, text);
        }
        wait_for_the_middle(fd);
        for (int n = 0; n < i; n++) /* the next one ends elsewhere */
            CHECK(ws_hear(fd));
        wait_for_the_middle(fd);
        (void)shutdown(fd, SHUT_WR); /* as at the first moment of a close() */
        int other = ws_dial(0);
        ws_say(other, "{\"id\":1,\"run\":[\"echo\",\"served\"]}");
        CHECK(ws_hear(other) && said("served"));
        (void)close(other);
        (void)close(fd);
    }
}

int main(void)
{
    if (!serve(/* stuck_s= */ 0))
        return 1;
    RUN(websocket_runs_commands);
    RUN(websocket_sends_characters_whole);
    RUN(websocket_sends_bytes_to_those_who_ask);
    RUN(websocket_survives_wrong_messages);
    RUN(events_are_followed);
    RUN(a_slow_client_loses_the_oldest_and_is_told);
    RUN(a_watch_shows_each_new_row_once);
    RUN(a_watch_counts_rows_that_come_too_late);
    RUN(who_hangs_up_in_the_middle_of_a_frame_keeps_nobody_waiting);
    serve_no_more();
    return test_end();
}
