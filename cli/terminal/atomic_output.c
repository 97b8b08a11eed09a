/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/atomic_output.c - beside the file, under another name, and renamed at the end.
 */
#include "cli/terminal/atomic_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"
#include "core/base/err.h"

const char *output_why(int code)
{
    return code == EFBIG ? "it would be longer than the file size limit (`ulimit -f`) allows"
                         : strerror(code);
}

static int refused(const struct output *o, int code)
{
    return err_set(-code, "%s cannot be written: %s", o->path, output_why(code));
}

int output_open(struct output *o, const char *path)
{
    struct stat what;
    *o = (struct output){.path = path};
    bool there = lstat(path, &what) == 0; /* a link is not followed: /dev/stdout may be a file */
    if (there && S_ISDIR(what.st_mode))
        return refused(o, EISDIR);
    if (!there || S_ISREG(what.st_mode)) {
        int n = snprintf(o->part, sizeof(o->part), "%s.%d.part", path, (int)getpid());
        if (n < 0 || (size_t)n >= sizeof(o->part))
            return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long; use a shorter one",
                           path);
    }
    o->file = o->part[0] != '\0' ? fopen(o->part, "wxe") : fopen(path, "we");
    if (o->file != NULL && isatty(fileno(o->file)) == 1) { /* -o /dev/stdout */
        int fd = fcntl(fileno(o->file), F_DUPFD_CLOEXEC, 3);
        (void)fclose(o->file);
        o->file = fd != -1 ? terminal_open(fd) : NULL;
    }
    return o->file != NULL ? 0 : refused(o, errno);
}

int output_close(struct output *o, int rc)
{
    if (fclose(o->file) == EOF && rc >= 0)
        rc = refused(o, errno);
    o->file = NULL;
    if (o->part[0] == '\0')
        return rc;
    if (rc >= 0 && rename(o->part, o->path) == -1)
        rc = refused(o, errno);
    if (rc < 0)
        (void)unlink(o->part);
    return rc;
}
