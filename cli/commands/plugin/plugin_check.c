/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/plugin/plugin_check.c - `plugin check`: a plugin is loaded into a process of ours,
 * watched from outside, and told in words.
 *
 * One thread.  The process is a child with the real core in it: this very program, which waits, or
 * a program that the user names.  It dies with us, and its data goes with it.
 */

#include "cli/commands/plugin/plugin_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <probing/client.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <probing/plugin.h>

#include "cli/commands/backtrace/backtrace_crash.h"
#include "cli/commands/launch.h"
#include "cli/report/report.h"
#include "cli/target/core_lookup.h"
#include "cli/target/plugin_door.h"
#include "cli/target/process_view.h"
#include "cli/target/target.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_file/sealed_copy.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/task.h"

#define START_NS (30 * NS_PER_S) /* until the core answers in a process that has just begun */
#define RUN_NS NS_PER_S          /* how long the plugin is left running */
#define END_NS (5 * NS_PER_S)
#define ANSWER_BYTES ((size_t)1 << 20)
#define LEFT "has stopped: " /* the core's words before what is not right, core/builtin */
#define WRONG_CALL "wrong call: "
#define LABEL 11 /* columns of the words at the left */

struct check {
    const char *name, *file;
    char place[64]; /* of the data */
    pid_t pid;
    int hold; /* its input: it ends when this is closed */
    struct target target;
    bool failed; /* to load: it may want another program around it */
    bool own;    /* the program is ours: nobody else makes threads in it */
    int problems;
};

static void print_line(const char *label, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void print_line(const char *label, const char *format, ...)
{
    va_list args;

    printf("%-*s", LABEL, label);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)putchar('\n');
    (void)fflush(stdout); /* before the plugin's next step */
}

/* ---- the file ---- */

static void say_declared(const char *file)
{
    struct declared *d = NULL;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int r = fd != -1 ? declared_of_file(fd, &d) : 0;

    if (fd != -1)
        (void)close(fd);
    if (r == -EINVAL) /* else the struct itself is wrong, which loading will say */
        print_line("declares", "NOT RIGHT: %s", err_text());
    if (d != NULL)
        print_line(
            "declares",
            "%u views, %u metrics, %u aliases, %u flame modes, %u tables, %u tracks, %u panels, "
            "%u resources",
            d->all.n_views, d->all.n_metrics, d->all.n_aliases, d->all.n_flames, d->all.n_tables,
            d->all.n_tracks, d->all.n_panels, d->all.n_resources);
    declared_free(d);
}

static int look_at_file(struct check *c)
{
    struct elf_facts facts;
    struct stat st = {.st_size = 0};
    struct probing_plugin api = {.size = 0};

    int fd = open(c->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1)
        return err_set(-errno, "cannot open %s: %s", c->file, strerror(errno));
    int rc = sealed_inspect(fd, &facts);
    (void)fstat(fd, &st);
    if (rc == 0 && facts.plugin != 0)
        (void)!pread(fd, &api, sizeof(api), (off_t)facts.plugin);
    (void)close(fd);
    if (rc < 0) {
        print_line("file", "%s: %s", c->file, err_text());
        return rc;
    }
    print_line("file", "%s: %lld bytes, a library that can be loaded; it needs %u other librar%s",
               c->file, (long long)st.st_size, facts.n_needed, facts.n_needed == 1 ? "y" : "ies");
    if (facts.plugin == 0) {
        print_line("symbol", "it does not export " PLUGIN_SYMBOL);
        return err_set(-ENOEXEC, "no symbol");
    }
    print_line("symbol", PLUGIN_SYMBOL ", %u bytes; ABI %u.%u, needs %u.%u or later", api.size,
               api.abi >> 16, api.abi & 0xffff, api.abi >> 16, api.min_minor);
    say_declared(c->file);
    return 0;
}

/* ---- the process ---- */

int plugin_check_inside(void)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) == 1 || errno == EINTR)
        continue; /* until the other end is closed, in whatever way */
    return EXIT_DONE;
}

static void run_program(const struct check *c, char **program, const int pipe_fds[2])
{
    static char self[] = "/proc/self/exe";
    static char *waiter[] = {"probing", "plugin", "check", "--inside", NULL};
    char settings[512];
    bool own = program == NULL;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(settings, sizeof(settings),
                   "probing.data_dir=%s\nprobing.startup_script=off\ncrash.handler=on\n"
                   "probing.retention=0\nprobing.plugin_timeout=5s\n%s",
                   c->place, own || strcmp(c->name, "python") == 0 ? "probing.plugins=\n" : "");
    if (dup2(pipe_fds[0], STDIN_FILENO) == -1 || dup2(STDERR_FILENO, STDOUT_FILENO) == -1 ||
        launch_environment(settings, /* children= */ false) < 0)
        _exit(126);
    cli_signals_back();
    if (own)
        (void)execv(self, waiter);
    else
        (void)execvp(program[0], program);
    _exit(127);
}

/* It stays a zombie until end_process(), so that whoever looks finds it dead and not another. */
static bool has_ended(const struct check *c, int *ret_status)
{
    siginfo_t info = {.si_pid = 0};

    *ret_status = 0;
    if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == -1 || info.si_pid == 0)
        return false;
    *ret_status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
    return true;
}

static int wait_for_core(struct check *c)
{
    uint64_t until = clock_monotonic() + START_NS;
    struct probing_client *client = NULL;
    int status;

    for (;;) {
        c->target = (struct target){.kind = TARGET_LIVE, .pid = c->pid, .text = ""};
        if (directory_of(c->pid, c->target.directory, sizeof(c->target.directory)) == 0 &&
            target_connect(&c->target, &client) == 0) {
            probing_client_free(client);
            return 0;
        }
        if (has_ended(c, &status))
            return err_set(-ECHILD,
                           "the program for the check ended (status 0x%x) before the core "
                           "answered in it",
                           (unsigned)status);
        if (cli_interrupted)
            return err_set(-ECANCELED, "interrupted");
        if (clock_monotonic() > until)
            return err_set(-ETIMEDOUT, "the core does not answer in the program for the check");
        (void)poll(NULL, 0, 5);
    }
}

static int start_process(struct check *c, char **program)
{
    static const char *const roots[] = {"/dev/shm", "/tmp"};
    char path[4096];
    int fds[2], rc = -1;

    for (int i = 0; i < 2 && rc == -1; i++) {
        (void)snprintf(c->place, sizeof(c->place), "%s/probing-check-XXXXXX", roots[i]);
        rc = mkdtemp(c->place) != NULL ? 0 : -1;
    }
    if (rc == -1) {
        c->place[0] = '\0';
        return err_set(-errno, "cannot make a directory for the check in /dev/shm or /tmp: %s",
                       strerror(errno));
    }
    if (program != NULL) {
        launch_find(program[0], path, sizeof(path));
        rc = launch_check(path);
        if (rc < 0)
            return rc;
    }
    if (pipe2(fds, O_CLOEXEC) == -1)
        return err_set(-errno, "no pipe: %s", strerror(errno));
    (void)fflush(stdout);
    c->pid = fork();
    if (c->pid == 0)
        run_program(c, program, fds);
    c->hold = fds[1];
    (void)close(fds[0]);
    if (c->pid == -1) {
        c->pid = 0;
        return err_set(-errno, "cannot start a process for the check: %s", strerror(errno));
    }
    return wait_for_core(c);
}

static int remove_own_dir(const char *place)
{
    char path[400];
    DIR *d = opendir(place);

    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.' || snprintf(path, sizeof(path), "%s/%s", place, e->d_name) < 0)
            continue;
        (void)file_remove_dir(path);
    }
    if (d != NULL)
        (void)closedir(d);
    return rmdir(place);
}

static int ignore_text(void *arg, const char *data, size_t size)
{
    (void)arg, (void)data, (void)size;
    return 0;
}

static void end_process(struct check *c)
{
    static const char *const words[] = {"eject"};
    struct probing_client *client = NULL;
    int status = 0;

    if (c->pid != 0) { /* an eject, so that what lies in memory file systems goes, too */
        uint64_t until = clock_monotonic() + END_NS;
        char sock[4200];
        (void)snprintf(sock, sizeof(sock), "%s/sock", c->target.directory);
        if (!has_ended(c, &status) && c->target.directory[0] != '\0' &&
            target_connect(&c->target, &client) == 0) {
            (void)probing_client_run(client, 1, words, END_NS, ignore_text, NULL, &status);
            probing_client_free(client);
            while (access(sock, F_OK) == 0 && clock_monotonic() < until && !has_ended(c, &status))
                (void)poll(NULL, 0, 5);
        }
        (void)kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, &status, 0);
    }
    if (c->hold != -1)
        (void)close(c->hold);
    if (c->place[0] != '\0')
        (void)remove_own_dir(c->place);
}

/* ---- what there is, before and after ---- */

static void say_came(const char *label, struct buf *before, struct buf *after)
{
    struct buf came;
    uint32_t n = process_came(before, after, &came);
    print_line(label, "%s", n > 0 ? buf_text(&came) : "none");
    buf_done(&came);
}

/* ---- the steps ---- */

static void print_problem(struct check *c, const char *label, const char *text)
{
    c->problems++;
    print_line(label, "NOT RIGHT: %s", text);
}

/* Did the process die of it?  Then that is said, with the stacks. */
static bool has_died(struct check *c, const char *label)
{
    int status;
    uint64_t until = clock_monotonic() + END_NS;
    char text[96];

    while (!has_ended(c, &status)) {
        if (clock_monotonic() > until)
            return false;
        (void)poll(NULL, 0, 5);
    }
    if (WIFSIGNALED(status))
        (void)snprintf(text, sizeof(text), "the process died of signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        (void)snprintf(text, sizeof(text), "the process ended with status %d", WEXITSTATUS(status));
    print_problem(c, label, text);
    /* /proc shows no root of the dead. */
    const char *inside = strstr(c->target.directory, "/root/");
    if (WIFSIGNALED(status))
        (void)crash_print(inside != NULL ? inside + 5 : c->target.directory);
    return true;
}

static int load_plugin(struct check *c, const char *label)
{
    char note[ERR_TEXT_BYTES] = "", why[ERR_TEXT_BYTES];
    uint64_t begin = clock_monotonic();

    int rc = upload_plugin(&c->target, c->name, c->file, note, sizeof(note));
    double ms = (double)(clock_monotonic() - begin) / (double)NS_PER_MS;
    if (rc == 0) {
        print_line(label, "init and start worked, in %.1f ms", ms);
        if (note[0] != '\0' && strstr(note, WRONG_CALL) == NULL) /* say_calls() has all of them */
            print_problem(c, label, note);
        return 0;
    }
    (void)snprintf(why, sizeof(why), "%s", err_text());
    if (rc == -ECANCELED || (rc == -ECONNRESET && has_died(c, label)))
        return rc;
    print_problem(c, label, why);
    c->failed = true;
    return rc;
}

/* "plugin stop NAME", whose answer says what was left behind. */
static int stop_plugin(struct check *c, const char *label)
{
    const char *const words[] = {"plugin", "stop", c->name};
    struct probing_client *client = NULL;
    struct buf answer;
    char why[ERR_TEXT_BYTES];
    uint64_t begin = clock_monotonic();

    buf_init(&answer, ANSWER_BYTES);
    int rc = target_connect(&c->target, &client);
    if (rc == 0)
        rc = client_command(client, 3, words, &answer);
    probing_client_free(client);
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
    char *text = rc == 0 ? strstr(answer.data, LEFT) : NULL;
    if (rc == 0)
        print_line(label, "stop and destroy worked, in %.1f ms",
                   (double)(clock_monotonic() - begin) / (double)NS_PER_MS);
    else if (!has_died(c, label))
        print_problem(c, label, why);
    /* In a process of our own we see ourselves what is left. */
    if (text != NULL && !(c->own && strstr(text, "it has left ") == text + sizeof(LEFT) - 1)) {
        text[strcspn(text, "\n")] = '\0';
        print_problem(c, "left", text + sizeof(LEFT) - 1);
    }
    buf_done(&answer);
    return rc;
}

/* Every table that has come is read once: a computed one runs the plugin's code. */
static void count_rows(struct check *c, struct process_view *before, struct process_view *after,
                       struct buf *ret)
{
    struct buf came, rows;
    char sql[400];

    (void)process_came(&before->tables, &after->tables, &came);
    for (const char *at = buf_text(&came); *at != '\0'; at += strspn(at, ", ")) {
        size_t n = strcspn(at, ",");
        /* All columns first: what is only counted need not be right. */
        (void)snprintf(sql, sizeof(sql), "select * from %.*s limit 100", (int)n, at);
        process_ask(&c->target, sql, &rows);
        buf_done(&rows);
        (void)snprintf(sql, sizeof(sql), "select count(*) as n from %.*s", (int)n, at);
        process_ask(&c->target, sql, &rows);
        const char *line = strchr(buf_text(&rows), '\n'); /* behind the column's name */
        (void)buf_addf(ret, "; %.*s rows of %.*s",
                       line != NULL ? (int)strcspn(line + 1, "\r\n") : 1,
                       line != NULL ? line + 1 : "?", (int)n, at);
        buf_done(&rows);
        at += n;
    }
    buf_done(&came);
}

/* false: the process has not survived it. */
static bool run_a_while(struct check *c, struct process_view *before, struct process_view *after)
{
    uint64_t until = clock_monotonic() + RUN_NS;
    struct buf text;
    int status;

    while (clock_monotonic() < until && !cli_interrupted && !has_ended(c, &status))
        (void)poll(NULL, 0, 20);
    buf_init(&text, ANSWER_BYTES);
    count_rows(c, before, after, &text);
    bool lives = !has_ended(c, &status);
    if (lives)
        print_line("runs", "for %.3g s%s", (double)RUN_NS / (double)NS_PER_S, buf_text(&text));
    else
        (void)has_died(c, "runs");
    buf_done(&text);
    return lives;
}

static void say_left(struct check *c, struct process_view *before, struct process_view *now)
{
    struct buf came;
    char text[64];
    bool any = false;

    if (process_came(&before->threads, &now->threads, &came) > 0) {
        any = true;
        print_problem(c, "threads", buf_text(&came));
    }
    buf_done(&came);
    if (process_came(&before->files, &now->files, &came) > 0) {
        any = true;
        print_problem(c, "files", buf_text(&came));
    }
    buf_done(&came);
    for (int signo = 1; signo <= 64; signo++) {
        if (!(now->caught & ~before->caught & UINT64_C(1) << (signo - 1)))
            continue;
        any = true;
        (void)snprintf(text, sizeof(text), "it left a handler of signal %d (%s)", signo,
                       strsignal(signo));
        print_problem(c, "signals", text);
    }
    if (!any)
        print_line("left", "no thread, descriptor or signal handler");
}

/* The calls that the core refused, from its log: core/plugin_host/plugin_contract.c. */
static void say_calls(struct check *c)
{
    struct buf lines;
    char sql[200];
    bool any = false;

    (void)snprintf(sql, sizeof(sql),
                   "select distinct substr(text, %zu) from probing.log where source "
                   "= '%s' and text like '" WRONG_CALL "%%' order by 1",
                   sizeof(WRONG_CALL), c->name);
    process_ask(&c->target, sql, &lines);
    char *at = lines.data != NULL ? strchr(lines.data, '\n') : NULL; /* behind the column's name */
    for (char *end; at != NULL && (end = strchr(++at, '\n')) != NULL; at = end) {
        bool quoted = *at == '"'; /* as csv has what holds a comma */
        *end = '\0';
        at[strcspn(at, "\r")] = '\0';
        if (quoted)
            at[strlen(at) - 1] = '\0';
        any = true;
        print_problem(c, "calls", at + quoted);
    }
    if (!any)
        print_line("calls", "none that probing/plugin.h rules out");
    buf_done(&lines);
}

/* Commands for `probing` itself.  They are loaded into this process, as then; not called. */
static void look_at_report(struct check *c)
{
    char names[600], why[ERR_TEXT_BYTES];
    int rc = report_names(c->file, names, sizeof(names));

    if (rc > 0)
        print_line("report", "probing %s", names);
    if (rc >= 0)
        return;
    (void)snprintf(why, sizeof(why), "%s", err_text());
    print_problem(c, "report", why);
}

static void run_steps(struct check *c)
{
    struct process_view before, after, now;

    process_look(&c->target, c->place, &before);
    int rc = load_plugin(c, "load");
    if (rc < 0) {
        process_view_done(&before);
        return;
    }
    process_look(&c->target, c->place, &after);
    say_came("tables", &before.tables, &after.tables);
    say_came("commands", &before.commands, &after.commands);
    say_came("settings", &before.settings, &after.settings);
    say_came("threads", &before.threads, &after.threads);
    rc = run_a_while(c, &before, &after) ? 0 : -ECONNRESET;
    process_view_done(&after);
    if (rc == 0)
        rc = cli_interrupted ? -ECANCELED : stop_plugin(c, "stop");
    if (rc != -ECONNRESET)
        say_calls(c);
    if (rc == 0 && c->own) {
        process_look(&c->target, c->place, &now);
        say_left(c, &before, &now);
        process_view_done(&now);
    }
    if (rc == 0 && load_plugin(c, "again") == 0)
        (void)stop_plugin(c, "again");
    process_view_done(&before);
}

int plugin_check(const char *name, const char *file, char **program)
{
    struct check c = {.name = name, .file = file, .hold = -1, .own = program == NULL};

    if (look_at_file(&c) < 0) {
        print_line("result", "it cannot be loaded");
        return EXIT_FAILED;
    }
    int rc = start_process(&c, program);
    if (rc == 0)
        run_steps(&c);
    end_process(&c);
    if (rc == 0 && !cli_interrupted)
        look_at_report(&c);
    if (rc < 0)
        return rc;
    if (cli_interrupted)
        return err_set(-ECANCELED, "interrupted");
    if (c.problems == 0)
        print_line("result", "it can be loaded");
    else
        print_line(
            "result", "%d problem%s found%s", c.problems, c.problems > 1 ? "s" : "",
            c.own && c.failed
                ? "; if it needs a particular program around it: plugin check FILE -- PROGRAM"
                : "");
    return c.problems == 0 ? EXIT_DONE : EXIT_FAILED;
}
