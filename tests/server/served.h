/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/server/served.h - a real server with store, engine and workers, and clients made of bytes,
 * for tests in C.
 *
 * One a program; the test's thread is every client, and each wait is for bytes on a socket, with a
 * time limit.  The process that is asked is the test itself: its table is test.rows (n, i64), its
 * commands are echo, eval and query (their words), fail, three (a status of 3), big (2 MB of lines)
 * and wait (until it is cancelled, 10 s at most).
 */
#ifndef TESTS_SERVER_SERVED_H
#define TESTS_SERVER_SERVED_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "core/ring/ring.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

#define WAIT_MS 60000    /* for what must come, on a starved machine and in a sanitizer, too */
#define COMMAND_MS 10000 /* as long as a command takes that nobody cancels */
#define CLOSE "Connection: close\r\n"
#define LOCAL "Host: localhost\r\n" CLOSE

static struct served {
    char directory[64], socket[96];
    struct tables *tables;
    struct store *store;
    struct host *host;
    struct sql *sql;
    struct server *server;
    struct table *rows;
    uint16_t port;                  /* of TCP; its token is "secret" */
    _Atomic int waiting, cancelled; /* commands `wait` that have begun, and ended */
    uint32_t stuck_s;
} served;

/* ---- the process that is asked ---- */

static inline int run_echo(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self;
    for (int i = 1; i < argc; i++)
        (void)host_replyf(out, "%s\n", argv[i]);
    return 0;
}

static inline int run_fail(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    (void)host_replyf(out, "a part\n");
    return err_set(-EACCES, "it may not be; ask nicely");
}

static inline int run_three(void *self, int argc, const char *const *argv,
                            struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    (void)host_replyf(out, ".no");
    return 3;
}

static inline int run_big(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc;
    for (int i = 0; i < 50000; i++)
        if (host_replyf(out, "line %d of many, each with some words in it\n", i) < 0)
            return -ECANCELED;
    return argv[1] ? err_set(-EIO, "the rest is lost") : 0;
}

static inline int run_wait(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct event never;
    (void)self, (void)argc, (void)argv;
    (void)event_init(&never);
    (void)atomic_fetch_add_explicit(&served.waiting, 1, memory_order_release);
    for (int i = 0; i < COMMAND_MS && !atomic_load_explicit(&out->cancelled, memory_order_acquire);
         i++)
        (void)event_wait(&never, NS_PER_MS);
    (void)atomic_fetch_add_explicit(&served.cancelled, 1, memory_order_release);
    event_done(&never);
    return -ECANCELED;
}

static inline void served_command(const char *name, int (*run)(void *, int, const char *const *,
                                                               struct probing_reply *))
{
    struct probing_command c = {
        .size = sizeof(c), .name = name, .usage = "", .doc = "for the test", .run = run};
    CHECK_INT(host_command_add(served.host, "test", &c, NULL), 0);
}

static inline int served_table(void *arg, const char *schema, const struct probing_table_desc *d,
                               void *self, struct table **ret)
{
    return store_table_add(arg, schema, d, self, ret);
}

/* ---- its life ---- */

static inline bool serve_again(const char *listen_on)
{
    struct server_options o = {.host = served.host,
                               .sql = served.sql,
                               .socket_path = served.socket,
                               .listen = listen_on,
                               .token = "secret",
                               .version = "9.9",
                               .stuck_s = served.stuck_s};
    uint64_t port = 0;
    if (!CHECK_INT(server_new(&o, &served.server), 0)) {
        printf("# %s\n", err_text());
        return false;
    }
    const char *colon = strrchr(server_address(served.server), ':');
    if (colon)
        (void)parse_u64(colon + 1, &port);
    served.port = (uint16_t)port;
    return true;
}

static inline bool serve(uint32_t stuck_s)
{
    static const struct probing_column columns[] = {
        {.name = "n", .type = PROBING_I64, .doc = "a number"}};
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .name = "rows",
                                   .doc = "for the test",
                                   .columns = columns,
                                   .n_columns = 1};
    (void)snprintf(served.directory, sizeof(served.directory), "/tmp/probing-served-XXXXXX");
    if (!CHECK(mkdtemp(served.directory) != NULL))
        return false;
    (void)snprintf(served.socket, sizeof(served.socket), "%s/sock", served.directory);
    struct store_options so = {.directory = served.directory, .max_bytes = 64 << 20};
    struct host_options ho = {.version = "9.9"};
    if (!CHECK_INT(tables_new(&served.tables), 0) ||
        !CHECK_INT(store_create(&so, served.tables, &served.store), 0) ||
        !CHECK_INT(store_table_add(served.store, "test", &d, NULL, &served.rows), 0) ||
        !CHECK_INT(sql_new(served.tables, served.store, &served.sql), 0))
        return false;
    ho.tables = served.tables;
    ho.store = (struct host_store){.arg = served.store, .table_add = served_table};
    if (!CHECK_INT(host_new(&ho, &served.host), 0) || !CHECK_INT(host_start(served.host), 0))
        return false;
    served.stuck_s = stuck_s;
    served_command("echo", run_echo);
    served_command("query", run_echo);
    served_command("eval", run_echo);
    served_command("fail", run_fail);
    served_command("three", run_three);
    served_command("big", run_big);
    served_command("wait", run_wait);
    return serve_again("127.0.0.1:0");
}

static inline void serve_no_more(void)
{
    server_free(served.server);
    host_free(served.host);
    sql_free(served.sql);
    store_free(served.store);
    tables_free(served.tables);
    (void)file_remove_dir(served.directory);
}

/* ---- a client made of bytes ---- */

static inline int dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, served.socket, strlen(served.socket) + 1);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static inline int dial_tcp(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(served.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static inline void say_bytes(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* it has closed: what it said tells why */
        data += sent;
        n -= (size_t)sent;
    }
}

static inline void say(int fd, const char *text)
{
    say_bytes(fd, text, strlen(text));
}

static char heard[8 << 20];

/* Read until `what` was said (NULL: until the end).  The number of bytes; heard[] is a C string. */
static inline size_t hear(int fd, const char *what)
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
static inline void ask(int fd, const char *request)
{
    say(fd, request);
    (void)hear(fd, NULL);
    (void)close(fd);
}

static inline bool said(const char *text)
{
    bool found = strstr(heard, text) != NULL;
    if (!found)
        printf("# heard: %.300s\n", heard);
    return found;
}

static inline void wait_until(_Atomic int *what, int least)
{
    struct event never;
    (void)event_init(&never);
    for (int i = 0; i < WAIT_MS && atomic_load_explicit(what, memory_order_acquire) < least; i++)
        (void)event_wait(&never, NS_PER_MS);
    CHECK(atomic_load_explicit(what, memory_order_acquire) >= least);
    event_done(&never);
}

static inline int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

/* ---- websocket ---- */

static inline void ws_send(int fd, int op, const char *text, size_t n)
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

static inline void ws_say(int fd, const char *text)
{
    ws_send(fd, 1, text, strlen(text));
}

static inline bool read_all(int fd, char *data, size_t n)
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

/* The next message into heard[]; false: the connection has ended (heard[]: why). */
static inline bool ws_hear(int fd)
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
    return (head[0] & 15) == 1 || (head[0] & 15) == 2;
}

/* fd: of dial() or dial_tcp(). */
static inline int ws_begin(int fd)
{
    say(fd, "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            "Authorization: Bearer secret\r\n"
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

/* receive_bytes: room for what it has not read, 0: as usual. */
static inline int ws_dial(int receive_bytes)
{
    int fd = dial();
    if (receive_bytes)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    return ws_begin(fd);
}

static inline void append_rows(int64_t from, int64_t n)
{
    for (int64_t i = from; i < from + n; i++) {
        union probing_cell cell = {.i = i};
        (void)ring_append(served.rows, clock_now(), &cell, 1, NULL, 0);
    }
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

#endif
