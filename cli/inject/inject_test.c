/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/inject_test.c - enter sleeping, allocating, spinning and interrupted processes, and
 * what they notice of it: nothing.  The library entered is a small one made here with cc.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/inject/headroom.c"
#include "cli/inject/helper_thread.c"
#include "cli/inject/inject.c"
#include "cli/inject/locate.c"
#include "cli/inject/payload.c"
#include "cli/inject/pick_thread.c"
#include "cli/inject/preflight.c"
#include "cli/inject/remote_exec.c"
#include "cli/inject/safe_point.c"
#include "cli/inject/seccomp.c"
#include "cli/inject/target_files.c"
#include "cli/inject/tracee.c"
#include "tests/test.h"

static char folder[64] = "/tmp/probing-inject-XXXXXX";
static char library_path[128], other_path[128];

/* Like the real one: started once, by one thread with all signals blocked. */
static const char source[] =
    "#define _GNU_SOURCE\n#include <pthread.h>\n#include <signal.h>\n#include <string.h>\n"
    "#include <unistd.h>\n#include <sys/mman.h>\n"
    "const char probing_version[] = VERSION;\n"
    "char probing_test_settings[256]; static int running;\n"
    "static void *run(void *a) { for (;;) pause(); return a; }\n"
    "int probing_start(const char *settings) { pthread_t t; sigset_t all, old; int rc;\n"
    "  if (running) return 1;\n"
    "  strncpy(probing_test_settings, settings, 255);\n"
    "  if (!strcmp(settings, \"refuse=1\")) return -12;\n"
    "  if (!strcmp(settings, \"slow=1\")) usleep(200000);\n"
    "  sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, &old);\n"
    "  rc = pthread_create(&t, 0, run, 0); pthread_sigmask(SIG_SETMASK, &old, 0);\n"
    "  running = !rc; return -rc; }\n"
    "void probing_test_stop(void) { running = 0; }\n";

static bool build(char *path, size_t size, const char *version)
{
    char text[160], command[512];
    (void)snprintf(text, sizeof text, "%s/core.c", folder);
    (void)snprintf(path, size, "%s/lib%s.so", folder, version);
    FILE *f = fopen(text, "w");
    if (!f || fputs(source, f) < 0 || fclose(f) != 0)
        return false;
    (void)snprintf(command, sizeof command,
                   "cc -shared -fPIC -O1 -DVERSION='\"%s\"' -o %s %s -pthread 2>/dev/null", version,
                   path, text);
    return system(command) == 0;
}

static pid_t spawn(int (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    nap(20 * NS_PER_MS);
    return pid;
}

static bool alive(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, WNOHANG) == 0)
        return true;
    printf("# process %d: wait status %x\n", pid, status);
    return false;
}

static void end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static int into(pid_t pid, struct inject_result *ret)
{
    struct inject_options o = {.pid = pid, .library = library_path, .timeout_ns = 10 * NS_PER_S};
    int rc = inject_into(&o, ret);
    if (rc < 0)
        printf("# %s\n", err_text());
    return rc;
}

static int lines_of(pid_t pid, const char *file, const char *text)
{
    char path[64], line[1024];
    int n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    if (f)
        (void)fclose(f);
    return n;
}

/* The machine may be busy: what is right soon is right. */
static bool comes_to(pid_t pid, const char *text)
{
    for (int i = 0; i < 1000; i++) {
        if (lines_of(pid, "status", text) == 1)
            return true;
        nap(2 * NS_PER_MS);
    }
    return false;
}

static int sleeper(void)
{
    for (;;)
        nap(NS_PER_S);
    return 0;
}

TEST(enters_a_sleeping_process)
{
    const char *settings[] = {"server.port=0", "log=all", NULL};
    struct inject_result r = {0};
    pid_t pid = spawn(sleeper);
    struct inject_options o = {.pid = pid, .library = library_path, .settings = settings};
    int before = lines_of(pid, "maps", "");

    o.dry_run = true;
    CHECK_INT(inject_into(&o, &r), 0);
    CHECK_INT(lines_of(pid, "maps", ""), before);
    o.dry_run = false;
    CHECK_INT(inject_into(&o, &r), 0);
    CHECK(!r.already_there && !r.revived);
    CHECK_STR(r.version, "1.0-test");
    CHECK(lines_of(pid, "maps", "/memfd:probing-core (deleted)") >= 3);
    CHECK_INT(lines_of(pid, "status", "Threads:\t2"), 1);
    CHECK_INT(lines_of(pid, "status", "SigBlk:\t0000000000000000"), 1);
    CHECK_INT(lines_of(pid, "status", "TracerPid:\t0"), 1);

    struct stack_process *view;
    CHECK_INT(stack_process_open(pid, &view), 0);
    const struct stack_module *m = stack_module_named(view, "memfd:probing-core");
    char text[64] = "";
    if (CHECK(m != NULL)) {
        uint64_t at = stack_symbol_address(view, m, "probing_test_settings");
        CHECK_INT(stack_read(view, at, text, sizeof text - 1), 0);
        CHECK_STR(text, "server.port=0\nlog=all");
    }
    stack_process_free(view);

    CHECK_INT(inject_into(&o, &r), 0); /* again: it notices */
    CHECK(r.already_there && !r.revived);
    CHECK_INT(lines_of(pid, "status", "Threads:\t2"), 1);
    o.library = other_path;
    CHECK_INT(inject_into(&o, &r), -EEXIST);
    CHECK(strstr(err_text(), "1.0-test") && strstr(err_text(), "2.0-test"));
    CHECK(alive(pid));
    end(pid);
}

TEST(leaves_nothing_when_it_fails)
{
    const char *settings[] = {"refuse=1", NULL};
    struct inject_result r;
    char bad[160], command[400];
    pid_t pid = spawn(sleeper);
    struct inject_options o = {.pid = pid, .library = library_path, .settings = settings};
    CHECK_INT(inject_into(&o, &r), -ENOMEM);
    end(pid);

    /* A library that the loader refuses: its words are the reason. */
    (void)snprintf(bad, sizeof bad, "%s/bad.so", folder);
    (void)snprintf(command, sizeof command,
                   "cd %s && echo 'int no_such_function(void); const char probing_version[] = "
                   "\"1.0-test\"; int probing_start(const char *s) { (void)s; return "
                   "no_such_function(); }' > bad.c && cc -shared -fPIC -Wl,-z,now -o bad.so bad.c",
                   folder);
    CHECK_INT(system(command), 0);
    pid = spawn(sleeper);
    int before = lines_of(pid, "maps", "");
    o = (struct inject_options){.pid = pid, .library = bad};
    CHECK_INT(inject_into(&o, &r), -ELIBACC);
    CHECK(strstr(err_text(), "no_such_function") != NULL);
    CHECK_INT(lines_of(pid, "maps", "memfd:probing-core"), 0);
    /* Heap that the loader has grown, the stack and arena that libc keeps for the next thread. */
    CHECK(lines_of(pid, "maps", "") <= before + 6);
    CHECK(comes_to(pid, "Threads:\t1"));
    CHECK(alive(pid));
    end(pid);
}

TEST(refuses_with_a_reason)
{
    struct inject_result r;
    struct inject_options o = {.pid = 4194305, .library = library_path};
    CHECK_INT(inject_into(&o, &r), -ESRCH);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    nap(20 * NS_PER_MS);
    o.pid = pid;
    CHECK_INT(inject_into(&o, &r), -ESRCH);
    CHECK(strstr(err_text(), "zombie") != NULL);
    (void)waitpid(pid, NULL, 0);
    o.pid = getpid();
    CHECK_INT(inject_into(&o, &r), -EINVAL);
    pid = spawn(sleeper);
    o.pid = pid;
    o.library = "/nonexistent/libprobing.so";
    CHECK_INT(inject_into(&o, &r), -ENOENT);
    o.library = "/proc/self/exe";
    CHECK_INT(inject_into(&o, &r), -ENOEXEC);

    o.library = library_path;
    CHECK_INT(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    CHECK_INT(inject_into(&o, &r), -EBUSY);
    CHECK(strstr(err_text(), "already traced") != NULL);
    CHECK_INT(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL), 0);
    (void)waitpid(pid, NULL, __WALL);
    CHECK_INT(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
    CHECK(alive(pid));
    end(pid);
}

TEST(enters_a_stopped_process)
{
    struct inject_result r;
    pid_t pid = spawn(sleeper);
    CHECK_INT(kill(pid, SIGSTOP), 0);
    CHECK(comes_to(pid, "State:\tT (stopped)"));
    CHECK_INT(into(pid, &r), 0);
    CHECK(r.target_stopped);
    CHECK(comes_to(pid, "State:\tT (stopped)")); /* from our stop back into its own */
    CHECK_INT(kill(pid, SIGCONT), 0);
    CHECK(comes_to(pid, "State:\tS"));
    CHECK_INT(lines_of(pid, "status", "Threads:\t2"), 1);
    end(pid);
}

static void *allocate(void *arg)
{
    (void)arg;
    for (unsigned i = 1;; i = i * 1103515245 + 12345) {
        void *p = malloc(i % 300000);
        __asm__ volatile("" : : "r"(p) : "memory"); /* or the compiler drops both calls */
        free(p);
    }
    return NULL;
}

static int allocator(void)
{
    pthread_t other;
    (void)pthread_create(&other, NULL, allocate, NULL);
    (void)allocate(NULL);
    return 0;
}

TEST(enters_a_storm_of_malloc)
{
    int good = 0;
    for (int i = 0; i < 20; i++) {
        struct inject_result r = {0};
        pid_t pid = spawn(allocator);
        good += into(pid, &r) == 0;
        CHECK(comes_to(pid, "Threads:\t3"));
        nap(20 * NS_PER_MS);
        CHECK(alive(pid));
        end(pid);
    }
    CHECK_INT(good, 20);
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void measure(const char *name, char *const command[])
{
    uint64_t stopped[20], total[20];
    for (int i = 0; i < 20; i++) {
        struct inject_result r = {0};
        pid_t pid = fork();
        if (pid == 0) {
            (void)execvp(command[0], command);
            _exit(127);
        }
        for (int k = 0; k < 400 && lines_of(pid, "task/self/nothing", "") == 0; k++) {
            if (lines_of(pid, "maps", "_heapq") || (k > 60 && lines_of(pid, "maps", "libc")))
                break;
            nap(2 * NS_PER_MS);
        }
        CHECK_INT(into(pid, &r), 0);
        stopped[i] = r.stopped_ns;
        total[i] = r.total_ns;
        CHECK(alive(pid));
        end(pid);
    }
    qsort(stopped, 20, sizeof stopped[0], compare_u64);
    qsort(total, 20, sizeof total[0], compare_u64);
    printf("# %s: stopped median %llu us, max %llu us; total median %llu us\n", name,
           (unsigned long long)stopped[10] / 1000, (unsigned long long)stopped[19] / 1000,
           (unsigned long long)total[10] / 1000);
}

TEST(stops_python_for_less_than_a_moment)
{
    char *const spin[] = {"python3", "-c", "import heapq\nwhile 1: pass", NULL};
    char *const sleep[] = {"python3", "-c", "import heapq,time\nwhile 1: time.sleep(9)", NULL};
    measure("python3 spinning", spin);
    measure("python3 sleeping", sleep);
}

/* ---- interrupted system calls ---- */

static volatile int *shared; /* what the children say: 1 started, 2 done, 3 wrong; then errno */
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
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct inject_result r;
        waits_in = calls[i].wait;
        shared[0] = 0;
        pid_t pid = spawn(waiter);
        for (int k = 0; k < 500 && shared[0] == 0; k++)
            nap(2 * NS_PER_MS);
        CHECK(comes_to(pid, "State:\tS"));
        for (int k = 0; k < 3; k++)
            CHECK_INT(into(pid, &r), 0);
        if (calls[i].wait == in_read)
            CHECK_INT(write(pipes[1], "x", 1), 1);
        for (int k = 0; k < 200 && shared[0] == 1; k++)
            nap(10 * NS_PER_MS);
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
        nap(2 * NS_PER_MS);
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
        nap((uint64_t)(300 + 200 * i) * NS_PER_US);
        end(command);
        CHECK(comes_to(pid, "TracerPid:\t0"));
        int settled = 0; /* the next thread may be tried, and the helper be at work */
        for (int k = 0; k < 10000 && settled < 50; k++) {
            settled = whole_or_not_at_all(pid) ? settled + 1 : 0;
            nap(NS_PER_MS);
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
            nap(NS_PER_MS);
        nap(20 * NS_PER_MS);
        end(injector);
        nap(300 * NS_PER_MS);
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
        CHECK_INT(prepare(&t), 0);
        CHECK_INT(tracee_find(&t), 0);
        CHECK_INT(take_thread(&t), 0);
        CHECK_INT(bring_file(&t, &l, path, sizeof path), 0);
        CHECK_INT(lines_of(pid, "status", "TracerPid:\t0"), 1);
        CHECK_INT(descriptors_of(pid), descriptors + 1);
        CHECK(lines_of(pid, "maps", "") > maps);
        undo(&t);
        done(&t);
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return test_skip("the children of a sanitized program are no ordinary targets");
#endif
    if (system("cc --version >/dev/null 2>&1") != 0)
        return test_skip("no cc to make a library with");
    if (!mkdtemp(folder) || !build(library_path, sizeof library_path, "1.0-test") ||
        !build(other_path, sizeof other_path, "2.0-test"))
        return test_skip("cannot make a library");
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return test_skip("no shared memory");
    RUN(enters_a_sleeping_process);
    RUN(leaves_nothing_when_it_fails);
    RUN(refuses_with_a_reason);
    RUN(enters_a_stopped_process);
    RUN(ends_no_system_call_early);
    RUN(enters_a_storm_of_malloc);
    RUN(changes_no_register);
    RUN(survives_the_death_of_the_command);
    RUN(survives_the_death_of_the_injector);
    RUN(undoes_between_two_stops);
    if (system("python3 -c pass >/dev/null 2>&1") == 0)
        RUN(stops_python_for_less_than_a_moment);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        printf("# %s is left\n", folder);
    return test_end();
}
