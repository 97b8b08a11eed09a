/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/system/loads.c - threads that do what their names say, for as long as they are let live.
 *
 * usage: loads [NAME=COUNT]...   spin, calls, sleep, half, wake, churn
 *   spin   computes;  calls   does system calls;  half   computes half of the time
 *   sleep  waits;     wake    wakes ten times a second;  churn  begins and ends threads
 *   odd    computes, and is called "a) b\n(c"
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;

static void compute(void)
{
    for (uint32_t i = 0; i < 10000; i++)
        sink = sink * 6364136223846793005u + i;
}

static double cpu_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void nap(long ns)
{
    struct timespec t = {.tv_nsec = ns};
    (void)nanosleep(&t, NULL);
}

static void *spin(void *arg)
{
    (void)arg;
    for (;;)
        compute();
    return NULL;
}

static void *calls(void *arg)
{
    (void)arg;
    for (;;)
        (void)syscall(SYS_getppid);
    return NULL;
}

static void *half(void *arg)
{
    (void)arg;
    for (;;) {
        double until = cpu_seconds() + 0.005;
        while (cpu_seconds() < until)
            compute();
        nap(5000000);
    }
    return NULL;
}

static void *sleeps(void *arg)
{
    (void)arg;
    for (;;)
        (void)pause();
    return NULL;
}

static void *wake(void *arg)
{
    (void)arg;
    for (;;)
        nap(100000000);
    return NULL;
}

static void *brief(void *arg)
{
    (void)arg;
    compute();
    return NULL;
}

static void *churn(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, brief, NULL) == 0)
            (void)pthread_join(thread, NULL);
    }
    return NULL;
}

static const struct {
    const char *word, *name;
    void *(*run)(void *);
} kinds[] = {{"spin", "spin", spin},     {"calls", "calls", calls}, {"half", "half", half},
             {"sleep", "sleep", sleeps}, {"wake", "wake", wake},    {"churn", "churn", churn},
             {"odd", "a) b\n(c", spin}};

static void begin(const char *word, size_t n, long count)
{
    pthread_attr_t attr;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, 65536);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        if (strlen(kinds[k].word) != n || strncmp(kinds[k].word, word, n) != 0)
            continue;
        for (long i = 0; i < count; i++) {
            pthread_t thread;
            if (pthread_create(&thread, &attr, kinds[k].run, NULL) != 0)
                exit(1);
            (void)pthread_setname_np(thread, kinds[k].name);
        }
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        if (equals)
            begin(argv[i], (size_t)(equals - argv[i]), strtol(equals + 1, NULL, 10));
    }
    (void)printf("ready\n");
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}
