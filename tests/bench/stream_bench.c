/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/stream_bench.c - a live stream to many clients: how late rows come, what it costs.
 *
 * usage: stream_bench [clients [rows a second [seconds [interval in ms]]]]
 *
 * A real server, store and engine in this process; one thread appends rows that carry their own
 * time, one does steps of fixed work as a training loop would.  The clients are another process,
 * one thread of it, and speak websocket over the unix socket.  Steps are timed alone, with rows
 * appended, and with all clients following.  It prints; it fails only when it cannot run, or when
 * a row is lost or comes twice.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/bench/bench.h"

#define LATE_MAX_US 1000000 /* us: what is later counts as this */
#define STEPS_MAX 100000
#define RECEIVE_BYTES (1u << 20)

static uint64_t clients = 100, rate = 10000, seconds = 5, interval_ms = 20;
static char directory[64], path[96];

static void must(bool held, const char *what)
{
    if (held)
        return;
    fprintf(stderr, "stream_bench: %s: %s\n", what, err_text()[0] ? err_text() : strerror(errno));
    exit(1);
}

/* ---- the clients' process ---- */

static uint32_t late[LATE_MAX_US + 1];
static uint64_t seen, lost, expected[4096];

static int join(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char request[512], answer[512];
    size_t n = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, path, strlen(path) + 1);
    must(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0, "connect");
    n = (size_t)snprintf(request, sizeof(request),
                         "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                         "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    must(send(fd, request, n, 0) == (ssize_t)n, "send");
    for (n = 0; n < 4 || memcmp(answer + n - 4, "\r\n\r\n", 4) != 0; n++)
        must(n < sizeof(answer) && recv(fd, answer + n, 1, 0) == 1, "handshake");
    char text[120];
    int size = snprintf(text, sizeof(text),
                        "{\"id\":1,\"subscribe\":\"bench.rows\",\"interval_ms\":"
                        "%llu}",
                        (unsigned long long)interval_ms);
    memcpy(request, (char[]){(char)0x81, (char)(0x80 | size), 0, 0, 0, 0}, 6);
    memcpy(request + 6, text, (size_t)size);
    must(size < 126 && send(fd, request, 6 + (size_t)size, 0) == 6 + size, "subscribe");
    return fd;
}

static uint64_t number_behind(const char *at)
{
    uint64_t n = 0;
    while (*at >= '0' && *at <= '9')
        n = n * 10 + (uint64_t)(*at++ - '0');
    return n;
}

static void look(int client, const char *data, size_t size)
{
    static const char key[] = "\\\"n\\\":", when[] = "\\\"sent\\\":", gone[] = "\"dropped\":";
    uint64_t now = clock_monotonic();
    const char *end = data + size, *at = data;
    if (memmem(data, size < 40 ? size : 40, gone, sizeof(gone) - 1))
        lost++;
    while ((at = memmem(at, (size_t)(end - at), key, sizeof(key) - 1)) != NULL) {
        uint64_t n = number_behind(at + sizeof(key) - 1);
        at = memmem(at, (size_t)(end - at), when, sizeof(when) - 1);
        if (!at)
            break;
        uint64_t us = (now - number_behind(at + sizeof(when) - 1)) / 1000;
        late[us > LATE_MAX_US ? LATE_MAX_US : us]++;
        seen++;
        lost += expected[client] && n != expected[client];
        expected[client] = n + 1;
    }
}

/* Takes whole frames from the front of what was received; gives the bytes used. */
static size_t take_frames(int client, const char *data, size_t size)
{
    size_t used = 0;
    for (;;) {
        const unsigned char *p = (const unsigned char *)data + used;
        size_t have = size - used, head = 2, n;
        if (have < 2)
            return used;
        n = p[1];
        head += n == 126 ? 2 : n == 127 ? 8 : 0;
        if (have < head)
            return used;
        for (size_t i = 2, value = 0; i < head; i++)
            n = value = value << 8 | p[i];
        if (have < head + n)
            return used;
        look(client, data + used + head, n);
        used += head + n;
    }
}

static void print_late(void)
{
    uint64_t sum = 0;
    const double wanted[] = {0.5, 0.9, 0.99, 0.999, 1};
    double ms[5] = {0};
    for (size_t us = 0, i = 0; us <= LATE_MAX_US && i < 5; us++) {
        sum += late[us];
        for (; i < 5 && seen && (double)sum >= wanted[i] * (double)seen; i++)
            ms[i] = (double)us / 1000;
    }
    bench_figure("from append to client", "ms",
                 "median=%.4g\tp90=%.4g\tp99=%.4g\tp99_9=%.4g\tmost=%.4g\trows=%llu\tlost=%llu",
                 ms[0], ms[1], ms[2], ms[3], ms[4], (unsigned long long)seen,
                 (unsigned long long)lost);
}

/* Ends when the other side closes `control`. */
static int run_clients(int control)
{
    static char *rest[4096];
    static size_t have[4096];
    char c = 'r';
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    must(read(control, &c, 1) == 1, "wait for the server");
    for (uint64_t i = 0; i < clients; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = i << 32};
        int fd = join();
        e.data.u64 |= (uint32_t)fd;
        rest[i] = malloc(RECEIVE_BYTES);
        must(rest[i] && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0, "epoll");
    }
    must(write(control, &c, 1) == 1, "say that all have joined");
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, control, &e) == 0, "epoll");
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == UINT64_MAX) {
                print_late();
                return lost != 0;
            }
            int k = (int)(events[i].data.u64 >> 32), fd = (int)(uint32_t)events[i].data.u64;
            ssize_t got = recv(fd, rest[k] + have[k], RECEIVE_BYTES - have[k], 0);
            must(got > 0, "the server has closed");
            size_t size = have[k] + (size_t)got, used = take_frames(k, rest[k], size);
            memmove(rest[k], rest[k] + used, size - used);
            have[k] = size - used;
        }
    }
}

/* ---- the host's process ---- */

static struct table *table;
static _Atomic bool stop;
static double step_ms[STEPS_MAX];

static void *append_rows(void *arg)
{
    struct timespec next;
    int64_t n = 0;
    (void)arg;
    (void)clock_gettime(CLOCK_MONOTONIC, &next);
    while (!stop) {
        for (uint64_t i = 0; i < rate / 1000; i++) {
            uint64_t now = clock_monotonic();
            union probing_cell cells[2] = {{.i = ++n}, {.i = (int64_t)now}};
            (void)host_append(table, now, cells, 2, NULL, 0);
        }
        next.tv_nsec += (int64_t)NS_PER_MS;
        if (next.tv_nsec >= (int64_t)NS_PER_S) {
            next.tv_nsec -= (int64_t)NS_PER_S;
            next.tv_sec++;
        }
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double cpu_s(int whose, clockid_t clock)
{
    struct rusage u;
    struct timespec t;
    if (clock != -1 && clock_gettime(clock, &t) == 0)
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    (void)getrusage(whose, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Steps of the same work for `seconds`; what the other threads of the process took meanwhile.
 * against: the figure whose median is `base`; NULL: none.  Gives the median. */
static double run_steps(const char *what, const char *against, double base)
{
    uint64_t from = clock_monotonic(), until = from + seconds * NS_PER_S;
    double own = cpu_s(0, CLOCK_THREAD_CPUTIME_ID), all = cpu_s(RUSAGE_SELF, -1);
    size_t n = 0;
    while (n < STEPS_MAX && clock_monotonic() < until) {
        uint64_t began = clock_monotonic(), x = began | 1;
        for (int i = 0; i < 2000000; i++)
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        __asm__ volatile("" ::"r"(x)); /* it is needed, as far as the compiler knows */
        step_ms[n++] = (double)(clock_monotonic() - began) / 1e6;
    }
    own = cpu_s(0, CLOCK_THREAD_CPUTIME_ID) - own;
    all = cpu_s(RUSAGE_SELF, -1) - all;
    double wall = (double)(clock_monotonic() - from) / 1e9;
    qsort(step_ms, n, sizeof(step_ms[0]), by_value);
    char ratio[96] = "";
    if (against)
        (void)snprintf(ratio, sizeof(ratio), "\tratio=%.4g\tagainst=%s", step_ms[n / 2] / base,
                       against);
    bench_figure(what, "ms a step", "median=%.4g\tleast=%.4g\tp90=%.4g\tothers_percent=%.4g%s",
                 step_ms[n / 2], step_ms[0], step_ms[n * 9 / 10], 100 * (all - own) / wall, ratio);
    return step_ms[n / 2];
}

static int add_table(void *arg, const char *schema, const struct probing_table_desc *d, void *self,
                     struct table **ret)
{
    return store_table_add(arg, schema, d, self, ret);
}

/* The exit status of the clients' process. */
static int run_host(int control)
{
    static const struct probing_column columns[] = {
        {.name = "n", .type = PROBING_I64, .doc = "1, 2, 3"},
        {.name = "sent", .type = PROBING_I64, .unit = PROBING_NS, .doc = "monotonic"}};
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .name = "rows",
                                   .doc = "a stream",
                                   .columns = columns,
                                   .n_columns = 2};
    struct store_options so = {.directory = directory, .max_bytes = 256 << 20};
    struct host_options ho = {.version = "bench"};
    struct tables *tables;
    struct store *store = NULL;
    struct sql *sql = NULL;
    struct host *host;
    struct server *server;
    pthread_t writer;
    int status = 0;
    char c = 'g';

    must(tables_new(&tables) == 0 && store_create(&so, tables, &store) == 0 &&
             store_table_add(store, "bench", &d, NULL, &table) == 0 &&
             sql_new(tables, store, &sql) == 0,
         "store");
    ho.tables = tables;
    ho.store = (struct host_store){.arg = store, .table_add = add_table};
    must(host_new(&ho, &host) == 0 && host_start(host) == 0, "host");
    struct server_options o = {.host = host, .sql = sql, .socket_path = path, .version = "bench"};
    must(server_new(&o, &server) == 0, "server");
    double alone = run_steps("nothing else", NULL, 0);
    must(thread_start(&writer, "writer", 0, append_rows, NULL) == 0, "thread");
    (void)run_steps("rows appended", "nothing else", alone);
    must(write(control, &c, 1) == 1 && read(control, &c, 1) == 1, "the clients");
    (void)run_steps("rows appended and followed by all", "nothing else", alone);
    (void)close(control);
    (void)wait(&status); /* it looks at what came until now, with nothing more coming in between */
    stop = true;
    (void)pthread_join(writer, NULL);
    server_free(server);
    host_free(host);
    sql_free(sql);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(directory);
    return status != 0;
}

int main(int argc, char **argv)
{
    uint64_t *const given[] = {&clients, &rate, &seconds, &interval_ms};
    int pair[2];
    for (int i = 1; i < argc && i <= 4; i++)
        must(parse_u64(argv[i], given[i - 1]) == 0, argv[i]);
    must(clients <= 4096, "at most 4096 clients");
    (void)snprintf(directory, sizeof(directory), "/tmp/probing-stream-XXXXXX");
    must(mkdtemp(directory) != NULL, "mkdtemp");
    (void)snprintf(path, sizeof(path), "%s/sock", directory);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    printf("# %llu clients, %llu rows a second, a tick each %llu ms, %llu s\n",
           (unsigned long long)clients, (unsigned long long)rate, (unsigned long long)interval_ms,
           (unsigned long long)seconds);
    (void)fflush(stdout);
    pid_t child = fork();
    must(child != -1, "fork");
    (void)close(pair[child != 0]);
    if (child == 0)
        return run_clients(pair[1]);
    return run_host(pair[0]);
}
