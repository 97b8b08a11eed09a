/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/secret_file.c - see secret_file.h.
 *
 * One thread.
 */
#include "cli/terminal/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"

static int cannot_read(const char *option, const char *path, int code)
{
    return err_set(-code, "cannot read the file %s of %s: %s", path, option, strerror(code));
}

/* Whoever owns a file can read it, whatever its mode says; whoever may write to it can have ours
 * go, or his come, in its place. */
static int check_owner(const char *option, const char *path, const struct stat *st)
{
    if (S_ISDIR(st->st_mode))
        return cannot_read(option, path, EISDIR);
    if ((st->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return err_set(-EPERM,
                       "others may read or write the file %s of %s (mode %03o): chmod 600 %s", path,
                       option, (unsigned)(st->st_mode & 0777), path);
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return err_set(-EPERM,
                       "the file %s of %s belongs to user %u, who may read it: use one of your own",
                       path, option, (unsigned)st->st_uid);
    return 0;
}

int secret_check(const char *option, const char *path)
{
    struct stat st;

    return stat(path, &st) == -1 ? cannot_read(option, path, errno)
                                 : check_owner(option, path, &st);
}

/* Up to the end of the first line.  Bytes, or -errno; `size` of them: it is longer. */
static ssize_t read_line(int fd, char *ret, size_t size)
{
    size_t n = 0;

    while (n < size) {
        ssize_t got = read(fd, ret + n, size - n);
        if (got == -1)
            return -errno; /* a signal, too: the user may want to end it */
        for (const size_t end = n + (size_t)got; n < end; n++)
            if (strchr("\r\n", ret[n]) != NULL) /* a NUL ends it, too */
                return (ssize_t)n;
        if (got == 0)
            break;
    }
    return (ssize_t)n;
}

int secret_read(const char *option, const char *path, char *ret, size_t size)
{
    bool in = strcmp(path, "-") == 0;
    struct stat st;
    int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), rc = 0;

    if (fd == -1 || (!in && fstat(fd, &st) == -1))
        rc = cannot_read(option, path, errno);
    else if (!in)
        rc = check_owner(option, path, &st);
    ssize_t n = rc == 0 ? read_line(fd, ret, size) : 0;
    if (fd != -1 && !in)
        (void)close(fd);
    if (rc == 0 && n < 0)
        rc = cannot_read(option, path, (int)-n);
    else if (rc == 0 && n == 0)
        rc = err_set(-EINVAL, "the first line of the file %s of %s is empty", path, option);
    else if (rc == 0 && n == (ssize_t)size)
        rc = err_set(-E2BIG, "the first line of the file %s of %s is longer than %zu bytes", path,
                     option, size - 1);
    if (rc < 0)
        explicit_bzero(ret, size);
    ret[rc == 0 ? n : 0] = '\0';
    return rc;
}
