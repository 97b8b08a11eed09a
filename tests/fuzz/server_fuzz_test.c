/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/server_fuzz_test.c - clients gone mad, on real sockets of a real server.
 *
 * Whole conversations in HTTP, websocket and text are broken in the ways of bad software and bad
 * lines: bytes changed, lost, doubled, mixed with another conversation; sent in small pieces; cut
 * off by a half close, a close or a reset, before or after the answer.  It checks that the server
 * answers a sane client afterwards and that no descriptor stays; under asan and tsan also what
 * cannot be seen.  FUZZ_ROUNDS conversations (2,000), FUZZ_SEED the first number: a run is told by
 * its seed.
 */
#include <poll.h>

#include "tests/server/served.h"

#define BYTES_MAX 8192

static uint64_t state;

static uint32_t pick(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

#define HEAD "Host: localhost\r\nAuthorization: Bearer secret\r\n"
#define UPGRADE                                                                 \
    "GET /ws HTTP/1.1\r\n" HEAD "Upgrade: websocket\r\nConnection: Upgrade\r\n" \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
#define FRAME(size) "\x81" size "\0\0\0\0" /* a mask of zeros: the text can be read here */

struct talk {
    const char *bytes;
    size_t size;
};
#define TALK(text)                   \
    {                                \
        text "", sizeof(text "") - 1 \
    }

static const struct talk talks[] = {
    TALK("GET /healthz HTTP/1.1\r\n" HEAD "\r\nGET / HTTP/1.1\r\n" HEAD
         "Accept: text/html\r\n\r\n"),
    TALK("POST /run HTTP/1.1\r\n" HEAD "Accept-Encoding: gzip\r\nContent-Length: 15\r\n\r\n"
         "{\"run\":[\"big\"]}"),
    TALK("POST /query?format=csv HTTP/1.1\r\n" HEAD "Expect: 100-continue\r\n"
         "Content-Length: 8\r\n\r\nselect 1"),
    TALK("GET /query?q=select+%C3%A4%20%00&format=json&token=secret HTTP/1.0\r\n" HEAD "\r\n"),
    TALK("GET /openapi.json HTTP/1.1\r\n" HEAD "Accept-Encoding: br, gzip;q=0.1\r\n"
         "Cookie: a=b; probing_token_1=x; c\r\nOrigin: http://localhost\r\n\r\n"),
    TALK("token secret\necho 'a b' \"c\\\"d\"\nbig\nwait\nquit\n"),
    TALK("echo one\necho .\nnothing\necho 'open\n"),
    TALK(UPGRADE FRAME("\x9b") "{\"id\":1,\"run\":[\"echo\",1]}" FRAME(
        "\x99") "{\"id\":2,\"run\":[\"wait\"]}" FRAME("\x98") "{\"id\":2,\"cancel\":true}"
                                                              " " FRAME("\x98") "{\"id\":3,"
                                                                                "\"run\":["
                                                                                "\"big\"]}"),
    TALK(UPGRADE FRAME("\xb9") "{\"id\":4,\"subscribe\":\"test.rows\",\"interval_ms\":10,\"x\":"
                               "12}" FRAME("\xa3") "{\"id\":5,\"follow\":\"script.something\"}"
                                                   "\x89\x84\0\0\0\0ping"
                                                   "\x8a\x80\0\0\0\0" FRAME(
                                                       "\x9d") "{\"id\":4,\"unsubscribe\":true}  "),
    TALK(UPGRADE "\x01\x85\0\0\0\0{\"id\""
                 "\x80\x95\0\0\0\0:1,\"run\":[\"version\"]} "
                 "\x82\x81\0\0\0\0x"),
    TALK(UPGRADE FRAME("\xfe\x00\x7e") "{\"id\":1,\"run\":[\"echo\",\"\xff\xfe\xc3\"]}"
                                       "\x88\x82\0\0\0\0\x03\xe8"),
};
enum { TALKS = sizeof(talks) / sizeof(talks[0]) };

/* ---- how a conversation is spoilt ---- */

static size_t spoil(char *data, size_t size)
{
    size_t at = size ? pick((uint32_t)size) : 0, n = 1 + pick(16);
    switch (pick(7)) {
    case 0: /* a bit */
        if (size)
            data[at] ^= (char)(1 << pick(8));
        break;
    case 1: /* bytes of anything */
        for (size_t i = at; i < size && i < at + n; i++)
            data[i] = (char)pick(256);
        break;
    case 2: /* some are missing */
        n = n < size - at ? n : size - at;
        memmove(data + at, data + at + n, size - at - n);
        size -= n;
        break;
    case 3: /* some come twice */
        n = n < size - at ? n : size - at;
        if (size + n <= BYTES_MAX) {
            memmove(data + at + n, data + at, size - at);
            size += n;
        }
        break;
    case 4: /* it breaks off */
        size = at;
        break;
    case 5: { /* another one goes on from here */
        const struct talk *t = &talks[pick(TALKS)];
        size_t from = pick((uint32_t)t->size);
        n = t->size - from < BYTES_MAX - at ? t->size - from : BYTES_MAX - at;
        memcpy(data + at, t->bytes + from, n);
        size = at + n;
        break;
    }
    default: /* a long line in the middle */
        n = pick(BYTES_MAX) < BYTES_MAX - at ? pick((uint32_t)(BYTES_MAX - at)) : 0;
        memset(data + at, 'a' + (int)pick(3), n);
        size = at + n > size ? at + n : size;
        break;
    }
    return size;
}

static void send_in_pieces(int fd, const char *data, size_t size)
{
    bool small = pick(4) == 0;
    while (size > 0) {
        size_t n = small ? 1 + pick(40) : size;
        ssize_t sent = send(fd, data, n < size ? n : size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0)
            return; /* it has closed, or reads no more */
        data += sent;
        size -= (size_t)sent;
    }
}

static void listen_a_little(int fd)
{
    static char scrap[1 << 16];
    for (uint32_t i = pick(4); i > 0; i--) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 2) != 1 || recv(fd, scrap, 1 + pick(sizeof(scrap)), 0) <= 0)
            return;
    }
}

static void leave(int fd)
{
    struct linger reset = {.l_onoff = 1};
    uint32_t how = pick(4);
    if (how == 0) {
        (void)shutdown(fd, SHUT_WR);
        listen_a_little(fd);
    }
    if (how == 1)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    (void)close(fd);
}

static void talk_once(void)
{
    static char data[BYTES_MAX];
    const struct talk *t = &talks[pick(TALKS)];
    int fd = pick(2) == 0 ? dial_tcp() : dial();
    if (fd < 0)
        return; /* its queue is full */
    memcpy(data, t->bytes, t->size);
    size_t size = t->size;
    for (uint32_t i = pick(4); i > 0; i--)
        size = spoil(data, size);
    send_in_pieces(fd, data, size);
    listen_a_little(fd);
    leave(fd);
}

/* ---- what must hold afterwards ---- */

static bool is_sane(void)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n";
    char answer[2048];
    size_t n = 0;
    int fd = dial();
    if (fd < 0 || send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
        return false;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&p, 1, 10000) == 1 ? recv(fd, answer + n, sizeof(answer) - 1 - n, 0) : 0;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    (void)close(fd);
    answer[n] = 0;
    return strncmp(answer, "HTTP/1.1 200 ", 13) == 0 && strstr(answer, "\r\n\r\nok\n");
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    uint64_t n = otherwise;
    return getenv(name) && parse_u64(getenv(name), &n) == 0 ? n : otherwise;
}

TEST(mad_clients_leave_no_trace)
{
    uint64_t rounds = number_of("FUZZ_ROUNDS", 2000);
    state = number_of("FUZZ_SEED", 1);
    int fds = count_fds();
    CHECK(is_sane());
    for (uint64_t i = 0; i < rounds; i++) {
        union probing_cell cell = {.i = (int64_t)i};
        (void)host_append(served.rows, clock_now(), &cell, 1, NULL, 0);
        talk_once();
        /* Busy is no fault: what the mad have left waits for its end. */
        if (i % 200 == 199)
            for (int tries = 0; !is_sane(); tries++)
                if (!CHECK(tries < 1000))
                    return;
    }
    for (uint64_t end = clock_now() + 120 * NS_PER_S; count_fds() > fds && clock_now() < end;) {
        (void)is_sane(); /* a turn of the loop each; refused connections close within seconds */
        (void)poll(NULL, 0, 20);
    }
    CHECK_INT(count_fds(), fds);
}

int main(void)
{
    if (!serve(/* stuck_s= */ 1))
        return 1;
    RUN(mad_clients_leave_no_trace);
    serve_no_more();
    return test_end();
}
