/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/child.c - see child.h.
 *
 * One thread.
 */
#include "cli/many/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/job/job.h"
#include "cli/link/link.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/proc/proc_file.h"

#define HOSTS_SAID 8 /* that have left out processes */

/* Standard input and outputs of the child, and streams over them. */
static int take_descriptors(int input, const int ends[2][2])
{
    input = input == -1 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : input;
    if (input == -1 || dup2(input, STDIN_FILENO) == -1 || dup2(ends[0][1], STDOUT_FILENO) == -1 ||
        dup2(ends[1][1], STDERR_FILENO) == -1)
        return err_set(-errno, "no output: %s", strerror(errno));
    return terminal_begin();
}

/* Never returns.  The streams are closed by hand: what was made at_exit() is our parent's. */
static void be_child(pid_t parent, int input, const int ends[2][2], int (*fn)(void *arg), void *arg)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILED);
    (void)setpgid(0, 0); /* Ctrl-C is for our parent, who tells us */
    int rc = take_descriptors(input, ends);
    proc_close_descriptors(link_descriptor());
    if (rc == 0)
        rc = fn(arg);
    if (fflush(stdout) == EOF && rc >= 0)
        rc = err_set(-EPIPE, "the answer could not be handed on");
    if (rc < 0 && !(rc == -ECANCELED && cli_interrupted))
        terminal_say("%s", err_why(rc));
    (void)fclose(stdout);
    (void)fclose(stderr);
    _exit(rc < 0 || rc > 125 ? EXIT_FAILED : rc);
}

static void close_both(int ends[2])
{
    for (int i = 0; i < 2; i++)
        if (ends[i] != -1)
            (void)close(ends[i]);
}

int child_start_with(struct child *c, int input, int (*fn)(void *arg), void *arg)
{
    const pid_t parent = getpid();
    int ends[2][2] = {{-1, -1}, {-1, -1}}, rc = 0;

    *c = (struct child){.fds = {-1, -1}};
    for (int i = 0; i < 2 && rc == 0; i++)
        if (pipe2(ends[i], O_CLOEXEC) == -1 || fcntl(ends[i][0], F_SETFL, O_NONBLOCK) == -1)
            rc = err_set(-errno, "no pipe: %s", strerror(errno));
    (void)fflush(stdout); /* what is in there is not the child's */
    (void)fflush(stderr);
    pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0)
        be_child(parent, input, (const int(*)[2])ends, fn, arg);
    if (rc == 0 && pid == -1)
        rc = err_set(-errno, "no process to ask from: %s", cli_fork_why(errno));
    for (int i = 0; i < 2 && rc == 0; i++) {
        c->fds[i] = ends[i][0];
        ends[i][0] = -1;
    }
    close_both(ends[0]);
    close_both(ends[1]);
    if (rc == 0) {
        c->pid = pid;
        (void)setpgid(pid, pid); /* whoever comes first */
    }
    return rc;
}

int child_start(struct child *c, int (*fn)(void *arg), void *arg)
{
    return child_start_with(c, /* input= */ -1, fn, arg);
}

const char *child_own_program(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    path[n > 0 ? n : 0] = '\0';
    return access(path, X_OK) == 0 ? path : "/proc/self/exe";
}

int child_read(struct child *c, int i, struct buf *to, size_t most)
{
    char *room;
    ssize_t n;

    if (c->fds[i] == -1)
        return -EPIPE;
    room = buf_room(to, most);
    if (room == NULL)
        return to->failed;
    n = read(c->fds[i], room, most);
    if (n == -1)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0) {
        (void)close(c->fds[i]);
        c->fds[i] = -1;
        return -EPIPE;
    }
    to->size += (size_t)n;
    return 1;
}

void child_last_words(struct buf *err, char *ret, size_t size)
{
    const char *line = terminal_last_said(buf_text(err));

    line = line != NULL ? line + sizeof("probing: ") - 1 : "";
    (void)snprintf(ret, size, "%.*s", (int)strcspn(line, "\n"), line);
}

void child_say_left_out(const char *host, struct buf *err)
{
    static const char says[] = "probing: " JOB_LEFT_OUT;
    static uint32_t said; /* of those that ask again and again */
    const char *line = strstr(buf_text(err), says);
    char name[300], note[2 * ERR_TEXT_BYTES], text[ERR_TEXT_BYTES];

    if (line == NULL || (line != buf_text(err) && line[-1] != '\n') || said == HOSTS_SAID)
        return;
    said++;
    line += sizeof("probing: ") - 1;
    (void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(line, "\n"), line);
    terminal_say("%s: %s", terminal_field(name, sizeof(name), host),
                 terminal_field(note, sizeof(note), text));
}

bool child_ended(struct child *c)
{
    if (c->pid != 0 && !c->reaped && waitpid(c->pid, &c->status, WNOHANG) == c->pid)
        c->reaped = true;
    return c->pid == 0 || c->reaped;
}

void child_interrupt(const struct child *c)
{
    if (c->pid != 0 && !c->reaped)
        (void)kill(c->pid, SIGTERM);
}

void child_kill(const struct child *c)
{
    if (c->pid == 0 || c->reaped)
        return;
    (void)kill(-c->pid, SIGKILL);
    (void)kill(c->pid, SIGKILL); /* it may not lead its group yet */
}

void child_end(struct child *c)
{
    if (c->pid == 0)
        return;
    if (!c->reaped) {
        child_kill(c);
        while (waitpid(c->pid, &c->status, 0) == -1 && errno == EINTR)
            ;
    }
    close_both(c->fds);
    *c = (struct child){.fds = {-1, -1}};
}
