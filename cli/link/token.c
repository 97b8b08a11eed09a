/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/token.c - the token of relays that listen: from PROBING_TOKEN or a file, never from
 * words that `ps` shows.
 *
 * One thread.
 */
#include "cli/link/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"

/* Whoever owns a file can read it, whatever its mode says. */
static int check_file(const struct stat *st, const char *path)
{
    if ((st->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return err_set(-EPERM, "others may read the token's file %s: chmod 600 %s", path, path);
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return err_set(-EPERM,
                       "the token's file %s belongs to user %u, who may read it: use one "
                       "of your own",
                       path, (unsigned)st->st_uid);
    return 0;
}

/* Only its first line, and only where nobody else may read it. */
static int read_file(const char *path, char *ret, size_t size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool opened = fd != -1 && fstat(fd, &st) == 0;
    int rc = opened ? check_file(&st, path) : -errno;
    ssize_t n = rc == 0 ? read(fd, ret, size) : 0;
    int e = rc == 0 && n == -1 ? errno : opened ? 0 : -rc;

    if (fd != -1)
        (void)close(fd);
    if (e != 0)
        return err_set(-e, "cannot read the token's file %s: %s", path, strerror(e));
    if (rc < 0)
        return rc;
    size_t line = 0;
    while (line < (size_t)n && strchr("\r\n", ret[line]) == NULL) /* a NUL ends it, too */
        line++;
    if (line == size)
        return err_set(-E2BIG, "the token in %s is longer than %zu bytes", path, size - 1);
    ret[line] = '\0';
    return line > 0 ? 0 : err_set(-EINVAL, "there is no token in %s", path);
}

int link_token(const char *file, char *ret, size_t size)
{
    const char *value = getenv("PROBING_TOKEN");

    ret[0] = '\0';
    if (file == NULL && value != NULL && value[0] != '\0') {
        if (strlen(value) >= size)
            return err_set(-E2BIG, "PROBING_TOKEN is longer than %zu bytes", size - 1);
        memcpy(ret, value, strlen(value) + 1);
        return 0;
    }
    if (file == NULL)
        file = getenv("PROBING_TOKEN_FILE");
    return file != NULL && file[0] != '\0' ? read_file(file, ret, size) : 0;
}
