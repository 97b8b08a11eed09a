/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/limits_target.c - a program that looks at its own allocator, told what by stdin.
 * usage: limits_target [THREADS PINNED_CPU]     (as many idle threads, all pinned to that CPU)
 *
 * "block": where does malloc() put 200 KB?  "take N": N MiB by malloc, touched, and given back.
 * "lock": its memory, now and later.  "resident": what it has in memory of its own.  "fork": a
 * child that allocates.  "crowd N": mappings until only N more may be made.  "thread": it starts
 * one, which allocates and maps.  One answer each.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 200000
#define CROWD_MAX 200000   /* a higher vm.max_map_count takes too long to fill */
#define CHUNK_IS_MAPPED 2u /* glibc, malloc.c: IS_MMAPPED in the size before the memory */

static void *idle(void *arg)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)(uintptr_t)arg, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
    for (;;)
        (void)usleep(10000);
    return NULL;
}

/* Not freed: that alone would raise the threshold. */
static const char *where_200_kb_go(void)
{
    size_t size;
    char *p = malloc(BLOCK);
    if (!p)
        return "nowhere";
    uintptr_t before = (uintptr_t)p - sizeof(size);
    memcpy(&size, (void *)before, sizeof(size));
    return size & CHUNK_IS_MAPPED ? "mapped" : "heap";
}

static const char *take(size_t bytes)
{
    char *p = malloc(bytes);
    if (!p)
        return "refused";
    memset(p, 1, bytes);
    __asm__ volatile("" : : "r"(p) : "memory"); /* else the compiler leaves that out */
    free(p);
    return "taken";
}

/* In kB: private pages and those of files, of smaps_rollup. */
static void resident(void)
{
    char line[256];
    int anonymous = 0, all = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof(line), f)) {
        (void)sscanf(line, "Anonymous: %d", &anonymous);
        (void)sscanf(line, "Rss: %d", &all);
    }
    if (f)
        (void)fclose(f);
    printf("%d %d\n", anonymous, all);
}

static const char *fork_and_allocate(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(strcmp(take(1 << 20), "taken") == 0 ? 0 : 1);
    (void)waitpid(child, &status, 0);
    return status == 0 ? "well" : "badly";
}

static size_t number_in(const char *path)
{
    char text[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd != -1) {
        (void)!read(fd, text, sizeof(text) - 1);
        (void)close(fd);
    }
    return strtoul(text, NULL, 10);
}

static size_t mappings(void)
{
    char text[4096];
    size_t n = 0;
    ssize_t got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd != -1 && (got = read(fd, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < got; i++)
            n += text[i] == '\n';
    (void)close(fd);
    return n;
}

/* Pages of one mapping that differ in what may be done with them are two mappings more. */
static const char *crowd(size_t room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), most = number_in("/proc/sys/vm/max_map_count");
    if (most > CROWD_MAX)
        return "refused";
    char *at = mmap(NULL, (most + 2) * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return "refused";
    for (size_t i = (most - room - mappings()) / 2; i > 0; i--)
        if (mprotect(at + 2 * i * page, page, PROT_READ) == -1)
            return "badly";
    return "crowded";
}

static void *allocate_and_map(void *arg)
{
    void *at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = mmap(NULL, 12288, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at[i] == MAP_FAILED)
            return NULL;
    }
    for (int i = 0; i < 4; i++)
        (void)munmap(at[i], 12288);
    return strcmp(take(4 << 20), "taken") == 0 ? arg : NULL;
}

static const char *start_thread(void)
{
    pthread_t thread;
    void *result = NULL;
    static int done;
    if (pthread_create(&thread, NULL, allocate_and_map, &done) != 0)
        return "badly: no thread";
    (void)pthread_join(thread, &result);
    return result ? "well" : "badly: no memory";
}

int main(int argc, char **argv)
{
    char line[64];
    pthread_t thread;
    int threads = argc > 2 ? (int)strtol(argv[1], NULL, 10) : 0;
    uintptr_t cpu = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread, NULL, idle, (void *)cpu) != 0)
            return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof(line), stdin)) {
        if (strncmp(line, "block", 5) == 0)
            puts(where_200_kb_go());
        else if (strncmp(line, "take ", 5) == 0)
            puts(take(strtoul(line + 5, NULL, 10) << 20));
        else if (strncmp(line, "lock", 4) == 0)
            puts(mlockall(MCL_CURRENT | MCL_FUTURE) == 0 ? "locked" : "refused");
        else if (strncmp(line, "crowd ", 6) == 0)
            puts(crowd(strtoul(line + 6, NULL, 10)));
        else if (strncmp(line, "thread", 6) == 0)
            puts(start_thread());
        else if (strncmp(line, "resident", 8) == 0)
            resident();
        else
            puts(fork_and_allocate());
    }
    return 0;
}
