/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/entered_test.h - what the tests of injection share: a small library made here with cc,
 * children that it goes into, and what /proc says of them.
 */
#ifndef CLI_INJECT_ENTERED_TEST_H
#define CLI_INJECT_ENTERED_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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
#include "cli/inject/retry.c"
#include "cli/inject/safe_point.c"
#include "cli/inject/seccomp.c"
#include "cli/inject/seccomp_program.c"
#include "cli/inject/sleep_time.c"
#include "cli/inject/starved.c"
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
    (void)snprintf(text, sizeof(text), "%s/core.c", folder);
    (void)snprintf(path, size, "%s/lib%s.so", folder, version);
    FILE *f = fopen(text, "w");
    if (!f || fputs(source, f) < 0 || fclose(f) != 0)
        return false;
    (void)snprintf(command, sizeof(command),
                   "cc -shared -fPIC -O1 -DVERSION='\"%s\"' -o %s %s -pthread 2>/dev/null", version,
                   path, text);
    return system(command) == 0;
}

static pid_t spawn(int (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* Ctrl-C of the tests: it would run for ever */
        _exit(body());
    }
    wait_ns(20 * NS_PER_MS);
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
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
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
        wait_ns(2 * NS_PER_MS);
    }
    return false;
}

static int sleeper(void)
{
    for (;;)
        wait_ns(NS_PER_S);
    return 0;
}

/* Reports of the children: 1 started, 2 done, 3 wrong; then errno. */
static volatile int *shared;

/* 0, or the program's exit code: nothing can be tried here. */
static int begin_all(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return test_skip("the children of a sanitized program are no ordinary targets");
#endif
    if (system("cc --version >/dev/null 2>&1") != 0)
        return test_skip("no cc to make a library with");
    if (!mkdtemp(folder) || !build(library_path, sizeof(library_path), "1.0-test") ||
        !build(other_path, sizeof(other_path), "2.0-test"))
        return test_skip("cannot make a library");
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return test_skip("no shared memory");
    return 0;
}

static int end_all(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        printf("# %s is left\n", folder);
    return test_end();
}

#endif
