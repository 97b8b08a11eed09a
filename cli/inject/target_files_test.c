/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/target_files_test.c - files for a target: inside of its root, and with its user's
 * rights.
 *
 * Threads: the test's.  Targets are children that sleep, as another user and in a root of their
 * own: both need root.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/inject/preflight.c"
#include "cli/inject/target_files.c"
#include "tests/test.h"

#define NOBODY 65534

static char folder[64], inside[128], outside[128];

/* A child of uid NOBODY; root: "" or what it shall see as its root; *ret_fd: a memfd it has. */
static pid_t child_new(const char *root, int *ret_fd)
{
    int ready[2], made = -1;
    char byte;
    CHECK_INT(pipe2(ready, O_CLOEXEC), 0);
    if (ret_fd)
        made = *ret_fd = (int)syscall(SYS_memfd_create, "ours", 0);
    pid_t pid = fork();
    if (pid == 0) {
        if ((root[0] && (chroot(root) == -1 || chdir("/") == -1)) || setgroups(0, NULL) == -1 ||
            setgid(NOBODY) == -1 || setuid(NOBODY) == -1)
            _exit(1);
        (void)!write(ready[1], "x", 1);
        for (;;)
            (void)pause();
    }
    CHECK_INT(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    if (made != -1)
        (void)close(made);
    return pid;
}

static void child_end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static int owner_of(const char *directory, const char *name)
{
    char path[256];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return lstat(path, &st) == 0 ? (int)st.st_uid : -1;
}

TEST(a_file_is_made_where_the_user_may_make_it)
{
    pid_t pid = child_new("", NULL);
    int at = theirs_folder(pid, outside);
    CHECK(at >= 0);
    CHECK_INT(chmod(outside, 0777), 0);
    int fd = theirs_open(pid, at, "one", O_WRONLY | O_CREAT | O_EXCL, 0700);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, "x", 1), 1);
    (void)close(fd);
    CHECK_INT(owner_of(outside, "one"), NOBODY);
    CHECK_INT(theirs_remove(pid, at, "one"), 0);
    CHECK_INT(owner_of(outside, "one"), -1);
    CHECK_INT(geteuid(), 0);
    (void)close(at);
    child_end(pid);
}

TEST(and_nowhere_else)
{
    char path[256];
    pid_t pid = child_new("", NULL);
    int at = theirs_folder(pid, outside);
    CHECK_INT(chmod(outside, 0755), 0); /* root's, as it may lie over what is /tmp there */
    CHECK_INT(theirs_open(pid, at, "one", O_WRONLY | O_CREAT | O_EXCL, 0700), -EACCES);
    (void)snprintf(path, sizeof(path), "%s/secret", outside);
    CHECK_INT(file_write(AT_FDCWD, path, "x", 1, 0600), 0);
    CHECK_INT(theirs_open(pid, at, "secret", O_RDONLY, 0), -EACCES);
    CHECK_INT(theirs_remove(pid, at, "secret"), -EACCES);
    CHECK_INT(owner_of(outside, "secret"), 0);
    CHECK_INT(unlink(path), 0); /* and we have our own rights back */
    (void)close(at);
    child_end(pid);
}

TEST(links_do_not_lead_out_of_its_root)
{
    char path[256], up[512];
    pid_t pid = child_new(inside, NULL);
    CHECK_INT(chmod(outside, 0777), 0);
    (void)snprintf(path, sizeof(path), "%s/there", inside);
    CHECK_INT(symlink(outside, path), 0); /* in its root there is no such path */
    CHECK_INT(theirs_folder(pid, "/there"), -ENOENT);
    CHECK_INT(unlink(path), 0);
    (void)snprintf(up, sizeof(up), "../../../../../..%s", outside);
    CHECK_INT(symlink(up, path), 0);
    CHECK(theirs_folder(pid, "/there") < 0);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(symlink("/", path), 0);
    int at = theirs_folder(pid, "/there");
    if (at >= 0) { /* with openat2: its root, and not ours */
        struct stat there, root;
        CHECK(fstat(at, &there) == 0 && stat(inside, &root) == 0 && there.st_ino == root.st_ino);
        (void)close(at);
    }
    CHECK_INT(unlink(path), 0);
    CHECK_INT(symlink("/etc/passwd", path), 0);
    at = theirs_folder(pid, "/");
    CHECK_INT(theirs_open(pid, at, "there", O_RDONLY, 0), -ELOOP);
    (void)close(at);
    CHECK_INT(unlink(path), 0);
    child_end(pid);
}

TEST(a_descriptor_is_written_to_when_it_is_what_was_made)
{
    int number;
    pid_t pid = child_new("", &number);
    int fd = theirs_descriptor(pid, number, "/memfd:ours (deleted)");
    CHECK(fd >= 0);
    CHECK_INT(write(fd, "x", 1), 1);
    (void)close(fd);
    CHECK_INT(theirs_descriptor(pid, number, "/memfd:other (deleted)"), -ESTALE);
    CHECK_INT(theirs_descriptor(pid, 0, "/dev/null"), -ESTALE); /* no file */
    child_end(pid);
}

int main(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/theirs_test.XXXXXX");
    if (geteuid() != 0 || !mkdtemp(folder))
        return test_skip("needs root, and a directory in /tmp");
    (void)snprintf(inside, sizeof(inside), "%s/inside", folder);
    (void)snprintf(outside, sizeof(outside), "%s/outside", folder);
    if (chmod(folder, 0755) == -1 || mkdir(inside, 0755) == -1 || mkdir(outside, 0777) == -1)
        return test_skip("no directory in /tmp");
    RUN(a_file_is_made_where_the_user_may_make_it);
    RUN(and_nowhere_else);
    RUN(links_do_not_lead_out_of_its_root);
    RUN(a_descriptor_is_written_to_when_it_is_what_was_made);
    (void)file_remove_dir(folder);
    return test_end();
}
