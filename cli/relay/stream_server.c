/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/stream_server.c - see stream_server.h.
 *
 * The relay's thread, and children.
 */
#include "cli/relay/stream_server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/link/link.h"
#include "cli/link/pass_descriptors.h"
#include "cli/relay/merge_answers.h"
#include "cli/target/core_lookup.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define GRACE_NS (5 * NS_PER_S) /* for a command that was told to end: it puts things right */
#define END_CODE 64             /* an exit code says enum probing_client_end in this way */
#define STDERR_BYTES ((size_t)16 << 10)

/* ---- in a child: a connection ---- */

struct connecting {
    uint32_t id;
    const struct link_member *to;
};

/* The directory as it can be named when /proc shows no root of the dead. */
static const char *place_of(const struct client_process *p)
{
    const char *root =
        strncmp(p->directory, "/proc/", 6) == 0 ? strstr(p->directory, "/root/") : NULL;

    return root != NULL ? root + sizeof("/root") - 1 : p->directory;
}

/* Why the connection has ended, in words and as the exit code. */
static int find_end(const struct client_process *p)
{
    enum probing_client_end end = client_process_end(p);

    switch (end) {
    case PROBING_CLIENT_DIED:
        terminal_say("the process has died; its data can still be queried there: %.600s",
                     place_of(p));
        break;
    case PROBING_CLIENT_LEFT:
        terminal_say("the core has left process %d, which lives on", (int)p->pid);
        break;
    case PROBING_CLIENT_REPLACED:
        terminal_say("process %d runs another program now (exec), and the core went with the one "
                     "before",
                     (int)p->pid);
        break;
    case PROBING_CLIENT_CLOSED:
    case PROBING_CLIENT_UNKNOWN:
    case PROBING_CLIENT_OPEN:
        terminal_say("the connection was closed by the core; process %d lives, ask again",
                     (int)p->pid);
        break;
    }
    return END_CODE + (int)end;
}

/* Its standard input is the socket over which the connection goes. */
static int connect_here(void *arg)
{
    const struct connecting *c = arg;
    const struct link_member *to = c->to;
    const struct endpoint_owner who = {
        .pid = to->pid > 0 ? (pid_t)to->pid : 0,
        .start_time = to->pid > 0 && to->start_time > 0 ? (uint64_t)to->start_time : 0};
    struct client_process p = {.pid = who.pid, .start_time = who.start_time};
    int fd = endpoint_dial(to->directory, who.start_time != 0 ? &who : NULL, "sock", SOCK_STREAM);

    if (fd < 0)
        return fd;
    client_process_of(fd, to->directory, "sock", &p);
    int rc = pass_send(STDIN_FILENO, &c->id, sizeof(c->id), &fd, 1);
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};
    while (rc == 0 && end.revents == 0 && !cli_interrupted)
        (void)poll(&end, 1, -1);
    return rc < 0 ? rc : find_end(&p);
}

/* ---- in the relay ---- */

int served_open(struct served *s, const char *place, int passed)
{
    struct link_member to;
    struct connecting c = {.id = s->stream.id, .to = &to};
    int rc = link_member_from_place(place, &to);

    if (rc == 0 && !to.alive)
        rc = err_set(-EBADMSG, "that is no place of a process");
    if (rc < 0)
        return rc;
    s->state = SERVED_CONNECTS;
    s->stream.awaits = true;
    buf_init(&s->stderr_text, STDERR_BYTES);
    return child_start_with(&s->child, passed, connect_here, &c);
}

int served_passed(int socket, uint32_t *ret_id)
{
    int fds[PASS_FDS_MAX];
    ssize_t n = pass_receive(socket, ret_id, sizeof(*ret_id), fds);

    return n == sizeof(*ret_id) ? fds[0] : -1;
}

enum probing_client_end served_end(struct served *s, char *ret_why, size_t size)
{
    const int code = WIFEXITED(s->child.status) ? WEXITSTATUS(s->child.status) : 0;

    while (child_read(&s->child, 1, &s->stderr_text, 4096) == 1)
        ;
    child_last_words(&s->stderr_text, ret_why, size);
    return code >= END_CODE ? (enum probing_client_end)(code - END_CODE) : PROBING_CLIENT_OPEN;
}

static int become_command(void *arg)
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
    return take_child(s, child_start(&s->child, become_command, (void *)(uintptr_t)argv));
}

int served_answer(struct served *s, struct relay_question *q)
{
    return take_child(s, child_start(&s->child, answer_question, q));
}

bool served_stop(struct served *s, uint64_t now)
{
    if (s->state != SERVED_RUNS || child_ended(&s->child))
        return true; /* a connection's child is killed with it */
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
    stream_end(&s->stream);
    buf_done(&s->stderr_text);
}
