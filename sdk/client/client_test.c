/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/client_test.c - the client against a real server: answers, streams, and sudden ends.
 *
 * The server and its host run in this process; a process that dies in the middle is a listener of
 * the test's own, which says a few bytes and closes.
 */
#include <probing/client.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

static struct {
    char directory[64], socket[96];
    struct tables *tables;
    struct host *host;
    struct sql *sql;
    struct server *server;
    uint16_t port;
} w;

static int run_echo(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self;
    for (int i = 1; i < argc; i++)
        (void)host_replyf(out, "%s\n", argv[i]);
    return argc > 1 && strcmp(argv[1], "three") == 0 ? 3 : 0;
}

static int run_fail(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv, (void)out;
    return err_set(-EBUSY, "not now; try later");
}

static int run_big(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    for (int i = 0; i < 100000; i++)
        if (host_replyf(out, "line %d\n", i) < 0)
            return -ECANCELED;
    return 0;
}

static int run_wait(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct event never;
    (void)self, (void)argc, (void)argv;
    (void)event_init(&never);
    while (!atomic_load_explicit(&out->cancelled, memory_order_acquire))
        (void)event_wait(&never, NS_PER_MS);
    event_done(&never);
    return -ECANCELED;
}

/* Publish while the command runs, as a script does. */
static int run_publish(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    static const char payload[] = "\x10\0\0\0{\"data\":[1]}";
    (void)self, (void)argc, (void)argv;
    int rc = host_publish(w.host, "script.slow", payload, sizeof(payload) - 1);
    return rc < 0 ? rc : host_replyf(out, "published\n");
}

static void add_command(const char *name,
                        int (*run)(void *, int, const char *const *, struct probing_reply *))
{
    struct probing_command c = {
        .size = sizeof(c), .name = name, .usage = "", .doc = "for the test", .run = run};
    CHECK_INT(host_command_add(w.host, "test", &c, NULL), 0);
}

static bool start_world(void)
{
    struct host_options o = {.version = "9.9"};
    (void)snprintf(w.directory, sizeof(w.directory), "/tmp/probing-client-XXXXXX");
    if (!CHECK(mkdtemp(w.directory) != NULL) || !CHECK_INT(tables_new(&w.tables), 0))
        return false;
    (void)snprintf(w.socket, sizeof(w.socket), "%s/sock", w.directory);
    o.tables = w.tables;
    if (!CHECK_INT(host_new(&o, &w.host), 0) || !CHECK_INT(host_start(w.host), 0) ||
        !CHECK_INT(sql_new(w.tables, NULL, &w.sql), 0))
        return false;
    add_command("echo", run_echo);
    add_command("fail", run_fail);
    add_command("big", run_big);
    add_command("wait", run_wait);
    add_command("publish", run_publish);
    struct server_options so = {.host = w.host,
                                .sql = w.sql,
                                .socket_path = w.socket,
                                .listen = "127.0.0.1:0",
                                .token = "secret",
                                .version = "9.9"};
    if (!CHECK_INT(server_new(&so, &w.server), 0))
        return false;
    uint64_t port = 0;
    (void)parse_u64(strrchr(server_address(w.server), ':') + 1, &port);
    w.port = (uint16_t)port;
    return true;
}

static void stop_world(void)
{
    server_free(w.server);
    host_free(w.host);
    sql_free(w.sql);
    tables_free(w.tables);
    (void)file_remove_dir(w.directory);
}

static int add_to_buf(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static int refuse(void *arg, const char *data, size_t size)
{
    (void)arg, (void)data, (void)size;
    return -ENOSPC;
}

static struct probing_client *connected(void)
{
    struct probing_client *c = probing_client_new(NULL);
    CHECK_INT(probing_client_connect_unix(c, w.socket), 0);
    return c;
}

static const char *const echo[] = {"echo", "h\xc3\xa9llo \"there\"", NULL};
static const char *const three[] = {"echo", "three", NULL};
static const char *const fail[] = {"fail", NULL};
static const char *const big[] = {"big", NULL};
static const char *const waits[] = {"wait", NULL};
static const char *const publish[] = {"publish", NULL};

static void run_everything(struct probing_client *c)
{
    struct buf b;
    int status = -1;
    buf_init(&b, 4 << 20);
    CHECK_INT(probing_client_run(c, 2, echo, 0, add_to_buf, &b, &status), 0);
    CHECK_INT(status, 0);
    CHECK_STR(buf_text(&b), "h\xc3\xa9llo \"there\"\n");
    CHECK_INT(probing_client_run(c, 2, three, 0, NULL, NULL, &status), 0);
    CHECK_INT(status, 3);
    CHECK_INT(probing_client_run(c, 1, fail, 0, NULL, NULL, &status), 0);
    CHECK_INT(status, -EBUSY);
    CHECK_STR(probing_client_error(c), "not now; try later");
    buf_reset(&b);
    CHECK_INT(probing_client_run(c, 1, big, 0, add_to_buf, &b, &status), 0);
    CHECK_INT(status, 0);
    CHECK(b.size > 1000000 && strcmp(buf_text(&b) + b.size - 11, "line 99999\n") == 0);
    buf_done(&b);
}

TEST(commands_run_over_the_unix_socket)
{
    struct probing_client *c = connected();
    if (c)
        run_everything(c);
    probing_client_free(c);
}

static const char *find_token(void *arg, int fd)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    (void)arg;
    CHECK_INT(getpeername(fd, (struct sockaddr *)&peer, &size), 0); /* it stands already */
    return "secret";
}

TEST(commands_run_over_tcp)
{
    static const struct {
        const char *token;
        int rc;
        const char *why;
    } tried[] = {{"wrong", -EACCES, "the token is missing or wrong"},
                 {NULL, -EACCES, "the token is missing or wrong"},
                 {"two\nlines", -EINVAL, "more than one line"},
                 {"secret", 0, ""}};
    for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
        const struct probing_client_options o = {.size = sizeof(o), .token = tried[i].token};
        struct probing_client *c = probing_client_new(&o);
        CHECK_INT(probing_client_connect_tcp(c, "127.0.0.1", 1), -ECONNREFUSED);
        CHECK_INT(probing_client_connect_tcp(c, "127.0.0.1", w.port), tried[i].rc);
        CHECK(tried[i].rc == 0 || strstr(probing_client_error(c), tried[i].why) != NULL);
        if (tried[i].rc == 0)
            run_everything(c);
        probing_client_free(c);
    }
    const struct probing_client_options asked = {.size = sizeof(asked), .find_token = find_token};
    struct probing_client *c = probing_client_new(&asked);
    CHECK_INT(probing_client_connect_tcp(c, "127.0.0.1", w.port), 0);
    CHECK_INT(probing_client_connect_tcp(c, "127.0.0.1", w.port), -EISCONN);
    probing_client_free(c);
}

static char told[1024];

static void keep_error(void *arg, int code, const char *text)
{
    CHECK(arg == told && code < 0);
    (void)snprintf(told, sizeof(told), "%s", text);
}

TEST(a_client_that_is_wrong_or_not_connected_says_so)
{
    struct probing_client_options o = {.size = sizeof(o), .on_error = keep_error, .arg = told};
    struct probing_client_watch bad = {.size = 1, .sql = "select 1"};
    int status = 0;
    o.size = sizeof(o) + 8;
    CHECK(probing_client_new(&o) == NULL);
    o.size = 4;
    CHECK(probing_client_new(&o) == NULL);
    CHECK(strstr(probing_client_error(NULL), "no memory") != NULL);
    o.size = sizeof(o);
    struct probing_client *c = probing_client_new(&o);
    CHECK_STR(probing_client_error(c), "");
    CHECK_INT(probing_client_run(c, 2, echo, 0, NULL, NULL, &status), -ENOTCONN);
    CHECK_INT(probing_client_start_watch(c, &bad), -EINVAL);
    CHECK_INT(probing_client_cancel(c, 1), 0);
    CHECK_INT(probing_client_stream(c, NULL, NULL, 0, NULL), 0); /* nothing is left */
    CHECK_INT(probing_client_end(c), PROBING_CLIENT_OPEN);
    CHECK_INT(probing_client_connect_pid(c, 0), -EINVAL);
    CHECK_INT(probing_client_connect_pid(c, 0x7ffffff0), -ESRCH);
    CHECK_STR(told, "there is no process 2147483632");
    CHECK_STR(told, probing_client_error(c));
    probing_client_free(c);
    probing_client_free(NULL);
}

TEST(a_command_has_a_time_limit_and_can_be_refused)
{
    struct probing_client *c = connected();
    int status = 0;
    CHECK_INT(probing_client_run(c, 1, waits, 20 * NS_PER_MS, NULL, NULL, &status), 0);
    CHECK_INT(status, -ETIMEDOUT);
    CHECK_INT(probing_client_run(c, 1, big, 0, refuse, NULL, &status), -ENOSPC);
    CHECK_INT(probing_client_run(c, 2, echo, 0, NULL, NULL, &status), 0); /* still of use */
    CHECK_INT(status, 0);
    probing_client_free(c);
}

struct seen {
    int64_t run, follow, watch;
    int events, pieces, ticks, done;
    struct probing_client *c;
};

static int on_event(void *arg, const struct probing_client_event *e)
{
    struct seen *s = arg;
    switch (e->kind) {
    case PROBING_CLIENT_EVENT:
        CHECK_INT(e->id, s->follow);
        CHECK_STR(e->topic, "script.slow");
        CHECK_STR(e->text, "{\"data\":[1]}");
        CHECK_INT(e->size, strlen(e->text));
        s->events++;
        break;
    case PROBING_CLIENT_DATA:
        s->pieces += e->id == s->run;
        s->ticks += e->id == s->watch;
        break;
    case PROBING_CLIENT_DONE:
        CHECK_INT(e->status, 0);
        s->done++;
        break;
    case PROBING_CLIENT_LATE:
    case PROBING_CLIENT_DROPPED:
        CHECK(false);
        break;
    }
    if (s->events == 1 && s->ticks >= 2 && s->done == 1) {
        s->events++; /* once */
        CHECK_INT(probing_client_cancel(s->c, s->follow), 0);
        CHECK_INT(probing_client_cancel(s->c, s->watch), 0);
    }
    return 0;
}

TEST(several_things_run_on_one_connection)
{
    struct seen s = {.c = connected()};
    struct probing_client_watch watch = {
        .size = sizeof(watch), .sql = "select 1 as n", .interval_ns = 10 * NS_PER_MS};
    s.follow = probing_client_start_follow(s.c, "script.slow");
    s.watch = probing_client_start_watch(s.c, &watch);
    s.run = probing_client_start_run(s.c, 1, publish, 0);
    CHECK(s.follow > 0 && s.watch > s.follow && s.run > s.watch);
    CHECK_INT(probing_client_stream(s.c, on_event, &s, 20 * NS_PER_S, NULL), 0);
    CHECK_INT(s.done, 3);
    CHECK_INT(s.pieces, 1);
    probing_client_free(s.c);
}

TEST(a_stop_flag_and_a_limit_end_a_stream)
{
    struct probing_client *c = connected();
    volatile sig_atomic_t stop = 1;
    CHECK(probing_client_start_run(c, 1, waits, 0) > 0);
    CHECK_INT(probing_client_stream(c, on_event, NULL, 0, &stop), -ECANCELED);
    CHECK_INT(probing_client_stream(c, on_event, NULL, 10 * NS_PER_MS, NULL), -ETIMEDOUT);
    probing_client_free(c);
}

static int keep_end(void *arg, const struct probing_client_event *e)
{
    struct probing_client_event *kept = arg;
    if (e->kind == PROBING_CLIENT_DONE)
        *kept = *e;
    return e->kind == PROBING_CLIENT_DONE ? 1 : 0;
}

TEST(wrong_requests_end_with_their_status)
{
    struct probing_client *c = connected();
    struct probing_client_watch watch = {.size = sizeof(watch), .sql = "select from where"};
    struct probing_client_event end = {0};
    int status = 0;
    CHECK_INT(probing_client_run(c, 0, echo, 0, NULL, NULL, &status), 0);
    CHECK_INT(status, -EINVAL);
    int64_t id = probing_client_start_watch(c, &watch);
    CHECK_INT(probing_client_stream(c, keep_end, &end, 20 * NS_PER_S, NULL), 1);
    CHECK_INT(end.id, id);
    CHECK_INT(end.status, -EINVAL);
    CHECK_INT(probing_client_stream(c, keep_end, &end, 0, NULL),
              0); /* nothing is left to wait for */
    probing_client_free(c);
}

/* A listener that answers the handshake, says `then`, and is gone. */
static void *die_early(void *arg)
{
    const char *const *say = arg;
    char request[2048];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/dying", w.directory);
    (void)unlink(a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    CHECK_INT(listen(fd, 1), 0);
    event_raise((struct event *)(uintptr_t)say[2]);
    int peer = accept(fd, NULL, NULL);
    CHECK(recv(peer, request, sizeof(request), 0) > 0);
    (void)send(peer, say[0], strlen(say[0]), MSG_NOSIGNAL);
    if (say[1] && recv(peer, request, sizeof(request), 0) > 0)
        (void)send(peer, say[1], strlen(say[1]), MSG_NOSIGNAL);
    (void)close(peer);
    (void)close(fd);
    return NULL;
}

static int talk_to_the_dying(const char *first, const char *then, bool run)
{
    struct event ready;
    pthread_t thread;
    char path[96];
    int status = 0;
    CHECK_INT(event_init(&ready), 0);
    const char *say[] = {first, then, (const char *)&ready};
    CHECK_INT(pthread_create(&thread, NULL, die_early, say), 0);
    CHECK(event_wait(&ready, 10 * NS_PER_S));
    (void)snprintf(path, sizeof(path), "%s/dying", w.directory);
    const struct probing_client_options o = {
        .size = sizeof(o), .timeout_ns = 5 * NS_PER_S, .on_error = keep_error, .arg = told};
    struct probing_client *c = probing_client_new(&o);
    int rc = probing_client_connect_unix(c, path);
    if (rc == 0 && run)
        rc = probing_client_run(c, 2, echo, 0, NULL, NULL, &status);
    probing_client_free(c);
    (void)pthread_join(thread, NULL);
    (void)unlink(path);
    event_done(&ready);
    return rc;
}

/* A process that sends the same again and again for as long as somebody listens. */
static void *flood(void *arg)
{
    const char **say = arg;
    char request[1024], frames[4096];
    size_t n = strlen(say[0]), used = 0, size = (size_t)(uintptr_t)say[2];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/flood", w.directory);
    (void)unlink(a.sun_path);
    CHECK_INT(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    CHECK_INT(listen(fd, 1), 0);
    event_raise((struct event *)(uintptr_t)say[3]);
    int peer = accept(fd, NULL, NULL);
    CHECK(recv(peer, request, sizeof(request), 0) > 0);
    (void)send(peer, say[0], n, MSG_NOSIGNAL);
    for (; used + size <= sizeof(frames); used += size)
        memcpy(frames + used, say[1], size);
    while (send(peer, frames, used, MSG_NOSIGNAL) == (ssize_t)used)
        (void)recv(peer, request, sizeof(request), MSG_DONTWAIT); /* pongs */
    (void)close(peer);
    (void)close(fd);
    return NULL;
}

static int listen_to_a_flood(const char *frame, size_t size, uint64_t timeout_ns,
                             const volatile sig_atomic_t *stop)
{
    static const char yes[] = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
    struct event ready;
    pthread_t thread;
    char path[96];
    CHECK_INT(event_init(&ready), 0);
    const char *say[] = {yes, frame, (const char *)(uintptr_t)size, (const char *)&ready};
    CHECK_INT(pthread_create(&thread, NULL, flood, say), 0);
    CHECK(event_wait(&ready, 10 * NS_PER_S));
    (void)snprintf(path, sizeof(path), "%s/flood", w.directory);
    const struct probing_client_options o = {
        .size = sizeof(o), .timeout_ns = 5 * NS_PER_S, .on_error = keep_error, .arg = told};
    struct probing_client *c = probing_client_new(&o);
    int rc = probing_client_connect_unix(c, path);
    if (CHECK_INT(rc, 0) && CHECK(probing_client_start_run(c, 2, echo, 0) > 0))
        rc = probing_client_stream(c, on_event, NULL, timeout_ns, stop);
    probing_client_free(c);
    (void)pthread_join(thread, NULL);
    (void)unlink(path);
    event_done(&ready);
    return rc;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

TEST(a_process_that_floods_holds_nobody)
{
    static const struct {
        const char *frame;
        size_t size;
    } small[] = {{"\x89\x00", 2}, {"\x89\x04ping", 6}, {"\x8a\x00", 2},
                 {"\x01\x00", 2}, {"\x00\x00", 2},     {"\x02\x00", 2}};
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
        CHECK_INT(listen_to_a_flood(small[i].frame, small[i].size, 0, NULL), -EPROTO);
    /* Messages that are for nobody are no error; they end with the limit, or with a signal. */
    static const char other[] = "\x81\x12{\"id\":99,\"data\":1}";
    CHECK_INT(listen_to_a_flood(other, sizeof(other) - 1, 50 * NS_PER_MS, NULL), -ETIMEDOUT);
    struct sigaction action = {.sa_handler = interrupt}, before;
    struct itimerval soon = {.it_value = {.tv_usec = 50000}};
    CHECK_INT(sigaction(SIGALRM, &action, &before), 0);
    CHECK_INT(setitimer(ITIMER_REAL, &soon, NULL), 0);
    CHECK_INT(listen_to_a_flood(other, sizeof(other) - 1, 0, &interrupted), -ECANCELED);
    interrupted = 1; /* in the middle of a message that goes on and on */
    CHECK_INT(listen_to_a_flood("\x00\x04more", 6, 0, &interrupted), -ECANCELED);
    CHECK_INT(sigaction(SIGALRM, &before, NULL), 0);
}

TEST(a_process_that_dies_is_told_from_one_that_refuses)
{
    static const char yes[] = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
    struct probing_client *c = probing_client_new(NULL);
    CHECK_INT(talk_to_the_dying(yes, "\x81\x0f{\"id\":1,", true), -ECONNRESET);
    /* It is this very process, and lives. */
    CHECK(strstr(told, "the connection was closed by the core; process ") != NULL);
    CHECK_INT(talk_to_the_dying(yes, "\x81\x03{x}", true), -EPROTO);
    CHECK_INT(talk_to_the_dying(yes, "\xf1\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f", true), -EPROTO);
    CHECK_INT(talk_to_the_dying("HTTP/1.1 200 OK\r\n\r\n<html>", NULL, false), -EPROTO);
    CHECK_INT(talk_to_the_dying("", NULL, false), -ECONNRESET);
    CHECK_INT(probing_client_connect_unix(c, "/tmp/probing-nobody/sock"), -ENOENT);
    CHECK(strstr(probing_client_error(c), "cannot open /tmp/probing-nobody") != NULL);
    CHECK_INT(probing_client_connect_unix(c, ""), -ENAMETOOLONG);
    probing_client_free(c);
}

TEST(memory_that_ends_is_an_error)
{
    unsigned n = 1;
    for (; fail_alloc_step(n); n++) {
        struct buf b;
        int status = -1, rc;
        buf_init(&b, 1 << 16);
        struct probing_client *c = probing_client_new(NULL);
        if (!c)
            continue;
        rc = probing_client_connect_unix(c, w.socket);
        if (rc == 0)
            rc = probing_client_run(c, 2, echo, 0, add_to_buf, &b, &status);
        if (rc == 0)
            CHECK_STR(buf_text(&b), "h\xc3\xa9llo \"there\"\n");
        else
            CHECK(rc < 0 && (b.failed || probing_client_error(c)[0] != '\0'));
        probing_client_free(c);
        buf_done(&b);
    }
    CHECK(n > 5);
}

int main(void)
{
    if (!start_world())
        return 1;
    RUN(commands_run_over_the_unix_socket);
    RUN(commands_run_over_tcp);
    RUN(a_client_that_is_wrong_or_not_connected_says_so);
    RUN(a_command_has_a_time_limit_and_can_be_refused);
    RUN(several_things_run_on_one_connection);
    RUN(a_stop_flag_and_a_limit_end_a_stream);
    RUN(wrong_requests_end_with_their_status);
    RUN(memory_that_ends_is_an_error);
    RUN(a_process_that_floods_holds_nobody);
    RUN(a_process_that_dies_is_told_from_one_that_refuses);
    stop_world();
    return test_end();
}
