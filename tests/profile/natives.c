/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/profile/natives.c - a program without Python that spends 70 and 30 percent of its CPU time
 * in two functions: natives [THREADS].
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MS UINT64_C(1000000)

static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A name of C++'s in a process without its library. */
__attribute__((noinline)) void burn(void) __asm__("_ZN4oven4burnEv");

void burn(void)
{
    for (volatile int i = 0; i < 20000; i++)
        ;
}

__attribute__((noinline)) int seventy(int n);
__attribute__((noinline)) int thirty(int n);
__attribute__((noinline)) int work(int n);

int seventy(int n)
{
    for (uint64_t end = cpu_ns() + 7 * MS; cpu_ns() < end;)
        burn();
    return n + 1;
}

int thirty(int n)
{
    for (uint64_t end = cpu_ns() + 3 * MS; cpu_ns() < end;)
        burn();
    return n + 1;
}

int work(int n)
{
    for (;;)
        n = seventy(n) + thirty(n);
}

static void *on_thread(void *arg)
{
    (void)work(0);
    return arg;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    pthread_t thread;
    for (int i = 1; i < threads; i++)
        if (pthread_create(&thread, NULL, on_thread, NULL) != 0)
            return 1;
    (void)printf("ready\n");
    (void)fflush(stdout);
    return work(0);
}
