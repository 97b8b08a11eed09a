/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/redact.c - what a command answers, as a client may see it who may only read: line by
 * line, without secrets.
 *
 * The worker that runs the command.  Every answer passes here, so a new command hides secrets
 * without knowing of it; one that has done it itself (SQL does, where rows come from) says so with
 * reply.clean.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/redact.h"
#include "core/server/internal.h"

#define MOST (SERVER_MESSAGE_BYTES * 2) /* bytes of one line: JSON is one */

static bool hides_secrets(const struct job *j)
{
    return j->peer->access != ACCESS_FULL && !j->reply.clean;
}

static int pass_line(struct job *j, size_t size)
{
    struct buf shown;

    buf_init(&shown, 8 * (size_t)MOST);
    int rc = secret_text(j->held.data, size, &shown);
    if (rc < 0)
        rc = err_set(rc, "no memory to look through an answer for secrets");
    else if (shown.size > 0)
        rc = server_connection_write(j, shown.data, shown.size);
    buf_done(&shown);
    if (size == j->held.size) {
        buf_reset(&j->held);
    } else {
        memmove(j->held.data, j->held.data + size, j->held.size - size);
        j->held.size -= size;
    }
    return rc < 0 ? rc : 0;
}

int server_shade_write(struct job *j, const void *data, size_t size)
{
    if (!hides_secrets(j))
        return server_connection_write(j, data, size);
    if (size > MOST || buf_add(&j->held, data, size) < 0)
        return err_set(-EMSGSIZE,
                       "a line of this answer is longer than %u bytes and cannot be looked through "
                       "for secrets; the full token gives it as it is",
                       MOST);
    if (!memchr(data, '\n', size))
        return 0;
    size_t whole = secret_whole(j->held.data, j->held.size);
    return whole > 0 ? pass_line(j, whole) : 0;
}

void server_shade_end(struct job *j)
{
    if (j->held.size > 0)
        (void)pass_line(j, j->held.size); /* -ECANCELED: it is going away */
    buf_done(&j->held);
}

int server_shade_text(const struct job *j, const char *text, struct buf *ret)
{
    return j->peer->access == ACCESS_FULL ? buf_adds(ret, text)
                                          : secret_text(text, strlen(text), ret);
}
