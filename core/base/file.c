/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/file.c - reading and writing small files whole, private directories, /proc facts.
 *
 * Any thread.  Symbolic links are not followed where we make or remove things.
 */
#include "core/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/rights.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/task.h"

#define READ_STEP ((size_t)4096)

const char *file_kind(mode_t mode)
{
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a directory"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* By /proc, which opens the very file again; where there is no /proc, by its name once more, and
 * only if that is the same file still. */
static int open_same(int fd, int dirfd, const char *path, const struct stat *was)
{
    const int how = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    char link[64];
    struct stat st;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    int again = open(link, how);
    if (again == -1 && errno == ENOENT)
        again = openat(dirfd, path, how);
    if (again == -1)
        return -errno;
    if (fstat(again, &st) == 0 && st.st_dev == was->st_dev && st.st_ino == was->st_ino)
        return again;
    (void)close(again);
    return -ESTALE;
}

int file_open_again(int fd, int dirfd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(-EINVAL, "%s is %s, not a file", path, file_kind(st.st_mode));
    int again = open_same(fd, dirfd, path, &st);
    return again < 0 ? err_set(again, "%s: %s", path, strerror(-again)) : again;
}

int file_open(int dirfd, const char *path)
{
    int fd = openat(dirfd, path, O_PATH | O_CLOEXEC);
    if (fd == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    int again = file_open_again(fd, dirfd, path);
    (void)close(fd);
    return again;
}

/* wait: a signal does not end it. */
static int read_all(int fd, const char *name, bool wait, struct buf *b)
{
    int rc = 0;
    for (;;) {
        char piece[READ_STEP];
        ssize_t got = read(fd, piece, sizeof(piece));
        if (got == -1 && errno == EINTR && wait)
            continue;
        if (got == -1)
            rc = err_set(-errno, "%s: %s", name, strerror(errno));
        if (got <= 0)
            break;
        rc = buf_add(b, piece, (size_t)got);
        if (rc) {
            (void)err_set(rc, "%s: larger than %zu bytes, or no memory for it", name, b->max);
            break;
        }
    }
    return rc;
}

int file_read_fd(int fd, const char *name, struct buf *b)
{
    return read_all(fd, name, /* wait= */ true, b);
}

int file_read(int dirfd, const char *path, struct buf *b)
{
    int fd = file_open(dirfd, path);
    if (fd < 0)
        return fd;
    int rc = read_all(fd, path, /* wait= */ true, b);
    (void)close(fd);
    return rc;
}

int file_read_named(const char *path, struct buf *b)
{
    bool in = strcmp(path, "-") == 0;
    int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    int rc = read_all(fd, path, /* wait= */ false, b);
    if (!in)
        (void)close(fd);
    return rc;
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return -errno;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

int file_peek(const char *path, char *ret, size_t size)
{
    int64_t n = proc_read_path(path, ret, size);
    return n < 0 ? (int)n : 0;
}

int file_write(int dirfd, const char *path, const void *data, size_t size, mode_t mode)
{
    static _Atomic uint32_t count; /* so that two threads never share a temporary name */
    char temporary[4096];
    int n = snprintf(temporary, sizeof(temporary), "%s.%d.%u.new", path, (int)getpid(),
                     (unsigned)atomic_fetch_add_explicit(&count, 1, memory_order_relaxed));
    if (n < 0 || (size_t)n >= sizeof(temporary))
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long; use a shorter one", path);
    rights_keep();
    int fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd == -1)
        return err_set(-errno, "%s cannot be made: %s", temporary, strerror(errno));
    int rc = write_all(fd, data, size);
    if (close(fd) == -1 && rc == 0)
        rc = -errno;
    if (rc == 0 && renameat(dirfd, temporary, dirfd, path) == -1)
        rc = -errno;
    if (rc) {
        (void)unlinkat(dirfd, temporary, 0);
        return err_set(rc, "%s cannot be written: %s", path, strerror(-rc));
    }
    return 0;
}

int file_private_dir(const char *path)
{
    struct stat st;
    if (mkdir(path, 0700) == -1 && errno != EEXIST)
        return err_set(-errno, "directory %s cannot be made: %s", path, strerror(errno));
    if (lstat(path, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(-ENOTDIR, "%s is not a directory: remove it or name another", path);
    if (st.st_uid != identity_own_owner())
        return err_set(-EPERM, "directory %s belongs to uid %u, not to this user; choose another",
                       path, (unsigned)st.st_uid);
    if (st.st_mode & 077)
        return err_set(-EPERM, "directory %s is open to others (mode %03o): chmod 700 it", path,
                       (unsigned)(st.st_mode & 0777));
    return 0;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Remove the entries of one directory, subdirectories only where depth is left. */
static int remove_entries(int parent, const char *name, int depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int failed = errno;
        (void)close(fd);
        return -failed;
    }
    int rc = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (is_dots(entry->d_name) || unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        int failed = -errno;
        if ((errno == EISDIR || errno == EPERM) && depth > 0) {
            failed = remove_entries(fd, entry->d_name, depth - 1);
            if (failed == 0 && unlinkat(fd, entry->d_name, AT_REMOVEDIR) == -1)
                failed = -errno;
        }
        if (rc == 0)
            rc = failed;
    }
    (void)closedir(dir);
    return rc;
}

int file_remove_dir(const char *path)
{
    int rc = remove_entries(AT_FDCWD, path, /* depth= */ 1);
    if (rc == 0 && rmdir(path) == -1)
        rc = -errno;
    return rc ? err_set(rc, "directory %s cannot be removed: %s", path, strerror(-rc)) : 0;
}

bool file_is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_GETLK, &lock) == -1 || lock.l_type != F_UNLCK;
}

bool file_is_closed(int fd)
{
    return fd != -1 && fcntl(fd, F_GETFD) == -1;
}

void socket_knock(const char *path, int type)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    int fd = n < sizeof(at.sun_path) ? socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd == -1)
        return;
    memcpy(at.sun_path, path, n + 1);
    (void)!connect(fd, (const struct sockaddr *)&at, sizeof(at)); /* nobody there: nobody wakes */
    (void)close(fd);
}

int proc_start_time(pid_t pid, uint64_t *ret_ticks)
{
    struct proc_stat s;
    int rc = proc_stat_of(pid, 0, &s);
    if (rc == 0 && s.start_ticks == PROC_UNKNOWN)
        rc = -EPROTO;
    if (rc == -EPROTO)
        return err_set(-EINVAL, "/proc/%d/stat is not as proc(5) says", (int)pid);
    if (rc < 0)
        return err_set(rc, "there is no process %d", (int)pid);
    *ret_ticks = s.start_ticks;
    return 0;
}
