/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/memory_files.c - what of a data directory lies in memory, and whose memory files
 * these are.
 *
 * Any thread.  The links between the two are read as text: whoever owns one can let it lead
 * anywhere, so only the one place is taken where a core puts such files, and it is proved.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/datadir/datadir.h"
#include "core/datadir/internal.h"

#define HOME_MAX_BYTES (DATADIR_PATH + 256)

/* "/dev/shm/probing-<uid>/<leaf>/<name>", of this directory and file. */
static bool read_link(const struct datadir *d, const char *name, const char *text,
                      char ret_root[64])
{
    static const char shm[] = DATADIR_SHM "/";
    char rest[2 * DATADIR_LEAF + 4];
    uid_t uid;
    size_t n = sizeof(shm) - 1;
    if (strncmp(text, shm, n) != 0)
        return false;
    size_t root = strcspn(text + n, "/");
    (void)snprintf(ret_root, 64, "%.*s", (int)(root < 63 ? root : 63), text + n);
    (void)snprintf(rest, sizeof(rest), "/%s/%s", d->leaf, name);
    return root_name_read(ret_root, &uid) && strcmp(text + n + root, rest) == 0;
}

int datadir_fast(const struct datadir *d, const char *name, struct datadir *ret)
{
    char text[DATADIR_PATH], root[64], path[96];
    uid_t owner;
    *ret = (struct datadir)DATADIR_NONE;
    ssize_t n = readlinkat(d->fd, name, text, sizeof(text) - 1);
    if (n < 0)
        return err_set(errno == EINVAL ? -ENOENT : -errno, "%s is not a link", name);
    text[n] = '\0';
    bool one =
        strcmp(name, "rings") == 0 || strcmp(name, "strings") == 0 || strcmp(name, "lock.mdb") == 0;
    if (!one || !read_link(d, name, text, root))
        return err_set(-EPERM, "%s is a link to %.200s, where no core puts it", name, text);
    int rc = root_open(d->view, DATADIR_SHM, root, d->own, &owner);
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof(path), "%s/%s", DATADIR_SHM, root);
    struct datadir_in in = {.fd = rc, .path = path, .owner = &d->owner};
    rc = owner == d->owner
             ? datadir_open_in(&in, d->leaf, d->own ? DATADIR_OWN : DATADIR_ANY, ret)
             : err_set(-EPERM, "%s leads to memory of uid %u, and its directory is uid %u's", name,
                       (unsigned)owner, (unsigned)d->owner);
    if (rc < 0)
        (void)close(in.fd);
    return rc;
}

static bool same_view(const char *space)
{
    char own[64];
    ssize_t n = readlink("/proc/self/ns/mnt", own, sizeof(own) - 1);
    own[n > 0 ? n : 0] = '\0';
    return own[0] && strcmp(own, space) == 0;
}

int datadir_home(const struct datadir *fast, enum datadir_whose whose, struct datadir *ret)
{
    struct buf b;
    *ret = (struct datadir)DATADIR_NONE;
    buf_init(&b, HOME_MAX_BYTES);
    int rc = datadir_read(fast, "home", &b);
    if (rc == 0 && buf_addc(&b, '\0') != 0)
        rc = err_set(-ENOMEM, "no memory for home");
    if (rc == 0) { /* a line with the path, a line with who sees it there */
        char *end = strchr(b.data, '\n');
        char *space = end ? end + 1 : b.data + strlen(b.data);
        space[strcspn(space, "\n")] = '\0';
        if (end)
            *end = '\0';
        if (!same_view(space))
            rc = err_set(-EXDEV, "home is told by somebody who sees other files than we");
        else if (b.data[0] != '/')
            rc = err_set(-EBADMSG, "home has no path in it");
        else if ((rc = datadir_open(b.data, whose, ret)) == -ENOENT)
            rc = 1;
        else if (rc == 0 && ret->owner != fast->owner)
            rc = err_set(-EPERM, "home leads to a directory of uid %u", (unsigned)ret->owner);
    } else if (rc == -ENOENT) {
        rc = err_set(-EBADMSG, "there is no home in it");
    }
    buf_done(&b);
    if (rc != 0)
        datadir_close(ret);
    return rc;
}
