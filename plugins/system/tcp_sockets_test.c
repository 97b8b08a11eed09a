/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/tcp_sockets_test.c - what is asked of a process's own sockets: real ones on the
 * loopback, what is no TCP socket, what kernels older than this one say.
 *
 * One thread.
 */
#include "tcp_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/test.h"

/* [0] connected to [1]; [2] listens. */
static bool connect_pair(int family, int ret[3])
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *a = family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t size = family == AF_INET6 ? sizeof(six) : sizeof(four);
    ret[2] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ret[0] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return ret[2] >= 0 && ret[0] >= 0 && bind(ret[2], a, size) == 0 && listen(ret[2], 4) == 0 &&
           getsockname(ret[2], a, &size) == 0 && connect(ret[0], a, size) == 0 &&
           (ret[1] = accept(ret[2], NULL, NULL)) >= 0;
}

static void close_pair(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        (void)close(fds[i]);
}

TEST(a_connection_is_known_at_both_ends)
{
    int fds[3];
    struct tcp_socket one, two;
    char text[TCP_ADDRESS_BYTES], sent[5000] = {1}, got[5000];
    if (!CHECK(connect_pair(AF_INET, fds)))
        return;
    CHECK_INT(send(fds[0], sent, sizeof(sent), 0), sizeof(sent));
    CHECK_INT(recv(fds[1], got, sizeof(got), MSG_WAITALL), sizeof(got));
    CHECK_INT(tcp_socket_read(fds[0], &one), 0);
    CHECK_INT(tcp_socket_read(fds[1], &two), 0);
    CHECK(one.connected && two.connected);
    CHECK_INT(one.local.port, two.peer.port);
    CHECK_INT(one.peer.port, two.local.port);
    CHECK_STR(tcp_address_text(&one.peer, text), "127.0.0.1");
    CHECK_STR(tcp_state_name(one.state), "estab");
    CHECK(one.rtt_ns != UNKNOWN && one.rtt_ns > 0 && one.rtt_ns < 10 * PROBING_NS_PER_S);
    CHECK(two.rx_bytes == UNKNOWN || two.rx_bytes == sizeof(sent));
    CHECK(one.min_rtt_ns == UNKNOWN || one.min_rtt_ns <= one.rtt_ns);
    CHECK_INT(tcp_socket_read(fds[2], &two), 0);
    CHECK(!two.connected && two.unacked_segs == UNKNOWN); /* there it is the queue's length */
    CHECK_STR(tcp_state_name(two.state), "listen");
    close_pair(fds);
}

TEST(an_address_of_ipv6_is_written_as_one)
{
    int fds[3];
    struct tcp_socket s;
    char text[TCP_ADDRESS_BYTES];
    if (!connect_pair(AF_INET6, fds))
        return; /* this machine has none */
    CHECK_INT(tcp_socket_read(fds[0], &s), 0);
    CHECK_STR(tcp_address_text(&s.peer, text), "::1");
    close_pair(fds);
}

/* A program may close a descriptor after we have seen it, and open something else. */
TEST(what_is_no_tcp_socket_only_fails)
{
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), pipes[2], pair[2];
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct tcp_socket s;
    CHECK_INT(pipe(pipes), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const int others[] = {udp, file, pipes[0], pair[0], 100000, -1};
    for (size_t i = 0; i < PROBING_LENGTH(others); i++)
        CHECK(tcp_socket_read(others[i], &s) < 0);
    for (size_t i = 0; i < 2; i++)
        (void)(close(pipes[i]), close(pair[i]));
    (void)(close(udp), close(file));
    CHECK(tcp_socket_read(file, &s) < 0);
}

/* The struct has grown with kernels: what one does not have is not known, and never 0. */
TEST(kernels_that_say_less)
{
    int fds[3];
    uint8_t info[512] = {0};
    socklen_t size = sizeof(info);
    struct tcp_socket s;
    if (!CHECK(connect_pair(AF_INET, fds)))
        return;
    CHECK_INT(getsockopt(fds[0], IPPROTO_TCP, TCP_INFO, info, &size), 0);
    tcp_info_take(info, 104, &s); /* Linux 2.6 to 3.14 */
    CHECK(s.rtt_ns != UNKNOWN && s.retrans_segs == 0);
    CHECK(s.rx_bytes == UNKNOWN && s.min_rtt_ns == UNKNOWN && s.busy_ns == UNKNOWN);
    tcp_info_take(info, 136, &s); /* 4.1 */
    CHECK(s.rx_bytes == 0 && s.min_rtt_ns == UNKNOWN && s.notsent_bytes == UNKNOWN);
    tcp_info_take(info, 160, &s); /* 4.6 */
    CHECK(s.notsent_bytes == 0 && s.tx_segs == 0 && s.busy_ns == UNKNOWN);
    tcp_info_take(info, sizeof(info), &s); /* of years to come */
    CHECK(s.busy_ns == 0 && s.rate_bytes == UNKNOWN);
    memset(info, 0xff, sizeof(info)); /* nonsense is none of ours */
    tcp_info_take(info, sizeof(info), &s);
    CHECK(tcp_state_name(s.state) == NULL && s.min_rtt_ns == UNKNOWN);
    close_pair(fds);
}

/* ---- all of them ---- */

static uint64_t now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static const void *no_extension(const struct probing_host *h, const char *id)
{
    (void)h, (void)id;
    return NULL;
}

static int count_one(void *arg, const struct tcp_socket *s)
{
    uint32_t *n = arg;
    *n += s->connected;
    return 0;
}

TEST(a_walk_says_what_it_left_out)
{
    const struct probing_host host = {.size = sizeof(host), .now = now, .extension = no_extension};
    struct tcp_walk walked;
    uint32_t n = 0;
    int fds[3];
    if (!CHECK(connect_pair(AF_INET, fds)))
        return;
    CHECK_INT(tcp_sockets_walk(&host, 1000, UINT64_MAX, &walked, count_one, &n), 0);
    CHECK_INT(n, 2);
    CHECK_INT(walked.left_out, 0);
    uint64_t all = walked.looked;
    CHECK_INT(tcp_sockets_walk(&host, 2, UINT64_MAX, &walked, count_one, &n), 0);
    CHECK_INT(walked.looked, 2);
    CHECK_INT(walked.left_out, all - 2);
    close_pair(fds);
}

int main(void)
{
    RUN(a_connection_is_known_at_both_ends);
    RUN(an_address_of_ipv6_is_written_as_one);
    RUN(what_is_no_tcp_socket_only_fails);
    RUN(kernels_that_say_less);
    RUN(a_walk_says_what_it_left_out);
    return test_end();
}
