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
#include <sys/types.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"

const char *output_why(int code)
{
    return code == EFBIG ? "it would be longer than the file size limit (`ulimit -f`) allows"
                         : strerror(code);
}

static int report_refusal(const struct output *o, int code)
{
    return err_set(-code, "%s cannot be written: %s", o->path, output_why(code));
}

size_t output_stem(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".gz") == 0 ? n - 3 : n;
}

#define PACK_BYTES (1u << 18) /* compressed at a time */

static int pack_bytes(struct output *o, const char *data, size_t size, bool last)
{
    struct buf out;

    buf_init(&out, 2 * size + PACK_BYTES);
    int rc = squeeze_add(o->squeeze, data, size, last, &out);
    if (rc == 0 && fwrite(buf_text(&out), 1, out.size, o->packed) != out.size)
        rc = -errno;
    buf_done(&out);
    errno = -rc;
    return rc;
}

static ssize_t write_packed(void *cookie, const char *data, size_t size)
{
    return pack_bytes(cookie, data, size, /* last= */ false) == 0 ? (ssize_t)size : 0;
}

static int close_packed(void *cookie)
{
    struct output *o = cookie;
    int rc = pack_bytes(o, "", 0, /* last= */ true);
    int closed = fclose(o->packed) == EOF ? -errno : 0;

    squeeze_free(o->squeeze);
    errno = -(rc < 0 ? rc : closed);
    return rc < 0 || closed < 0 ? EOF : 0;
}

/* Compress all that is written to o->file from now on. */
static int add_packing(struct output *o)
{
    static const cookie_io_functions_t calls = {.write = write_packed, .close = close_packed};

    o->packed = o->file;
    o->squeeze = squeeze_new();
    o->file = o->squeeze != NULL ? fopencookie(o, "w", calls) : NULL;
    if (o->file != NULL) {
        (void)setvbuf(o->file, NULL, _IOFBF, PACK_BYTES);
        return 0;
    }
    squeeze_free(o->squeeze);
    (void)fclose(o->packed);
    if (o->part[0] != '\0')
        (void)unlink(o->part);
    return report_refusal(o, ENOMEM);
}

int output_open(struct output *o, const char *path)
{
    struct stat what;
    *o = (struct output){.path = path};
    bool there = lstat(path, &what) == 0; /* a link is not followed: /dev/stdout may be a file */
    if (there && S_ISDIR(what.st_mode))
        return report_refusal(o, EISDIR);
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
    if (o->file == NULL)
        return report_refusal(o, errno);
    return path[output_stem(path)] != '\0' ? add_packing(o) : 0;
}

int output_close(struct output *o, int rc)
{
    if (fclose(o->file) == EOF && rc >= 0)
        rc = report_refusal(o, errno);
    o->file = NULL;
    if (o->part[0] == '\0')
        return rc;
    if (rc >= 0 && rename(o->part, o->path) == -1)
        rc = report_refusal(o, errno);
    if (rc < 0)
        (void)unlink(o->part);
    return rc;
}
