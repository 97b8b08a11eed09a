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
#include <time.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "core/base/buf.h"
#include "core/base/file.h"

#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD, linux/sched.h; proc(5) stat field 9 */
#define CAP_SYS_PTRACE_BIT 19
#define INJECTION_NS NS_PER_S

/* The value of "Field:\t..." of /proc/PID/task/TID/status; tid 0: of the process. */
bool target_status(pid_t pid, pid_t tid, const char *field, char *ret, size_t size)
{
    char path[64], text[8192], key[32];
    if (tid)
        (void)snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, tid);
    else
        (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (file_peek(path, text, sizeof text) < 0)
        return false;
    (void)snprintf(key, sizeof key, "\n%s:", field);
    const char *at = strstr(text, key);
    if (!at)
        return false;
    at += strlen(key);
    at += strspn(at, " \t");
    (void)snprintf(ret, size, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

static void comm_of(pid_t pid, char ret[32])
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
    if (file_peek(path, ret, 32) < 0)
        ret[0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
}

static bool is_kernel_thread(pid_t pid)
{
    char path[40], text[1024];
    unsigned flags;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (file_peek(path, text, sizeof text) < 0)
        return false;
    const char *at = strrchr(text, ')');
    return at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           (flags & KERNEL_THREAD);
}

static int check_class(struct target *t)
{
    char path[40];
    unsigned char head[20] = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/exe", t->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return errno == EACCES || errno == EPERM ? inject_no_permission(t->pid, -errno) : 0;
    ssize_t n = read(fd, head, sizeof head);
    (void)close(fd);
    if (n == sizeof head && head[EI_CLASS] == ELFCLASS32)
        return err_set(-ENOEXEC,
                       "process %d is a 32-bit program; probing serves 64-bit " ARCH_NAME " ones",
                       t->pid);
    if (n == sizeof head && (head[18] | head[19] << 8) != ARCH_MACHINE)
        return err_set(-ENOEXEC,
                       "process %d runs code of another machine; use a probing built for it",
                       t->pid);
    return 0;
}

/* Who traces the process, 0: nobody.  Another injection (its command may have been killed) is over
 * in a moment, so that one is waited for. */
static pid_t tracer_of(const struct target *t, char comm[32])
{
    char value[64];
    for (uint64_t end = clock_monotonic() + INJECTION_NS;;) {
        if (!target_status(t->pid, 0, "TracerPid", value, sizeof value) || strcmp(value, "0") == 0)
            return 0;
        pid_t tracer = (pid_t)strtol(value, NULL, 10);
        comm_of(tracer, comm);
        if (strcmp(comm, "probing") != 0 || clock_monotonic() > end)
            return tracer;
        (void)nanosleep(&(struct timespec){.tv_nsec = 2 * NS_PER_MS}, NULL);
    }
}

bool inject_runs_on(pid_t pid)
{
    char path[40];
    struct stat st; /* of that directory two links are its own */
    (void)snprintf(path, sizeof path, "/proc/%d/task", pid);
    return stat(path, &st) == 0 && st.st_nlink > 3;
}

int check_target(struct target *t)
{
    char value[64], comm[32];
    if (t->pid <= 0 || !target_status(t->pid, 0, "State", value, sizeof value))
        return err_set(-ESRCH, "there is no process %d (seen from this pid namespace)", t->pid);
    comm_of(t->pid, comm);
    if (value[0] == 'Z' && inject_runs_on(t->pid))
        return err_set(-ESRCH,
                       "the first thread of process %d (%s) has ended while others run on, and "
                       "with it went what /proc shows of its memory; let main() wait for them "
                       "(pthread_join), not end by pthread_exit",
                       t->pid, comm);
    if (value[0] == 'Z' || value[0] == 'X')
        return err_set(-ESRCH, "process %d (%s) has ended (zombie); nothing to enter", t->pid,
                       comm);
    if (is_kernel_thread(t->pid))
        return err_set(-EINVAL, "%d (%s) is a kernel thread; give the pid of a program", t->pid,
                       comm);
    t->result->target_stopped = value[0] == 'T';
    pid_t tracer = tracer_of(t, comm);
    if (tracer)
        return err_set(-EBUSY, "process %d is already traced by %d (%s); end that one first",
                       t->pid, tracer, comm);
    if (target_status(t->pid, 0, "SigCgt", value, sizeof value))
        t->caught = strtoull(value, NULL, 16);
    return check_class(t);
}

static bool can_ptrace_all(void)
{
    char value[64];
    return target_status(getpid(), 0, "CapEff", value, sizeof value) &&
           (strtoull(value, NULL, 16) >> CAP_SYS_PTRACE_BIT & 1);
}

int inject_no_permission(pid_t pid, int code)
{
    char value[64], scope[16];
    uid_t uid = 0;
    if (target_status(pid, 0, "Uid", value, sizeof value))
        uid = (uid_t)strtoul(value, NULL, 10);
    if (file_peek("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope) < 0)
        scope[0] = '0';
    bool filtered = target_status(getpid(), 0, "Seccomp", value, sizeof value) && value[0] == '2';
    if (scope[0] == '3')
        return err_set(
            -EPERM, "no permission: yama's ptrace_scope is 3, tracing is off until the next boot; "
                    "start the program with PROBING=1 instead");
    if (can_ptrace_all())
        return err_set(-EPERM, "no permission to trace process %d (%s)%s", pid, strerror(-code),
                       filtered ? "; a seccomp profile of this container refuses it: run it with "
                                  "--security-opt seccomp=unconfined"
                                : " though we may trace: it is in an outer user namespace, or a "
                                  "security module (AppArmor, SELinux) refuses; ask from outside");
    if (uid != geteuid() && geteuid() != 0)
        return err_set(-EPERM,
                       "no permission: process %d belongs to uid %u, you are %u; use sudo or that "
                       "user",
                       pid, uid, geteuid());
    if (geteuid() == 0)
        return err_set(-EPERM, "no permission: root without CAP_SYS_PTRACE; run the container with "
                               "--cap-add SYS_PTRACE, or start the program with PROBING=1");
    if (scope[0] != '0')
        return err_set(-EPERM,
                       "no permission: yama's ptrace_scope is %c; use sudo, or sysctl "
                       "kernel.yama.ptrace_scope=0, or start the program with PROBING=1",
                       scope[0]);
    return err_set(-EPERM,
                   "no permission to trace process %d (%s)%s; use sudo, or start the program with "
                   "PROBING=1",
                   pid, strerror(-code),
                   filtered ? ": a seccomp profile may refuse it"
                            : ": it may have more capabilities or be marked undumpable");
}
