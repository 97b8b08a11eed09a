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

/* Of all threads named so; the test's own is not among them. */
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
    printf("%llu connections in %.1f s; %.1f us of the process' CPU each\n", (unsigned long long)n,
           s, n ? (server_cpu_s() - cpu_s) * 1e6 / (double)n : 0);
    for (int i = 0; i < WAIT_MS / 10 && count_fds() > fds; i++) {
        struct pollfd never = {.fd = -1};
        (void)poll(&never, 1, 10); /* the last are being closed */
    }
    printf("descriptors: %d before, %d after; resident memory: %lld KB, and %lld more\n", fds,
           count_fds(), (long long)kb, (long long)(resident_kb() - kb));
    CHECK(count_fds() <= fds);
    serve_no_more();
    return test_end();
}
