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

#include "cli/cli.h"
#include "cli/cluster/cluster.h"
#include "cli/link/run_many.h"
#include "cli/link/spawn.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/host_list.h"

#define FILE_BYTES ((size_t)4 << 20)

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

int hosts_add(struct hosts *h, const char *name)
{
    if (!host_is_name(name))
        return err_set(-EINVAL, "'%s' is no name of a host", name);
    for (uint32_t i = 0; i < h->n; i++)
        if (strcmp(h->list[i], name) == 0)
            return 0;
    char(*list)[256] = array_grow(h->list, h->n, &h->room, sizeof(*list), UINT32_MAX);
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for %u hosts", h->n + 1);
    h->list = list;
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
    int rc = host_list_each(list, HOSTS_MAX, add_name, h, &wrong);

    if (rc == -EINVAL && wrong != NULL)
        return err_set(rc, "%s: '%s' is not a list of hosts from '%s' on; write node[1-8],other",
                       what, list, wrong);
    if (rc == -E2BIG || rc == -ENAMETOOLONG)
        return err_set(-E2BIG, "%s: '%s' names more than %d hosts, or too long ones", what, list,
                       HOSTS_MAX);
    return rc;
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
    return rc == -EINVAL || rc == -E2BIG ? cli_misuse(rc) : rc;
}

void hosts_done(struct hosts *h)
{
    free(h->list);
    *h = (struct hosts){.n = 0};
}

/* As cluster.c, hang.c, diff.c and job.c of cli/many say it there. */
bool cluster_has_none(const struct remote_run *run, const char *why)
{
    static const char none[] = "no rank of ";

    return run->error == 0 && run->status == EXIT_FAILED && run->out.size == 0 &&
           strncmp(why, none, sizeof(none) - 1) == 0;
}
