/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/storm_bench.c - connections opened and dropped in a loop: do all get in, what does
 * one cost the process, and does anything stay?
 *
 * usage: storm_bench [CONNECTIONS]     a million when left out
 *
 * One thread is all clients: by the unix socket and by TCP in turn, silent, with half a request,
 * with a command whose answer nobody waits for, and reset rather than closed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/text.h"
#include "tests/bench/bench.h"
#include "tests/server/served.h"

static int64_t resident_kb(void)
{
    struct buf b;
    buf_init(&b, 1u << 20);
    const char *at =
        file_read(AT_FDCWD, "/proc/self/status", &b) == 0 ? strstr(buf_text(&b), "\nVmRSS:") : NULL;
    int64_t kb = at ? strtoll(at + 7, NULL, 10) : 0;
    buf_done(&b);
    return kb;
}

/* The time of all threads with this name; the test's own is not among them. */
static double server_cpu_s(void)
{
    struct timespec all, mine;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine);
    return (double)(all.tv_sec - mine.tv_sec) + (double)(all.tv_nsec - mine.tv_nsec) / 1e9;
}

static void come_and_go(uint64_t k)
{
    const struct linger reset = {.l_onoff = 1};
    int fd = k % 2 ? dial_tcp() : dial();
    if (!CHECK(fd >= 0))
        return;
    if (k % 3 == 1)
        say(fd, "GET / HT");
    if (k % 5 == 2)
        say(fd, "token secret\necho nobody\n");
    if (k % 7 == 3)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    (void)close(fd);
}

int main(int argc, char **argv)
{
    uint64_t n = 1000000;
    if (argc > 1 && parse_u64(argv[1], &n) < 0) {
        printf("%s\n", err_text());
        return 2;
    }
    if (!serve(/* stuck_s= */ 0))
        return 1;
    for (uint64_t k = 0; k < 1000; k++) /* until nothing is new to it */
        come_and_go(k);
    int fds = count_fds();
    int64_t kb = resident_kb();
    double cpu_s = server_cpu_s();
    uint64_t began = clock_now();
    for (uint64_t k = 0; k < n; k++)
        come_and_go(k);
    double s = (double)(clock_now() - began) / 1e9;
    bench_figure("a connection, CPU of the process", "us", "mean=%.4g\tconnections=%llu",
                 n ? (server_cpu_s() - cpu_s) * 1e6 / (double)n : 0, (unsigned long long)n);
    bench_figure("a connection, by the clock", "us", "mean=%.4g", n ? s * 1e6 / (double)n : 0);
    for (int i = 0; i < WAIT_MS / 10 && count_fds() > fds; i++) {
        struct pollfd never = {.fd = -1};
        (void)poll(&never, 1, 10); /* the last are being closed */
    }
    bench_figure("descriptors before", "", "open=%d", fds);
    bench_figure("descriptors after", "", "open=%d\tratio=%.4g\tagainst=descriptors before",
                 count_fds(), (double)count_fds() / fds);
    bench_figure("resident memory before", "KB", "size=%lld", (long long)kb);
    int64_t kb_after = resident_kb();
    bench_figure("resident memory after", "KB",
                 "size=%lld\tratio=%.4g\tagainst=resident memory before", (long long)kb_after,
                 (double)kb_after / (double)(kb ? kb : 1));
    CHECK(count_fds() <= fds);
    serve_no_more();
    return test_end();
}
