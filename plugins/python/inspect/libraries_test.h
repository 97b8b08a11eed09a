/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/libraries_test.h - run a program in each shared libpython of the machine
 * (Debian's and pyenv's, 3.8 to 3.15), read by a thread that is not Python's.
 *
 * Each in a process of its own: its interpreter never ends, as a killed one would not.
 */
#ifndef PYTHON_INSPECT_LIBRARIES_TEST_H
#define PYTHON_INSPECT_LIBRARIES_TEST_H

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

struct libraries_job {
    const char *program;
    void *(*reader)(void *unused); /* begins when `program` has been run */
};

static int libraries_run_one(const char *path, const struct libraries_job *job)
{
    pthread_t thread;
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return TEST_SKIP;
    void (*begin)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
    int (*run)(const char *, void *) =
        (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
    void *(*leave)(void) = (void *(*)(void))dlsym(library, "PyEval_SaveThread");
    begin(0);
    if (!CHECK_INT(run(job->program, NULL), 0))
        return 1;
    (void)leave();
    if (!CHECK_INT(pthread_create(&thread, NULL, job->reader, NULL), 0))
        return 1;
    (void)pthread_join(thread, NULL);
    (void)fflush(stdout);
    return atomic_load(&test_bad_checks) ? 1 : 0;
}

/* 1: it could be loaded. */
static int libraries_try(const char *path, const struct libraries_job *job)
{
    int status = 0;
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        atomic_store(&test_bad_checks, 0); /* its own only */
        _exit(libraries_run_one(path, job));
    }
    if (!CHECK(pid > 0) || !CHECK(waitpid(pid, &status, 0) == pid))
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
        return 0;
    if (!CHECK(WIFEXITED(status)) || !CHECK_INT(WEXITSTATUS(status), 0))
        printf("# %s: %x\n", path, (unsigned)status);
    return 1;
}

/* named: paths, NULL at the end; or NULL: all there are.  Gives how many were tried. */
static int libraries_run(char **named, const struct libraries_job *job)
{
    const char *home = getenv("HOME");
    char pattern[300];
    glob_t found = {0};
    int tried = 0;
    uint32_t minors = 0; /* one of each, unless all are asked for */
    for (char **name = named; name && *name; name++)
        tried += libraries_try(*name, job);
    if (named)
        return tried;
    (void)snprintf(pattern, sizeof(pattern), "%s/.pyenv/versions/3.*/lib/libpython3.*.so.1.0",
                   home ? home : "");
    (void)glob("/usr/lib/*-linux-gnu/libpython3.*.so.1.0", 0, NULL, &found);
    (void)glob(pattern, GLOB_APPEND, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        long minor = strtol(strstr(found.gl_pathv[i], "libpython3.") + 11, NULL, 10);
        if (minor < 8 || minor > 15 || (minors >> minor & 1 && !getenv("PROBING_TEST_FULL")))
            continue;
        if (libraries_try(found.gl_pathv[i], job)) {
            minors |= 1u << minor;
            tried++;
        }
    }
    globfree(&found);
    return tried;
}

#endif
