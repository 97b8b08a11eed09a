/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/datadir.c - data directories: whose they are, and where those of a process lie.  The
 * way in, where it lives, is core_lookup.c's.
 *
 * One thread.  It only looks: nothing is entered, removed or changed here.
 */

#include "cli/target/datadir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <probing/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"

int directory_info(const struct datadir *d, const char *key, char *ret, size_t size)
{
    struct buf text;
    int rc = datadir_info(d, &text);
    bool found = info_get(&text, key, ret, size);

    buf_done(&text);
    if (rc == -EBADMSG)
        return err_set(-EBADMSG, "%s/info is damaged", d->path);
    return found ? 0 : rc < 0 ? rc : err_set(-ENOENT, "%s/info has no line '%s'", d->path, key);
}

bool directory_named(const struct datadir *d, uint64_t *ret_pid, uint64_t *ret_started)
{
    char number[2][24] = {"", ""}, more[2] = "";

    return sscanf(d->leaf, "%20[0-9]-%20[0-9]%1[^.]", number[0], number[1], more) == 2 &&
           parse_u64(number[0], ret_pid) == 0 && parse_u64(number[1], ret_started) == 0;
}

/* Which process wrote it: by its name, and of a copy with another name by its info. */
static bool identity_of(const struct datadir *d, uint64_t *ret_pid, uint64_t *ret_started)
{
    char pid[64], started[64];

    if (directory_named(d, ret_pid, ret_started))
        return true;
    return directory_info(d, "pid", pid, sizeof(pid)) == 0 && parse_u64(pid, ret_pid) == 0 &&
           directory_info(d, "start_time", started, sizeof(started)) == 0 &&
           parse_u64(started, ret_started) == 0;
}

bool directory_held(const struct datadir *d)
{
    return datadir_locked(d, "held");
}

bool directory_alive(const struct datadir *d, pid_t *ret_pid)
{
    uint64_t pid = 0, started = 0, now = 0;
    struct stat st;

    *ret_pid = 0;
    if (!identity_of(d, &pid, &started) || pid > INT32_MAX)
        return false;
    *ret_pid = (pid_t)pid;
    if (proc_start_time((pid_t)pid, &now) < 0 || now != started || target_is_zombie((pid_t)pid))
        return false;
    /* None: ejected.  The process lives, its core does not. */
    return datadir_has(d, "sock", &st) && S_ISSOCK(st.st_mode);
}

#define REFUSED_SHOWN 20 /* whoever makes thousands of traps hides nothing by their number */

struct each {
    int (*fn)(void *arg, const struct datadir *d);
    void *arg;
    bool says; /* what is not believed */
    uint32_t refused;
};

static void say_refused(void *arg, const char *why)
{
    struct each *e = arg;
    if (e->says && e->refused++ < REFUSED_SHOWN)
        fprintf(stderr, "probing: %s\n", why);
}

static int each_one(void *arg, const struct datadir *d)
{
    const struct each *e = arg;
    return cli_interrupted ? -ECANCELED : e->fn(e->arg, d);
}

int directory_each(int (*fn)(void *arg, const struct datadir *d), void *arg, bool says)
{
    struct each e = {.fn = fn, .arg = arg, .says = says};
    const struct datadir_search all = {.named = getenv("PROBING_DATA_DIR"),
                                       .all_users = geteuid() == 0,
                                       .found = each_one,
                                       .refused = say_refused,
                                       .arg = &e};
    int rc = datadir_search(&all);
    if (e.refused > REFUSED_SHOWN)
        fprintf(stderr, "probing: %u more are not trusted\n", e.refused - REFUSED_SHOWN);
    return rc;
}

/* The newest of them so far? */
static bool is_newer(const struct datadir *d, const char *path, const struct timespec *time)
{
    return path[0] == '\0' || d->changed.tv_sec > time->tv_sec ||
           (d->changed.tv_sec == time->tv_sec && d->changed.tv_nsec > time->tv_nsec);
}

static int keep_newest(void *arg, const struct datadir *d)
{
    struct directory_newest *best = arg;
    uint64_t pid, started;
    bool wanted = false;

    if (!directory_named(d, &pid, &started) || pid != (uint64_t)best->pid ||
        (best->start_time != 0 && started != best->start_time))
        return 0;
    for (size_t i = 0; i < sizeof(best->owners) / sizeof(best->owners[0]); i++)
        wanted = wanted || d->owner == best->owners[i];
    if (wanted) {
        best->n++;
        if (is_newer(d, best->path, &best->time)) {
            (void)snprintf(best->path, sizeof(best->path), "%s", d->path);
            best->time = d->changed;
        }
    } else {
        best->others++;
        if (is_newer(d, best->other, &best->other_time)) {
            (void)snprintf(best->other, sizeof(best->other), "%s", d->path);
            best->other_owner = d->owner;
            best->other_time = d->changed;
        }
    }
    return 0;
}

void directory_newest(struct directory_newest *ret)
{
    (void)directory_each(keep_newest, ret, /* says= */ false);
}

bool directory_is_over(const char *directory)
{
    char left[16];
    struct probing_client *c = NULL;
    struct datadir d;
    bool says = datadir_open(directory, DATADIR_ANY, &d) == 0 &&
                directory_info(&d, "left", left, sizeof(left)) == 0;

    datadir_close(&d);
    if (says)
        return true;
    int rc = endpoint_connect(directory, /* who= */ NULL, &c);
    probing_client_free(c);
    /* Reset: the process is just dying; its memory has gone before its sockets.  No socket, or
     * another's: no core of that process is there. */
    return rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -ENOTSOCK || rc == -ESTALE;
}

bool directory_lives_elsewhere(const char *directory)
{
    pid_t pid;
    struct datadir d;
    bool elsewhere = datadir_open(directory, DATADIR_ANY, &d) == 0 && !directory_alive(&d, &pid) &&
                     directory_held(&d);

    datadir_close(&d);
    return elsewhere && !directory_is_over(directory);
}
