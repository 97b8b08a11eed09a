/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/mmap_guard_test.c - pages lost under a mapping, and every way a program's own handler
 * of SIGBUS may stand to ours.
 *
 * Each case is a child of its own.
 */
#include "core/guest/mmap_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

#define BYTES 65536

static volatile sig_atomic_t theirs;
static volatile void *their_address;
static struct sigaction below;

/* A file of BYTES zeros. */
static int make_file(void)
{
    char path[] = "/tmp/probing-mapped-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd != -1);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(ftruncate(fd, BYTES), 0);
    return fd;
}

static uint8_t *map_file(int fd)
{
    uint8_t *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* Run `body` in a child; gives 0, its exit code, or a signal's number. */
static int run(void (*body)(void))
{
    int status = 1;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGBUS, SIG_DFL); /* a sanitizer has one of its own */
        body();
        (void)fflush(stdout);
        _exit(atomic_load_explicit(&test_bad_checks, memory_order_relaxed) ? 1 : 0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void lose_body(void)
{
    static const uint8_t head[MAPPED_HEAD] = {1, 2, 3};
    int fd = make_file(), other = make_file();
    uint8_t *p = map_file(fd), *q = map_file(other);
    p[0] = p[5000] = q[0] = 9;
    CHECK_INT(mapped_watch(p, BYTES, NULL), 0);
    CHECK_INT(mapped_watch(q, BYTES, head), 0);
    CHECK_INT(mapped_lost(p), 0);
    CHECK_INT(ftruncate(fd, 0), 0);
    CHECK_INT(((volatile uint8_t *)p)[5000], 0);
    CHECK_INT(mapped_lost(p), 1);
    ((volatile uint8_t *)p)[5001] = 7; /* it can be written to, too */
    CHECK_INT(((volatile uint8_t *)p)[5001], 7);
    CHECK_INT(((volatile uint8_t *)p)[0], 0);
    CHECK_INT(mapped_lost(p), 2);
    CHECK_INT(mapped_lost(q), 0);
    CHECK_INT(ftruncate(other, 0), 0);
    CHECK_INT(((volatile uint8_t *)q)[2], 3);
    CHECK_INT(mapped_lost(q), 1);
    mapped_forget(p);
    mapped_forget(q);
    struct sigaction now;
    CHECK_INT(sigaction(SIGBUS, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
}

TEST(a_lost_page_reads_as_zeros_and_is_counted)
{
    CHECK_INT(run(lose_body), 0);
}

static uint8_t *watched(void)
{
    int fd = make_file();
    uint8_t *p = map_file(fd);
    CHECK_INT(mapped_watch(p, BYTES, NULL), 0);
    CHECK_INT(ftruncate(fd, 0), 0);
    return p;
}

static void strange_fault(void)
{
    int fd = make_file();
    volatile uint8_t *p = map_file(fd);
    CHECK_INT(ftruncate(fd, 0), 0);
    p[100] = 1;
}

static void fault_body(void)
{
    (void)watched();
    strange_fault();
}

static void sent_body(void)
{
    (void)watched();
    (void)raise(SIGBUS);
}

TEST(others_end_the_process_as_ever)
{
    CHECK_INT(run(fault_body), SIGBUS);
    CHECK_INT(run(sent_body), SIGBUS);
}

/* A handler that mends what is its own. */
static void mend_theirs(int signo, siginfo_t *info, void *context)
{
    (void)signo, (void)context;
    theirs++;
    their_address = info->si_addr;
    (void)mmap((void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void before_body(void)
{
    struct sigaction a = {.sa_sigaction = mend_theirs, .sa_flags = SA_SIGINFO}, now;
    CHECK_INT(sigaction(SIGBUS, &a, NULL), 0);
    uint8_t *p = watched();
    CHECK_INT(((volatile uint8_t *)p)[0], 0);
    CHECK_INT(theirs, 0);
    strange_fault();
    CHECK_INT(theirs, 1);
    CHECK(((uintptr_t)their_address & 4095) == 100);
    mapped_forget(p);
    CHECK_INT(sigaction(SIGBUS, NULL, &now), 0);
    CHECK(now.sa_sigaction == mend_theirs);
}

TEST(a_handler_that_was_there_gets_what_is_its_own)
{
    CHECK_INT(run(before_body), 0);
}

/* As Python's faulthandler: back to what was there before, and again. */
static void dump(int signo)
{
    theirs++;
    (void)sigaction(SIGBUS, &below, NULL);
    (void)raise(signo);
}

static void above_body(void)
{
    struct sigaction a = {.sa_handler = dump, .sa_flags = SA_NODEFER | SA_ONSTACK};
    uint8_t *p = watched();
    for (int i = 0; i < 100; i++) { /* over ours, and ours over it, as often as it likes */
        CHECK_INT(sigaction(SIGBUS, &a, i ? NULL : &below), 0);
        mapped_inspect();
        CHECK_INT(((volatile uint8_t *)p)[i % 16 * 4096], 0);
    }
    CHECK_INT(theirs, 0);
    CHECK_INT(mapped_lost(p), 16);
    strange_fault();
}

static void above_is_asked_body(void)
{
    struct sigaction a = {.sa_sigaction = mend_theirs, .sa_flags = SA_SIGINFO}, now;
    uint8_t *p = watched();
    CHECK_INT(sigaction(SIGBUS, &a, NULL), 0);
    mapped_inspect();
    strange_fault();
    CHECK_INT(theirs, 1);
    mapped_forget(p);
    CHECK_INT(sigaction(SIGBUS, NULL, &now), 0);
    CHECK(now.sa_sigaction == mend_theirs);
}

TEST(a_handler_that_comes_later_is_gone_before)
{
    CHECK_INT(run(above_body), SIGBUS);
    CHECK_INT(run(above_is_asked_body), 0);
}

static void ignored_body(void)
{
    struct sigaction now;
    (void)signal(SIGBUS, SIG_IGN);
    (void)watched();
    CHECK_INT(sigaction(SIGBUS, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_IGN);
}

TEST(an_ignored_signal_is_left_alone)
{
    CHECK_INT(run(ignored_body), 0);
}

static void too_many_body(void)
{
    int fd = make_file(), rc = 0, n = 0;
    uint8_t *p[64];
    for (; n < 64 && rc == 0; n++) {
        p[n] = map_file(fd);
        rc = mapped_watch(p[n], BYTES, NULL);
    }
    CHECK_INT(rc, -ENOSPC);
    while (n > 0)
        mapped_forget(p[--n]);
    p[0][0] = 1;
}

TEST(too_many_are_refused)
{
    CHECK_INT(run(too_many_body), 0);
}

static void resident_body(void)
{
    int fd = make_file();
    uint8_t *p = map_file(fd);
    size_t page = (size_t)getpagesize();
    CHECK_INT(madvise(p, BYTES, MADV_RANDOM), 0); /* a fault is of one page */
    CHECK_INT(mapped_watch(p, BYTES, NULL), 0);
    CHECK_INT(mapped_resident(), 0);
    p[0] = p[BYTES - 1] = 1;
    CHECK_INT(mapped_resident(), 2 * page);
    mapped_there(p, BYTES / 2);
    CHECK_INT(mapped_resident(), page);
    mapped_forget(p);
    CHECK_INT(mapped_resident(), 0);
}

TEST(what_is_resident_of_them_is_counted)
{
    CHECK_INT(run(resident_body), 0);
}

int main(void)
{
    RUN(a_lost_page_reads_as_zeros_and_is_counted);
    RUN(others_end_the_process_as_ever);
    RUN(a_handler_that_was_there_gets_what_is_its_own);
    RUN(a_handler_that_comes_later_is_gone_before);
    RUN(an_ignored_signal_is_left_alone);
    RUN(too_many_are_refused);
    RUN(what_is_resident_of_them_is_counted);
    return test_end();
}
