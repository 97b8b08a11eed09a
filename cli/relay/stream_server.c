/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/stream_server.c - see stream_server.h.
 *
 * The relay's thread, and threads for looks, each of which owns what it was given.
 */
#include "cli/relay/stream_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/relay/below.h"
#include "cli/target/core_lookup.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/own_thread.h"

#define STACK_BYTES ((size_t)256 << 10) /* of a look, whatever `ulimit -s` says: some paths */
#define GRACE_NS (5 * NS_PER_S) /* for a command that was told to end: it puts things right */

struct look {
    uint32_t id;
    int done; /* the pipe */
    bool connects;
    struct client_process process; /* to be found, or whose end is looked for */
    int fd, error;
    enum probing_client_end end;
    char why[700];
};

/* ---- in its own thread ---- */

static void connect_there(struct look *l)
{
    char directory[sizeof(l->process.directory)]; /* of what is filled anew */
    const struct endpoint_owner who = {.pid = l->process.pid, .start_time = l->process.start_time};

    (void)snprintf(directory, sizeof(directory), "%s", l->process.directory);
    l->fd = endpoint_dial(directory, who.start_time != 0 ? &who : NULL, "sock", SOCK_STREAM);
    l->error = l->fd < 0 ? l->fd : 0;
    if (l->error < 0)
        (void)snprintf(l->why, sizeof(l->why), "%s", err_why(l->error));
    else
        client_process_of(l->fd, directory, "sock", &l->process);
    l->fd = l->fd < 0 ? -1 : l->fd;
}

/* The directory as it can be named when /proc shows no root of the dead. */
static const char *place_of(const struct client_process *p)
{
    const char *root =
        strncmp(p->directory, "/proc/", 6) == 0 ? strstr(p->directory, "/root/") : NULL;

    return root != NULL ? root + sizeof("/root") - 1 : p->directory;
}

static void look_why(struct look *l)
{
    const int pid = (int)l->process.pid;

    l->end = client_process_end(&l->process);
    switch (l->end) {
    case PROBING_CLIENT_DIED:
        (void)snprintf(l->why, sizeof(l->why),
                       "the process has died; its data can still be queried there: %.600s",
                       place_of(&l->process));
        return;
    case PROBING_CLIENT_LEFT:
        (void)snprintf(l->why, sizeof(l->why), "the core has left process %d, which lives on", pid);
        return;
    case PROBING_CLIENT_REPLACED:
        (void)snprintf(l->why, sizeof(l->why),
                       "process %d runs another program now (exec), and the core went with the one "
                       "before",
                       pid);
        return;
    case PROBING_CLIENT_CLOSED:
    case PROBING_CLIENT_UNKNOWN:
    case PROBING_CLIENT_OPEN:
        break;
    }
    (void)snprintf(l->why, sizeof(l->why),
                   "the connection was closed by the core; process %d lives, ask again", pid);
}

static void *look_apart(void *arg)
{
    struct look *l = arg;

    if (l->connects)
        connect_there(l);
    else
        look_why(l);
    if (write(l->done, &l, sizeof(l)) != sizeof(l) && l->fd != -1)
        (void)close(l->fd); /* the relay has ended */
    return NULL;
}

/* ---- in the relay's ---- */

static int begin_look(struct served *s, bool connects, const struct client_process *p, int done)
{
    struct look *l = calloc(1, sizeof(*l));

    if (l == NULL)
        return err_set(-ENOMEM, "no memory to look at a process");
    *l = (struct look){
        .id = s->stream.id, .done = done, .connects = connects, .process = *p, .fd = -1};
    int rc = own_thread_start_detached(NULL, STACK_BYTES, look_apart, l);
    if (rc < 0) {
        free(l);
        return err_set(rc, "no thread to look at a process: %s", cli_fork_why(-rc));
    }
    return 0;
}

int served_open(struct served *s, const char *place, int done)
{
    struct client_process p = {.pid = 0};
    char words[2][24];
    int64_t pid, start;
    int at = 0;

    if (sscanf(place, "%23[-0-9] %23[-0-9] %n", words[0], words[1], &at) != 2 || at == 0 ||
        parse_i64(words[0], &pid) < 0 || parse_i64(words[1], &start) < 0 || place[at] != '/' ||
        pid > INT32_MAX || strlen(place + at) >= sizeof(p.directory))
        return err_set(-EBADMSG, "that is no place of a process");
    p.pid = pid > 0 ? (pid_t)pid : 0;
    p.start_time = pid > 0 && start > 0 ? (uint64_t)start : 0;
    (void)snprintf(p.directory, sizeof(p.directory), "%s", place + at);
    s->state = SERVED_CONNECTS;
    s->stream.awaits = true;
    return begin_look(s, /* connects= */ true, &p, done);
}

int served_look(struct served *s, int done)
{
    s->state = SERVED_LOOKS;
    return begin_look(s, /* connects= */ false, &s->process, done);
}

void served_looked(struct look *l, struct looked *ret)
{
    *ret = (struct looked){
        .id = l->id, .fd = l->fd, .error = l->error, .end = l->end, .process = l->process};
    (void)snprintf(ret->why, sizeof(ret->why), "%s", l->why);
    free(l);
}

static int become(void *arg)
{
    const char *const *argv = arg;

    cli_signals_back();
    (void)execv(argv[0], (char *const *)(uintptr_t)argv);
    return err_set(-errno, "cannot run %s: %s", argv[0], strerror(errno));
}

/* Its child has been started, or rc says why not. */
static int take_child(struct served *s, int rc)
{
    if (rc < 0)
        return rc;
    s->state = SERVED_RUNS;
    for (int i = 0; i < 2; i++) {
        stream_take(&s->stream, i, s->child.fds[i], -1);
        s->child.fds[i] = -1; /* the stream's from now on */
    }
    return 0;
}

int served_run(struct served *s, const char *const *argv)
{
    return take_child(s, child_start(&s->child, become, (void *)(uintptr_t)argv));
}

int served_merge(struct served *s)
{
    return take_child(s, merge_answer(s->merge, &s->child));
}

bool served_stop(struct served *s, uint64_t now)
{
    if (s->state != SERVED_RUNS || child_ended(&s->child))
        return true;
    if (s->told_ns == 0) {
        s->told_ns = now;
        child_interrupt(&s->child);
    } else if (now - s->told_ns > GRACE_NS) {
        child_kill(&s->child);
    }
    return false;
}

void served_done(struct served *s)
{
    child_end(&s->child);
    merge_free(s->merge);
    stream_end(&s->stream);
}
