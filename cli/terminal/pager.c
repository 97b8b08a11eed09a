/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/pager.c - the terminal's width, and long answers through a pager when they go to a
 * person.
 *
 * One thread.  PROBING_PAGER, else PAGER, else less, is run by the shell between us and the
 * terminal; "" and "cat" stand for none.  What fits on the screen is just printed (less -F).
 *
 * A second process of ours, the spool, reads the answer at once and keeps in a file without a name
 * what the pager has not read yet: a core closes connections from which nobody reads.
 */
#include "cli/terminal/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/terminal/exit_codes.h"
#include "cli/terminal/terminal.h"
#include "sdk/lib/proc/proc_file.h"

#define NOT_FOUND 127 /* what a shell answers for a command that is not there */
#define SPOOL_MAX \
    (256 << 20) /* bytes; beyond it the answer waits for the pager, as the core bears */

/* One thread: what there was before a pager took the place of the terminal. */
static struct {
    pid_t pid;   /* 0: none */
    pid_t spool; /* 0: none; the answer goes to the pager itself */
    uint32_t width;
    const char *command;
    int stdout_fd, stderr_fd; /* what they were; -1: they are still */
} pager = {.stdout_fd = -1, .stderr_fd = -1};

uint32_t cli_width(void)
{
    struct winsize size;

    if (pager.pid != 0)
        return pager.width;
    if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == -1)
        return 0;
    return size.ws_col;
}

uint32_t cli_rows(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

static bool is_installed(const char *name)
{
    char path[4096];
    const char *at = getenv("PATH");

    for (size_t n = 0; at != NULL && *at != '\0'; at += n + (at[n] == ':')) {
        n = strcspn(at, ":");
        (void)snprintf(path, sizeof(path), "%.*s/%s", (int)n, at, name);
        if (n > 0 && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* NULL: none. */
static const char *choose_pager(void)
{
    const char *command = getenv("PROBING_PAGER"), *term = getenv("TERM");

    if (isatty(STDOUT_FILENO) != 1 || isatty(STDIN_FILENO) != 1)
        return NULL;
    if (command == NULL)
        command = getenv("PAGER");
    if (command == NULL && term != NULL && strcmp(term, "dumb") != 0 && is_installed("less"))
        command = "less";
    return command != NULL && command[0] != '\0' && strcmp(command, "cat") != 0 ? command : NULL;
}

/* A plain command takes the shell's place, so that Ctrl-C reaches nobody who would die of it. */
static pid_t start_pager(const char *command, int from)
{
    extern char **environ;
    static const char special[] = "|&;<>()$`\\\"'*?[#~=\n";
    char text[1024];
    char *words[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", text, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t pipe_only;
    pid_t pid = 0;

    (void)snprintf(text, sizeof(text), "%s%s", strpbrk(command, special) == NULL ? "exec " : "",
                   command);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return 0;
    if (posix_spawnattr_init(&attributes) == 0) {
        (void)sigemptyset(&pipe_only);
        (void)sigaddset(&pipe_only, SIGPIPE); /* we ignore it, it should not */
        (void)posix_spawnattr_setsigdefault(&attributes, &pipe_only);
        (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        if (posix_spawn_file_actions_adddup2(&actions, from, STDIN_FILENO) != 0 ||
            posix_spawnp(&pid, words[0], &actions, &attributes, words, environ) != 0)
            pid = 0;
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* A file without a name in $TMPDIR or /tmp, else memory; -1: none. */
static int open_nameless(void)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/probing-pager-XXXXXX",
                   folder != NULL && folder[0] == '/' ? folder : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd != -1)
        (void)unlink(path);
    return fd != -1 ? fd : (int)syscall(SYS_memfd_create, "probing-pager", 1u /* MFD_CLOEXEC */);
}

/* The part of the answer that the pager lacks: the file from `read` to `written`, then `held` bytes
 * of `piece`. */
struct spool {
    int file;
    bool ended, full;
    off_t read, written;
    size_t held;
    char piece[1 << 16];
};

static bool feed_pager(struct spool *s)
{
    char text[1 << 14];
    bool filed = s->read < s->written;
    ssize_t n = filed ? pread(s->file, text, sizeof(text), s->read) : (ssize_t)s->held;

    if (filed && n > s->written - s->read)
        n = s->written - s->read;
    if (n > 0)
        n = write(STDOUT_FILENO, filed ? text : s->piece, (size_t)n);
    else if (filed) /* it cannot be read */
        return false;
    if (n <= 0)
        return n == 0 || errno == EAGAIN || errno == EINTR;
    if (!filed) {
        s->held -= (size_t)n;
        memmove(s->piece, s->piece + n, s->held);
    } else if ((s->read += n) == s->written) {
        s->read = s->written = 0;
        (void)ftruncate(s->file, 0);
    }
    return true;
}

static void take_input(struct spool *s)
{
    ssize_t n = read(STDIN_FILENO, s->piece, sizeof(s->piece));

    s->ended = n == 0 || (n == -1 && errno != EINTR);
    s->held = n > 0 ? (size_t)n : 0;
    n = s->written < SPOOL_MAX ? pwrite(s->file, s->piece, s->held, s->written) : 0;
    if (n > 0) {
        s->written += n;
        s->held -= (size_t)n;
        memmove(s->piece, s->piece + n, s->held);
    }
    s->full |= s->held > 0; /* no more is taken until the pager has read all this */
}

/* From standard input to standard output, never waiting for who reads there. */
static void run_spool(int file)
{
    static struct spool s;
    bool fed = true;

    s.file = file;
    (void)fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
    while (fed && (!s.ended || s.held > 0 || s.written > 0)) {
        struct pollfd fds[] = {{s.ended || s.held > 0 ? -1 : STDIN_FILENO, POLLIN, 0},
                               {STDOUT_FILENO, s.held > 0 || s.written > 0 ? POLLOUT : 0, 0}};

        if (poll(fds, 2, -1) == -1)
            continue;
        if (fds[0].revents != 0)
            take_input(&s);
        fed =
            (fds[1].revents & POLLERR) == 0 && ((fds[1].revents & POLLOUT) == 0 || feed_pager(&s));
    }
    (void)fcntl(STDOUT_FILENO, F_SETFL, 0); /* this line may wait for room */
    if (s.full)
        (void)dprintf(STDOUT_FILENO,
                      "(the pager's temporary file was full: where the answer is cut, "
                      "set PAGER=cat, or TMPDIR to a folder with more room)\n");
}

/* The descriptor to write to, for the pager to read at `to`, which becomes ours. */
static int open_spool(int to)
{
    int ends[2], file = open_nameless();

    if (file == -1 || pipe2(ends, O_CLOEXEC) == -1) {
        (void)close(file);
        return to;
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGINT, SIG_IGN); /* the pager stays, too */
        (void)signal(SIGTERM, SIG_DFL);
        if (dup2(ends[0], STDIN_FILENO) == -1 || dup2(to, STDOUT_FILENO) == -1 ||
            dup2(file, STDERR_FILENO) == -1)
            _exit(EXIT_FAILED);
        proc_close_descriptors(/* keep= */ -1);
        run_spool(STDERR_FILENO);
        _exit(0);
    }
    (void)close(file);
    (void)close(ends[0]);
    (void)close(pid == -1 ? ends[1] : to);
    pager.spool = pid == -1 ? 0 : pid;
    return pid == -1 ? to : ends[1];
}

/* Colours are bytes that less shows as such, unless it is told to hand them on. */
bool pager_colours(void)
{
    const char *less = getenv("LESS");

    return pager.pid == 0 ||
           (strstr(pager.command, "less") != NULL && less != NULL && strpbrk(less, "rR") != NULL);
}

void pager_begin(void)
{
    const char *command = choose_pager();
    uint32_t width = cli_width();
    int ends[2];

    if (command == NULL || pager.pid != 0 || pipe2(ends, O_CLOEXEC) == -1)
        return;
    (void)fflush(stdout);
    /* As git has them: quit when all fits, colours, chopped lines, the screen left as it is. */
    if (getenv("LESS") == NULL)
        (void)putenv((char *)(uintptr_t) "LESS=FRSX");
    pager.pid = start_pager(command, ends[0]);
    (void)close(ends[0]);
    if (pager.pid != 0) {
        ends[1] = open_spool(ends[1]);
        pager.width = width;
        pager.command = command;
        pager.stdout_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
        (void)dup2(ends[1], STDOUT_FILENO);
        if (isatty(STDERR_FILENO) == 1) /* what it lacks is said below the answer */
            pager.stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        if (pager.stderr_fd != -1)
            (void)dup2(ends[1], STDERR_FILENO);
    }
    (void)close(ends[1]);
}

bool pager_runs(void)
{
    return pager.pid != 0;
}

static void put_back(int fd, int *kept)
{
    if (*kept == -1)
        return;
    (void)dup2(*kept, fd);
    (void)close(*kept);
    *kept = -1;
}

void pager_end(void)
{
    int status = 0, spooled = 0;

    if (pager.pid == 0)
        return;
    (void)fflush(stdout);
    (void)fflush(stderr);
    put_back(STDERR_FILENO, &pager.stderr_fd);
    if (pager.stdout_fd == -1)
        (void)close(STDOUT_FILENO);
    put_back(STDOUT_FILENO, &pager.stdout_fd); /* the end of the answer */
    while (waitpid(pager.pid, &status, 0) == -1 && errno == EINTR)
        continue;
    while (pager.spool != 0 && waitpid(pager.spool, &spooled, 0) == -1 && errno == EINTR)
        continue;
    pager.pid = pager.spool = 0;
    terminal_pager_left();
    if (WIFSIGNALED(spooled))
        terminal_say("the answer may be cut: signal %d has ended the process that kept it for the "
                     "pager; set PAGER=cat to use none",
                     WTERMSIG(spooled));
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND)
        terminal_say("cannot run the pager '%s'; set PAGER=cat to use none", pager.command);
}
