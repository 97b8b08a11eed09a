/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/target.c - from what the user wrote after -t to a process that answers, or to files.
 *
 * One thread.  It only looks: nothing is entered, removed or changed here.
 */

#include "cli/target/target.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <probing/client.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/inject/inject.h"
#include "cli/link/link.h"
#include "cli/target/auth_token.h"
#include "cli/target/core_lookup.h"
#include "cli/target/datadir.h"
#include "cli/target/no_core.h"
#include "cli/target/remote_target.h"
#include "cli/target/several.h"
#include "cli/terminal/args.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/datadir/datadir.h"
#include "core/guest/headroom.h"
#include "sdk/client/door.h"
#include "sdk/lib/proc/task.h"

#define ENDING_NS NS_PER_S /* a process that was killed is gone by then */

/* ---- resolving ---- */

char target_state(pid_t pid)
{
    struct proc_stat s;

    return proc_stat_of(pid, 0, &s) == 0 ? s.state : '?';
}

/* PF_EXITING, PF_POSTCOREDUMP and PF_DUMPCORE of linux/sched.h.  Its sockets stay open until its
 * memory is free, or written: of a large process that takes minutes. */
#define ENDING_FLAGS UINT64_C(0x20c)

const char *target_ends(pid_t pid)
{
    struct proc_stat s;

    if (pid == 0 || proc_stat_of(pid, 0, &s) < 0 || s.flags == PROC_UNKNOWN || s.state == 'Z' ||
        (s.flags & ENDING_FLAGS) == 0)
        return NULL; /* a first thread that has left alone is a zombie */
    bool dumps = (s.flags & ENDING_FLAGS & ~UINT64_C(4)) != 0;
    return dumps ? "it is ending: it writes its core dump, and answers nobody any more"
                 : "it is ending, and answers nobody any more";
}

bool target_is_zombie(pid_t pid)
{
    return target_state(pid) == 'Z' && !inject_runs_on(pid);
}

/* /proc has threads too, though it does not list them: the process of one, 0: it is none. */
static pid_t process_of_thread(pid_t tid)
{
    struct proc_status s;

    if (proc_status_of(tid, 0, &s) < 0 || s.tgid == PROC_UNKNOWN)
        return 0;
    return (pid_t)s.tgid != tid ? (pid_t)s.tgid : 0;
}

/* Give the real, effective and saved user of a living process.  One of them owns what it leaves. */
static bool read_users(pid_t pid, uid_t ret[3])
{
    struct proc_status s;

    if (proc_status_of(pid, 0, &s) < 0 || s.uid[0] == PROC_UNKNOWN)
        return false;
    for (int i = 0; i < 3; i++)
        ret[i] = (uid_t)s.uid[i];
    return true;
}

/* Find what the user of a living process, which has no core now, has left of it. */
static void find_left(pid_t pid, bool starts, struct target *ret)
{
    struct directory_newest old = {.pid = pid};

    if (proc_start_time(pid, &old.start_time) < 0 || old.start_time == 0 ||
        !read_users(pid, old.owners))
        return;
    directory_newest(&old);
    ret->directories = old.n;
    ret->owner = old.owners[0];
    if (old.path[0] != '\0' && !starts && directory_is_over(old.path))
        (void)snprintf(ret->directory, sizeof(ret->directory), "%s", old.path);
}

/* Our own data of a dead process; others' are named, and not taken: whoever likes can make a
 * directory with any pid. */
static int find_dead(pid_t pid, struct target *ret)
{
    const uid_t uid = geteuid();
    struct directory_newest dead = {.pid = pid, .owners = {uid, uid, uid}};

    directory_newest(&dead);
    if (dead.path[0] == '\0' && dead.others > 0)
        return err_set(-EPERM,
                       "there is no process %d, and no data of an ended process of yours with that "
                       "pid; uid %u has %s%s: to read it, name the directory: -t %s",
                       (int)pid, (unsigned)dead.other_owner, dead.other,
                       dead.others > 1 ? " (`probing list --dead` shows more)" : "", dead.other);
    if (dead.path[0] == '\0')
        return err_set(-ESRCH,
                       "there is no process %d, and no data of an ended process with that pid; "
                       "`probing list --dead` lists the data there is",
                       (int)pid);
    ret->directories = dead.n;
    ret->others = dead.others;
    ret->owner = uid;
    (void)snprintf(ret->directory, sizeof(ret->directory), "%s", dead.path);
    ret->kind = directory_lives_elsewhere(ret->directory) ? TARGET_LIVE : TARGET_FILES;
    return 0;
}

/* Has somebody killed it, who has not been obeyed yet? */
static bool is_killed(pid_t pid)
{
    struct proc_status s;

    return proc_status_of(pid, 0, &s) == 0 && s.pending != PROC_UNKNOWN &&
           s.shared != PROC_UNKNOWN && ((s.pending | s.shared) >> (SIGKILL - 1) & 1);
}

/* Just after `kill -9` a process may run on for a moment, and then has neither memory nor a root
 * and is no zombie yet: its end is waited for. */
static bool is_ending(pid_t pid)
{
    char path[64], exe[8];
    uint64_t deadline = clock_monotonic() + ENDING_NS;

    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    for (;;) {
        bool bare = readlink(path, exe, sizeof(exe)) == -1 && (errno == ENOENT || errno == ESRCH);
        if (target_is_zombie(pid) || (kill(pid, 0) == -1 && errno == ESRCH))
            return true;
        if (!bare && !is_killed(pid)) /* it lives, or may not be looked at */
            return false;
        if (clock_monotonic() > deadline || cli_interrupted)
            return false; /* a thread of the kernel has no program either */
        (void)poll(NULL, 0, 1);
    }
}

static int resolve_pid(pid_t pid, struct target *ret)
{
    char path[64];
    pid_t process = process_of_thread(pid);

    if (process != 0)
        return err_set(-ESRCH, "%d is a thread of process %d; to use that process: -t %d", (int)pid,
                       (int)process, (int)process);
    ret->pid = pid;
    if (proc_start_time(pid, &ret->start_time) < 0)
        ret->start_time = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (access(path, F_OK) == 0 && !target_is_zombie(pid)) {
        int rc = directory_await(pid, ret->directory, sizeof(ret->directory));
        if ((rc < 0 || is_killed(pid)) && is_ending(pid)) {
            ret->directory[0] = '\0';
            return find_dead(pid, ret);
        }
        if (rc == 0) {
            ret->stopped = target_halted(pid, NULL);
            ret->kind = ret->stopped ? TARGET_FILES : TARGET_LIVE;
            return 0;
        }
        if (rc != -ENOENT)
            return rc;
        ret->kind = TARGET_BARE;
        bool starts = ret->directory[0] != '\0'; /* mapped, and no socket yet */
        ret->directory[0] = '\0';
        find_left(pid, starts, ret);
        return 0;
    }
    return find_dead(pid, ret);
}

static int take_directory(const char *text, const struct datadir *d, struct target *ret)
{
    if (!datadir_has(d, "data.mdb", NULL) && !datadir_has(d, "rings", NULL))
        return err_set(-EINVAL, "%s is not a data directory: it has neither data.mdb nor rings",
                       text);
    if (directory_alive(d, &ret->pid) && !directory_is_over(text)) {
        ret->stopped = target_halted(ret->pid, NULL);
        if (!ret->stopped)
            return err_set(
                -EBUSY,
                "%s belongs to process %d, which is still running; use the process as target: "
                "probing -t %d ...",
                text, (int)ret->pid, (int)ret->pid);
    }
    (void)snprintf(ret->directory, sizeof(ret->directory), "%s", text);
    ret->owner = d->owner;
    ret->kind = directory_lives_elsewhere(text) ? TARGET_LIVE : TARGET_FILES;
    return 0;
}

static int resolve_socket(const char *text, struct target *ret)
{
    const char *slash = strrchr(text, '/');
    struct datadir d;

    if (strcmp(slash != NULL ? slash + 1 : text, "sock") != 0)
        return err_set(
            -EINVAL, "%s is not a socket of probing, which is the file 'sock' in a data directory",
            text);
    (void)snprintf(ret->directory, sizeof(ret->directory), "%.*s",
                   slash != NULL ? (int)(slash - text) + (slash == text) : 1,
                   slash != NULL ? text : ".");
    ret->kind = TARGET_LIVE;
    int rc = datadir_open(ret->directory, DATADIR_ANY, &d);
    ret->owner = d.owner;
    datadir_close(&d);
    return rc;
}

static int resolve_path(const char *text, struct target *ret)
{
    struct stat st;
    struct datadir d;

    if (strncmp(text, "http://", 7) == 0)
        return err_set(-EINVAL, "a target has no http:// before it: -t %.*s",
                       (int)strcspn(text + 7, "/"), text + 7);
    if (stat(text, &st) == -1)
        return err_set(-errno, "cannot use %s as a target: %s", text, strerror(errno));
    if (S_ISSOCK(st.st_mode))
        return resolve_socket(text, ret);
    if (!S_ISDIR(st.st_mode))
        return err_set(-EINVAL, "%s is neither a data directory nor a socket", text);
    int rc = datadir_open(text, DATADIR_ANY, &d);
    if (rc == 0)
        rc = take_directory(text, &d, ret);
    datadir_close(&d);
    return rc;
}

static int resolve_network(const char *text, struct target *ret)
{
    const char *colon = strrchr(text, ':'), *host = text;
    size_t n = strlen(text);
    uint64_t port = DEFAULT_PORT;

    if (text[0] == '[') {
        const char *close_bracket = strchr(text, ']');
        if (close_bracket == NULL || (close_bracket[1] != '\0' && close_bracket[1] != ':'))
            return err_set(-EINVAL, "'%s': write an IPv6 target as [address]:port", text);
        host = text + 1;
        n = (size_t)(close_bracket - host);
        colon = close_bracket[1] == ':' ? close_bracket + 1 : NULL;
    } else if (colon != NULL) {
        n = (size_t)(colon - text);
    }
    if (colon != NULL && (parse_u64(colon + 1, &port) < 0 || port == 0 || port > 65535))
        return err_set(-EINVAL, "'%s': the port must be a number from 1 to 65535", text);
    if (n == 0 || n >= sizeof(ret->host))
        return err_set(-EINVAL,
                       "'%s' is not a target; give a pid, host:port, a socket or a data directory",
                       text);
    (void)snprintf(ret->host, sizeof(ret->host), "%.*s", (int)n, host);
    ret->port = (uint16_t)port;
    ret->kind = TARGET_LIVE;
    return 0;
}

int target_resolve(const char *text, struct target *ret)
{
    static char number[SEVERAL_PID_BYTES]; /* the target's text, as long as the command runs */
    struct remote_name remote;
    uint64_t pid;
    int rc;

    *ret = (struct target){.text = text};
    if (remote_name_read(text, &remote))
        return remote_resolve(text, &remote, ret);
    if (strpbrk(text, SEVERAL_BLANKS) != NULL &&
        text[strspn(text, "0123456789" SEVERAL_BLANKS)] == '\0') {
        rc = several_parent(text, number);
        if (rc < 0)
            return cli_misuse(rc);
        ret->text = text = number;
    }
    if (text[0] >= '0' && text[0] <= '9' && text[strspn(text, "0123456789")] == '\0') {
        if (parse_u64(text, &pid) < 0 || pid == 0 || pid > INT32_MAX)
            return err_set(-EINVAL, "'%s' is not a pid", text);
        return resolve_pid((pid_t)pid, ret);
    }
    if (strchr(text, '/') != NULL || access(text, F_OK) == 0)
        return resolve_path(text, ret);
    return resolve_network(text, ret);
}

bool target_is_files(const struct target *t)
{
    return t->kind == TARGET_FILES || (t->kind == TARGET_BARE && t->directory[0] != '\0');
}

void target_say_whose(const struct target *t)
{
    bool named = t->kind == TARGET_LIVE && t->pid == 0 && t->host[0] == '\0'; /* by a path */

    if (named && t->owner != geteuid())
        fprintf(stderr, "probing: the process behind %s is of uid %u, not yours\n", t->directory,
                (unsigned)t->owner);
    if (!target_is_files(t))
        return;
    if (t->owner != geteuid())
        fprintf(stderr, "probing: these data are of uid %u, not yours: %s\n", (unsigned)t->owner,
                t->directory);
    if (t->others > 0)
        fprintf(stderr,
                "probing: there %s %u of other users with that pid (`probing list --dead` shows "
                "all)\n",
                t->others == 1 ? "is" : "are", t->others);
}

/* ---- connecting ---- */

/* The environment's token goes to any server; one that is found here, to its owner only. */
static int connect_network(const struct target *t, struct probing_client **ret)
{
    char room[TOKEN_BYTES];
    const char *token = getenv("PROBING_TOKEN");
    bool said = token != NULL && token[0] != '\0';
    struct probing_client *c = client_new(said ? token : NULL, said ? NULL : token_of_peer, room);
    int rc = c != NULL ? probing_client_connect_tcp(c, t->host, t->port) : -ENOMEM;

    if (rc == 0)
        *ret = c;
    else
        probing_client_free(c);
    if (rc == -ENOENT && t->text != NULL && strpbrk(t->text, ":/") == NULL)
        return err_set(rc, "%s; a job's ranks are -t job:%s, a process is its pid (`probing list`)",
                       err_text(), t->text);
    return rc;
}

/* The protocol may have changed without a new version.  Warns once only. */
void target_compare_builds(const struct target *t, const struct probing_client *c)
{
    static bool said;
    const char *theirs = probing_client_build(c);

    if (said || strcmp(theirs, probing_build) == 0)
        return;
    said = true;
    terminal_say("the core in %s is %s%s, this command %s: restart the process, or use the command "
                 "that came with its core",
                 t->text, theirs[0] != '\0' ? "probing " : "of another build", theirs,
                 probing_build);
}

static int reach_there(const struct target *t, struct probing_client **ret)
{
    struct probing_client *c = client_new(NULL, NULL, NULL);
    int fd, note, rc = c == NULL ? -ENOMEM : link_open(t->there, &fd, &note);

    if (rc == 0)
        rc = client_connect_stream(c, fd, note, t->text);
    if (rc == 0)
        *ret = c;
    else
        probing_client_free(c);
    return rc;
}

int target_reach(const struct target *t, struct probing_client **ret)
{
    const struct endpoint_owner who = {.pid = t->pid, .start_time = t->start_time};

    if (t->there != NULL)
        return reach_there(t, ret);
    return t->host[0] != '\0'
               ? connect_network(t, ret)
               : endpoint_connect(t->directory, t->start_time != 0 ? &who : NULL, ret);
}

static int begin_network(const struct target *t, struct probing_client *c)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    char service[8];

    (void)snprintf(service, sizeof(service), "%u", t->port);
    int rc = getaddrinfo(t->host, service, &hints, &list);
    if (rc != 0)
        return err_set(-ENOENT, "no machine '%s': %s", t->host, gai_strerror(rc));
    rc = client_begin_tcp(c, t->host, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return rc;
}

int target_begin(const struct target *t, char *room, struct probing_client **ret)
{
    const struct endpoint_owner who = {.pid = t->pid, .start_time = t->start_time};
    const bool network = t->host[0] != '\0';
    const char *token = network ? getenv("PROBING_TOKEN") : NULL;
    bool said = token != NULL && token[0] != '\0';
    struct probing_client *c =
        client_new(said ? token : NULL, network && !said ? token_of_peer : NULL, room);

    if (c == NULL)
        return -ENOMEM;
    int rc = network ? begin_network(t, c)
                     : endpoint_begin(t->directory, t->start_time != 0 ? &who : NULL, c);
    if (rc == 0)
        *ret = c;
    else
        probing_client_free(c);
    return rc;
}

/* A process may have lowered its limits since it was entered. */
int target_explain_silence(const struct target *t, int rc)
{
    const char *ends = t->host[0] == '\0' && rc == -ETIMEDOUT ? target_ends(t->pid) : NULL;

    if (ends != NULL)
        return err_set(rc, "process %d gives no answer: %s", (int)t->pid, ends);
    if (t->host[0] != '\0' || t->pid <= 0 || rc != -ETIMEDOUT ||
        room_of(t->pid, ROOM_DESCRIPTORS) > 0)
        return rc;
    return err_set(rc,
                   "process %d may have no more open files (ulimit -n), so its core can accept "
                   "nobody; raise the limit: prlimit --pid %d --nofile=1024",
                   (int)t->pid, (int)t->pid);
}

int target_connect(const struct target *t, struct probing_client **ret)
{
    struct target_halt halt;
    int rc;

    switch (t->kind) {
    case TARGET_LIVE:
        rc = target_reach(t, ret);
        if (rc == 0)
            target_compare_builds(t, *ret);
        return target_explain_silence(t, rc);
    case TARGET_MANY:
        return err_set(-EINVAL, "'%s' names several processes, and this takes one", t->text);
    case TARGET_BARE:
        return target_no_core(t->pid, /* plugin= */ "");
    case TARGET_THERE:
        return err_set(-ENXIO, "no core answers in %s: it is dead, stopped, or was never entered",
                       t->text);
    case TARGET_FILES:
        if (t->stopped && target_halted(t->pid, &halt))
            return err_set(-EAGAIN,
                           "process %d is %s and cannot answer (query, tables and describe "
                           "still read its data); %s",
                           (int)t->pid, halt.is, halt.remedy);
        if (t->stopped)
            return err_set(-EAGAIN, "process %d could not run a moment ago; try again",
                           (int)t->pid);
        return err_set(-ESRCH,
                       "the process of %s has ended; these commands still read its data: query, "
                       "tables, describe, export, backtrace (of a crash), flamegraph, and the "
                       "reports of plugins",
                       t->directory);
    case TARGET_NONE:
        break;
    }
    return err_set(-EINVAL, "no target given");
}
