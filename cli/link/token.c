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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"

/* Only its first line, and only where nobody else may read it. */
static int read_file(const char *path, char *ret, size_t size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd == -1 || fstat(fd, &st) == -1 ? -errno : 0;

    if (rc == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        rc = -EPERM;
    ssize_t n = rc == 0 ? read(fd, ret, size - 1) : 0;
    if (fd != -1)
        (void)close(fd);
    if (rc == -EPERM)
        return err_set(rc, "others may read the token's file %s: chmod 600 %s", path, path);
    if (rc < 0 || n < 0)
        return err_set(rc < 0 ? rc : -EIO, "cannot read the token's file %s: %s", path,
                       strerror(rc < 0 ? -rc : EIO));
    ret[n] = '\0';
    ret[strcspn(ret, "\r\n")] = '\0';
    return ret[0] != '\0' ? 0 : err_set(-EINVAL, "there is no token in %s", path);
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
