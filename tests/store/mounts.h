/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/mounts.h - real file systems in loop devices, for tests of disks that fail.
 *
 * Root only; they are gone with the child that made them.
 */
#ifndef TESTS_STORE_MOUNTS_H
#define TESTS_STORE_MOUNTS_H

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "tests/store/limits.h"

#define EXT4_SHUTDOWN _IOR('X', 125, uint32_t) /* linux/fs/ext4/ext4.h; Linux 4.11 */

/* Run a program, quietly: did it work? */
static inline bool run(const char *const *words)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)!dup2(fd, 1);
        (void)!dup2(fd, 2);
        (void)execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* `at` becomes a file system of `image` bytes in the file `path`; NULL: in one on a device of its
 * own, that has `there` of them.  false: that cannot be had here, which is said. */
static inline bool mount_on(const char *kind, uint64_t image, uint64_t there, const char *at,
                            const char *path)
{
    char inside[120], options[40], mkfs[20];
    (void)snprintf(options, sizeof(options), "size=%llu,mode=700", (unsigned long long)there);
    (void)snprintf(inside, sizeof(inside), "%s/image", fast);
    (void)snprintf(mkfs, sizeof(mkfs), "mkfs.%s", kind);
    const char *file = path ? path : inside;
    const char *const make[] = {mkfs, "-q", file, NULL};
    const char *const use[] = {"mount", "-o", "loop", file, at, NULL};
    bool done = path || (unshare(CLONE_NEWNS) == 0 &&
                         mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                         mount("probing", fast, "tmpfs", 0, options) == 0);
    int fd = done ? open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    done = fd != -1 && ftruncate(fd, (off_t)image) == 0 && run(make) &&
           (mkdir(at, 0700) == 0 || errno == EEXIST) && run(use);
    if (fd != -1)
        (void)close(fd);
    if (!done)
        printf("# no %s in a loop device here (root, %s, mount -o loop): not tried\n", kind, mkfs);
    return done;
}

static inline bool mount_image(const char *kind, uint64_t image, uint64_t there)
{
    return mount_on(kind, image, there, data, NULL);
}

/* The rings elsewhere: what they need is reserved, and not what is tried here. */
static inline bool begin_with_rings_in_memory(void)
{
    (void)snprintf(fast, sizeof(fast), "%s", "/dev/shm/probing-disk-XXXXXX");
    return CHECK(mkdtemp(fast) != NULL) && CHECK_INT(begin(256 * MB), 0);
}

#endif
