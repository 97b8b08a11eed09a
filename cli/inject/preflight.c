/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/preflight.c - reasons not to touch a process, each with what to do about it.
 * It reads /proc only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "cli/inject/retry.h"
#include "core/base/file.h"
#include "sdk/lib/proc/cgroup.h"
#include "sdk/lib/proc/task.h"

#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD, linux/sched.h; proc(5) stat field 9 */
#define CAP_SYS_PTRACE_BIT 19

/* Capabilities that root needs besides for another user's process: /proc/PID/mem is that user's
 * file, and files for the process are made with that user's rights.  Containers may have taken
 * them. */
static const struct {
    unsigned bit; /* linux/capability.h */
    const char *name;
} for_others[] = {{1, "DAC_OVERRIDE"}, {6, "SETGID"}, {7, "SETUID"}};

/* For people: to its first newline, which a name may have. */
static void comm_of(pid_t pid, char ret[PROC_COMM_BYTES])
{
    (void)proc_comm_of(pid, 0, ret, PROC_COMM_BYTES);
    ret[strcspn(ret, "\n")] = '\0';
}

static bool is_kernel_thread(pid_t pid)
{
    struct proc_stat s;
    return proc_stat_of(pid, 0, &s) == 0 && (s.flags & KERNEL_THREAD);
}

static int check_class(struct target *t)
{
    char path[40];
    unsigned char head[20] = {0};
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", t->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return errno == EACCES || errno == EPERM ? inject_no_permission(t->pid, -errno) : 0;
    ssize_t n = read(fd, head, sizeof(head));
    (void)close(fd);
    if (n == sizeof(head) && head[EI_CLASS] == ELFCLASS32)
        return err_set(-ENOEXEC,
                       "process %d is a 32-bit program; probing serves 64-bit " ARCH_NAME " ones",
                       t->pid);
    if (n == sizeof(head) && (head[18] | head[19] << 8) != ARCH_MACHINE)
        return err_set(-ENOEXEC,
                       "process %d runs code of another machine; use a probing built for it",
                       t->pid);
    return 0;
}

/* Give the tracer of the process, 0: nobody.  Another injection (its command may have been killed)
 * is over in a moment, so this waits for it. */
static pid_t tracer_of(const struct target *t, char comm[PROC_COMM_BYTES])
{
    struct proc_status s;
    struct retry again = retry_begin(RETRY_TRACER, UINT64_MAX);
    do {
        if (proc_status_of(t->pid, 0, &s) < 0 || s.tracer == 0 || s.tracer == PROC_UNKNOWN)
            return 0;
        comm_of((pid_t)s.tracer, comm);
    } while (strcmp(comm, "probing") == 0 && retry_again(&again, -EBUSY, NULL));
    return (pid_t)s.tracer;
}

bool inject_runs_on(pid_t pid)
{
    char path[40];
    struct stat st; /* of that directory two links are its own */
    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    return stat(path, &st) == 0 && st.st_nlink > 3;
}

bool inject_lacks_for_others(char ret[INJECT_CAPABILITIES_BYTES])
{
    struct proc_status s;
    int n = 0;
    ret[0] = '\0';
    if (geteuid() != 0 || proc_status_of(0, 0, &s) < 0 || s.effective == PROC_UNKNOWN)
        return false;
    for (size_t i = 0; i < sizeof(for_others) / sizeof(for_others[0]); i++)
        if (!(s.effective >> for_others[i].bit & 1))
            n += snprintf(ret + n, INJECT_CAPABILITIES_BYTES - (size_t)n, "%s%s", n ? ", " : "",
                          for_others[i].name);
    return n > 0;
}

static int check_capabilities(pid_t pid)
{
    char missing[INJECT_CAPABILITIES_BYTES];
    struct proc_status s;
    if (proc_status_of(pid, 0, &s) < 0 || s.uid[3] == PROC_UNKNOWN || s.uid[3] == 0 ||
        !inject_can_trace_all() || !inject_lacks_for_others(missing))
        return 0; /* without CAP_SYS_PTRACE there is another answer, which comes later */
    return err_set(-EPERM,
                   "no permission: process %d belongs to uid %u, and this root lacks %s: add that "
                   "to the capabilities of its container, or run probing as that user",
                   (int)pid, (unsigned)s.uid[3], missing);
}

int check_target(struct target *t)
{
    char comm[PROC_COMM_BYTES];
    struct proc_status s;
    if (t->pid <= 0 || proc_status_of(t->pid, 0, &s) < 0)
        return err_set(-ESRCH, "there is no process %d (seen from this pid namespace)", t->pid);
    comm_of(t->pid, comm);
    if (s.state == 'Z' && inject_runs_on(t->pid))
        return err_set(-ESRCH,
                       "the first thread of process %d (%s) has ended while others still run, so "
                       "/proc no longer shows its memory; let main() wait for them (pthread_join) "
                       "instead of ending with pthread_exit",
                       t->pid, comm);
    if (s.state == 'Z' || s.state == 'X')
        return err_set(-ESRCH, "process %d (%s) has ended (zombie); there is nothing to enter",
                       t->pid, comm);
    if (is_kernel_thread(t->pid))
        return err_set(-EINVAL, "%d (%s) is a kernel thread; give the pid of a program", t->pid,
                       comm);
    if (proc_is_frozen(t->pid)) /* what we would have it do it does when it is thawed */
        return err_set(
            -EAGAIN,
            "process %d (%s) is frozen with its cgroup, so no thread of it can run; thaw "
            "that first (docker unpause, systemctl thaw)",
            t->pid, comm);
    t->result->target_stopped = s.state == 'T';
    pid_t tracer = tracer_of(t, comm);
    if (tracer)
        return err_set(-EBUSY, "process %d is already traced by %d (%s); end that one first",
                       t->pid, tracer, comm);
    if (proc_status_of(t->pid, 0, &s) == 0 && s.caught != PROC_UNKNOWN)
        t->caught = s.caught;
    int rc = check_capabilities(t->pid);
    return rc < 0 ? rc : check_class(t);
}

bool inject_can_trace_all(void)
{
    struct proc_status s;
    return proc_status_of(0, 0, &s) == 0 && s.effective != PROC_UNKNOWN &&
           (s.effective >> CAP_SYS_PTRACE_BIT & 1);
}

char inject_yama_scope(void)
{
    char scope[16];
    return file_peek("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)) < 0 ? '0'
                                                                                     : scope[0];
}

int inject_no_permission(pid_t pid, int code)
{
    const char scope = inject_yama_scope();
    struct proc_status s;
    uid_t uid = proc_status_of(pid, 0, &s) == 0 && s.uid[0] != PROC_UNKNOWN ? (uid_t)s.uid[0] : 0;
    bool filtered = proc_status_of(0, 0, &s) == 0 && s.seccomp == 2;
    if (scope == '3')
        return err_set(-EPERM, "no permission: yama's ptrace_scope is 3, so tracing is off until "
                               "the next boot; start the program with PROBING=1 instead");
    if (inject_can_trace_all())
        return err_set(-EPERM, "no permission to trace process %d (%s)%s", pid, strerror(-code),
                       filtered ? "; a seccomp profile of this container refuses it: run it with "
                                  "--security-opt seccomp=unconfined"
                                : " although tracing is allowed here: the process is in an outer "
                                  "user namespace, or a security module (AppArmor, SELinux) "
                                  "refuses; run probing outside the container");
    if (uid != geteuid() && geteuid() != 0)
        return err_set(-EPERM,
                       "no permission: process %d belongs to uid %u, you are %u; use sudo or that "
                       "user",
                       pid, uid, geteuid());
    if (geteuid() == 0)
        return err_set(-EPERM, "no permission: this root lacks CAP_SYS_PTRACE; run the container "
                               "with --cap-add SYS_PTRACE, or start the program with PROBING=1");
    if (scope != '0')
        return err_set(-EPERM,
                       "no permission: yama's ptrace_scope is %c; use sudo, or sysctl "
                       "kernel.yama.ptrace_scope=0, or start the program with PROBING=1",
                       scope);
    return err_set(-EPERM,
                   "no permission to trace process %d (%s)%s; use sudo, or start the program with "
                   "PROBING=1",
                   pid, strerror(-code),
                   filtered ? ": a seccomp profile may refuse it"
                            : ": it may have more capabilities or be marked undumpable");
}
