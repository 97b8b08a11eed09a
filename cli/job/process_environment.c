/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/process_environment.c - the environment of a process, as it was when it began
 * and as it is now, where its user may speak for it.
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
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/stack/stack.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/environ_now.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/proc_file.h"

void job_read_program(pid_t pid, char *ret, size_t size)
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

/* ---- as it is now ---- */

struct memory_look {
    pid_t pid;
    struct stack_process *process;
    uint64_t at;
    struct buf text;
};

/* The first that has it: a program that has a copy of libc's lies before the libraries. */
static int find_environ(void *arg, const struct stack_module *m)
{
    struct memory_look *l = arg;

    l->at = stack_symbol_address(l->process, m, "environ");
    return l->at != 0;
}

static int read_memory(void *arg)
{
    struct memory_look *l = arg;
    struct proc_memory memory = PROC_MEMORY_OF(l->pid);
    int rc = stack_process_open(l->pid, &l->process);

    if (rc < 0)
        return rc;
    (void)stack_modules(l->process, find_environ, l);
    if (l->at != 0)
        rc = proc_environ_now(&memory, l->at, &l->text);
    proc_memory_close(&memory);
    stack_process_free(l->process);
    return rc;
}

static void free_memory_look(void *arg)
{
    struct memory_look *l = arg;

    buf_done(&l->text);
    free(l);
}

int job_read_environment_now(pid_t pid, struct buf *ret)
{
    struct memory_look *l = calloc(1, sizeof(*l));
    bool ended;

    if (l == NULL)
        return -ENOMEM;
    l->pid = pid;
    buf_init(&l->text, ret->max);
    int rc = apart_run(pid, read_memory, l, free_memory_look, &ended);
    if (rc == 0)
        rc = buf_add(ret, l->text.data, l->text.size);
    if (ended)
        free_memory_look(l);
    return rc;
}

/* ---- as it was when it began ---- */

/* Takes the environment as it is now where only that has a rank.  One that may not be read, or is
 * none, says nothing. */
static int prefer_later(pid_t pid, struct buf *text, bool *ret_late)
{
    struct rank place = RANK_UNKNOWN;
    char name[256];
    struct buf now;

    rank_read_environment(text, &place);
    job_read_program(pid, name, sizeof(name));
    if (place.rank != MEMBER_UNKNOWN || strncmp(name, "python", 6) != 0)
        return 0;
    buf_init(&now, JOB_ENVIRONMENT_BYTES);
    int rc = job_read_environment_now(pid, &now);
    rc = rc < 0 && (apart_is_ours(rc) || rc == -ECANCELED || rc == -ETIMEDOUT) ? rc : 0;
    if (rc == 0 && now.size > 0 && (rc = buf_addc(&now, '\0')) == 0) {
        rank_read_environment(&now, &place);
        *ret_late = place.rank != MEMBER_UNKNOWN;
    }
    if (rc == 0 && *ret_late) {
        buf_reset(text);
        rc = buf_add(text, now.data, now.size);
    }
    buf_done(&now);
    return rc;
}

struct file_look {
    pid_t pid;
    struct proc_identity id;
    bool believed; /* its environment */
    struct buf text;
};

static int read_file(void *arg)
{
    struct file_look *l = arg;
    char path[PROC_PATH_BYTES];
    int rc = identity_of(l->pid, &l->id);

    proc_path(l->pid, 0, "environ", path);
    /* Our own was written by the user who asks. */
    l->believed = rc == 0 && (l->pid == getpid() || identity_believes_environment(&l->id));
    return l->believed ? file_read(AT_FDCWD, path, &l->text) : rc;
}

static void free_file_look(void *arg)
{
    struct file_look *l = arg;

    buf_done(&l->text);
    free(l);
}

int job_read_environment(pid_t pid, struct buf *ret, struct environment_source *ret_source)
{
    struct file_look *l = calloc(1, sizeof(*l));
    struct environment_source source = {.late = false};
    bool ended;

    buf_init(ret, JOB_ENVIRONMENT_BYTES);
    if (l == NULL)
        return err_set(-ENOMEM, "no memory to inspect process %d", (int)pid);
    l->pid = pid;
    buf_init(&l->text, JOB_ENVIRONMENT_BYTES);
    int rc = apart_run(pid, read_file, l, free_file_look, &ended);
    if (rc == 0) {
        source.uid = l->id.uid[IDENTITY_EFFECTIVE];
        rc = buf_add(ret, l->text.data, l->text.size);
    }
    bool late = rc == 0 && pid != getpid() && l->believed;
    if (ended)
        free_file_look(l);
    if (rc == 0)
        rc = buf_addc(ret, '\0');
    if (rc == 0 && late)
        rc = prefer_later(pid, ret, &source.late);
    if (ret_source != NULL)
        *ret_source = source;
    return rc;
}
