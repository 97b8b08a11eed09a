/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/local_connect_test.c - only the process that is meant is spoken to, and none is waited
 * for longer than was allowed.
 *
 * Threads: the test's.  Another process is a child that listens.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/client/door.h"
#include "tests/test.h"

static char folder[64], own[128]; /* own: called after this process */
static uint64_t started;

static int listener(const char *directory, const char *name, int queue)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/%s", directory, name);
    (void)unlink(a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    CHECK_INT(listen(fd, queue), 0);
    return fd;
}

static char told[1024]; /* by the last dial() that failed */

static void keep_error(void *arg, int code, const char *text)
{
    (void)arg, (void)code;
    (void)snprintf(told, sizeof(told), "%s", text);
}

static int dial(const char *directory, const char *name, pid_t pid,
                const struct probing_client_options *more)
{
    struct probing_client_options o = more ? *more : (struct probing_client_options){.size = 0};
    o.size = sizeof(o);
    o.on_error = keep_error;
    struct probing_client *c = probing_client_new(&o);
    struct client_endpoint d = {.path = directory, .pid = pid};
    d.directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(d.directory != -1);
    int fd = client_dial(c, &d, name, SOCK_STREAM);
    probing_client_free(c);
    (void)close(d.directory);
    return fd;
}

/* Does what was said to the listener come to more than nothing? */
static bool was_spoken_to(int listen_fd)
{
    char byte;
    int fd = accept(listen_fd, NULL, NULL);
    bool said = fd != -1 && recv(fd, &byte, 1, MSG_DONTWAIT) > 0;
    if (fd != -1)
        (void)close(fd);
    return said;
}

TEST(the_process_that_is_meant_is_reached)
{
    int listens = listener(own, "sock", 4);
    int by_pid = dial(own, "sock", getpid(), NULL), by_name = dial(own, "sock", 0, NULL);
    CHECK(by_pid >= 0 && by_name >= 0);
    CHECK(fcntl(by_pid, F_GETFD) & FD_CLOEXEC);
    (void)close(by_pid);
    (void)close(by_name);
    (void)close(listens);
    CHECK_INT(dial(own, "sock", getpid(), NULL), -ECONNREFUSED);
    CHECK_INT(dial(own, "nothing", getpid(), NULL), -ENOENT);
    CHECK(strstr(told, own) != NULL);
}

TEST(another_process_is_not_spoken_to)
{
    char named[128];
    int listens = listener(own, "sock", 4);
    CHECK_INT(dial(own, "sock", getppid(), NULL), -EACCES);
    CHECK(strstr(told, "nothing was sent") != NULL);
    CHECK(!was_spoken_to(listens));
    (void)close(listens);
    /* A directory that is called after our parent, and our socket in it. */
    uint64_t since;
    CHECK_INT(proc_start_time(getppid(), &since), 0);
    (void)snprintf(named, sizeof(named), "%s/%d-%llu.2", folder, (int)getppid(),
                   (unsigned long long)since);
    CHECK_INT(mkdir(named, 0700), 0);
    listens = listener(named, "sock", 4);
    CHECK_INT(dial(named, "sock", 0, NULL), -EACCES);
    CHECK(!was_spoken_to(listens));
    (void)close(listens);
    /* One that has our pid, of an earlier process. */
    (void)file_remove_dir(named);
    (void)snprintf(named, sizeof(named), "%s/%d-1", folder, (int)getpid());
    CHECK_INT(mkdir(named, 0700), 0);
    listens = listener(named, "sock", 4);
    CHECK_INT(dial(named, "sock", 0, NULL), -EACCES);
    (void)close(listens);
    (void)file_remove_dir(named);
}

TEST(a_directory_without_a_name_is_believed_of_our_own_user)
{
    int listens = listener(folder, "sock", 4);
    int fd = dial(folder, "sock", 0, NULL);
    CHECK(fd >= 0);
    (void)close(fd);
    (void)close(listens);
}

TEST(links_and_files_are_no_sockets)
{
    char path[160], to[160];
    int listens = listener(folder, "sock", 4);
    (void)snprintf(path, sizeof(path), "%s/link", own);
    (void)snprintf(to, sizeof(to), "%s/sock", folder);
    CHECK_INT(symlink(to, path), 0);
    CHECK_INT(dial(own, "link", getpid(), NULL), -ENOTSOCK);
    CHECK(strstr(told, "link") != NULL);
    CHECK(!was_spoken_to(listens));
    CHECK_INT(file_write(AT_FDCWD, path, "x", 1, 0600), 0);
    CHECK_INT(dial(own, "link", getpid(), NULL), -ENOTSOCK);
    (void)unlink(path);
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(dial(own, "link", getpid(), NULL), -ENOTSOCK);
    (void)close(listens);
}

TEST(a_full_queue_is_not_waited_for_longer_than_allowed)
{
    struct probing_client_options soon = {.timeout_ns = 20 * NS_PER_MS};
    volatile sig_atomic_t raised = 1;
    struct probing_client_options stopped = {.stop = &raised};
    int listens = listener(own, "sock", 0), waiting[8], n = 0;
    for (; n < 8 && (waiting[n] = dial(own, "sock", getpid(), &soon)) >= 0; n++) {
    }
    CHECK(n > 0 && n < 8);
    CHECK_INT(waiting[n], -ETIMEDOUT);
    CHECK(strstr(told, "takes no connection") != NULL);
    CHECK_INT(dial(own, "sock", getpid(), &stopped), -ECANCELED);
    while (n > 0)
        (void)close(waiting[--n]);
    (void)close(listens);
}

int main(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/dial_test.XXXXXX");
    if (!mkdtemp(folder) || proc_start_time(getpid(), &started) < 0)
        return test_skip("no directory in /tmp, or no /proc");
    (void)snprintf(own, sizeof(own), "%s/%d-%llu", folder, (int)getpid(),
                   (unsigned long long)started);
    if (mkdir(own, 0700) == -1)
        return test_skip("no directory in /tmp");
    RUN(the_process_that_is_meant_is_reached);
    RUN(another_process_is_not_spoken_to);
    RUN(a_directory_without_a_name_is_believed_of_our_own_user);
    RUN(links_and_files_are_no_sockets);
    RUN(a_full_queue_is_not_waited_for_longer_than_allowed);
    (void)file_remove_dir(folder);
    return test_end();
}
