/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/doctor/doctor.c - `doctor`: what this machine allows, in words; what does not work,
 * with the line that mends it.
 *
 * One thread.  What can be tried is tried, on a child of our own that does nothing; the rest is
 * read from /proc and /sys.  Nothing is changed, and no process of others is touched.
 */

#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/doctor/other_installations.h"
#include "cli/inject/inject.h"
#include "cli/target/installed.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/check_lines.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/version.h"
#include "sdk/lib/proc/proc_file.h"
#include "sdk/lib/proc/task.h"

#define LOW_SPACE_BYTES ((uint64_t)256 << 20)
#define PYTHONS_MAX 16
#define TEXT_BYTES ((size_t)1 << 20) /* of JSON */

static int n_wrong; /* what does not work, and should */
static struct lines lines;

#define say(...) lines_add(&lines, __VA_ARGS__)

static void say_remedy(const char *line)
{
    n_wrong++;
    lines_mend(&lines, line);
}

/* ---- entering ---- */

/* A child that does nothing is traced, or a number in it read.  0, or errno of the refusal. */
static int try_child(bool read_memory)
{
    static volatile int number = 42;
    int seen = 0, rc = 0;
    pid_t child = fork();

    if (child == 0) {
        for (;;)
            pause();
    }
    if (child == -1)
        return errno;
    if (read_memory) {
        struct iovec here = {&seen, sizeof(seen)},
                     there = {(void *)(uintptr_t)&number, sizeof(seen)};
        if (process_vm_readv(child, &here, 1, &there, 1, 0) != (ssize_t)sizeof(seen))
            rc = errno;
    } else if (ptrace(PTRACE_SEIZE, child, NULL, NULL) == -1) {
        rc = errno;
    }
    (void)kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) == -1 && errno == EINTR)
        ;
    return rc;
}

static void check_entering(void)
{
    char scope = inject_yama_scope();
    bool all = inject_can_trace_all();
    char missing[INJECT_CAPABILITIES_BYTES];
    int traced = try_child(/* read_memory= */ false);

    if (traced != 0) {
        say("enter", "NO: ptrace is refused, even of a child (%s)", strerror(traced));
        say_remedy("allow it: docker run --cap-add SYS_PTRACE; in Kubernetes "
                   "securityContext.capabilities.add "
                   "[SYS_PTRACE]; or start the program with it: probing launch -- PROGRAM");
    } else if (scope == '3' || (scope == '2' && !all)) {
        say("enter", "NO: yama's ptrace_scope is %c", scope);
        say_remedy(scope == '3'
                       ? "after a reboot: sysctl kernel.yama.ptrace_scope=1; until then: probing "
                         "launch -- PROGRAM"
                       : "use sudo; or start the program with it: probing launch -- PROGRAM");
    } else if (scope == '1' && !all) {
        say("enter",
            "NO: yama's ptrace_scope is 1: only processes that this shell has started from "
            "this command");
        say_remedy(
            "use sudo, or sudo sysctl kernel.yama.ptrace_scope=0; or start the program with it: "
            "probing launch -- PROGRAM");
    } else if (all && inject_lacks_for_others(missing)) {
        say("enter", "yes: processes of uid 0; of other users NO: this root lacks %s", missing);
        say_remedy(
            "add that to the capabilities of the container: docker run --cap-add, in Kubernetes "
            "securityContext.capabilities.add");
    } else if (all) {
        say("enter", "yes: processes of every user (CAP_SYS_PTRACE)");
    } else {
        say("enter", "yes: processes of uid %u", (unsigned)geteuid());
    }
    int seen = try_child(/* read_memory= */ true);
    if (seen != 0) {
        say("look", "NO: memory of a child cannot be read: %s (backtrace --external needs it)",
            strerror(seen));
        say_remedy("allow process_vm_readv in the container's seccomp profile");
    }
}

static void check_kernel(void)
{
    struct utsname u;
    struct proc_status s = {0};
    bool contained = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
                     getenv("KUBERNETES_SERVICE_HOST") != NULL;
    bool filter = proc_status_of(getpid(), 0, &s) == 0 && s.seccomp == 2;

    if (uname(&u) == 0)
        say("kernel", "%s %s on %s%s%s", u.sysname, u.release, u.machine,
            contained ? ", in a container: only processes of its pid namespace are seen" : "",
            filter ? "; a seccomp filter is on" : "");
    int fd = (int)syscall(SYS_memfd_create, "probing-doctor", 1u /* MFD_CLOEXEC */);
    if (fd == -1)
        say("", "no memfd_create (%s): the library is put into a file instead", strerror(errno));
    else
        (void)close(fd);
}

static void check_perf(void)
{
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
                                .size = sizeof(a),
                                .config = PERF_COUNT_SW_TASK_CLOCK,
                                .disabled = 1,
                                .exclude_kernel = 1};
    int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);

    if (fd != -1) {
        (void)close(fd);
        say("perf", "yes: flame graphs are sampled by perf events");
        return;
    }
    char why[64], level[32];
    (void)snprintf(why, sizeof(why), "%s", strerror(errno));
    if (file_peek("/proc/sys/kernel/perf_event_paranoid", level, sizeof(level)) < 0)
        (void)snprintf(level, sizeof(level), "unknown");
    level[strcspn(level, "\n")] = '\0';
    say("perf",
        "no perf events (%s, perf_event_paranoid %s): flame graphs are sampled by timers, "
        "a little less evenly",
        why, level);
}

/* ---- what is here ---- */

static void check_gpus(void)
{
    char text[200];
    int n = 0;

    for (int i = 0; i < 64; i++) {
        (void)snprintf(text, sizeof(text), "/dev/nvidia%d", i);
        n += access(text, F_OK) == 0;
    }
    if (file_peek("/proc/driver/nvidia/version", text, sizeof(text)) < 0) {
        say("gpu", "no NVIDIA driver here%s",
            n > 0 ? ", though there are device files of one" : "");
        return;
    }
    text[strcspn(text, "\n")] = '\0';
    say("gpu", "%d of NVIDIA; %s", n, text);
}

struct pythons {
    char name[PYTHONS_MAX][32];
    int count[PYTHONS_MAX], n;
    int other; /* processes whose program may not be looked at */
};

static void count_python(struct pythons *p, pid_t pid)
{
    char path[64], exe[4096];

    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, exe, sizeof(exe) - 1);
    if (n <= 0) {
        p->other += errno == EACCES || errno == EPERM;
        return;
    }
    exe[n] = '\0';
    const char *base = strrchr(exe, '/') != NULL ? strrchr(exe, '/') + 1 : exe;
    if (strncmp(base, "python", 6) != 0)
        return;
    int i = 0;
    while (i < p->n && strncmp(p->name[i], base, sizeof(p->name[i]) - 1) != 0)
        i++;
    if (i == PYTHONS_MAX)
        return;
    if (i == p->n)
        (void)snprintf(p->name[p->n++], sizeof(p->name[i]), "%.31s", base);
    p->count[i]++;
}

static void check_pythons(void)
{
    struct pythons p = {.n = 0};
    struct proc_numbers all;
    struct proc_number one;

    (void)proc_numbers_open(&all, "/proc");
    while (proc_numbers_next(&all, &one))
        count_python(&p, (pid_t)one.value);
    proc_numbers_close(&all);
    if (p.n == 0)
        say("python", "no process that this user may look at runs Python");
    for (int i = 0; i < p.n; i++) {
        char shown[64];
        say(i == 0 ? "python" : "", "%d process%s of %s", p.count[i], p.count[i] == 1 ? "" : "es",
            terminal_field(shown, sizeof(shown), p.name[i]));
    }
    if (p.other > 0)
        say("", "%d process%s of others that this user may not look at", p.other,
            p.other == 1 ? "" : "es");
}

static void check_data(void)
{
    char path[4096], parent[4096];
    const char *named = getenv("PROBING_DATA_DIR");
    struct statvfs fs;

    if (named != NULL && named[0] != '\0')
        (void)snprintf(path, sizeof(path), "%s", named);
    else
        (void)snprintf(path, sizeof(path), "/tmp/probing-%u", (unsigned)geteuid());
    (void)snprintf(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    bool there = access(path, F_OK) == 0;
    if (!there && slash != NULL)
        slash[slash == parent] = '\0';
    const char *looked = there ? path : parent;
    if (access(looked, W_OK) == -1) {
        say("data", "NO: %s cannot be written: %s", looked, strerror(errno));
        say_remedy(
            "name another directory: PROBING_DATA_DIR=/path, or inject -D probing.data_dir=/path");
        return;
    }
    if (statvfs(looked, &fs) == -1)
        return;
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    say("data", "%s: %.1f GB left%s", path, (double)left / 1e9,
        there ? "" : " (it is made by the first that enters)");
    if (left < LOW_SPACE_BYTES)
        say_remedy("free some room: probing gc takes away what processes that have ended left");
}

static int parse_option(void *arg, const char *option, const char *value)
{
    if (option == NULL)
        return err_set(-EINVAL, "doctor takes no argument '%s': it is about this machine", value);
    *(bool *)arg = true; /* --json */
    return 0;
}

static void print_json(struct buf *b)
{
    lines_end(&lines);
    printf("{\"problems\": %d, \"checks\": [%s]}\n", n_wrong, buf_text(b));
}

int command_doctor(struct target *t, int argc, char **argv)
{
    (void)t;
    struct buf text;
    bool json = false;
    int rc = cli_parse(argc, argv, parse_option, &json);
    if (rc < 0)
        return rc;
    buf_init(&text, TEXT_BYTES);
    lines.json = json ? &text : NULL;
    say("probing", "%s", probing_build);
    rc = installed_print(&lines);
    if (rc < 0) {
        say("library", "NO: %s", err_why(rc));
        say_remedy("install all of it: docs/installation.md");
    }
    int others = other_installations_print(&lines, "NO: ");
    n_wrong += others;
    check_kernel();
    check_entering();
    check_perf();
    check_gpus();
    check_pythons();
    check_data();
    if (json)
        print_json(&text);
    else
        printf("\n%s\n", n_wrong == 0 ? "Nothing is in the way." : "See the lines with NO.");
    rc = text.failed;
    buf_done(&text);
    if (rc < 0)
        return err_set(rc, "no memory for the answer");
    return n_wrong == 0 ? EXIT_DONE : EXIT_FAILED;
}
