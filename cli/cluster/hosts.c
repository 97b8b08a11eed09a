/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/hosts.c - names of hosts: lists, files, and which of them is this one.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cluster/cluster.h"
#include "cli/job/host_list.h"
#include "cli/link/remote_shell.h"
#include "cli/link/run_many.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/hash.h"

#define FILE_BYTES ((size_t)4 << 20)
#define NAMED_MAX (16 * HOSTS_MAX) /* times: files of mpirun have a host for each of its ranks */
#define SLOTS (1u << 15)           /* of the index, of which at most a third is used */

static size_t first_label(const char *name)
{
    bool number = name[strspn(name, "0123456789.")] == '\0' || strchr(name, ':') != NULL;

    return number ? strlen(name) : strcspn(name, ".");
}

bool host_is(const char *one, const char *other)
{
    size_t n = first_label(one), k = first_label(other);

    if (strcmp(one, other) == 0)
        return true;
    bool bare = one[n] == '\0' || other[k] == '\0'; /* two whole names differ where they do */
    return bare && n == k && strncmp(one, other, n) == 0;
}

bool host_is_here(const char *name)
{
    char own[256] = "";

    (void)gethostname(own, sizeof(own) - 1);
    return strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 || host_is(name, own);
}

static int begin_index(struct hosts *h)
{
    h->slots = malloc(SLOTS * sizeof(*h->slots));
    if (h->slots == NULL)
        return err_set(-ENOMEM, "no memory for hosts");
    memset(h->slots, 0xff, SLOTS * sizeof(*h->slots));
    return 0;
}

int hosts_add(struct hosts *h, const char *name)
{
    uint64_t at = hash_spread(hash_text(HASH_FNV, name)) >> 32;

    if (!host_is_name(name))
        return err_set(-EINVAL, "'%.300s' is no name of a host", name);
    if (h->named++ == NAMED_MAX)
        return err_set(-E2BIG, "names hosts more than %d times", NAMED_MAX);
    if (h->slots == NULL && begin_index(h) < 0)
        return -ENOMEM;
    for (; h->slots[at % SLOTS] != UINT32_MAX; at++)
        if (strcmp(h->list[h->slots[at % SLOTS]], name) == 0)
            return 0;
    if (h->n == HOSTS_MAX)
        return err_set(-E2BIG, "names more than %d hosts", HOSTS_MAX);
    char(*list)[256] = array_grow(h->list, h->n, &h->room, sizeof(*list), HOSTS_MAX);
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for %u hosts", h->n + 1);
    h->list = list;
    h->slots[at % SLOTS] = h->n;
    (void)snprintf(h->list[h->n++], sizeof(h->list[0]), "%s", name);
    return 0;
}

static int add_name(void *arg, const char *name)
{
    return hosts_add(arg, name);
}

/* what: for words. */
static int add_list(struct hosts *h, const char *list, const char *what)
{
    const char *wrong = NULL;
    char why[400];
    int rc = host_list_each(list, NAMED_MAX, add_name, h, &wrong);

    if (rc == -E2BIG && wrong != NULL)
        return err_set(rc, "%s: '%.200s' names hosts more than %d times", what, wrong, NAMED_MAX);
    if (rc == -EINVAL && wrong != NULL)
        return err_set(rc,
                       "%s: '%.300s' is not a list of hosts from '%.100s' on; write "
                       "node[1-8],other",
                       what, list, wrong);
    if (rc == -ENAMETOOLONG)
        return err_set(rc, "%s: '%.60s...' is too long for the name of a host", what, list);
    if (rc == 0 || rc == -ENOMEM)
        return rc;
    (void)snprintf(why, sizeof(why), "%s", err_text());
    return err_set(rc, "%s: %s", what, why);
}

/* "node1 slots=8", "node1:8" of Open MPI and MPICH: what follows is for them. */
static int add_line(struct hosts *h, char *line, const char *file, uint32_t number)
{
    char what[300];
    char *name = line + strspn(line, " \t\r");

    name[strcspn(name, " \t\r#")] = '\0';
    char *colon = strrchr(name, ':');
    if (colon != NULL && strchr(name, ':') == colon && colon[1] != '\0' &&
        colon[1 + strspn(colon + 1, "0123456789")] == '\0')
        *colon = '\0';
    (void)snprintf(what, sizeof(what), "%.250s:%u", file, number);
    return name[0] != '\0' ? add_list(h, name, what) : 0;
}

static int read_file(const char *path, struct hosts *h)
{
    struct buf b;
    uint32_t number = 1;

    buf_init(&b, FILE_BYTES);
    int rc = file_read_named(path, &b);
    if (rc == 0 && memchr(buf_text(&b), '\0', b.size) != NULL)
        rc = err_set(-EINVAL, "%s is not a list of hosts: it is no text", path);
    char *at = rc == 0 && b.size > 0 ? b.data : NULL;
    for (; rc == 0 && at != NULL && *at != '\0'; number++) {
        size_t n = strcspn(at, "\n");
        bool last = at[n] == '\0';
        at[n] = '\0';
        rc = add_line(h, at, path, number);
        at += n + !last;
    }
    buf_done(&b);
    if (rc == 0 && h->n == 0)
        rc = err_set(-EINVAL, "%s names no host", path);
    return rc;
}

int hosts_read(const char *text, struct hosts *ret)
{
    /* A file that somebody has put here under a host's name is not asked who the hosts are. */
    if (strchr(text, '/') != NULL)
        return read_file(text, ret);
    int rc = add_list(ret, text, "--hosts");
    return rc == -ENOMEM ? rc : cli_misuse(rc);
}

void hosts_done(struct hosts *h)
{
    free(h->list);
    free(h->slots);
    *h = (struct hosts){.n = 0};
}

static const char NONE[] = "no rank of ";

void cluster_say_none(const struct cluster_options *o)
{
    struct buf jobs, dead;

    buf_init(&jobs, ERR_TEXT_BYTES / 2);
    buf_init(&dead, ERR_TEXT_BYTES / 2);
    if (o->hosts == NULL && job_list(&jobs) == 0 && o->job == NULL)
        buf_reset(&jobs);
    if (o->hosts == NULL)
        job_list_ended(&dead);
    terminal_say("%s%s%s%s runs %s%s%s%s", NONE, o->job != NULL ? "job '" : "a job",
                 o->job != NULL ? o->job : "", o->job != NULL ? "'" : "",
                 o->hosts != NULL ? "on these hosts" : "on this machine that you may look at",
                 jobs.size > 0 ? "; there is " : "", buf_text(&jobs), buf_text(&dead));
    buf_done(&dead);
    buf_done(&jobs);
}

/* As cluster_say_none(), and job.c of cli/many, say it there. */
bool cluster_has_none(const struct remote_run *run, const char *why)
{
    return run->error == 0 && run->status == EXIT_FAILED && run->out.size == 0 &&
           strncmp(why, NONE, sizeof(NONE) - 1) == 0;
}
