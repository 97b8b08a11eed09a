/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/server/served.h - a real server with store, engine and workers, for tests in C.
 *
 * One a program.  The process that is asked is the test itself: its table is test.rows (n, i64),
 * its commands are echo (its words), big (2 MB of lines) and wait (a second or so,
 * less when cancelled).
 */
#ifndef TESTS_SERVER_SERVED_H
#define TESTS_SERVER_SERVED_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/thread.h"
#include "core/host/host.h"
#include "core/ring/ring.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

static struct served {
    char directory[64], socket[96];
    struct tables *tables;
    struct store *store;
    struct host *host;
    struct sql *sql;
    struct server *server;
    struct table *rows;
    uint16_t port; /* of TCP; its token is "secret" */
} served;

static int served_echo(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self;
    for (int i = 1; i < argc; i++)
        (void)host_replyf(out, "%s\n", argv[i]);
    return 0;
}

static int served_big(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    for (int i = 0; i < 50000; i++)
        if (host_replyf(out, "line %d of many, each with some words in it\n", i) < 0)
            return -ECANCELED;
    return 0;
}

static int served_wait(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct event never;
    (void)self, (void)argc, (void)argv;
    (void)event_init(&never);
    for (int i = 0; i < 1000 && !atomic_load_explicit(&out->cancelled, memory_order_acquire); i++)
        (void)event_wait(&never, NS_PER_MS);
    event_done(&never);
    return -ECANCELED;
}

static void served_command(const char *name,
                           int (*run)(void *, int, const char *const *, struct probing_reply *))
{
    struct probing_command c = {
        .size = sizeof(c), .name = name, .usage = "", .doc = "for the test", .run = run};
    CHECK_INT(host_command_add(served.host, "test", &c, NULL), 0);
}

static int served_table(void *arg, const char *schema, const struct probing_table_desc *d,
                        void *self, struct table **ret)
{
    return store_table_add(arg, schema, d, self, ret);
}

static bool serve(uint32_t stuck_s)
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
    served_command("echo", served_echo);
    served_command("query", served_echo);
    served_command("eval", served_echo);
    served_command("big", served_big);
    served_command("wait", served_wait);
    struct server_options o = {.host = served.host,
                               .sql = served.sql,
                               .socket_path = served.socket,
                               .listen = "127.0.0.1:0",
                               .token = "secret",
                               .version = "9.9",
                               .stuck_s = stuck_s};
    uint64_t port = 0;
    if (!CHECK_INT(server_new(&o, &served.server), 0))
        return false;
    (void)parse_u64(strrchr(server_address(served.server), ':') + 1, &port);
    served.port = (uint16_t)port;
    return true;
}

static void serve_no_more(void)
{
    server_free(served.server);
    host_free(served.host);
    sql_free(served.sql);
    store_free(served.store);
    tables_free(served.tables);
    (void)file_remove_dir(served.directory);
}

/* A connection; -1: none was to be had. */
static int served_dial(bool tcp)
{
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    struct sockaddr_in i = {.sin_family = AF_INET,
                            .sin_port = htons(served.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(u.sun_path, served.socket, strlen(served.socket) + 1);
    if (connect(fd, tcp ? (struct sockaddr *)&i : (struct sockaddr *)&u,
                tcp ? sizeof(i) : sizeof(u)) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static int served_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

#endif
