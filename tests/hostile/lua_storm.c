/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/lua_storm.c - run Lua scripts one after another, stop each in the middle, and tell
 * how long that took.
 *
 * Reads from its input, again and again, a line "DELAY_US SIZE" and SIZE bytes of Lua.  Each
 * script runs DELAY_US, is stopped, and has a line of its own: "MICROSECONDS STATE", from the stop
 * to its end.  At last "rss BEFORE AFTER" in KiB, anonymous memory when some had run and when all
 * had, and "threads N", those of scripts that are left.  A script that has not ended in a minute
 * ends the program, with 1.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "tests/script_world.h"

#define HANGS_NS (60 * NS_PER_S)
#define SETTLED 50 /* scripts after which memory is looked at first */
#define SOURCE_MAX (1 << 20)

static long rss_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f))
        (void)sscanf(line, "RssAnon: %ld", &kib); /* not the store's files */
    if (f)
        (void)fclose(f);
    return kib;
}

/* How many threads run Lua. */
static int lua_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[300], name[32] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", e->d_name);
        FILE *f = fopen(path, "re");
        if (f && fgets(name, sizeof(name), f))
            n += strcmp(name, "probing/lua\n") == 0;
        if (f)
            (void)fclose(f);
    }
    if (d)
        (void)closedir(d);
    return n;
}

/* How long it took to end once it was told to; -1: it hangs. */
static int64_t end_of(const char *name, uint64_t told)
{
    while (clock_now() - told < HANGS_NS)
        if (scripts_stop(scripts, name) == -ENOENT) /* it does not run any more */
            return (int64_t)(clock_now() - told);
    return -1;
}

int main(void)
{
    static char source[SOURCE_MAX];
    unsigned long delay_us, size;
    long before = 0;
    int n = 0;

    if (world_begin() < 0) {
        fprintf(stderr, "%s\n", err_text());
        return 2;
    }
    while (scanf("%lu %lu", &delay_us, &size) == 2) {
        char name[32];
        if (getchar() != '\n' || size >= sizeof(source) || fread(source, 1, size, stdin) != size)
            return 2;
        (void)snprintf(name, sizeof(name), "s%d", n);
        uint64_t begin = clock_now();
        int r = scripts_run_within(scripts, name, source, size, delay_us * NS_PER_US);
        uint64_t told = r == -ETIMEDOUT ? begin + delay_us * NS_PER_US : clock_now();
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", r < 0 ? err_text() : "");
        int64_t took = end_of(name, told);
        if (took < 0) {
            printf("script %d hangs\n", n);
            return 1;
        }
        why[strcspn(why, "\n")] = '\0';
        printf("%lld %s\n", (long long)took / 1000,
               r == -ETIMEDOUT ? "stopped"
               : r < 0         ? why
                               : "ended");
        if (++n == SETTLED)
            before = rss_kib();
    }
    for (uint64_t over = clock_now(); lua_threads() > 0 && clock_now() - over < HANGS_NS;)
        (void)sched_yield(); /* the last one has said that it is over, and ends */
    printf("rss %ld %ld\nthreads %d\n", before, rss_kib(), lua_threads());
    world_end();
    return 0;
}
