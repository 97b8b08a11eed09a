/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/server_test.c - a real server on real sockets: what it answers, and whom it refuses.
 *
 * The test's thread is every client; the server, the host's workers and the store are the real
 * ones.  Nothing sleeps: each wait is for bytes on a socket, with a time limit.
 */
#include "core/server/server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/thread.h"
#include "core/host/host.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

#define WAIT_MS 10000
#define DESCRIPTORS 512 /* that the test may open: the server takes a quarter of them */

static struct {
    char directory[64], socket[96];
    struct tables *tables;
    struct store *store;
    struct host *host;
    struct sql *sql;
    struct server *server;
    struct table *rows;
    uint16_t port;
    _Atomic int waiting, cancelled;
    int fds; /* open before the first client came */
} w;

/* ---- the process that is asked ---- */

static int run_echo(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self;
    for (int i = 1; i < argc; i++)
        (void)host_replyf(out, "%s\n", argv[i]);
    return 0;
}

static int run_fail(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    (void)host_replyf(out, "a part\n");
    return err_set(-EACCES, "it may not be; ask nicely");
}

static int run_three(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    (void)host_replyf(out, ".no");
    return 3;
}

static int run_big(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc;
    for (int i = 0; i < 50000; i++)
        if (host_replyf(out, "line %d of many, each with some words in it\n", i) < 0)
            return -ECANCELED;
    return argv[1] ? err_set(-EIO, "the rest is lost") : 0;
}

static int run_wait(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct event never;
    (void)self, (void)argc, (void)argv;
    (void)event_init(&never);
    (void)atomic_fetch_add_explicit(&w.waiting, 1, memory_order_release);
    while (!atomic_load_explicit(&out->cancelled, memory_order_acquire))
        (void)event_wait(&never, NS_PER_MS);
    (void)atomic_fetch_add_explicit(&w.cancelled, 1, memory_order_release);
    event_done(&never);
    return -ECANCELED;
}

static void add_command(const char *name,
                        int (*run)(void *, int, const char *const *, struct probing_reply *))
{
    struct probing_command c = {
        .size = sizeof(c), .name = name, .usage = "", .doc = "for the test", .run = run};
    CHECK_INT(host_command_add(w.host, "test", &c, NULL), 0);
}

static int add_table(void *arg, const char *schema, const struct probing_table_desc *d, void *self,
                     struct table **ret)
{
    return store_table_add(arg, schema, d, self, ret);
}

static bool start_server(const char *listen_on)
{
    struct server_options o = {
        .host = w.host,
        .sql = w.sql,
        .socket_path = w.socket,
        .listen = listen_on,
        .token = "secret",
        .version = "9.9",
    };
    int rc = server_new(&o, &w.server);
    if (!CHECK_INT(rc, 0)) {
        printf("# %s\n", err_text());
        return false;
    }
    const char *colon = strrchr(server_address(w.server), ':');
    uint64_t port = 0;
    if (colon)
        (void)parse_u64(colon + 1, &port);
    w.port = (uint16_t)port;
    return true;
}

static bool start_world(void)
{
    static const struct probing_column columns[] = {
        {.name = "n", .type = PROBING_I64, .doc = "a number"}};
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .name = "rows",
                                   .doc = "for the test",
                                   .columns = columns,
                                   .n_columns = 1};
    (void)snprintf(w.directory, sizeof(w.directory), "/tmp/probing-server-XXXXXX");
    if (!CHECK(mkdtemp(w.directory) != NULL))
        return false;
    (void)snprintf(w.socket, sizeof(w.socket), "%s/sock", w.directory);
    struct store_options so = {.directory = w.directory, .max_bytes = 64 << 20};
    struct host_options ho = {.version = "9.9"};
    if (!CHECK_INT(tables_new(&w.tables), 0) ||
        !CHECK_INT(store_create(&so, w.tables, &w.store), 0) ||
        !CHECK_INT(store_table_add(w.store, "test", &d, NULL, &w.rows), 0) ||
        !CHECK_INT(sql_new(w.tables, w.store, &w.sql), 0))
        return false;
    ho.tables = w.tables;
    ho.store = (struct host_store){.arg = w.store, .table_add = add_table};
    if (!CHECK_INT(host_new(&ho, &w.host), 0) || !CHECK_INT(host_start(w.host), 0))
        return false;
    add_command("echo", run_echo);
    add_command("eval", run_echo);
    add_command("query", run_echo);
    add_command("fail", run_fail);
    add_command("three", run_three);
    add_command("big", run_big);
    add_command("wait", run_wait);
    return start_server("127.0.0.1:0");
}

static void stop_world(void)
{
    server_free(w.server);
    host_free(w.host);
    sql_free(w.sql);
    store_free(w.store);
    tables_free(w.tables);
    (void)file_remove_dir(w.directory);
}

/* ---- a client made of bytes ---- */

static int dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, w.socket, strlen(w.socket) + 1);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int dial_tcp(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(w.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static void say_bytes(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* it has closed: what it said tells why */
        data += sent;
        n -= (size_t)sent;
    }
}

static void say(int fd, const char *text)
{
    say_bytes(fd, text, strlen(text));
}

static char heard[8 << 20];

/* Read until `what` was said (NULL: until the end).  The number of bytes; heard[] is a C string. */
static size_t hear(int fd, const char *what)
{
    size_t n = 0;
    heard[0] = 0;
    while (!what || !memmem(heard, n, what, strlen(what))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (n + 65536 > sizeof(heard) || !CHECK(poll(&p, 1, WAIT_MS) == 1))
            break;
        ssize_t got = recv(fd, heard + n, 65536, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
        heard[n] = 0;
    }
    return n;
}

/* One request on a connection of its own; heard[] has the whole response. */
static void ask(int fd, const char *request)
{
    say(fd, request);
    (void)hear(fd, NULL);
    (void)close(fd);
}

static bool said(const char *text)
{
    bool found = strstr(heard, text) != NULL;
    if (!found)
        printf("# heard: %.300s\n", heard);
    return found;
}

static void wait_until(_Atomic int *what, int least)
{
    struct event never;
    (void)event_init(&never);
    for (int i = 0; i < WAIT_MS && atomic_load_explicit(what, memory_order_acquire) < least; i++)
        (void)event_wait(&never, NS_PER_MS);
    CHECK(atomic_load_explicit(what, memory_order_acquire) >= least);
    event_done(&never);
}

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

/* ---- HTTP ---- */

#define CLOSE "Connection: close\r\n"
#define LOCAL "Host: localhost\r\n" CLOSE

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
    CHECK(said("error: the answer is not whole: the rest is lost"));
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
                   w.port);
    CHECK(said(" 200 ") && said(cookie));
    (void)snprintf(cookie, sizeof(cookie),
                   "GET /healthz HTTP/1.1\r\n" LOCAL "Cookie: a=b; probing_token_%u=secret\r\n\r\n",
                   w.port);
    ask(dial_tcp(), cookie);
    CHECK(said(" 200 "));
    (void)snprintf(cookie, sizeof(cookie),
                   "GET /healthz HTTP/1.1\r\n" LOCAL "Sec-Fetch-Site: "
                   "same-site\r\nCookie: probing_token_%u=secret\r\n\r\n",
                   w.port);
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

/* ---- text ---- */

TEST(text_answers_line_by_line)
{
    int fd = dial();
    say(fd, "echo one 'two three' \"fo\\\"ur\"\r\n\nthree\nfail\nnothing\necho 'open\nquit\n");
    (void)hear(fd, NULL);
    static const char first[] = "one\ntwo three\nfo\"ur\n.\n"
                                "..no\nerror: the command ended with status 3\n"
                                "a part\nerror: it may not be; ask nicely\n"
                                "error: no command 'nothing'";
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

/* ---- websocket ---- */

static void ws_send(int fd, int op, const char *text, size_t n)
{
    char head[14] = {(char)(0x80 | op)};
    size_t k = 2;
    if (n < 126) {
        head[1] = (char)(0x80 | n);
    } else {
        head[1] = (char)(0x80 | 127);
        for (int i = 0; i < 8; i++)
            head[k++] = (char)((uint64_t)n >> (8 * (7 - i)));
    }
    k += 4; /* a mask of zeros */
    say_bytes(fd, head, k);
    say_bytes(fd, text, n);
}

static void ws_say(int fd, const char *text)
{
    ws_send(fd, 1, text, strlen(text));
}

static bool read_all(int fd, char *data, size_t n)
{
    while (n > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, WAIT_MS) != 1)
            return CHECK(false);
        ssize_t got = recv(fd, data, n, 0);
        if (got <= 0)
            return false;
        data += got;
        n -= (size_t)got;
    }
    return true;
}

/* The next text message into heard[]; false: the connection has ended (heard[]: why). */
static bool ws_hear(int fd)
{
    unsigned char head[10];
    size_t n;
    heard[0] = 0;
    if (!read_all(fd, (char *)head, 2))
        return false;
    n = head[1];
    if (n == 126 || n == 127) {
        size_t more = n == 126 ? 2 : 8;
        if (!read_all(fd, (char *)head + 2, more))
            return false;
        n = 0;
        for (size_t i = 0; i < more; i++)
            n = n << 8 | head[2 + i];
    }
    if (!CHECK(n < sizeof(heard)) || !read_all(fd, heard, n))
        return false;
    heard[n] = 0;
    if ((head[0] & 15) == 9) { /* ping: not what we wait for */
        ws_send(fd, 10, heard, n);
        return ws_hear(fd);
    }
    return (head[0] & 15) == 1;
}

static int ws_dial(void)
{
    int fd = dial();
    say(fd, "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
            "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Protocol: other, probing.1\r\n\r\n");
    size_t n = 0;
    while (n < 4 || memcmp(heard + n - 4, "\r\n\r\n", 4) != 0) { /* not a byte of what follows */
        if (!read_all(fd, heard + n, 1))
            break;
        n++;
    }
    heard[n] = 0;
    CHECK(said("HTTP/1.1 101 ") && said("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") && said("probing.1"));
    return fd;
}

TEST(websocket_runs_commands)
{
    int fd = ws_dial();
    ws_say(fd, "{\"id\":7,\"run\":[\"echo\",\"h\\u00e9\"]}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":7,\"data\":\"h\xc3\xa9\\n\"}");
    CHECK(ws_hear(fd));
    CHECK_STR(heard, "{\"id\":7,\"done\":0}");
    ws_say(fd, "{\"id\":7,\"run\":[\"nothing\"]}");
    CHECK(ws_hear(fd) && said("{\"id\":7,\"done\":-2,\"error\":\"no command 'nothing'"));
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

TEST(websocket_sends_characters_whole)
{
    int fd = ws_dial();
    size_t n = 300000, sent_euros = 0;
    char *text = malloc(n + 64);
    (void)snprintf(text, 64, "{\"id\":1,\"run\":[\"echo\",\"");
    size_t at = strlen(text);
    for (; at + 4 < n; at += 3, sent_euros++)
        memcpy(text + at, "\xe2\x82\xac", 3);
    memcpy(text + at, "\"]}", 4);
    ws_say(fd, text);
    bool whole = true;
    size_t euros = 0;
    while (ws_hear(fd) && !strstr(heard, "\"done\"")) {
        whole = whole && !strstr(heard, "\xef\xbf\xbd");
        for (const char *p = heard; (p = strstr(p, "\xe2\x82\xac")) != NULL; p += 3)
            euros++;
    }
    CHECK(whole);
    CHECK_INT(euros, sent_euros);
    free(text);
    (void)close(fd);
}

TEST(websocket_survives_wrong_messages)
{
    int fd = ws_dial();
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
    fd = ws_dial();
    ws_send(fd, 2, "{}", 2);
    CHECK(!ws_hear(fd));
    (void)close(fd);
    fd = ws_dial();
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
    int fd = ws_dial();
    ws_say(fd, "{\"id\":3,\"follow\":\"script.slow\"}");
    ws_say(fd, "{\"id\":1,\"run\":[\"echo\"]}"); /* when it is answered the follow is in place */
    CHECK(ws_hear(fd) && said("{\"id\":1,\"done\":0}"));
    CHECK_INT(host_publish(w.host, "script.other", payload, sizeof(payload) - 1), 0);
    CHECK_INT(host_publish(w.host, "script.slow", payload, sizeof(payload) - 1), 0);
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
    int fd = ws_dial();
    (void)event_init(&turn);
    ws_say(fd, "{\"id\":3,\"follow\":\"script.slow\"}");
    ws_say(fd, "{\"id\":1,\"run\":[\"echo\"]}");
    CHECK(ws_hear(fd) && said("{\"id\":1,\"done\":0}"));
    uint64_t sent = 0, got = 0, dropped = 0, last = 0;
    _Atomic int handled = 0; /* asked later, so told later, of each event */
    int mine = host_subscribe(w.host, "script.slow", count_event, &handled);
    for (; sent < 400; sent++) { /* 13 MB: more than the queue and the sockets hold */
        memset(payload, ' ', sizeof(payload));
        (void)snprintf(payload + 4, 40, "%llu", (unsigned long long)sent + 1);
        payload[4 + strlen(payload + 4)] = ' ';
        while (host_publish(w.host, "script.slow", payload, sizeof(payload)) != 0)
            (void)event_wait(&turn, NS_PER_MS); /* 1,024 wait: the host's own limit */
    }
    wait_until(&handled, (int)sent);
    host_unsubscribe(w.host, mine);
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

static void append_rows(int from, int n)
{
    for (int i = from; i < from + n; i++) {
        union probing_cell cell = {.i = i};
        CHECK_INT(ring_append(w.rows, clock_now(), &cell, 1, NULL, 0), 0);
    }
}

TEST(a_watch_shows_each_new_row_once)
{
    int fd = ws_dial(), next = 98;
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
    CHECK(ws_hear(fd) && said("{\"id\":5,\"whole\":true,\"data\":\"{\\\"n\\\":400}\\n\"}"));
    CHECK(ws_hear(fd) && said("400"));
    ws_say(fd, "{\"id\":6,\"watch\":\"select from where\"}");
    while (ws_hear(fd) && !strstr(heard, "\"id\":6"))
        ;
    CHECK(said("{\"id\":6,\"done\":-22,\"error\":\"line 1, column "));
    (void)close(fd);
}

/* ---- life ---- */

TEST(a_client_that_goes_stops_its_command)
{
    int before = atomic_load_explicit(&w.waiting, memory_order_acquire);
    int cancelled = atomic_load_explicit(&w.cancelled, memory_order_acquire);
    int fds[4] = {dial(), dial(), dial_tcp(), ws_dial()};
    say(fds[0], "wait\n");
    wait_until(&w.waiting, before + 1);
    say(fds[1], "POST /run HTTP/1.1\r\nContent-Length: 16\r\n\r\n{\"run\":[\"wait\"]}");
    wait_until(&w.waiting, before + 2);
    say(fds[2], "POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
                "Content-Length: 16\r\n\r\n{\"run\":[\"wait\"]}");
    wait_until(&w.waiting, before + 3);
    ws_say(fds[3], "{\"id\":1,\"run\":[\"wait\"]}");
    wait_until(&w.waiting, before + 4);
    for (int i = 0; i < 4; i++)
        (void)close(fds[i]);
    wait_until(&w.cancelled, cancelled + 4);
}

/* Wait until the server has closed what clients before have left. */
static void settle(void)
{
    for (int i = 0; i < 1000 && count_fds() != w.fds; i++)
        ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n"); /* a turn of the loop each */
    CHECK_INT(count_fds(), w.fds);
}

TEST(connections_come_and_go_without_a_trace)
{
    for (int i = 0; i < 200; i++) {
        int fd = i % 4 == 3 ? ws_dial() : i % 2 ? dial_tcp() : dial();
        CHECK(fd >= 0);
        if (i % 4 == 1)
            say(fd, "GET / HT");
        if (i % 4 == 2)
            say(fd, "big\n");
        if (i % 4 == 3)
            ws_say(fd, "{\"id\":1,\"run\":[\"big\"]}");
        (void)close(fd);
    }
    settle();
}

/* A quarter of the descriptors allowed, and of these a quarter by the unix socket only. */
TEST(too_many_connections_are_turned_away)
{
    enum { MOST = DESCRIPTORS / 4, TCP = MOST * 3 / 4, LOCALS = MOST - TCP };
    int fds[TCP + LOCALS + 12], n = 0, busy = 0, busy_tcp = 0;
    settle();
    for (int i = 0; i < TCP + 6; i++) {
        fds[n++] = dial_tcp();
        say(fds[i], "token secret\n");
    }
    for (int i = 0; i < n; i++) { /* all of them are in before the others knock */
        (void)hear(fds[i], "\n");
        busy_tcp += strstr(heard, "503") != NULL;
    }
    for (int i = 0; i < LOCALS + 6; i++) {
        fds[n++] = dial();
        say(fds[n - 1], "echo here\n");
    }
    for (int i = TCP + 6; i < n; i++) {
        (void)hear(fds[i], "\n");
        busy += strstr(heard, "503") != NULL;
    }
    CHECK_INT(busy_tcp, 6);
    CHECK_INT(busy, 6);
    for (int i = 0; i < n; i++)
        (void)close(fds[i]);
    bool back = false;
    for (int i = 0; i < 1000 && !back; i++) {
        ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
        back = strstr(heard, " 200 ") != NULL;
    }
    CHECK(back);
}

TEST(tcp_opens_and_closes_while_it_runs)
{
    uint16_t old = w.port;
    CHECK_INT(server_listen(w.server, "127.0.0.1:nix"), -EINVAL);
    CHECK_INT(server_listen(w.server, "some.name:1"), -EINVAL);
    CHECK_INT(server_listen(w.server, ""), 0);
    CHECK_STR(server_address(w.server), "");
    CHECK_INT(dial_tcp(), -1);
    CHECK_INT(server_listen(w.server, "localhost:0"), 0);
    CHECK(strncmp(server_address(w.server), "127.0.0.1:", 10) == 0);
    uint64_t port = 0;
    CHECK_INT(parse_u64(server_address(w.server) + 10, &port), 0);
    w.port = (uint16_t)port;
    ask(dial_tcp(), "GET /healthz?token=secret HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said(" 200 "));
    (void)old;
}

static int sockets_open(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) {
        char name[32], target[32] = ""; /* by name: tsan takes fstat() for a use of the socket */
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        n += readlink(name, target, sizeof(target) - 1) > 0 && strncmp(target, "socket:", 7) == 0;
    }
    return n;
}

TEST(a_forked_child_keeps_no_socket_of_ours)
{
    int before = sockets_open();
    int fd = dial(), ws = ws_dial(), status = -1;
    say(fd, "echo\n");
    (void)hear(fd, ".\n");
    CHECK(sockets_open() >= before + 2);
    pid_t child = fork();
    if (child == 0) {
        (void)close(fd);
        (void)close(ws);
        server_disable_in_child(w.server);
        _exit(sockets_open());
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(WEXITSTATUS(status), 0);
    say(fd, "echo still\n");
    (void)hear(fd, "still\n.\n");
    CHECK(said("still"));
    (void)close(fd);
    (void)close(ws);
}

TEST(it_ends_quickly_with_clients_and_commands)
{
    int before = atomic_load_explicit(&w.waiting, memory_order_acquire);
    struct stat st;
    CHECK_INT(stat(w.socket, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    int fd = ws_dial(), text = dial();
    ws_say(fd, "{\"id\":1,\"run\":[\"wait\"]}");
    ws_say(fd, "{\"id\":2,\"watch\":\"select count(*) from test.rows\",\"interval_ms\":10}");
    ws_say(fd, "{\"id\":3,\"follow\":\"script.slow\"}");
    say(text, "wait\n");
    wait_until(&w.waiting, before + 2);
    uint64_t start = clock_now();
    server_free(w.server);
    CHECK(clock_now() - start < 500 * NS_PER_MS); /* 100 on a quiet machine */
    CHECK_INT(stat(w.socket, &st), -1);
    (void)close(fd);
    (void)close(text);
    CHECK(start_server(""));
    ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said(" 200 "));
}

int main(void)
{
    struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (!start_world())
        return 1;
    w.fds = count_fds();
    RUN(http_answers_with_the_commands_status);
    RUN(http_times_out_a_command);
    RUN(http_keeps_the_connection_and_answers_in_order);
    RUN(http_streams_a_long_answer);
    RUN(http_refuses_what_it_cannot_read);
    RUN(tcp_wants_the_token_and_a_host_of_its_own);
    RUN(text_answers_line_by_line);
    RUN(text_answers_who_has_stopped_sending);
    RUN(text_on_tcp_begins_with_the_token);
    RUN(noise_is_closed);
    RUN(websocket_runs_commands);
    RUN(websocket_sends_characters_whole);
    RUN(websocket_survives_wrong_messages);
    RUN(events_are_followed);
    RUN(a_slow_client_loses_the_oldest_and_is_told);
    RUN(a_watch_shows_each_new_row_once);
    RUN(a_client_that_goes_stops_its_command);
    RUN(connections_come_and_go_without_a_trace);
    RUN(too_many_connections_are_turned_away);
    RUN(tcp_opens_and_closes_while_it_runs);
    RUN(a_forked_child_keeps_no_socket_of_ours);
    RUN(it_ends_quickly_with_clients_and_commands);
    stop_world();
    return test_end();
}
