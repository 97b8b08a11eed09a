/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/unharmed_test.c - what an entered process notices of it: nothing.  Its system calls do
 * not end early, its registers are its own, and who enters it may be killed at any time.
 */
#include "cli/inject/entered_test.h"

/* ---- interrupted system calls ---- */

static int pipes[2];

static int64_t in_epoll(void)
{
    struct epoll_event e;
    return epoll_wait(epoll_create1(0), &e, 1, 400);
}

static int64_t in_nanosleep(void)
{
    return nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
}

static int64_t in_select(void)
{
    return select(0, NULL, NULL, NULL, &(struct timeval){.tv_usec = 400000});
}

static int64_t in_poll(void)
{
    return poll(NULL, 0, 400);
}

static int64_t in_sigtimedwait(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int rc = sigtimedwait(&set, NULL, &(struct timespec){.tv_nsec = 400000000});
    return rc == -1 && errno == EAGAIN ? 0 : -1;
}

static int64_t in_futex(void)
{
    uint32_t word = 0;
    int64_t rc = syscall(SYS_futex, &word, 0, 0, &(struct timespec){.tv_nsec = 400000000}, NULL, 0);
    return rc == -1 && errno == ETIMEDOUT ? 0 : -1;
}

static int64_t in_read(void)
{
    char c;
    return read(pipes[0], &c, 1) == 1 && c == 'x' ? 0 : -1;
}

static int64_t (*waits_in)(void);

static int waiter(void)
{
    shared[0] = 1;
    errno = 0;
    shared[1] = waits_in() == 0 ? 0 : errno ? errno : -1;
    shared[0] = 2;
    return sleeper();
}

TEST(ends_no_system_call_early)
{
    static const struct {
        const char *name;
        int64_t (*wait)(void);
    } calls[] = {{"epoll_wait", in_epoll}, {"nanosleep", in_nanosleep},       {"select", in_select},
                 {"poll", in_poll},        {"sigtimedwait", in_sigtimedwait}, {"futex", in_futex},
                 {"read", in_read}};
    CHECK_INT(pipe(pipes), 0);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct inject_result r;
        waits_in = calls[i].wait;
        shared[0] = 0;
        pid_t pid = spawn(waiter);
        for (int k = 0; k < 500 && shared[0] == 0; k++)
            wait_ns(2 * NS_PER_MS);
        CHECK(comes_to(pid, "State:\tS"));
        for (int k = 0; k < 3; k++)
            CHECK_INT(into(pid, &r), 0);
        if (calls[i].wait == in_read)
            CHECK_INT(write(pipes[1], "x", 1), 1);
        for (int k = 0; k < 200 && shared[0] == 1; k++)
            wait_ns(10 * NS_PER_MS);
        if (shared[0] != 2 || shared[1] != 0)
            printf("# %s gave %s\n", calls[i].name, strerror(shared[1]));
        CHECK_INT(shared[0], 2);
        CHECK_INT(shared[1], 0);
        end(pid);
    }
}

/* Vector registers, the red zone and errno are what a careless injector spoils. */
static int counter(void)
{
    static uint64_t in[64], out[64];
    for (uint64_t i = 0; i < 64; i++)
        in[i] = (i + 1) * UINT64_C(0x0123456789abcdf1);
    for (int i = 0;; i++) {
        errno = 77;
#ifdef __x86_64__
        uint64_t rounds = 20000;
        __asm__ volatile("movdqu (%1), %%xmm0; movdqu 16(%1), %%xmm1; movdqu 32(%1), %%xmm2\n"
                         "movdqu 48(%1), %%xmm3; movdqu 64(%1), %%xmm7; movdqu 80(%1), %%xmm8\n"
                         "movdqu 96(%1), %%xmm14; movdqu 112(%1), %%xmm15; movq %%rsp, -64(%%rsp)\n"
                         "1: dec %0; jnz 1b\n"
                         "movdqu %%xmm0, (%2); movdqu %%xmm1, 16(%2); movdqu %%xmm2, 32(%2)\n"
                         "movdqu %%xmm3, 48(%2); movdqu %%xmm7, 64(%2); movdqu %%xmm8, 80(%2)\n"
                         "movdqu %%xmm14, 96(%2); movdqu %%xmm15, 112(%2)\n"
                         "cmpq %%rsp, -64(%%rsp); je 2f; movq $0, (%2); 2:\n"
                         : "+r"(rounds)
                         : "r"(in), "r"(out)
                         : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm7", "xmm8", "xmm14",
                           "xmm15");
#elif defined(__aarch64__)
        uint64_t rounds = 20000;
        __asm__ volatile("ldp q0, q1, [%1]; ldp q7, q8, [%1, #32]; ldp q16, q31, [%1, #64]\n"
                         "ldp q15, q29, [%1, #96]; msr fpcr, xzr\n"
                         "1: subs %0, %0, #1; b.ne 1b\n"
                         "stp q0, q1, [%2]; stp q7, q8, [%2, #32]; stp q16, q31, [%2, #64]\n"
                         "stp q15, q29, [%2, #96]\n"
                         : "+r"(rounds)
                         : "r"(in), "r"(out)
                         : "memory", "cc", "v0", "v1", "v7", "v8", "v15", "v16", "v29", "v31");
#endif
        if (memcmp(in, out, 128) != 0)
            return 3;
        if (errno != 77)
            return 4;
        shared[2] = i;
    }
}

static void check_goes_on(pid_t pid)
{
    CHECK(comes_to(pid, "TracerPid:\t0"));
    int before = shared[2];
    for (int i = 0; i < 1000 && shared[2] == before; i++)
        wait_ns(2 * NS_PER_MS);
    CHECK(alive(pid));
    CHECK(shared[2] != before);
    CHECK_INT(lines_of(pid, "status", "SigBlk:\t0000000000000000"), 1);
}

TEST(changes_no_register)
{
    struct inject_result r;
    for (int i = 0; i < 20; i++) {
        pid_t pid = spawn(counter);
        CHECK_INT(into(pid, &r), 0);
        check_goes_on(pid);
        end(pid);
    }
}

static bool whole_or_not_at_all(pid_t pid)
{
    return lines_of(pid, "status", "Threads:\t2") ==
           (lines_of(pid, "maps", "memfd:probing-core") > 0);
}

/* The command is killed at any time: the work is done nevertheless, whole or not at all. */
TEST(survives_the_death_of_the_command)
{
    for (int i = 0; i < 15; i++) {
        pid_t pid = spawn(counter);
        pid_t command = fork();
        if (command == 0) {
            struct inject_result r;
            _exit(into(pid, &r) < 0);
        }
        wait_ns((uint64_t)(300 + 200 * i) * NS_PER_US);
        end(command);
        CHECK(comes_to(pid, "TracerPid:\t0"));
        int settled = 0; /* the next thread may be tried, and the helper be at work */
        for (int k = 0; k < 10000 && settled < 50; k++) {
            settled = whole_or_not_at_all(pid) ? settled + 1 : 0;
            wait_ns(NS_PER_MS);
        }
        CHECK_INT(settled, 50);
        check_goes_on(pid);
        end(pid);
    }
}

/* The injecting process itself is killed in the middle of the call: the thread puts itself back. */
TEST(survives_the_death_of_the_injector)
{
    const char *settings[] = {"slow=1", NULL};
    for (int i = 0; i < 5; i++) {
        pid_t pid = spawn(counter);
        pid_t injector = fork();
        if (injector == 0) {
            struct inject_result r;
            struct inject_options o = {.pid = pid, .library = library_path, .settings = settings};
            _exit(inject_here(&o, &r) < 0);
        }
        for (int k = 0; k < 500 && !lines_of(pid, "maps", "probing-core"); k++)
            wait_ns(NS_PER_MS);
        wait_ns(20 * NS_PER_MS);
        end(injector);
        wait_ns(300 * NS_PER_MS);
        check_goes_on(pid);
        end(pid);
    }
}

static int descriptors_of(pid_t pid)
{
    char path[PROC_PATH_BYTES];
    struct proc_numbers all;
    struct proc_number one;
    int n = 0;
    proc_path(pid, 0, "fd", path);
    (void)proc_numbers_open(&all, path);
    while (proc_numbers_next(&all, &one))
        n++;
    proc_numbers_close(&all);
    return n;
}

TEST(undoes_between_two_stops)
{
    struct inject_result r = {0};
    struct library l = {0};
    char path[256];
    sigset_t all, kept;
    CHECK_INT(library_open(library_path, &l), 0);
    (void)sigfillset(&all);
    for (int i = 0; i < 10; i++) {
        pid_t pid = spawn(counter);
        (void)pthread_sigmask(SIG_BLOCK, &all, &kept);
        int maps = lines_of(pid, "maps", ""), descriptors = descriptors_of(pid);
        struct target t = {.pid = pid, .fd = -1, .own_fd = -1, .mem = -1, .result = &r};
        t.timeout_ns = 5 * NS_PER_S;
        t.deadline_ns = clock_monotonic() + t.timeout_ns;
        CHECK_INT(prepare_thread(&t), 0);
        CHECK_INT(tracee_find(&t), 0);
        CHECK_INT(take_thread(&t), 0);
        CHECK_INT(bring_file(&t, &l, path, sizeof(path)), 0);
        CHECK_INT(lines_of(pid, "status", "TracerPid:\t0"), 1);
        CHECK_INT(descriptors_of(pid), descriptors + 1);
        CHECK(lines_of(pid, "maps", "") > maps);
        undo_entry(&t);
        close_target(&t);
        (void)pthread_sigmask(SIG_SETMASK, &kept, NULL);
        CHECK_INT(descriptors_of(pid), descriptors);
        CHECK_INT(lines_of(pid, "maps", ""), maps);
        check_goes_on(pid);
        end(pid);
    }
    library_done(&l);
}

int main(void)
{
    int code = begin_all();
    if (code != 0)
        return code;
    RUN(ends_no_system_call_early);
    RUN(changes_no_register);
    RUN(survives_the_death_of_the_command);
    RUN(survives_the_death_of_the_injector);
    RUN(undoes_between_two_stops);
    return end_all();
}
