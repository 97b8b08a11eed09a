/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/memory/lives.c - a program that allocates where programs rarely do: in signal handlers,
 * when threads and the process end, and in children of each kind.
 *
 * usage: lives handlers|threads|children|exit.  It prints a line now and then; a wrong result ends
 * it.  With `handlers` malloc() is its own and may be called in handlers; libc calls it through
 * slots, the program directly.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define WANT(x)                                           \
    do {                                                  \
        if (!(x)) {                                       \
            printf("wrong: %s, line %d\n", #x, __LINE__); \
            (void)fflush(stdout);                         \
            _exit(1);                                     \
        }                                                 \
    } while (0)

static pthread_key_t key;

/* A block that libc allocates: a path in `n` bytes. */
static char *taken(size_t n)
{
    char *p = getcwd(NULL, n);
    WANT(p != NULL);
    memset(p, 'a', n);
    return p;
}

#ifdef OWN_ALLOCATOR
/* One that handlers may call: blocks of one size, each with a flag; what is larger is never given
 * back. */
#define BLOCKS 4096
#define BLOCK_BYTES 65536
static char blocks[BLOCKS][BLOCK_BYTES] __attribute__((aligned(4096)));
static atomic_bool used[BLOCKS];
static _Atomic unsigned hint;
static char large[256 << 20] __attribute__((aligned(4096)));
static _Atomic size_t large_at;

void *malloc(size_t n)
{
    if (n > BLOCK_BYTES) {
        size_t at = n < sizeof(large) ? atomic_fetch_add(&large_at, (n + 31) & ~(size_t)15) : n;
        return at + n < sizeof(large) ? large + at : NULL;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        unsigned at = atomic_fetch_add(&hint, 1) % BLOCKS;
        bool was = false;
        if (atomic_compare_exchange_strong(&used[at], &was, true))
            return blocks[at];
    }
    return NULL;
}

void free(void *p)
{
    size_t at = (size_t)((char *)p - blocks[0]);
    if (p && at < sizeof(blocks)) {
        WANT(at % BLOCK_BYTES == 0 && atomic_exchange(&used[at / BLOCK_BYTES], false));
    } else {
        WANT(!p || (size_t)((char *)p - large) < sizeof(large));
    }
}

void *calloc(size_t count, size_t n)
{
    void *p = malloc(count * n);
    return p ? memset(p, 0, count * n) : NULL;
}

void *realloc(void *p, size_t n)
{
    void *q = malloc(n);
    if (p && q) { /* as much as both have at least */
        memcpy(q, p, n < BLOCK_BYTES ? n : BLOCK_BYTES);
        free(p);
    }
    return q;
}
#endif

static volatile sig_atomic_t handled;

static void allocate_in_handler(int number)
{
    int saved = errno;
    (void)number;
    free(getcwd(NULL, 500));
    free(getcwd(NULL, 50000));
    handled++;
    errno = saved;
}

static void handlers(void)
{
    struct sigaction action = {.sa_handler = allocate_in_handler, .sa_flags = SA_RESTART};
    struct itimerval each = {{0, 200}, {0, 200}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &each, NULL);
    for (uint64_t i = 1;; i++) {
        free(taken(100 + i % 4000));
        if (i % 200000 == 0) {
            printf("round %d handled\n", (int)handled);
            (void)fflush(stdout);
        }
    }
}

static void *short_life(void *p)
{
    pthread_setspecific(key, taken(200));
    free(taken(100 + (size_t)(uintptr_t)p % 1000));
    return NULL;
}

static void at_thread_end(void *p)
{
    static _Thread_local int times;
    free(p);
    free(taken(300));
    if (++times < 3) /* and once more, when other destructors have run */
        pthread_setspecific(key, taken(100));
}

static void threads(void)
{
    pthread_key_create(&key, at_thread_end);
    for (uintptr_t i = 1;; i++) {
        pthread_t t[16];
        for (int k = 0; k < 16; k++)
            WANT(pthread_create(&t[k], NULL, short_life, (void *)(i + (uintptr_t)k)) == 0);
        for (int k = 0; k < 16; k++)
            WANT(pthread_join(t[k], NULL) == 0);
        if (i % 50 == 0) {
            printf("round %d\n", (int)i);
            (void)fflush(stdout);
        }
    }
}

static int in_clone(void *p)
{
    (void)p;
    return 0;
}

static int child_of(int kind)
{
    static char stack[65536] __attribute__((aligned(16)));
    char *const argv[] = {(char *)"true", NULL}, *const none[] = {NULL};
    pid_t child = -1;
    if (kind == 0) {
        child = fork();
        if (child == 0) {
            for (size_t i = 0; i < 200; i++)
                free(taken(1 + i * 50 + 100));
            (void)dlsym(RTLD_DEFAULT, "malloc");
            exit(0); /* its handlers run, too */
        }
    } else if (kind == 1) {
        child = vfork();
        if (child == 0)
            _exit(0);
    } else if (kind == 2) {
        WANT(posix_spawnp(&child, "true", NULL, NULL, argv, none) == 0);
    } else {
        child = clone(in_clone, stack + sizeof(stack), SIGCHLD | CLONE_VM | CLONE_VFORK, NULL);
    }
    return child;
}

static void *forever(void *p)
{
    for (size_t i = 0;; i++)
        free(taken(100 + i % 3000));
    return p;
}

static void children(void)
{
    pthread_t t;
    pthread_create(&t, NULL, forever, NULL);
    for (int i = 1;; i++) {
        int status = -1, child = child_of(i % 4);
        WANT(child > 0);
        WANT(waitpid(child, &status, 0) == child);
        WANT(status == 0);
        if (i % 50 == 0) {
            printf("round %d\n", i);
            (void)fflush(stdout);
        }
    }
}

static void at_exit(void)
{
    for (size_t i = 0; i < 2000; i++)
        free(taken(100 + i));
    printf("at exit\n");
    (void)fflush(stdout);
}

__attribute__((destructor)) static void last(void)
{
    free(taken(5000));
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    WANT(chdir("/") == 0); /* so that each size has room for its path */
    printf("ready\n");
    (void)fflush(stdout);
    atexit(at_exit);
    if (strcmp(mode, "handlers") == 0)
        handlers();
    else if (strcmp(mode, "threads") == 0)
        threads();
    else if (strcmp(mode, "children") == 0)
        children();
    pthread_t t;
    pthread_create(&t, NULL, forever, NULL);
    while (access(argc > 2 ? argv[2] : "/", F_OK) != 0) /* until it may end, beside its thread */
        free(taken(100));
    return 0;
}
