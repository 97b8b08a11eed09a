/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/gc_test.c - whose data is taken away at a start, and whose never.
 *
 * Threads: the test's.  Processes that have died are real ones; their directories are made here.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/datadir/datadir.h"
#include "core/datadir/own_dir.h"
#include "tests/test.h"

#define HOUR_S 3600
#define HOUR_NS (UINT64_C(3600) * 1000000000)

extern char **environ;

static char root[64], memory[64];
static struct own_dir own;
static pid_t dead_pid;

static bool always(void *arg)
{
    (void)arg;
    return true;
}

static void set_age(const char *path, int64_t seconds)
{
    struct timespec at[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    CHECK_INT(utimensat(AT_FDCWD, path, at, 0), 0);
}

static void put(const char *directory, const char *name, const char *text, size_t size, int64_t age)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    CHECK_INT(file_write(AT_FDCWD, path, text, size, 0600), 0);
    set_age(path, age);
}

/* A directory as a core leaves it; n tells those of one process apart. */
static void make(char ret[128], const char *below, pid_t pid, uint64_t start, int n, int64_t age,
                 const char *info, size_t data_bytes)
{
    (void)snprintf(ret, 128, "%s/%d-%llu.%d", below, (int)pid, (unsigned long long)start, n);
    CHECK_INT(mkdir(ret, 0700), 0);
    char *zeros = calloc(1, data_bytes + 1);
    CHECK(zeros != NULL);
    for (size_t i = 0; i < data_bytes; i++)
        zeros[i] = 'x'; /* blocks, no hole */
    if (info) {
        struct buf b;
        buf_init(&b, INFO_MAX_BYTES);
        CHECK_INT(buf_adds(&b, info), 0);
        CHECK_INT(info_commit_sum(&b), 0);
        put(ret, "info", b.data, b.size, age);
        buf_done(&b);
    }
    if (data_bytes)
        put(ret, "data.mdb", zeros, data_bytes, age);
    free(zeros);
    set_age(ret, age);
}

static bool there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void info_of_this_boot(char ret[160])
{
    struct buf b;
    buf_init(&b, 128);
    CHECK_INT(file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &b), 0);
    (void)snprintf(ret, 160, "pid: 1\nboot_id: %sversion: 1\n", buf_text(&b));
    buf_done(&b);
}

static void run(uint64_t keep_ns, uint64_t max_bytes)
{
    struct sweep_limits limits = {.keep_ns = keep_ns, .max_bytes = max_bytes, .go_on = always};
    (void)sweep_run(&own, &limits);
}

TEST(takes_what_is_too_old)
{
    char info[160], old[128], young[128], quiet[128], living[128], strange[128];
    uint64_t start;
    info_of_this_boot(info);
    CHECK_INT(proc_start_time(getppid(), &start), 0);
    make(old, root, dead_pid, 1, 1, 3 * HOUR_S, info, 100);
    make(young, root, dead_pid, 1, 2, HOUR_S, info, 100);
    make(quiet, root, dead_pid, 1, 3, 5, info, 100);
    make(living, root, getppid(), start, 4, 3 * HOUR_S, info, 100);
    make(strange, root, dead_pid, 1, 5, 3 * HOUR_S, /* info= */ NULL, 100);
    run(2 * HOUR_NS, 0);
    CHECK(!there(old) && there(young) && there(quiet) && there(living) && there(strange));
    run(0, 0); /* no limit: all is kept */
    CHECK(there(young));
    CHECK_INT(file_remove_dir(young), 0);
    CHECK_INT(file_remove_dir(quiet), 0);
    CHECK_INT(file_remove_dir(living), 0);
    CHECK_INT(file_remove_dir(strange), 0);
}

TEST(takes_the_oldest_of_what_is_too_much)
{
    char info[160], paths[3][128], elsewhere[128];
    info_of_this_boot(info);
    for (int i = 0; i < 3; i++)
        make(paths[i], root, dead_pid, 1, i, HOUR_S * (i + 1), info, 1 << 20);
    make(elsewhere, root, dead_pid, 1, 9, 9 * HOUR_S, "pid: 1\nboot_id: another\n", 1 << 20);
    run(0, (2 << 20) + (1 << 19));
    CHECK(there(paths[0]) && there(paths[1]) && !there(paths[2]));
    CHECK(there(elsewhere)); /* another machine's may live: only age would do */
    run(8 * HOUR_NS, 0);
    CHECK(!there(elsewhere));
    CHECK_INT(file_remove_dir(paths[0]), 0);
    CHECK_INT(file_remove_dir(paths[1]), 0);
}

/* A process of another pid namespace looks dead by its number, and holds the store's lock. */
TEST(leaves_what_somebody_holds)
{
    char info[160], held[128], path[192], byte;
    int to[2], from[2];
    info_of_this_boot(info);
    make(held, root, dead_pid, 1, 1, 3 * HOUR_S, info, 0);
    put(held, "held", "lock", 4, 3 * HOUR_S);
    set_age(held, 3 * HOUR_S);
    (void)snprintf(path, sizeof(path), "%s/held", held);
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
        int fd = open(path, O_RDWR | O_CLOEXEC);
        bool good = fd != -1 && fcntl(fd, F_SETLK, &lock) == 0;
        (void)!write(from[1], &good, 1);
        (void)!read(to[0], &byte, 1);
        _exit(0);
    }
    CHECK(read(from[0], &byte, 1) == 1 && byte == 1);
    run(HOUR_NS, 1);
    CHECK(there(held));
    CHECK_INT(write(to[1], "x", 1), 1);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    run(HOUR_NS, 1);
    CHECK(!there(held));
    for (int i = 0; i < 2; i++) {
        (void)close(to[i]);
        (void)close(from[i]);
    }
}

TEST(takes_memory_whose_directory_has_gone)
{
    char gone[128], kept[128], other[128], text[256], space[64] = "";
    if (file_private_dir(memory) < 0)
        return; /* no /dev/shm here */
    CHECK(readlink("/proc/self/ns/mnt", space, sizeof(space) - 1) > 0);
    make(gone, memory, dead_pid, 1, 1, HOUR_S, NULL, 0);
    make(kept, memory, dead_pid, 1, 2, HOUR_S, NULL, 0);
    make(other, memory, dead_pid, 1, 3, HOUR_S, NULL, 0);
    int n = snprintf(text, sizeof(text), "%s/nowhere\n%s\n", root, space);
    put(gone, "home", text, (size_t)n, HOUR_S);
    n = snprintf(text, sizeof(text), "%s\n%s\n", root, space);
    put(kept, "home", text, (size_t)n, HOUR_S);
    n = snprintf(text, sizeof(text), "%s/nowhere\nmnt:[1]\n", root);
    put(other, "home", text, (size_t)n, HOUR_S);
    set_age(gone, HOUR_S);
    set_age(kept, HOUR_S);
    set_age(other, HOUR_S);
    run(2 * HOUR_NS, 0);
    CHECK(!there(gone) && there(kept) && there(other));
    run(HOUR_NS / 2, 0);
    CHECK(!there(other)); /* a container's: its directory cannot be seen from here, its age can */
    CHECK_INT(file_remove_dir(kept), 0);
}

TEST(brings_memory_of_the_dead_home)
{
    char fast[128], home[128], link[192], text[256], space[64] = "";
    struct buf b;
    struct stat st;
    if (file_private_dir(memory) < 0)
        return; /* no /dev/shm here */
    CHECK(readlink("/proc/self/ns/mnt", space, sizeof(space) - 1) > 0);
    make(fast, memory, dead_pid, 1, 4, HOUR_S, NULL, 0);
    make(home, root, dead_pid, 1, 4, HOUR_S, NULL, 0);
    int n = snprintf(text, sizeof(text), "%s\n%s\n", home, space);
    put(fast, "home", text, (size_t)n, HOUR_S);
    put(fast, "rings", "rows", 4, HOUR_S);
    put(fast, "strings", "names", 5, HOUR_S);
    (void)snprintf(link, sizeof(link), "%s/rings", home);
    (void)snprintf(text, sizeof(text), "%s/rings", fast);
    CHECK_INT(symlink(text, link), 0);
    set_age(fast, HOUR_S);
    run(2 * HOUR_NS, 0);
    CHECK(!there(fast));
    CHECK(lstat(link, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 4);
    (void)snprintf(text, sizeof(text), "%s/strings", home);
    buf_init(&b, 64);
    CHECK_INT(file_read(AT_FDCWD, text, &b), 0);
    CHECK_STR(buf_text(&b), "names");
    buf_done(&b);
    CHECK_INT(file_remove_dir(home), 0);
}

TEST(writes_a_home_that_is_locked)
{
    struct own_dir p = {.start_time = 1};
    char path[192];
    (void)snprintf(p.directory, sizeof(p.directory), "%s/data", root);
    (void)snprintf(p.fast, sizeof(p.fast), "%s", root);
    int fd = home_write(&p);
    CHECK(fd != -1);
    (void)snprintf(path, sizeof(path), "%s/home", root);
    pid_t pid = fork(), status = -1;
    if (pid == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int other = open(path, O_RDWR | O_CLOEXEC);
        _exit(fcntl(other, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    (void)close(fd);
}

int main(void)
{
    char *argv[] = {(char[]){"true"}, NULL};
    (void)snprintf(root, sizeof(root), "/tmp/sweep_test.XXXXXX");
    (void)snprintf(memory, sizeof(memory), DATADIR_SHM "/probing-%u", (unsigned)geteuid());
    if (!mkdtemp(root) || posix_spawnp(&dead_pid, "true", NULL, NULL, argv, environ) != 0 ||
        waitpid(dead_pid, NULL, 0) != dead_pid)
        return test_skip("no directory in /tmp, or no program 'true'");
    (void)snprintf(own.directory, sizeof(own.directory), "%s/%d-1", root, (int)getpid());
    RUN(takes_what_is_too_old);
    RUN(takes_the_oldest_of_what_is_too_much);
    RUN(leaves_what_somebody_holds);
    RUN(takes_memory_whose_directory_has_gone);
    RUN(brings_memory_of_the_dead_home);
    RUN(writes_a_home_that_is_locked);
    (void)file_remove_dir(root);
    return test_end();
}
