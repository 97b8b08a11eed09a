/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/remote_shell.c - see remote_shell.h.
 *
 * One thread.
 */
#include "cli/link/remote_shell.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "core/base/err.h"
#include "sdk/lib/proc/proc_file.h"

#define RSH_WORDS 24
#define GRACE_MS 200 /* a shell that was told to end, before it is killed */

bool host_is_name(const char *name)
{
    static const char marks[] = ".-_:%[]@";
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && strchr(marks, name[i]) == NULL)
            return false;
    return n > 0 && n < 256 && name[0] != '-' && strstr(name, "@-") == NULL;
}

static const char HOST_PLACE[] = "{}"; /* as xargs has it */

struct words {
    char rsh[1024], script[2048], placed[600];
    char *argv[RSH_WORDS + 3];
};

/* "kubectl exec -i {} -- sh -c", "--nodelist={}": who takes HOST elsewhere than last says where.
 * 1: it was in this word; -E2BIG. */
static int place_host(const struct spawn *s, struct words *w, char **word)
{
    const char *at = strstr(*word, HOST_PLACE);

    if (at == NULL)
        return 0;
    if (w->placed[0] != '\0' ||
        (size_t)snprintf(w->placed, sizeof(w->placed), "%.*s%s%s", (int)(at - *word), *word,
                         s->host, at + sizeof(HOST_PLACE) - 1) >= sizeof(w->placed))
        return err_set(-E2BIG,
                       "the remote shell '%.60s...' has %s twice, or a word that is too long",
                       s->rsh, HOST_PLACE);
    *word = w->placed;
    return 1;
}

static int split_words(const struct spawn *s, struct words *w)
{
    int n = 0, placed = 0;

    w->placed[0] = '\0';

    if ((size_t)snprintf(w->rsh, sizeof(w->rsh), "%s", s->rsh) >= sizeof(w->rsh) ||
        (size_t)snprintf(w->script, sizeof(w->script), "%s relay --stdio", s->program) >=
            sizeof(w->script))
        return err_set(-E2BIG,
                       "the remote shell '%.60s...' or the name of probing there is too "
                       "long",
                       s->rsh);
    for (char *at = w->rsh + strspn(w->rsh, " "); *at != '\0'; at += strspn(at, " ")) {
        if (n == RSH_WORDS)
            return err_set(-E2BIG, "the remote shell has more than %d words", RSH_WORDS);
        w->argv[n++] = at;
        at += strcspn(at, " ");
        if (*at != '\0')
            *at++ = '\0';
        int rc = place_host(s, w, &w->argv[n - 1]);
        if (rc < 0)
            return rc;
        placed += rc;
    }
    if (n == 0)
        return err_set(-EINVAL, "the remote shell is empty: --rsh or PROBING_RSH names a command");
    if (placed == 0)
        w->argv[n++] = (char *)(uintptr_t)s->host;
    w->argv[n++] = w->script;
    w->argv[n] = NULL;
    return 0;
}

/* Never returns. */
static void become_shell(const struct words *w, pid_t parent, int ends[3][2])
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILED);
    (void)setpgid(0, 0); /* Ctrl-C is for who asks, who ends it */
    cli_signals_back();
    (void)signal(SIGPIPE, SIG_DFL);
    if (dup2(ends[0][0], STDIN_FILENO) != -1 && dup2(ends[1][1], STDOUT_FILENO) != -1 &&
        dup2(ends[2][1], STDERR_FILENO) != -1)
        (void)execvp(w->argv[0], w->argv);
    (void)dprintf(STDERR_FILENO, "cannot run %s: %s\n", w->argv[0], strerror(errno));
    _exit(127);
}

int spawn_relay(struct spawn *s)
{
    int ends[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    struct words w;
    int rc = split_words(s, &w);

    for (int i = 0; i < 3 && rc == 0; i++)
        if (pipe2(ends[i], O_CLOEXEC) == -1)
            rc = err_set(-errno, "no pipe: %s", strerror(errno));
    const pid_t parent = getpid();
    pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0)
        become_shell(&w, parent, ends);
    if (rc == 0 && pid == -1)
        rc = err_set(-errno, "no process for a remote shell: %s", cli_fork_why(errno));
    if (rc == 0) {
        (void)setpgid(pid, pid);
        (void)fcntl(ends[2][0], F_SETFL, O_NONBLOCK);
        s->pid = pid;
        s->in = ends[0][1];
        s->out = ends[1][0];
        s->err = ends[2][0];
        ends[0][1] = ends[1][0] = ends[2][0] = -1;
    }
    for (int i = 0; i < 6; i++)
        if (ends[i / 2][i % 2] != -1)
            (void)close(ends[i / 2][i % 2]);
    return rc;
}

int spawn_status(int *pid)
{
    int status;

    if (*pid <= 0 || waitpid(*pid, &status, WNOHANG) != *pid)
        return -1;
    *pid = 0;
    return status;
}

void spawn_end(int pid)
{
    int status;

    if (pid <= 0)
        return;
    (void)kill(-pid, SIGTERM);
    for (int i = 0; i < GRACE_MS; i++) {
        if (waitpid(pid, &status, WNOHANG) != 0)
            return;
        (void)poll(NULL, 0, 1);
    }
    (void)kill(-pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
}

void spawn_leave_behind(int descriptor)
{
    struct rlimit files;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    cli_signals_back();
    (void)sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        (void)dup2(nothing, fd);
    proc_close_descriptors(descriptor);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}
