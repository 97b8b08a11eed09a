/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/process_environment.c - the environment of a process, where its user may speak for it.
 *
 * One thread, and that of a look (cli/target/apart.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/job/job.h"
#include "cli/target/apart.h"
#include "cli/target/environment.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/proc_file.h"

void find_program(pid_t pid, char *ret, size_t size)
{
    char path[PROC_PATH_BYTES], exe[4096];

    proc_path(pid, 0, "exe", path);
    ssize_t n = readlink(path, exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *deleted = strstr(exe, " (deleted)");
    if (deleted != NULL)
        *deleted = '\0';
    const char *slash = strrchr(exe, '/');
    (void)snprintf(ret, size, "%s", slash != NULL ? slash + 1 : "");
}

/* An environment that may not be read, or is none, says nothing. */
static int take_late(pid_t pid, struct buf *text, bool *ret_late)
{
    struct member_tags place;
    char name[256];
    struct buf now;

    member_place(text->data, text->size - 1, &place);
    find_program(pid, name, sizeof(name));
    if (place.rank != MEMBER_UNKNOWN || strncmp(name, "python", 6) != 0)
        return 0;
    buf_init(&now, FIND_ENVIRONMENT_BYTES);
    int rc = environment_now(pid, &now);
    rc = rc < 0 && (apart_is_ours(rc) || rc == -ECANCELED || rc == -ETIMEDOUT) ? rc : 0;
    if (rc == 0 && now.size > 0 && (rc = buf_addc(&now, '\0')) == 0) {
        member_place(now.data, now.size - 1, &place);
        *ret_late = place.rank != MEMBER_UNKNOWN;
    }
    if (rc == 0 && *ret_late) {
        buf_reset(text);
        rc = buf_add(text, now.data, now.size);
    }
    buf_done(&now);
    return rc;
}

struct look {
    pid_t pid;
    struct proc_identity id;
    bool believed; /* its environment */
    struct buf text;
};

static int look_at_environment(void *arg)
{
    struct look *l = arg;
    char path[PROC_PATH_BYTES];
    int rc = identity_of(l->pid, &l->id);

    proc_path(l->pid, 0, "environ", path);
    /* Our own was written by the user who asks. */
    l->believed = rc == 0 && (l->pid == getpid() || identity_believes_environment(&l->id));
    return l->believed ? file_read(AT_FDCWD, path, &l->text) : rc;
}

static void look_free(void *arg)
{
    struct look *l = arg;

    buf_done(&l->text);
    free(l);
}

int find_environment(pid_t pid, struct buf *ret, struct find_source *ret_source)
{
    struct look *l = calloc(1, sizeof(*l));
    struct find_source source = {.late = false};
    bool ended;

    buf_init(ret, FIND_ENVIRONMENT_BYTES);
    if (l == NULL)
        return err_set(-ENOMEM, "no memory to inspect process %d", (int)pid);
    l->pid = pid;
    buf_init(&l->text, FIND_ENVIRONMENT_BYTES);
    int rc = apart_run(pid, look_at_environment, l, look_free, &ended);
    if (rc == 0) {
        source.uid = l->id.uid[IDENTITY_EFFECTIVE];
        rc = buf_add(ret, l->text.data, l->text.size);
    }
    bool late = rc == 0 && pid != getpid() && l->believed;
    if (ended)
        look_free(l);
    if (rc == 0)
        rc = buf_addc(ret, '\0');
    if (rc == 0 && late)
        rc = take_late(pid, ret, &source.late);
    if (ret_source != NULL)
        *ret_source = source;
    return rc;
}
