/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/inject_test.c - enter sleeping, allocating and stopped processes, be refused with a
 * reason, and stop Python for a moment only.
 */
#include "cli/inject/entered_test.h"

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
        CHECK_INT(stack_read(view, at, text, sizeof(text) - 1), 0);
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
    (void)snprintf(bad, sizeof(bad), "%s/bad.so", folder);
    (void)snprintf(command, sizeof(command),
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
    wait_ns(20 * NS_PER_MS);
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
        wait_ns(20 * NS_PER_MS);
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
            wait_ns(2 * NS_PER_MS);
        }
        CHECK_INT(into(pid, &r), 0);
        stopped[i] = r.stopped_ns;
        total[i] = r.total_ns;
        CHECK(alive(pid));
        end(pid);
    }
    qsort(stopped, 20, sizeof(stopped[0]), compare_u64);
    qsort(total, 20, sizeof(total[0]), compare_u64);
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

int main(void)
{
    int code = begin_all();
    if (code != 0)
        return code;
    RUN(enters_a_sleeping_process);
    RUN(leaves_nothing_when_it_fails);
    RUN(refuses_with_a_reason);
    RUN(enters_a_stopped_process);
    RUN(enters_a_storm_of_malloc);
    if (system("python3 -c pass >/dev/null 2>&1") == 0)
        RUN(stops_python_for_less_than_a_moment);
    return end_all();
}
