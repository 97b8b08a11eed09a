/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/fork_storm.c - a program that forks all the time, and whose children look at what
 * they have been given, for tests/hostile/test_fork_storm.py.
 *
 * usage: fork_storm CHILDREN THREADS [GO]      GO: it begins when there is a file of that name
 *
 * Each descriptor of the program but the standard ones is of its own file, so any other that a
 * child has is somebody else's; and the program has no shared mapping (one without a file is the
 * child's own, in place of what we had mapped).  A child that lacks one of the program's
 * descriptors says so, too.  Beside the threads that fork another one opens and closes files, so
 * numbers that were given back are used again at once.
 *
 * It never links or calls anything of ours.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OWN 3                                 /* descriptors of a thread that forks */
#define HANGS_NS (UINT64_C(120) * 1000000000) /* a child that takes longer will not end */

enum { WELL = 0, HAS = 9, LACKS = 10 };

static struct stat self;
static _Atomic int left;
static _Atomic unsigned n_born, n_has, n_lacks, n_hung, n_died;

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int own_file(void)
{
    return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

/* ---- in a child ---- */

static bool is_own(int fd)
{
    struct stat st;
    return fstat(fd, &st) == -1 || (st.st_dev == self.st_dev && st.st_ino == self.st_ino);
}

static void tell(const char *what, const char *text)
{
    char line[600];
    int n = snprintf(line, sizeof(line), "CHILD %s %s\n", what, text);
    (void)!write(STDOUT_FILENO, line, (size_t)n);
}

static int foreign_descriptors(void)
{
    char link[512], name[64];
    int found = 0, folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    DIR *all = fdopendir(folder);
    for (struct dirent *e; (e = readdir(all)) != NULL;) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] == '.' || fd <= STDERR_FILENO || fd == folder || is_own(fd))
            continue;
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        (void)snprintf(name, sizeof(name), "has %d:", fd);
        tell(name, link);
        found++;
    }
    (void)closedir(all);
    return found;
}

static int shared_mappings(void)
{
    char line[512], mode[8];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), maps))
        if (sscanf(line, "%*s %7s", mode) == 1 && mode[3] == 's' && !strstr(line, "/dev/zero")) {
            line[strcspn(line, "\n")] = '\0';
            tell("maps", line);
            found++;
        }
    (void)fclose(maps);
    return found;
}

static void child(const int own[OWN])
{
    for (int i = 0; i < OWN; i++)
        if (fcntl(own[i], F_GETFD) == -1 || !is_own(own[i])) {
            tell("lacks", "one of its files");
            _exit(LACKS);
        }
    int found = foreign_descriptors() + shared_mappings();
    pid_t grandchild = fork();
    if (grandchild == 0)
        _exit(foreign_descriptors() ? HAS : WELL);
    int how = 0;
    if (grandchild > 0)
        (void)waitpid(grandchild, &how, 0);
    _exit(found || how ? HAS : WELL);
}

/* ---- in the program ---- */

static void judge(pid_t pid)
{
    int how = 0;
    uint64_t begun = now_ns();
    while (waitpid(pid, &how, WNOHANG) == 0) {
        if (now_ns() - begun > HANGS_NS) {
            (void)atomic_fetch_add(&n_hung, 1);
            (void)kill(pid, SIGABRT);
            (void)waitpid(pid, &how, 0);
            return;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    if (!WIFEXITED(how)) {
        (void)printf("CHILD died of signal %d\n", WTERMSIG(how));
        (void)atomic_fetch_add(&n_died, 1);
    } else if (WEXITSTATUS(how) == HAS)
        (void)atomic_fetch_add(&n_has, 1);
    else if (WEXITSTATUS(how) != WELL)
        (void)atomic_fetch_add(&n_lacks, 1);
}

static void *forks(void *arg)
{
    (void)arg;
    while (atomic_fetch_sub(&left, 1) > 0) {
        int own[OWN];
        for (int i = 0; i < OWN; i++)
            own[i] = own_file();
        pid_t pid = fork();
        if (pid == 0)
            child(own);
        (void)atomic_fetch_add(&n_born, pid > 0);
        for (int i = 0; i < OWN; i++)
            (void)close(own[i]);
        if (pid > 0)
            judge(pid);
    }
    return NULL;
}

static void *churns(void *arg)
{
    (void)arg;
    for (;;) {
        int one = own_file(), two = own_file();
        (void)close(one);
        (void)close(two);
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[16], churn;
    int n = argc > 2 ? atoi(argv[2]) : 1;
    atomic_store(&left, argc > 1 ? atoi(argv[1]) : 100);
    if (n > 16 || stat("/proc/self/exe", &self) == -1)
        return 2;
    (void)pthread_create(&churn, NULL, churns, NULL);
    (void)printf("ready\n");
    (void)fflush(stdout);
    while (argc > 3 && access(argv[3], F_OK) == -1)
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    for (int i = 0; i < n; i++)
        (void)pthread_create(&threads[i], NULL, forks, NULL);
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    (void)printf("children %u has %u lacks %u hung %u died %u\n", n_born, n_has, n_lacks, n_hung,
                 n_died);
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}
