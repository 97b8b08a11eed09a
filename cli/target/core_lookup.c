/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/core_lookup.c - the way in: from a process to the directory of its core, and from a
 * directory to the sockets in it.
 *
 * One thread, but for directory_of(), which looks at a process apart (apart.h).
 *
 * Everything that a process shows is its own word: what its mappings are called, what its root
 * looks like, what lies in the directory.  So a directory is opened as the process sees it and not
 * out of that (core/datadir), must be its user's, and whoever listens there must be the process
 * itself (sdk/client/local_connect.c).
 */

#include "cli/target/core_lookup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/inject/inject.h"
#include "cli/target/apart.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/datadir/datadir.h"
#include "sdk/client/door.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/proc_file.h"
#include "sdk/lib/proc/task.h"

#define ANSWER_NS (10 * NS_PER_S) /* of a command that only says something */
#define BEGIN_NS (5 * NS_PER_S) /* a core that has begun: slow plugins hold it up for two seconds */
#define BEGIN_LOOK_MS 5

/* ---- the directory of a process ---- */

/* A path that /proc/PID/maps shows, as the process itself sees it, which may live in a chroot. */
static const char *inside_root(pid_t pid, const char *file)
{
    char path[64], root[4096];

    (void)snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
    ssize_t n = readlink(path, root, sizeof(root) - 1);
    return n > 1 && strncmp(file, root, (size_t)n) == 0 && file[n] == '/' ? file + n : file;
}

struct owner {
    uint64_t own_pid; /* as it sees itself: directories are called so */
    unsigned uid[4];  /* real, effective, saved, of the file system */
};

static int owner_of(pid_t pid, struct owner *ret)
{
    struct proc_status s;
    int rc = proc_status_of(pid, 0, &s);

    *ret = (struct owner){.own_pid = (uint64_t)pid};
    if (rc == -EPROTO || (rc == 0 && s.uid[0] == PROC_UNKNOWN))
        return err_set(-EPROTO, "/proc/%d/status does not have the form that proc(5) describes",
                       (int)pid);
    if (rc < 0)
        return err_set(rc, "/proc/%d/status: %s", (int)pid, strerror(-rc));
    for (int i = 0; i < 4; i++)
        ret->uid[i] = (unsigned)s.uid[i];
    if (s.inner_id != PROC_UNKNOWN)
        ret->own_pid = s.inner_id;
    return 0;
}

bool process_is_of(pid_t pid, unsigned uid)
{
    struct proc_identity id;

    return identity_of(pid, &id) == 0 && identity_owner(&id) == uid;
}

/* ".../<pid>-<start time>": a forked child still has its parent's file mapped. */
static bool is_named_after(const char *directory, uint64_t pid)
{
    char prefix[32];
    const char *slash = strrchr(directory, '/');
    int n = snprintf(prefix, sizeof(prefix), "/%llu-", (unsigned long long)pid);
    return slash != NULL && strncmp(slash, prefix, (size_t)n) == 0;
}

/* 0: a directory of that user, with a socket in it; -ENOENT: it has none, perhaps not yet. */
static int prove_directory(const char *directory, const struct owner *o)
{
    struct datadir d;
    struct stat st;
    int rc = datadir_open(directory, DATADIR_ANY, &d);

    if (rc < 0)
        return rc;
    bool theirs = d.owner == 0; /* one that was root's when the core came */
    for (size_t i = 0; i < sizeof(o->uid) / sizeof(o->uid[0]); i++)
        theirs = theirs || d.owner == o->uid[i];
    if (!theirs)
        rc = err_set(-EPERM, "%s belongs to uid %u, and its process to uid %u", directory,
                     (unsigned)d.owner, o->uid[1]);
    else if (!datadir_has(&d, "sock", &st) || !S_ISSOCK(st.st_mode))
        rc = -ENOENT;
    datadir_close(&d);
    return rc;
}

struct snapshot {
    pid_t pid;
    char directory[4096]; /* also where there is no socket in it yet */
};

/* The store's data file is mapped as long as the core runs, wherever its directory is.
 * *ret_error: 0, or why the mappings could not be read. */
static int find_mapped(struct snapshot *look, const struct owner *o, int *ret_error)
{
    static const char LEAF[] = "/data.mdb";
    char room[PROC_MAPS_ROOM], path[4096];
    struct proc_lines l;
    struct proc_mapping m;
    int e = proc_maps_open(&l, look->pid, room, sizeof(room)), rc = -ENOENT;

    while (rc != 0 && proc_maps_next(&l, &m)) {
        size_t n = strlen(m.path);
        if (m.cut || n < sizeof(LEAF) || strcmp(m.path + n - (sizeof(LEAF) - 1), LEAF) != 0)
            continue;
        m.path[n - (sizeof(LEAF) - 1)] = '\0';
        if (!is_named_after(m.path, o->own_pid) ||
            (size_t)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)look->pid,
                             inside_root(look->pid, m.path)) >= sizeof(path))
            continue;
        rc = prove_directory(path, o);
        if (rc == 0 || (rc == -ENOENT && look->directory[0] == '\0'))
            (void)snprintf(look->directory, sizeof(look->directory), "%s", path);
    }
    *ret_error = e < 0 ? e : l.error;
    proc_lines_close(&l);
    return rc;
}

/* On a thread of its own. */
static int look_at(void *arg)
{
    struct snapshot *l = arg;
    struct owner o;
    int e = owner_of(l->pid, &o), rc = 0;

    if (e == 0)
        rc = find_mapped(l, &o, &e);
    if (e == -ENOENT || e == -ESRCH)
        return err_set(-ESRCH, "no process %d", (int)l->pid);
    if (e < 0)
        return apart_is_ours(e)
                   ? err_set(e, "process %d cannot be looked at: %s", (int)l->pid, strerror(-e))
                   : inject_no_permission(l->pid, e);
    if (rc == 0 || (rc != -ENOENT && rc != -EPERM && rc != -ELOOP && rc != -ENOTDIR))
        return rc;
    return err_set(-ENOENT,
                   "process %d has no probing core in it; enter it with: probing -t %d inject",
                   (int)l->pid, (int)l->pid);
}

int directory_of(pid_t pid, char *ret, size_t size)
{
    struct snapshot *l = calloc(1, sizeof(*l));
    bool ended;

    ret[0] = '\0';
    if (l == NULL)
        return err_set(-ENOMEM, "no memory to inspect process %d", (int)pid);
    l->pid = pid;
    int rc = apart_run(pid, look_at, l, free, &ended);
    if (ended) {
        (void)snprintf(ret, size, "%s", l->directory);
        free(l);
    }
    return rc;
}

/* Does a core live in it?  *ret_answers: and the thread that answers, which begins last, too. */
static bool has_core(pid_t pid, bool *ret_answers)
{
    struct proc_numbers all;
    struct proc_number one;
    char comm[PROC_COMM_BYTES];
    bool lives = false, answers = false;

    (void)proc_threads_open(&all, pid);
    while (proc_numbers_next(&all, &one)) {
        bool known = proc_comm_of(pid, (pid_t)one.value, comm, sizeof(comm)) == 0;
        lives = lives || (known && strcmp(comm, "probing/main") == 0);
        answers = answers || (known && strcmp(comm, "probing/server") == 0);
    }
    proc_numbers_close(&all);
    *ret_answers = answers;
    return lives;
}

int directory_each_living(int (*fn)(void *arg, pid_t pid, const char *directory), void *arg)
{
    char directory[4096];
    struct proc_numbers all;
    struct proc_number one;
    int rc = proc_numbers_open(&all, "/proc");

    if (rc < 0)
        return err_set(rc, "cannot read /proc: %s", strerror(-rc));
    while (rc == 0 && !cli_interrupted && proc_numbers_next(&all, &one)) {
        pid_t pid = (pid_t)one.value;
        int looked = directory_of(pid, directory, sizeof(directory));
        rc = looked < 0 ? apart_pass_over(pid, looked, "it is left out") : fn(arg, pid, directory);
    }
    proc_numbers_close(&all);
    return rc;
}

int directory_await(pid_t pid, char *ret, size_t size)
{
    uint64_t deadline = clock_monotonic() + BEGIN_NS;
    int rc = directory_of(pid, ret, size);
    bool answers = false;

    while (rc == -ENOENT && !answers && has_core(pid, &answers) && !target_halted(pid, NULL) &&
           !cli_interrupted && clock_monotonic() < deadline) {
        (void)poll(NULL, 0, BEGIN_LOOK_MS);
        rc = directory_of(pid, ret, size);
    }
    return rc;
}

/* ---- the sockets in a directory ---- */

static void keep_error(void *arg, int code, const char *text)
{
    (void)arg;
    (void)err_set(code, "%s", text);
}

struct probing_client *client_new(const char *token, const char *(*find_token)(void *arg, int fd),
                                  void *arg)
{
    const struct probing_client_options options = {.size = sizeof(options),
                                                   .stop = &cli_interrupted,
                                                   .token = token,
                                                   .find_token = find_token,
                                                   .on_error = keep_error,
                                                   .arg = arg};
    struct probing_client *c = probing_client_new(&options);

    if (c == NULL)
        (void)err_set(-ENOMEM, "no memory for a connection");
    return c;
}

int client_failed(struct probing_client *c, int rc)
{
    bool broken = rc == -ECONNRESET || rc == -ECONNREFUSED || rc == -ENOENT;
    if (!broken || probing_client_end(c) != PROBING_CLIENT_REPLACED)
        return rc;
    return err_set(-ESTALE, "%s", probing_client_error(c));
}

static int keep_text(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

int client_command(struct probing_client *c, int argc, const char *const *argv, struct buf *answer)
{
    int status = 0;
    int rc =
        client_failed(c, probing_client_run(c, argc, argv, ANSWER_NS, keep_text, answer, &status));
    return rc < 0 ? rc : status < 0 ? status : status > 0 ? -EPROTO : 0;
}

/* The caller closes the directory. */
static int open_endpoint(const char *directory, const struct endpoint_owner *who,
                         struct datadir *ret, struct client_endpoint *ret_endpoint)
{
    int rc = datadir_open(directory, DATADIR_ANY, ret);

    if (rc == 0) {
        *ret_endpoint = (struct client_endpoint){.directory = ret->fd, .path = directory};
        ret_endpoint->pid = who != NULL ? who->pid : 0;
        ret_endpoint->start_time = who != NULL ? who->start_time : 0;
    }
    return rc;
}

/* With a client for what listens there; the caller frees it. */
static int open_client(const char *directory, const struct endpoint_owner *who, struct datadir *ret,
                       struct client_endpoint *ret_endpoint, struct probing_client **ret_client)
{
    int rc = open_endpoint(directory, who, ret, ret_endpoint);

    *ret_client = NULL;
    if (rc == 0 && (*ret_client = client_new(NULL, NULL, NULL)) == NULL) {
        datadir_close(ret);
        rc = -ENOMEM;
    }
    return rc;
}

int endpoint_dial(const char *directory, const struct endpoint_owner *who, const char *name,
                  int type)
{
    struct datadir d;
    struct client_endpoint door;
    struct probing_client *c;
    int rc = open_client(directory, who, &d, &door, &c);

    if (rc < 0)
        return rc;
    rc = client_failed(c, client_dial(c, &door, name, type));
    probing_client_free(c);
    datadir_close(&d);
    return rc;
}

int endpoint_connect(const char *directory, const struct endpoint_owner *who,
                     struct probing_client **ret)
{
    struct datadir d;
    struct client_endpoint door;
    struct probing_client *c;
    int rc = open_client(directory, who, &d, &door, &c);

    if (rc < 0)
        return rc;
    rc = client_failed(c, client_connect_endpoint(c, &door));
    datadir_close(&d);
    if (rc == 0)
        *ret = c;
    else
        probing_client_free(c);
    return rc;
}

int endpoint_begin(const char *directory, const struct endpoint_owner *who,
                   struct probing_client *c)
{
    struct datadir d;
    struct client_endpoint door;
    int rc = open_endpoint(directory, who, &d, &door);

    if (rc == 0)
        rc = client_begin_endpoint(c, &door);
    datadir_close(&d);
    return rc;
}
