/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/rights_test.c - files that may run with our rights, and ids that are put on and off.
 */
#include "core/base/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "sdk/lib/proc/identity.h"
#include "tests/test.h"

#define OTHER 54321

static char root[] = "/tmp/rights-XXXXXX", folder[PATH_MAX], file[PATH_MAX];

/* A folder in a folder, and a file in that. */
static bool make_files(void)
{
    if (!mkdtemp(strcpy(root, "/tmp/rights-XXXXXX")))
        return false;
    (void)snprintf(folder, sizeof(folder), "%s/in", root);
    (void)snprintf(file, sizeof(file), "%s/in/x.so", root);
    int fd = mkdir(folder, 0755) == 0 ? open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644) : -1;
    return fd != -1 && close(fd) == 0 && chmod(folder, 0755) == 0 && chmod(file, 0644) == 0;
}

static void remove_files(void)
{
    CHECK_INT(unlink(file), 0);
    CHECK_INT(rmdir(folder), 0);
    CHECK_INT(rmdir(root), 0);
}

static int judge(void)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    int rc = fd == -1 ? -errno : rights_file_check(fd);
    if (fd != -1)
        (void)close(fd);
    return rc;
}

TEST(modes)
{
    bool plain = geteuid() != 0; /* root's group is many users' in some places */
    if (!CHECK(make_files()))
        return;
    CHECK_INT(judge(), 0);
    CHECK_INT(chmod(file, 0666), 0);
    CHECK_INT(judge(), -EPERM);
    CHECK(strstr(err_text(), "may write to") && strstr(err_text(), "/in/x.so"));
    CHECK_INT(chmod(file, 0664), 0);
    CHECK_INT(judge(), plain ? 0 : -EPERM);
    CHECK_INT(chmod(file, 0644), 0);
    CHECK_INT(chmod(folder, 0777), 0);
    CHECK_INT(judge(), -EPERM);
    CHECK(strstr(err_text(), "/in (uid") != NULL);
    CHECK_INT(chmod(folder, 01777), 0); /* nobody else renames in it what is not his */
    CHECK_INT(judge(), 0);
    CHECK_INT(chmod(folder, 0755), 0);
    CHECK_INT(chmod(root, 0702), 0); /* the folder above that */
    CHECK_INT(judge(), -EPERM);
    CHECK_INT(chmod(root, 0700), 0);
    CHECK_INT(judge(), 0);
    remove_files();
}

/* A file is what it is, whatever links led there; what has no name any more is nobody's. */
TEST(names)
{
    char link[PATH_MAX];
    if (!CHECK(make_files()))
        return;
    (void)snprintf(link, sizeof(link), "%s/link", root);
    CHECK_INT(symlink("in", link), 0);
    (void)snprintf(link, sizeof(link), "%s/link/x.so", root);
    int fd = open(link, O_RDONLY | O_CLOEXEC);
    CHECK_INT(rights_file_check(fd), 0);
    CHECK_INT(unlink(file), 0);
    CHECK(rights_file_check(fd) < 0);
    CHECK_INT(close(fd), 0);
    int pair[2];
    CHECK_INT(pipe(pair), 0);
    CHECK_INT(rights_file_check(pair[0]), -EPERM);
    CHECK_INT(close(pair[0]) + close(pair[1]), 0);
    (void)snprintf(link, sizeof(link), "%s/link", root);
    CHECK_INT(unlink(link), 0);
    CHECK_INT(rmdir(folder), 0);
    CHECK_INT(rmdir(root), 0);
}

TEST(owners)
{
    if (geteuid() != 0) {
        printf("# skipped: only root can give files away\n");
        return;
    }
    if (!CHECK(make_files()))
        return;
    CHECK_INT(chown(file, OTHER, OTHER), 0);
    CHECK_INT(judge(), -EPERM);
    CHECK(strstr(err_text(), "belongs to uid 54321") && strstr(err_text(), "mode 0644"));
    CHECK_INT(chown(file, 0, 0), 0);
    CHECK_INT(chown(folder, OTHER, OTHER), 0);
    CHECK_INT(judge(), -EPERM);
    CHECK_INT(chmod(folder, 01755), 0); /* its owner renames in it, sticky bit or not */
    CHECK_INT(judge(), -EPERM);
    CHECK_INT(chown(folder, 0, OTHER), 0);
    CHECK_INT(chmod(folder, 0775), 0);
    CHECK_INT(judge(), -EPERM);
    CHECK_INT(chmod(folder, 0755), 0);
    CHECK_INT(judge(), 0);
    remove_files();
}

/* A child that puts on a user's rights: what it makes is root's, once that is taken; and what one
 * of its threads has for good cannot be taken. */
static int in_child(int (*run)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(run());
    CHECK_INT(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int puts_on(void)
{
    struct proc_identity own;
    struct stat st;
    int fd, rc = (int)syscall(SYS_setresuid, -1, OTHER, -1);
    rc = rc == 0 ? rights_take() : 1;
    identity_own(&own);
    if (rc != 0 || own.uid[IDENTITY_FILES] != 0 || own.uid[IDENTITY_EFFECTIVE] != OTHER)
        return 2;
    fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd != -1 && (fstat(fd, &st) == -1 || st.st_uid != 0) ? 3 : 0;
}

static int is_plain(void)
{
    struct proc_identity own;
    bool dumpable = (identity_own(&own), own.dumpable);
    int rc = rights_take();
    identity_own(&own);
    return rc == 0 && own.dumpable == dumpable ? 0 : 1;
}

static int drops(void)
{
    struct proc_identity own;
    if (syscall(SYS_setresgid, OTHER, OTHER, OTHER) == -1 ||
        syscall(SYS_setresuid, OTHER, OTHER, OTHER) == -1 || rights_take() != 0)
        return 1;
    identity_own(&own);
    return identity_owner(&own) == OTHER && !identity_is_mixed(&own) && !own.dumpable ? 0 : 2;
}

TEST(ids)
{
    CHECK_INT(in_child(is_plain), 0);
    if (geteuid() != 0)
        printf("# skipped: only root can put on the rights of another\n");
    else
        CHECK(in_child(puts_on) == 0 && in_child(drops) == 0);
}

int main(void)
{
    RUN(modes);
    RUN(names);
    RUN(owners);
    RUN(ids);
    return test_end();
}
