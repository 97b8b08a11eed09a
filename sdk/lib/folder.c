/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/folder.c - opendir() and its kin by malloc(), open() and close() of who calls them.
 *
 * libc's take 32 KiB of the program's heap and open a descriptor of which the core hears nothing.
 * Part of what is linked with --wrap= for each name below.  Threads: as libc's.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* readdir()'s struct dirent is getdents64(2)'s. */
struct __dirstream {
    int fd;
    int64_t at, end;
    uint64_t block[1024];
};

DIR *__wrap_fdopendir(int fd);
DIR *__wrap_opendir(const char *path);
struct dirent *__wrap_readdir(DIR *d);
int __wrap_dirfd(DIR *d);
int __wrap_closedir(DIR *d);

DIR *__wrap_fdopendir(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return NULL;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return NULL;
    }
    DIR *d = malloc(sizeof(*d));
    if (!d)
        return NULL;
    d->fd = fd;
    d->at = d->end = 0;
    return d;
}

DIR *__wrap_opendir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    DIR *d = fd == -1 ? NULL : __wrap_fdopendir(fd);
    if (fd != -1 && !d) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
    }
    return d;
}

struct dirent *__wrap_readdir(DIR *d)
{
    if (d->at >= d->end) {
        d->at = 0;
        d->end = syscall(SYS_getdents64, d->fd, d->block, sizeof(d->block));
        if (d->end <= 0)
            return NULL;
    }
    struct dirent *e = (struct dirent *)(void *)((char *)d->block + d->at);
    d->at += e->d_reclen;
    return e;
}

int __wrap_dirfd(DIR *d)
{
    return d->fd;
}

int __wrap_closedir(DIR *d)
{
    int rc = close(d->fd);
    free(d);
    return rc;
}
