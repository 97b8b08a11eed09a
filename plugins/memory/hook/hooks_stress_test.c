/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/hook/hooks_stress_test.c - hooks put in and taken out while 64 threads allocate,
 * fork, open and close libraries, and end.
 *
 * Each block is filled and checked by who has it.  rounds: argv[1], or as many as are done in a few
 * seconds.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hook/hook.h"
#include "sample/sample.h"
#include "tests/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

#define THREADS 64
#define SHARED 256 /* blocks that threads hand to each other */

static int say_reason(const struct probing_host *h, int code, const char *text)
{
    (void)h;
    printf("# %s\n", text);
    return code;
}

static int no_row(struct probing_table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                  const void *tail, uint32_t tail_n)
{
    (void)t, (void)ts, (void)cells, (void)n, (void)tail, (void)tail_n;
    return 0;
}

static const struct probing_host host = {
    .size = sizeof(host), .abi = PROBING_ABI, .fail = say_reason, .append = no_row};

static _Atomic bool ending;
static _Atomic uint64_t done[8];
static _Atomic(char *) shared[SHARED];
static pthread_key_t at_thread_end;
static void *(*cplusplus_new)(size_t);
static void (*cplusplus_delete)(void *);

/* ---- what threads do; all allocate through slots of libc and of the C++ library ---- */

static uint32_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void check_and_free(char *p)
{
    size_t n = strlen(p);
    for (size_t i = 1; i < n; i++)
        CHECK(p[i] == p[0]);
    free(p);
}

/* A text of one letter, made by libc. */
static char *make(uint64_t *state)
{
    size_t n = 1 + next(state) % 2000, size;
    char *text = NULL, letter = (char)('a' + next(state) % 26);
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; f && i < n; i++)
        (void)fputc(letter, f);
    if (f)
        (void)fclose(f);
    return text;
}

static void hand_over(uint64_t *state)
{
    char *p = make(state);
    if (next(state) % 4 == 0)
        memory_thread.left = next(state) % 1000; /* so that samples are due now and then */
    p = atomic_exchange(&shared[next(state) % SHARED], p);
    if (p)
        check_and_free(p);
}

static void use_cplusplus(uint64_t *state)
{
    size_t n = 1 + next(state) % 5000;
    char *p = cplusplus_new ? cplusplus_new(n) : NULL;
    if (p) {
        memset(p, 7, n);
        cplusplus_delete(p);
    }
}

static void open_and_close(void)
{
    void *library = dlopen("libthread_db.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library) {
        (void)dlsym(library, "td_init");
        (void)dlclose(library);
    }
}

static void fork_once(uint64_t *state)
{
    pid_t child = fork();
    if (child == 0) {
        hooks_forked();
        for (int i = 0; i < 20; i++)
            free(getcwd(NULL, 1 + next(state) % 9000));
        (void)dlsym(RTLD_DEFAULT, "malloc");
        _exit(0);
    }
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child)
        CHECK_INT(status, 0);
}

static void spawn_once(void)
{
    char *const argv[] = {(char *)"true", NULL}, *const envp[] = {NULL};
    pid_t child;
    int status = 0;
    if (posix_spawnp(&child, "true", NULL, NULL, argv, envp) == 0 &&
        waitpid(child, &status, 0) == child)
        CHECK_INT(status, 0);
}

static void *short_life(void *p)
{
    uint64_t state = (uintptr_t)p;
    (void)pthread_setspecific(at_thread_end, make(&state));
    return NULL;
}

static void *live(void *p)
{
    uint64_t state = (uintptr_t)p;
    while (!ending) {
        uint32_t what = next(&state) % 1000;
        pthread_t t;
        if (what < 700)
            hand_over(&state);
        else if (what < 960)
            use_cplusplus(&state);
        else if (what < 985) {
            if (pthread_create(&t, NULL, short_life, (void *)(uintptr_t)next(&state)) == 0)
                (void)pthread_join(t, NULL);
        } else if (what < 997)
            open_and_close();
        else if (what < 999)
            fork_once(&state);
        else
            spawn_once();
        done[what < 700 ? 0 : what < 960 ? 1 : what < 985 ? 2 : what < 997 ? 3 : 4]++;
    }
    return NULL;
}

/* ---- in and out ---- */

static void on_signal(int number)
{
    (void)number;
    int saved = errno; /* malloc() is not for handlers; programs do it, and are mostly lucky */
    memory_thread.left -= 100;
    errno = saved;
}

static uint64_t rounds_wanted;

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

TEST(in_and_out_under_64_threads)
{
    pthread_t threads[THREADS];
    double begin = seconds();
    uint64_t rounds = 0;
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, live, (void *)(i + 1)), 0);
    while (rounds_wanted ? rounds < rounds_wanted : rounds < 200 || seconds() - begin < 3) {
        struct hooks *h = NULL;
        if (!CHECK_INT(hooks_in(&host, &h), 0))
            break;
        if (rounds % 3 == 0)
            hooks_look(h);
        if (rounds % 8 == 0)
            (void)poll(NULL, 0, 1); /* threads run with them in for a while */
        (void)pthread_kill(threads[rounds % THREADS], SIGUSR1);
        hooks_out(h);
        rounds++;
    }
    ending = true;
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    printf("# %llu rounds, %.1f s; handed over %llu, new %llu, threads %llu, dlopen %llu, forks "
           "%llu\n",
           (unsigned long long)rounds, seconds() - begin, (unsigned long long)done[0],
           (unsigned long long)done[1], (unsigned long long)done[2], (unsigned long long)done[3],
           (unsigned long long)done[4]);
    for (int i = 0; i < SHARED; i++)
        if (shared[i])
            check_and_free(shared[i]);
    memory_thread.left = 1000000;
    free(getcwd(NULL, 5000));
    CHECK_INT(memory_thread.left, 1000000); /* nothing leads to us any more */
}

int main(int argc, char **argv)
{
    if (SANITIZED)
        return test_skip("a sanitizer keeps its own account of memory: hooks are refused");
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    rounds_wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    if (library) {
        *(void **)&cplusplus_new = dlsym(library, "_Znwm");
        *(void **)&cplusplus_delete = dlsym(library, "_ZdlPv");
    }
    (void)pthread_key_create(&at_thread_end, free);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    (void)sigaction(SIGUSR1, &action, NULL);
    RUN(in_and_out_under_64_threads);
    return test_end();
}
