/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/datadir_test.c - what is opened, what is refused in words, and what removal leaves.
 *
 * Threads: the test's.  What other users can do is in tests/hostile/test_directory.py.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/datadir/datadir.h"
#include "tests/test.h"

static char root[64]; /* of this test, in /tmp */

static void name_of(char ret[256], const char *directory, const char *name)
{
    (void)snprintf(ret, 256, "%.200s/%.48s", directory, name);
}

static void make(char ret[256], const char *leaf)
{
    name_of(ret, root, leaf);
    CHECK_INT(mkdir(ret, 0700), 0);
}

static void put(const char *directory, const char *name, const char *text)
{
    char path[256];
    name_of(path, directory, name);
    CHECK_INT(file_write(AT_FDCWD, path, text, strlen(text), 0600), 0);
}

static void link_to(const char *target, const char *directory, const char *name)
{
    char path[256];
    name_of(path, directory, name);
    CHECK_INT(symlink(target, path), 0);
}

static bool there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static bool says(int rc, const char *words)
{
    if (strstr(err_why(rc), words))
        return true;
    printf("# '%s' does not say '%s'\n", err_why(rc), words);
    return false;
}

TEST(opens_directories_and_no_links)
{
    char path[256], link[256], slashed[300], file[256];
    struct datadir d;
    make(path, "1-1");
    CHECK_INT(datadir_open(path, DATADIR_OWN, &d), 0);
    CHECK(d.own && d.owner == geteuid() && d.fd >= 0);
    CHECK_STR(d.leaf, "1-1");
    CHECK_STR(d.path, path);
    datadir_close(&d);
    datadir_close(&d);
    CHECK_INT(d.fd, -1);

    (void)snprintf(slashed, sizeof(slashed), "%s///", path);
    CHECK_INT(datadir_open(slashed, DATADIR_ANY, &d), 0);
    CHECK_STR(d.leaf, "1-1");
    datadir_close(&d);

    name_of(link, root, "2-1");
    link_to(path, root, "2-1");
    int rc = datadir_open(link, DATADIR_ANY, &d);
    CHECK_INT(rc, -ELOOP);
    CHECK(says(rc, "symbolic link"));
    CHECK_INT(d.fd, -1);
    put(root, "3-1", "text");
    name_of(file, root, "3-1");
    rc = datadir_open(file, DATADIR_ANY, &d);
    CHECK_INT(rc, -ENOTDIR);
    CHECK(says(rc, "a file"));
    CHECK_INT(datadir_open("/nonexistent/1-1", DATADIR_ANY, &d), -ENOENT);
    CHECK_INT(datadir_open("", DATADIR_ANY, &d), -EINVAL);

    CHECK_INT(chmod(path, 0755), 0);
    CHECK_INT(datadir_open(path, DATADIR_OWN, &d), -EPERM);
    CHECK_INT(datadir_open(path, DATADIR_ANY, &d), 0);
    CHECK(d.own); /* others look into it, and change nothing */
    datadir_close(&d);
    CHECK_INT(chmod(path, 0777), 0);
    CHECK_INT(datadir_open(path, DATADIR_ANY, &d), 0);
    CHECK(!d.own);
    datadir_close(&d);
    CHECK(unlink(link) == 0 && unlink(file) == 0 && rmdir(path) == 0);
}

/* As a process sees it: a path of ours with /proc in front of it is the same directory. */
TEST(looks_with_the_eyes_of_a_process)
{
    char path[256], view[300], out[256];
    struct datadir d;
    make(path, "1-1");
    put(path, "info", "text");
    (void)snprintf(view, sizeof(view), "/proc/%d/root%s", (int)getpid(), path);
    CHECK_INT(datadir_open(view, DATADIR_ANY, &d), 0);
    CHECK(d.view >= 0 && datadir_has(&d, "info", NULL));
    CHECK_STR(d.path, view);
    datadir_close(&d);
    name_of(out, root, "out");
    link_to("/proc/self/root", root, "out"); /* a magic link in between leads nowhere */
    (void)snprintf(view, sizeof(view), "/proc/%d/root%s/out%.100s", (int)getpid(), root, path);
    CHECK(datadir_open(view, DATADIR_ANY, &d) < 0);
    CHECK(unlink(out) == 0 && file_remove_dir(path) == 0);
}

/* It was "/proc/PID/root: No such file or directory". */
TEST(a_process_that_has_ended_is_named)
{
    char view[300], want[64];
    struct datadir d;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
    (void)snprintf(view, sizeof(view), "/proc/%d/root%s", (int)pid, root);
    (void)snprintf(want, sizeof(want), "process %d has ended", (int)pid);
    CHECK_INT(datadir_open(view, DATADIR_ANY, &d), -ENOENT);
    CHECK_STR(err_text(), want);
}

static void bind_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    CHECK(fd != -1 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    (void)close(fd);
}

TEST(reads_files_and_nothing_else)
{
    char path[256], fifo[256], sock[256], inner[256];
    struct datadir d;
    struct buf b;
    struct stat st;
    make(path, "1-1");
    name_of(fifo, path, "fifo");
    name_of(sock, path, "sock");
    name_of(inner, path, "inner");
    put(path, "file", "words");
    CHECK(mkfifo(fifo, 0600) == 0 && mkdir(inner, 0700) == 0);
    bind_socket(sock);
    link_to("/etc/passwd", path, "passwd");
    link_to("/etc/passwd", path, "rings");
    link_to("/dev/shm/probing-0/1-1/held", path, "held"); /* not one of those that may be links */
    CHECK_INT(datadir_open(path, DATADIR_OWN, &d), 0);

    int fd = datadir_file(&d, "file", &st);
    CHECK(fd >= 0 && st.st_size == 5 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    (void)close(fd);
    static const struct {
        const char *name, *words;
        int rc;
    } no[] = {{"fifo", "a FIFO", -EINVAL},       {"sock", "a socket", -EINVAL},
              {"inner", "a directory", -EINVAL}, {"passwd", "where no core puts it", -EPERM},
              {"rings", "/etc/passwd", -EPERM},  {"held", "where no core puts it", -EPERM},
              {"missing", "No such", -ENOENT},   {"../1-1/file", "Invalid", -EINVAL}};
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        int rc = datadir_file(&d, no[i].name, NULL);
        CHECK_INT(rc, no[i].rc);
        CHECK(says(rc, no[i].words));
    }
    CHECK(datadir_has(&d, "fifo", &st) && S_ISFIFO(st.st_mode) && !datadir_has(&d, "none", NULL));
    CHECK(!datadir_locked(&d, "file") && !datadir_locked(&d, "fifo") &&
          !datadir_locked(&d, "missing"));
    buf_init(&b, 4);
    CHECK(datadir_read(&d, "file", &b) < 0); /* larger than there is room */
    buf_done(&b);
    buf_init(&b, 100);
    CHECK_INT(datadir_read(&d, "file", &b), 0);
    CHECK_STR(buf_text(&b), "words");
    buf_done(&b);
    CHECK_INT(datadir_info(&d, &b), -ENOENT);
    buf_done(&b);
    put(path, "info", "pid: 1\n");
    CHECK_INT(datadir_info(&d, &b), -EBADMSG);
    CHECK_STR(buf_text(&b), "pid: 1\n");
    buf_done(&b);
    datadir_close(&d);
    CHECK_INT(file_remove_dir(path), 0);
}

/* A file that others may write is read from a copy: the file may change, the copy does not. */
TEST(copies_what_others_can_change)
{
    char path[256], file[256], text[8] = "";
    struct datadir d;
    struct stat st;
    make(path, "1-1");
    put(path, "data.mdb", "whole");
    name_of(file, path, "data.mdb");
    CHECK_INT(truncate(file, (off_t)1 << 40), 0);
    for (int shared = 0; shared < 2; shared++) {
        CHECK_INT(chmod(path, shared ? 0777 : 0700), 0);
        CHECK_INT(datadir_open(path, DATADIR_ANY, &d), 0);
        int fd = datadir_file_stable(&d, "data.mdb");
        CHECK(fd >= 0);
        int other = open(file, O_WRONLY | O_CLOEXEC);
        CHECK_INT(pwrite(other, "other", 5, 0), 5);
        CHECK_INT(pread(fd, text, 5, 0), 5);
        CHECK_STR(text, shared ? "whole" : "other");
        CHECK_INT(pwrite(other, "whole", 5, 0), 5);
        CHECK(fstat(fd, &st) == 0 && st.st_size == (off_t)1 << 40 && st.st_blocks < 1000);
        (void)close(other);
        (void)close(fd);
        datadir_close(&d);
    }
    CHECK_INT(file_remove_dir(path), 0);
}

/* Its memory files lie in /dev/shm/probing-<uid>/<the same name>. */
TEST(knows_its_memory_files)
{
    char path[256], memory[64], fast[256], target[300], other[256], text[600], space[64] = "";
    struct datadir d, f, home;
    (void)snprintf(memory, sizeof(memory), DATADIR_SHM "/probing-%u", (unsigned)geteuid());
    if (file_private_dir(memory) < 0)
        return; /* no /dev/shm here */
    CHECK(readlink("/proc/self/ns/mnt", space, sizeof(space) - 1) > 0);
    char leaf[64];
    (void)snprintf(leaf, sizeof(leaf), "%d-1", (int)getpid());
    make(path, leaf);
    name_of(fast, memory, leaf);
    CHECK_INT(mkdir(fast, 0700), 0);
    put(fast, "rings", "rows");
    name_of(target, fast, "rings");
    link_to(target, path, "rings");
    name_of(target, fast, "strings");
    link_to(target, fast, "strings"); /* to itself */
    link_to(target, path, "strings");
    CHECK_INT(datadir_open(path, DATADIR_OWN, &d), 0);
    CHECK_INT(datadir_fast(&d, "rings", &f), 0);
    CHECK(f.owner == geteuid() && datadir_has(&f, "rings", NULL));
    int fd = datadir_file(&d, "rings", NULL);
    CHECK(fd >= 0);
    (void)close(fd);
    CHECK_INT(datadir_file(&d, "strings", NULL), -EINVAL);
    CHECK_INT(datadir_home(&f, DATADIR_ANY, &home), -EBADMSG);
    (void)snprintf(text, sizeof(text), "%s\n%s\n", path, space);
    put(fast, "home", text);
    CHECK_INT(datadir_home(&f, DATADIR_ANY, &home), 0);
    CHECK(home.inode == d.inode && home.device == d.device);
    datadir_close(&home);

    /* One of the same name that is not its home: the memory stays when that goes. */
    make(other, "copy");
    char same[300];
    (void)snprintf(same, sizeof(same), "%.200s/%s", other, leaf);
    CHECK_INT(mkdir(same, 0700), 0);
    name_of(target, fast, "rings");
    link_to(target, same, "rings");
    struct datadir c;
    CHECK_INT(datadir_open(same, DATADIR_OWN, &c), 0);
    CHECK_INT(datadir_remove(&c), 0);
    datadir_close(&c);
    CHECK(!there(same) && there(target));
    CHECK_INT(datadir_remove(&d), 0);
    CHECK(!there(path) && !there(fast));
    CHECK_INT(datadir_home(&f, DATADIR_ANY, &home), -EBADMSG); /* its files have gone */
    datadir_close(&f);
    datadir_close(&d);
    CHECK_INT(rmdir(other), 0);
}

TEST(removes_what_is_its_own)
{
    char path[256], inner[256], deeper[300], precious[256], moved[256];
    struct datadir d;
    put(root, "precious", "kept");
    name_of(precious, root, "precious");
    make(path, "1-1");
    name_of(inner, path, "inner");
    CHECK_INT(mkdir(inner, 0700), 0);
    put(inner, "file", "text");
    link_to(precious, path, "link");
    link_to(root, path, "rings");
    CHECK_INT(datadir_open(path, DATADIR_OWN, &d), 0);
    (void)snprintf(deeper, sizeof(deeper), "%s/deeper", inner);
    CHECK_INT(mkdir(deeper, 0700), 0);
    int rc = datadir_remove(&d);
    CHECK_INT(rc, -ENOTEMPTY);
    CHECK(says(rc, "directories in its directories") && there(deeper));
    CHECK_INT(rmdir(deeper), 0);

    /* Its name has gone to another one meanwhile, which stays. */
    name_of(moved, root, "moved");
    CHECK(rename(path, moved) == 0 && mkdir(path, 0700) == 0);
    put(path, "file", "another's");
    CHECK_INT(datadir_remove(&d), -ESTALE);
    datadir_close(&d);
    name_of(inner, path, "file");
    CHECK(there(inner) && there(precious));
    CHECK_INT(file_remove_dir(moved), 0);
    CHECK_INT(datadir_open(path, DATADIR_OWN, &d), 0);
    CHECK_INT(datadir_remove(&d), 0);
    CHECK_INT(datadir_remove(&d), 0); /* again: there is nothing */
    datadir_close(&d);
    CHECK(!there(path) && there(precious) && unlink(precious) == 0);
}

struct seen {
    int found, refused;
    char last[DATADIR_PATH];
};

static int count_one(void *arg, const struct datadir *d)
{
    struct seen *s = arg;
    s->found += strncmp(d->path, root, strlen(root)) == 0; /* not those of the machine's */
    return 0;
}

static void count_refused(void *arg, const char *why)
{
    struct seen *s = arg;
    if (strstr(why, root)) {
        s->refused++;
        (void)snprintf(s->last, sizeof(s->last), "%s", why);
    }
}

static int stop(void *arg, const struct datadir *d)
{
    (void)d;
    return ++*(int *)arg == 2 ? -ECANCELED : 0;
}

TEST(finds_them)
{
    char one[256], two[256], three[256];
    struct seen seen = {.found = 0};
    struct datadir_search s = {
        .named = root, .found = count_one, .refused = count_refused, .arg = &seen};
    make(one, "1-1");
    make(two, "2-1");
    make(three, "other");
    link_to(one, root, "3-1");
    put(root, "4-1", "a file");
    CHECK_INT(datadir_search(&s), 0);
    CHECK_INT(seen.found, 2);
    CHECK_INT(seen.refused, 1);
    CHECK(strstr(seen.last, "3-1") && strstr(seen.last, "symbolic link"));
    int n = 0;
    s = (struct datadir_search){.named = root, .found = stop, .arg = &n};
    CHECK_INT(datadir_search(&s), -ECANCELED);
    CHECK(rmdir(one) == 0 && rmdir(two) == 0 && rmdir(three) == 0);
    name_of(one, root, "3-1");
    name_of(two, root, "4-1");
    CHECK(unlink(one) == 0 && unlink(two) == 0);
}

/* Others may write to it: then nobody must be able to rename ours. */
TEST(believes_a_root_where_names_are_safe)
{
    char path[256];
    make(path, "root");
    static const struct {
        mode_t mode;
        int good;
    } modes[] = {{0700, 1}, {0755, 1}, {0777, 0}, {0775, 1}, {01777, 1}};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        CHECK_INT(chmod(path, modes[i].mode), 0);
        int fd = datadir_root(path);
        CHECK_INT(modes[i].good ? fd >= 0 : fd == -EPERM, 1);
        if (fd >= 0)
            (void)close(fd);
        else
            CHECK(says(fd, "chmod +t"));
    }
    CHECK_INT(datadir_root("/nonexistent"), -ENOENT);
    CHECK_INT(rmdir(path), 0);
}

int main(void)
{
    (void)snprintf(root, sizeof(root), "/tmp/datadir_test.XXXXXX");
    if (!mkdtemp(root))
        return test_skip("no directory in /tmp");
    RUN(opens_directories_and_no_links);
    RUN(looks_with_the_eyes_of_a_process);
    RUN(a_process_that_has_ended_is_named);
    RUN(reads_files_and_nothing_else);
    RUN(copies_what_others_can_change);
    RUN(knows_its_memory_files);
    RUN(removes_what_is_its_own);
    RUN(finds_them);
    RUN(believes_a_root_where_names_are_safe);
    (void)file_remove_dir(root);
    return test_end();
}
