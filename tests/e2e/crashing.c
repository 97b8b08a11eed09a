/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/e2e/crashing.c - a program that crashes as it is told, for tests/e2e/test_crash.py.
 *
 * usage: crashing HOW [WHERE] [GO]      it waits until the file GO is there
 *
 * WHERE: main, thread, four (threads at once) or handler (of a signal).  Two more threads stand by:
 * one sleeps in pause(2), one spins.  It never links or calls anything of ours.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MENDED 20000
#define PAGE 4096

static const char *how, *go;
static volatile int *volatile nowhere; /* NULL, and nobody may know */
static char *page;
static volatile int mended, turns;
static sigjmp_buf back;

static void *sleeper(void *arg)
{
    (void)arg;
    while (turns >= 0)
        (void)pause();
    return NULL;
}

static void *spinner(void *arg)
{
    (void)arg;
    while (turns >= 0)
        turns ^= 1;
    return NULL;
}

static void wait_for_go(void)
{
    while (go && access(go, F_OK) == -1)
        (void)sched_yield();
}

static int overflow(volatile int n)
{
    volatile char room[1000];
    room[0] = (char)n;
    return n ? overflow(n + 1) + room[0] : 0;
}

static void beyond_a_file(void)
{
    char name[] = "/tmp/probing-crashing-XXXXXX";
    int fd = mkstemp(name);
    volatile char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)unlink(name);
    map[10] = 1;
}

/* glibc finds out with its lock held, and aborts so. */
static void inside_malloc(void)
{
    char *volatile piece = malloc(3000), *volatile wall = malloc(100);
    free(piece);
    free(piece);
    free(wall);
}

static int under_the_loader(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    (void)arg;
    *nowhere = 1;
    return 0;
}

static void crash(void)
{
    volatile int zero = 0, seven = 7;
    if (strcmp(how, "segv") == 0)
        *nowhere = 1;
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "fpe") == 0)
        zero = seven / zero;
    if (strcmp(how, "ill") == 0)
        __builtin_trap();
    if (strcmp(how, "bus") == 0)
        beyond_a_file();
    if (strcmp(how, "kill") == 0)
        (void)kill(getpid(), SIGSEGV);
    if (strcmp(how, "overflow") == 0)
        (void)overflow(1);
    if (strcmp(how, "malloc") == 0)
        inside_malloc();
    if (strcmp(how, "loader") == 0)
        (void)dl_iterate_phdr(under_the_loader, NULL);
    if (strcmp(how, "zero") == 0)
        ((void (*)(void))(uintptr_t)nowhere)();
#if defined(__x86_64__)
    if (strcmp(how, "trap") == 0)
        __asm__ volatile("int3");
    if (strcmp(how, "smash") == 0)
        __asm__ volatile("mov $0x10, %rsp; push %rax");
#endif
}

/* ---- programs with handlers of their own ---- */

static void mend(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    (void)mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    mended++;
}

static void jump(int number)
{
    (void)number;
    mended++;
    siglongjmp(back, 1);
}

static void die_by_default(int number)
{
    (void)signal(number, SIG_DFL);
    (void)!write(1, "own handler\n", 12);
    (void)raise(number);
}

static void only_tell(int number)
{
    (void)number;
    (void)!write(1, "own handler\n", 12);
}

static void crash_again(int number)
{
    (void)number;
    crash();
}

static void handle(int number, void (*fn)(int), int flags)
{
    struct sigaction a = {.sa_handler = fn, .sa_flags = flags};
    (void)sigaction(number, &a, NULL);
}

static bool is(const char *name)
{
    return strcmp(how, name) == 0;
}

/* Before the core comes, or after: the test says by when it switches the handler on. */
static void install(void)
{
    struct sigaction mending = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
    if (is("mend"))
        (void)sigaction(SIGSEGV, &mending, NULL);
    if (is("jump"))
        handle(SIGSEGV, jump, 0);
    if (is("jump_nodefer"))
        handle(SIGSEGV, jump, SA_NODEFER);
    if (is("own_default"))
        handle(SIGSEGV, die_by_default, 0);
    if (is("own_reset"))
        handle(SIGSEGV, only_tell, (int)SA_RESETHAND);
    if (is("own_abort"))
        handle(SIGABRT, only_tell, 0);
    if (is("raise_abort"))
        handle(SIGABRT, only_tell, 0);
    if (is("ignored"))
        (void)signal(SIGFPE, SIG_IGN);
}

/* true: the program ends well. */
static bool live_with_faults(void)
{
    sigset_t now;
    if (is("mend"))
        for (int i = 0; i < MENDED; i++) {
            (void)mprotect(page, PAGE, PROT_NONE);
            page[i % PAGE] = 1;
        }
    if (is("jump") || is("jump_nodefer"))
        for (volatile int i = 0; i < MENDED; i++)
            if (sigsetjmp(back, is("jump")) == 0)
                *nowhere = 1;
    if (is("raise_abort"))
        (void)raise(SIGABRT);
    (void)sigprocmask(SIG_SETMASK, NULL, &now);
    printf("mended %d, blocked %d\n", mended, sigismember(&now, SIGSEGV));
    return is("mend") || is("jump") || is("jump_nodefer") || is("raise_abort") || is("ignored");
}

static void *crashing_thread(void *arg)
{
    (void)arg;
    wait_for_go();
    crash();
    return NULL;
}

static void crash_in_child(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        *nowhere = 1;
        _exit(3);
    }
    (void)waitpid(child, &status, 0);
    printf("child %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
}

/* The core's own thread crashes. */
static void crash_ours(void)
{
    for (int tid = getpid(); tid < getpid() + 1000; tid++) {
        char path[64], name[32] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
        int fd = open(path, O_RDONLY);
        if (fd == -1)
            continue;
        (void)!read(fd, name, sizeof(name) - 1);
        (void)close(fd);
        if (strcmp(name, "probing/crash\n") == 0)
            (void)syscall(SYS_tgkill, getpid(), tid, SIGSEGV);
    }
    (void)pause();
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    const char *where = argc > 2 ? argv[2] : "main";
    how = argc > 1 ? argv[1] : "segv";
    go = argc > 3 ? argv[3] : NULL;
    page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)setvbuf(stdout, NULL, _IONBF, 0);
    install();
    (void)pthread_create(&threads[0], NULL, sleeper, NULL);
    (void)pthread_create(&threads[0], NULL, spinner, NULL);
    for (int i = 0; i < 4 && strcmp(where, "main") != 0 && strcmp(where, "handler") != 0; i++)
        if (i == 0 || strcmp(where, "four") == 0)
            (void)pthread_create(&threads[i], NULL, crashing_thread, NULL);
    printf("ready %d\n", (int)getpid());
    if (strcmp(where, "thread") == 0 || strcmp(where, "four") == 0)
        (void)pthread_join(threads[0], NULL);
    wait_for_go();
    if (strcmp(where, "handler") == 0) {
        handle(SIGUSR1, crash_again, 0);
        (void)raise(SIGUSR1);
    }
    if (is("child"))
        crash_in_child();
    if (is("ours"))
        crash_ours();
    if (is("own_default") || is("own_reset"))
        *nowhere = 1;
    if (is("own_abort"))
        abort();
    crash();
    return live_with_faults() || is("child") ? 0 : 9;
}
