/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/memory/allocations.c - a program that knows what it has allocated and not freed, and where.
 *
 *     allocations FILE THEN
 *
 * It begins when FILE is there, and goes on with what it keeps when THEN is there, too.  It says
 * one line "alive FUNCTION BYTES COUNT" for each function that keeps something or nothing, then
 * "done", and waits to be ended.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__clang__)
#define KEEP __attribute__((noinline))
#else
#define KEEP __attribute__((noinline, noclone))
#endif

static void *volatile kept; /* what is only written here is never freed */
static unsigned long long alive, count;

static void told(const char *function)
{
    printf("alive %s %llu %llu\n", function, alive, count);
    (void)fflush(stdout);
    alive = count = 0;
}

static void keep(void *p, size_t n)
{
    if (p)
        *(volatile char *)p = 1;
    kept = p;
    alive += n;
    count++;
}

KEEP static void leak_small(void)
{
    for (int i = 0; i < 500000; i++)
        keep(malloc(64), 64);
}

KEEP static void leak_medium(void)
{
    for (int i = 0; i < 10000; i++)
        keep(malloc(20000), 20000);
}

KEEP static void leak_huge(void)
{
    for (int i = 0; i < 5; i++)
        keep(malloc((size_t)64 << 20), (size_t)64 << 20);
}

/* 16 bytes to 4 MiB: as many bytes of each size. */
KEEP static void leak_of_each_size(void)
{
    for (size_t n = 16; n <= (size_t)4 << 20; n *= 4)
        for (size_t i = 0; i < ((size_t)4 << 20) / n; i++)
            keep(malloc(n), n);
}

KEEP static void leak_zeroed(void)
{
    for (int i = 0; i < 2000; i++)
        keep(calloc(100, 100), 10000);
}

KEEP static void leak_aligned(void)
{
    void *p;
    for (int i = 0; i < 2000; i++) {
        if (posix_memalign(&p, 64, 8192))
            abort();
        keep(p, 8192);
    }
}

/* So much that it is sampled even behind 10 GB a second, where samples thin out. */
KEEP static void leak_mapped(void)
{
    const size_t n = (size_t)64 << 20;
    for (int i = 0; i < 16; i++)
        keep(mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                  0),
             n);
}

/* Only the last block of a chain is there. */
KEEP static void grow_in_steps(void)
{
    for (int i = 0; i < 40; i++) {
        char *p = NULL;
        for (size_t n = 16; n <= (size_t)1 << 20; n *= 2)
            p = realloc(p, n);
        keep(p, (size_t)1 << 20);
    }
}

static _Atomic unsigned long long by_threads;

KEEP static void leak_in_thread(void)
{
    for (int i = 0; i < 1000; i++) {
        char *p = malloc(10000);
        *(volatile char *)p = 1;
        kept = p;
        (void)atomic_fetch_add_explicit(&by_threads, 10000, memory_order_relaxed);
    }
}

static void *thread(void *arg)
{
    (void)arg;
    leak_in_thread();
    kept = NULL;
    return NULL;
}

static unsigned long long churned;

/* 10 GB and more, of which nothing stays. */
KEEP static void churn(void)
{
    static char *ring[256];
    for (unsigned i = 0; i < 4000000; i++) {
        size_t n = 64 + i * 7919u % 5000;
        churned += n;
        free(ring[i % 256]);
        ring[i % 256] = malloc(n);
        ring[i % 256][0] = 1;
    }
    for (int i = 0; i < 256; i++) {
        free(ring[i]);
        ring[i] = NULL;
    }
}

/* Made here, freed by another thread. */
static void *handed[4000];

KEEP static void make_for_another(void)
{
    for (int i = 0; i < 4000; i++)
        handed[i] = malloc(50000);
}

static void *free_what_was_handed(void *arg)
{
    (void)arg;
    for (int i = 0; i < 4000; i++)
        free(handed[i]);
    return NULL;
}

static void in_threads(void *(*run)(void *), int n)
{
    pthread_t threads[8];
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run, NULL))
            abort();
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
}

static void await(const char *file)
{
    while (file && access(file, F_OK) != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int main(int argc, char **argv)
{
    printf("ready\n");
    (void)fflush(stdout);
    await(argc > 1 ? argv[1] : NULL);
    churn();
    told("churn");
    await(argc > 2 ? argv[2] : NULL);
    leak_small();
    told("leak_small");
    leak_medium();
    told("leak_medium");
    leak_huge();
    told("leak_huge");
    leak_of_each_size();
    told("leak_of_each_size");
    leak_zeroed();
    told("leak_zeroed");
    leak_aligned();
    told("leak_aligned");
    leak_mapped();
    told("leak_mapped");
    grow_in_steps();
    told("grow_in_steps");
    make_for_another();
    in_threads(free_what_was_handed, 1);
    told("make_for_another");
    in_threads(thread, 8);
    alive = atomic_load_explicit(&by_threads, memory_order_relaxed);
    count = alive / 10000;
    told("leak_in_thread");
    churn();
    told("churn");
    printf("churned %llu\ndone\n", churned);
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}
