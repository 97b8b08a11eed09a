/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/server_test.c - the life of a server: clients that come and go, too many of them, a
 * fork, the end.
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/server/served.h"

#define DESCRIPTORS 512 /* that the test may open: the server takes a quarter of them */

static int fds_before; /* open before the first client came */

TEST(a_client_that_goes_stops_its_command)
{
    int before = atomic_load_explicit(&served.waiting, memory_order_acquire);
    int cancelled = atomic_load_explicit(&served.cancelled, memory_order_acquire);
    int fds[4] = {dial(), dial(), dial_tcp(), ws_dial(0)};
    say(fds[0], "wait\n");
    wait_until(&served.waiting, before + 1);
    say(fds[1], "POST /run HTTP/1.1\r\nContent-Length: 16\r\n\r\n{\"run\":[\"wait\"]}");
    wait_until(&served.waiting, before + 2);
    say(fds[2], "POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
                "Content-Length: 16\r\n\r\n{\"run\":[\"wait\"]}");
    wait_until(&served.waiting, before + 3);
    ws_say(fds[3], "{\"id\":1,\"run\":[\"wait\"]}");
    wait_until(&served.waiting, before + 4);
    for (int i = 0; i < 4; i++)
        (void)close(fds[i]);
    wait_until(&served.cancelled, cancelled + 4);
}

/* Wait until the server has closed what clients before have left. */
static void settle(void)
{
    for (int i = 0; i < 1000 && count_fds() != fds_before; i++)
        ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n"); /* a turn of the loop each */
    CHECK_INT(count_fds(), fds_before);
}

TEST(connections_come_and_go_without_a_trace)
{
    for (int i = 0; i < 200; i++) {
        int fd = i % 4 == 3 ? ws_dial(0) : i % 2 ? dial_tcp() : dial();
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

/* A quarter of the descriptors allowed; of these a part with a token, and a part to be told. */
TEST(too_many_connections_are_told_so)
{
    enum { MOST = DESCRIPTORS / 4, ADMITTED = MOST * 5 / 8, LOCALS = MOST - MOST / 16 - ADMITTED };
    enum { TCP_MORE = 22, MORE = 100 };
    int fds[ADMITTED + TCP_MORE + LOCALS + MORE], n = 0, in = 0, here = 0, told = 0;
    settle();
    for (int i = 0; i < ADMITTED + TCP_MORE; i++) {
        fds[n++] = dial_tcp();
        say(fds[i], "token secret\n");
    }
    for (int i = 0; i < n; i++) { /* all of them are in before the others knock */
        (void)hear(fds[i], "\n");
        in += strcmp(heard, ".\n") == 0;
        CHECK(heard[0] == '.' || strncmp(heard, "error: ", 7) == 0);
    }
    for (int i = 0; i < LOCALS + MORE; i++) {
        fds[n++] = dial();
        say(fds[n - 1], i % 2 ? "echo here\n" : "GET /healthz HTTP/1.1\r\n\r\n");
    }
    for (int i = ADMITTED + TCP_MORE; i < n; i++) {
        (void)hear(fds[i], "\n");
        here += strstr(heard, "here") != NULL || strstr(heard, " 200 ") != NULL;
        told += strstr(heard, "error: too many connections") || strstr(heard, " 503 ");
    }
    CHECK_INT(in, ADMITTED);
    CHECK_INT(here, LOCALS);
    CHECK_INT(told, MORE);
    for (int i = 0; i < n; i++)
        (void)close(fds[i]);
    bool back = false;
    for (int i = 0; i < 1000 && !back; i++) {
        ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
        back = strstr(heard, " 200 ") != NULL;
    }
    CHECK(back);
}

/* The status of the thread of that name, opened; -1: there is none. */
static int open_status(const char *name)
{
    char path[64], text[64];
    int found = -1;
    DIR *all = opendir("/proc/self/task");
    for (struct dirent *e; all && (e = readdir(all)) != NULL;) {
        (void)snprintf(path, sizeof(path), "/proc/self/task/%.16s/status", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd == -1 ? 0 : pread(fd, text, sizeof(text) - 1, 0);
        text[size > 0 ? size : 0] = '\0';
        if (size > 0 && strstr(text, name) == text + 6) /* behind "Name:", a tab */
            found = fd;
        else if (fd != -1)
            (void)close(fd);
    }
    if (all)
        (void)closedir(all);
    return found;
}

/* How often that thread has gone to sleep. */
static uint64_t count_sleeps(int status)
{
    char text[4096];
    ssize_t size = pread(status, text, sizeof(text) - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    const char *at = strstr(text, "\nvoluntary_ctxt_switches:");
    return at ? strtoull(at + sizeof("\nvoluntary_ctxt_switches:"), NULL, 10) : 0;
}

/* Nobody else is connected, so nothing else wakes the loop. */
TEST(who_comes_while_no_descriptor_is_free_is_heard_later)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct event never;
    int filler[DESCRIPTORS], n = 0;
    settle();
    (void)event_init(&never);
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", served.socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status = open_status("probing/server");
    while (n < DESCRIPTORS && (filler[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    uint64_t before = count_sleeps(status);
    CHECK(before > 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    for (int i = 0; i < WAIT_MS && count_sleeps(status) == before; i++) /* it has tried */
        (void)event_wait(&never, NS_PER_MS);
    CHECK(count_sleeps(status) > before);
    while (n > 0)
        (void)close(filler[--n]);
    say(fd, "echo heard\n");
    (void)hear(fd, "heard\n.\n");
    CHECK(said("heard"));
    (void)close(fd);
    (void)close(status);
    event_done(&never);
}

TEST(strangers_take_places_from_each_other_only)
{
    enum { STRANGERS = DESCRIPTORS / 2 };
    int fds[STRANGERS], shown_out = 0, kept;
    settle();
    kept = dial_tcp();
    say(kept, "token secret\necho kept\n");
    (void)hear(kept, "kept\n.\n");
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = dial_tcp();
        CHECK(fds[i] >= 0);
    }
    for (int i = 0; i < 20; i++) { /* none of them waits for the silent ones to be shown out */
        ask(dial_tcp(), "GET /healthz HTTP/1.1\r\n" LOCAL "Authorization: Bearer secret\r\n\r\n");
        CHECK(said(" 200 "));
        ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
        CHECK(said(" 200 "));
    }
    for (int i = 0; i < STRANGERS; i++) { /* the oldest are gone, and were told */
        char text[16];
        shown_out += recv(fds[i], text, 6, MSG_DONTWAIT) == 6 && memcmp(text, "error:", 6) == 0;
        (void)close(fds[i]);
    }
    CHECK(shown_out > 0 && shown_out >= STRANGERS - DESCRIPTORS / 4);
    say(kept, "echo still\n");
    (void)hear(kept, "still\n.\n");
    CHECK(said("still"));
    (void)close(kept);
}

TEST(tcp_opens_and_closes_while_it_runs)
{
    uint16_t old = served.port;
    CHECK_INT(server_listen(served.server, "127.0.0.1:nix"), -EINVAL);
    CHECK_INT(server_listen(served.server, "some.name:1"), -EINVAL);
    CHECK_INT(server_listen(served.server, ""), 0);
    CHECK_STR(server_address(served.server), "");
    CHECK_INT(dial_tcp(), -1);
    CHECK_INT(server_listen(served.server, "localhost:0"), 0);
    CHECK(strncmp(server_address(served.server), "127.0.0.1:", 10) == 0);
    uint64_t port = 0;
    CHECK_INT(parse_u64(server_address(served.server) + 10, &port), 0);
    served.port = (uint16_t)port;
    ask(dial_tcp(), "GET /healthz?token=secret HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said(" 200 "));
    (void)old;
}

TEST(it_ends_quickly_with_clients_and_commands)
{
    int before = atomic_load_explicit(&served.waiting, memory_order_acquire);
    struct stat st;
    CHECK_INT(stat(served.socket, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    int fd = ws_dial(0), text = dial();
    ws_say(fd, "{\"id\":1,\"run\":[\"wait\"]}");
    ws_say(fd, "{\"id\":2,\"watch\":\"select count(*) from test.rows\",\"interval_ms\":10}");
    ws_say(fd, "{\"id\":3,\"follow\":\"script.slow\"}");
    say(text, "wait\n");
    wait_until(&served.waiting, before + 2);
    uint64_t start = clock_now();
    server_free(served.server);
    CHECK(clock_now() - start < 500 * NS_PER_MS); /* 100 on a quiet machine */
    CHECK_INT(stat(served.socket, &st), -1);
    (void)close(fd);
    (void)close(text);
    CHECK(serve_again(""));
    ask(dial(), "GET /healthz HTTP/1.1\r\n" LOCAL "\r\n");
    CHECK(said(" 200 "));
}

int main(void)
{
    struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (!serve(/* stuck_s= */ 0))
        return 1;
    fds_before = count_fds();
    RUN(a_client_that_goes_stops_its_command);
    RUN(connections_come_and_go_without_a_trace);
    RUN(too_many_connections_are_told_so);
    RUN(who_comes_while_no_descriptor_is_free_is_heard_later);
    RUN(strangers_take_places_from_each_other_only);
    RUN(tcp_opens_and_closes_while_it_runs);
    RUN(it_ends_quickly_with_clients_and_commands);
    serve_no_more();
    return test_end();
}
