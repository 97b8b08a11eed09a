/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/inject.c - the order of an injection, and its undoing.
 * Signals of ours are blocked while a thread of the target is changed, so that we always undo, and
 * the work is done in a process of its own, which survives the command.
 *
 * That process may be killed too, at any moment: the thread only ever stands where it stood, or in
 * code of ours that puts back all that was changed and goes on there.  Its first system calls are
 * made from the unused end of a page of code, with what brings it back on its own stack: no single
 * steps, whose trap would end a process that nobody traces any more.  A killed command may leave a
 * descriptor that closes on exec and a mapping of which some pages are used: no code that runs.
 *
 * The thread is stopped to make memory and a thread of ours, which does the rest (helper_thread.c).
 * Where none can be made it is stopped once more, to load what was written into a file meanwhile.
 */
#include "cli/inject/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "cli/inject/retry.h"
#include "sdk/lib/buf.h"

#define DEFAULT_TIMEOUT_NS (5 * NS_PER_S)
#define CORE_NAME "probing-core" /* of the memfd: what /proc/PID/maps shows */

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u /* linux/memfd.h, Linux 6.3 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static int call_remote(struct target *t, uint64_t number, const uint64_t a[6], const char *what,
                       uint64_t *ret)
{
    int rc = tracee_syscall(t, number, a, ret);
    if (rc == 0 && *ret > UINT64_MAX - 4096) {
        rc = (int)*ret;
        return err_set(rc, "%s is refused in process %d: %s%s", what, t->pid, strerror(-rc),
                       rc == -EPERM || rc == -EACCES
                           ? "; its seccomp profile or security module forbids it: start it with "
                             "PROBING=1 instead"
                           : "");
    }
    return rc;
}

/* Memory in the target: data and stack of ours, with a page for the stub in it. */
static int make_scratch(struct target *t)
{
    const uint64_t private = MAP_PRIVATE | MAP_ANONYMOUS, none = UINT64_MAX;
    const uint64_t data[6] = {
        0, SCRATCH_BYTES, PROT_READ | PROT_WRITE, private | MAP_NORESERVE, none, 0};
    uint64_t at;
    int rc = call_remote(t, SYS_mmap, data, "memory", &at);
    if (rc < 0)
        return rc;
    t->scratch = at;
    const uint64_t code[6] = {at + SCRATCH_STUB,   STUB_BYTES, PROT_READ | PROT_EXEC,
                              private | MAP_FIXED, none,       0};
    rc = call_remote(t, SYS_mmap, code, "executable memory", &at);
    if (rc < 0)
        return rc;
    t->stub = at;
    return 0;
}

/* The thread may stand between a failed call and its look at errno. */
static int keep_errno(struct target *t)
{
    uint64_t at;
    int rc = tracee_call(t, t->errno_location, (uint64_t[4]){0}, &at);
    if (rc == 0)
        rc = stack_read(t->view, at, &t->errno_kept, sizeof(t->errno_kept));
    if (rc < 0)
        return rc;
    const uint64_t words[2] = {at, (uint32_t)t->errno_kept};
    t->errno_at = at;
    return tracee_write(t, t->stub + ARCH_STUB_ERRNO, words, sizeof(words));
}

/* A system call by our own code there: *ret is its result or a negative errno. */
static int call_system(struct target *t, uint64_t number, uint64_t a, uint64_t b, int *ret)
{
    uint64_t value;
    int rc = tracee_call(t, t->stub + ARCH_STUB_SYSTEM, (uint64_t[4]){number, a, b}, &value);
    if (rc == 0)
        *ret = (int32_t)value;
    return rc;
}

/* Is descriptor t->fd of the target still the file that we made?  A program may close what it does
 * not know and get the number again for a file of its own. */
static bool fd_is_ours(const struct target *t)
{
    char path[64];
    struct stat there, here;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->pid, t->fd);
    return t->own_fd != -1 && stat(path, &there) == 0 && fstat(t->own_fd, &here) == 0 &&
           there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

/* Puts back what was made, as far as it was made. */
static void undo_entry(struct target *t)
{
    uint64_t ignored;
    int closed;
    bool ready = t->seized && t->stopped && t->saved;
    if (!ready && !t->left_alone && !t->own_thread && (t->scratch || t->fd != -1)) {
        tracee_release(t);
        ready =
            tracee_find_any(t) == 0 && tracee_save(t) == 0 && t->stub && tracee_make_stub(t) == 0;
    }
    if (ready && !t->left_alone) {
        if (t->fd != -1 && fd_is_ours(t))
            (void)call_system(t, SYS_close, (uint64_t)t->fd, 0, &closed);
        if (t->errno_at)
            (void)tracee_write(t, t->errno_at, &t->errno_kept, sizeof(t->errno_kept));
        if (t->scratch && !t->own_thread)
            (void)tracee_syscall(t, SYS_munmap, (uint64_t[6]){t->scratch, SCRATCH_BYTES}, &ignored);
    }
    if (t->own_thread)
        helper_leave(t);
    else
        tracee_release(t);
    if (t->file[0])
        (void)theirs_remove(t->pid, t->folder, t->file);
    if (t->folder != -1)
        (void)close(t->folder);
    if (t->own_fd != -1)
        (void)close(t->own_fd);
    t->fd = t->own_fd = t->folder = -1;
    t->stub = t->scratch = t->errno_at = 0;
    t->own_thread = false;
    t->file[0] = '\0';
}

static int write_library(const struct library *l, int fd)
{
    for (size_t done = 0; done < l->size;) {
        ssize_t n = write(fd, l->bytes + done, l->size - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return n == 0 ? -ENOSPC : -errno;
    }
    return 0;
}

/* A memfd in the target, opened here through /proc: no file system of either side matters.
 * 0 also when there is none: then a file serves. */
static int make_memfd(struct target *t)
{
    static const unsigned flags[] = {MFD_CLOEXEC | MFD_EXEC, MFD_CLOEXEC,
                                     MFD_CLOEXEC | MFD_NOEXEC_SEAL};
    static const char made[] = "/memfd:" CORE_NAME " (deleted)";
    char path[40];
    struct stat st;
    int low[3], n = 0, closed; /* where its outputs are closed: it would print into this */
    int fd = -EINVAL, rc = tracee_write(t, t->scratch, CORE_NAME, sizeof(CORE_NAME));
    for (int i = 0; i < 3 && rc == 0; i++) { /* nothing is written to those */
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->pid, i);
        if (lstat(path, &st) == -1)
            rc = call_system(t, SYS_epoll_create1, EPOLL_CLOEXEC, 0, &low[n++]);
    }
    for (int i = 0; i < 3 && rc == 0 && fd < 0; i++)
        rc = call_system(t, SYS_memfd_create, t->scratch, flags[i], &fd);
    while (rc == 0 && n > 0)
        rc = call_system(t, SYS_close, (uint64_t)low[--n], 0, &closed);
    if (rc < 0)
        return rc;
    if (fd == -EMFILE || fd == -ENFILE)
        return err_set(fd,
                       "process %d has no file descriptor left (%s): the core needs about twenty; "
                       "raise its limit with prlimit --nofile",
                       t->pid, strerror(-fd));
    t->memfd_error = fd < 0 ? fd : 0;
    if (fd < 0)
        return 0;
    t->fd = fd;
    t->own_fd = theirs_descriptor(t->pid, fd, made);
    if (t->own_fd < 0) {
        t->own_fd = -1;
        return err_set(-ESTALE, "process %d closes file descriptors that it did not open", t->pid);
    }
    return 0;
}

/* Its path is different each time, or the loader would take an old library of that name for it. */
static void memfd_path(const struct target *t, char *ret_path, size_t size)
{
    char dots[128] = "", owner[24];
    uint64_t tag = clock_monotonic() / 1024;
    for (unsigned i = 0; i < 40; i++) /* "/" and "./" in place of one and nought */
        (void)strncat(dots, tag >> i & 1 ? "./" : "/", sizeof(dots) - strlen(dots) - 1);
    theirs_owner(t->pid, t->fd, t->own_fd, owner);
    (void)snprintf(ret_path, size, "/proc/%s/fd/%s%d", owner, dots, t->fd);
}

static int make_file_in(struct target *t, const struct library *l, const char *folder)
{
    t->folder = theirs_folder(t->pid, folder);
    if (t->folder < 0)
        return t->folder;
    int fd = theirs_open(t->pid, t->folder, t->file, O_WRONLY | O_CREAT | O_EXCL, 0755);
    int rc = fd < 0 ? fd : write_library(l, fd);
    if (fd >= 0)
        (void)close(fd);
    if (fd >= 0 && rc < 0)
        (void)theirs_remove(t->pid, t->folder, t->file);
    if (rc < 0)
        (void)close(t->folder);
    return rc;
}

/* Without memfd in the target: make a file that is unlinked as soon as it is loaded. */
static int make_file(struct target *t, const struct library *l, char *ret_path, size_t size)
{
    static const char *const folders[] = {"/dev/shm", "/tmp", "/var/tmp"};
    int rc = -ENOENT;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && rc < 0; i++) {
        (void)snprintf(t->file, sizeof(t->file), ".%s-%d-%llx.so", CORE_NAME, t->pid,
                       (unsigned long long)clock_monotonic());
        (void)snprintf(ret_path, size, "%s/%s", folders[i], t->file);
        rc = make_file_in(t, l, folders[i]);
    }
    if (rc == 0)
        return 0;
    t->folder = -1;
    t->file[0] = '\0';
    return err_set(rc,
                   "process %d takes neither a memfd (%s) nor a file in /dev/shm, /tmp "
                   "or /var/tmp (%s)",
                   t->pid, strerror(-t->memfd_error), strerror(-rc));
}

static bool has_proc(const struct target *t)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/%d/root/proc/self", t->pid);
    return lstat(path, &st) == 0;
}

static int settings_text(const struct inject_options *o, struct buf *b)
{
    for (const char *const *s = o->settings; s && *s; s++) {
        if (!strchr(*s, '=') || strchr(*s, '\n'))
            return err_set(-EINVAL, "setting '%s' is not of the form key=value", *s);
        if (buf_addf(b, "%s%s", b->size ? "\n" : "", *s) < 0)
            return err_set(-E2BIG, "more than %d bytes of settings", SETTINGS_MAX_BYTES);
    }
    return 0;
}

int core_refused(pid_t pid, int code)
{
    if (code == -EAGAIN)
        return err_set(-EALREADY, "the core in process %d is leaving it; try again", pid);
    if (code == -EUSERS)
        return err_set(-EAGAIN,
                       "process %d cannot create a thread: it has reached a limit (prlimit "
                       "--nproc, pids.max of its cgroup)",
                       pid);
    return err_set(code, "the core in process %d did not start: %s", pid, strerror(-code));
}

static int start_core(struct target *t, uint64_t function, struct buf *settings)
{
    uint64_t value;
    int rc = tracee_write(t, t->scratch + SCRATCH_SETTINGS, buf_text(settings), settings->size + 1);
    if (rc == 0)
        rc = tracee_call(t, function, (uint64_t[4]){t->scratch + SCRATCH_SETTINGS}, &value);
    if (rc < 0)
        return rc;
    rc = (int32_t)value;
    if (rc < 0) {
        library_unload(t);
        return core_refused(t->pid, rc);
    }
    t->result->already_there = rc == 1;
    t->result->revived = rc == 0 && t->present_start != 0;
    return 0;
}

static int take_thread(struct target *t)
{
    int rc = tracee_save(t);
    if (rc == 0 && !t->scratch)
        rc = make_scratch(t);
    if (rc == 0)
        rc = tracee_make_stub(t);
    return rc < 0 ? rc : keep_errno(t);
}

/* With the library's bytes in a file that the target can open; a borrowed thread runs meanwhile. */
static int bring_file(struct target *t, const struct library *l, char *ret_path, size_t size)
{
    int rc = make_memfd(t);
    if (rc < 0)
        return rc;
    if (!t->own_thread) {
        t->errno_at = 0;
        tracee_release(t);
    }
    if (t->own_fd == -1)
        return make_file(t, l, ret_path, size);
    memfd_path(t, ret_path, size);
    rc = write_library(l, t->own_fd);
    return rc == 0 ? 0
                   : err_set(rc, "process %d has no room for the library in a memfd: %s", t->pid,
                             strerror(-rc));
}

/* A thread is stopped at a safe place. */
static int use_thread(struct target *t, const struct library *l, struct buf *settings)
{
    char path[256];
    uint64_t function = t->present_start;
    int rc = take_thread(t);
    if (rc == 0)
        rc = helper_make(t);
    if (rc == 0 && !function)
        rc = bring_file(t, l, path, sizeof(path));
    if (rc == 0 && !t->stopped)
        rc = tracee_find_again(t);
    if (rc == 0 && !t->saved)
        rc = take_thread(t);
    if (rc == 0 && !function && t->fd != -1 && !fd_is_ours(t))
        rc = err_set(-ESTALE, "process %d closes file descriptors that it did not open", t->pid);
    if (rc == 0 && !function)
        rc = library_load(t, l, path, &function);
    return rc < 0 ? rc : start_core(t, function, settings);
}

static int check_present(struct target *t, const struct library *l)
{
    const char *version = t->present_version[0] ? t->present_version : l->version;
    (void)snprintf(t->result->version, sizeof(t->result->version), "%s", version);
    if (t->present_version[0] && (strcmp(version, l->version) != 0 || !t->present_start))
        return err_set(-EEXIST,
                       "process %d contains probing %s and this command is %s; use that version's "
                       "command, or restart the process",
                       t->pid, version, l->version);
    return 0;
}

static int prepare_thread(struct target *t)
{
    char path[40];
    int rc = check_target(t);
    if (rc < 0)
        return rc;
    for (int i = 0; i < ARCH_SETS; i++) {
        t->sets[i] = malloc(ARCH_SET_BYTES);
        if (!t->sets[i])
            return err_set(-ENOMEM, "no memory");
    }
    rc = stack_process_open(t->pid, &t->view);
    if (rc == -EACCES || rc == -EPERM)
        return inject_no_permission(t->pid, rc);
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof(path), "/proc/%d/mem", t->pid);
    t->mem = open(path, O_RDWR | O_CLOEXEC);
    if (t->mem == -1 && (errno == EACCES || errno == EPERM))
        return inject_no_permission(t->pid, -errno);
    rc = find_places(t);
    if (rc == 0 && !has_proc(t))
        rc = err_set(-ENOENT,
                     "process %d sees no /proc, which the core needs; mount one in its root",
                     t->pid);
    return rc;
}

static void close_target(struct target *t)
{
    for (int i = 0; i < ARCH_SETS; i++)
        free(t->sets[i]);
    if (t->mem != -1)
        (void)close(t->mem);
    stack_process_free(t->view);
}

static int enter_target(struct target *t, const struct library *l, const struct inject_options *o,
                        struct buf *settings)
{
    sigset_t all, kept;
    char why[ERR_TEXT_BYTES];
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &kept);
    t->deadline_ns = clock_monotonic() + t->timeout_ns;
    int rc = limits_check(t, o);
    if (rc == 0)
        rc = filter_check(t);
    if (rc == 0)
        rc = tracee_find(t);
    t->result->tid = t->tid;
    t->result->mapped = t->present_start != 0;
    if (rc == 0 && !o->dry_run)
        rc = use_thread(t, l, settings);
    if (rc < 0 && t->own_thread && (rc == -ESRCH || rc == -EFAULT) && helper_is_gone(t) &&
        kill(t->pid, 0) == 0)
        rc = err_set(-ESTALE, "process %d keeps starting other programs (exec)", t->pid);
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_text() : "");
    undo_entry(t); /* may set another reason */
    (void)pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (rc < 0 && t->result->filtered[0])
        return err_set(rc, "%s; its seccomp filter refuses %s", why, t->result->filtered);
    return rc < 0 ? err_set(rc, "%s", why) : 0;
}

static int inject_once(const struct inject_options *o, struct library *l, struct buf *settings,
                       struct inject_result *result)
{
    struct target t = {
        .pid = o->pid, .fd = -1, .own_fd = -1, .folder = -1, .mem = -1, .result = result};
    t.timeout_ns = o->timeout_ns ? o->timeout_ns : DEFAULT_TIMEOUT_NS;
    int rc = prepare_thread(&t);
    if (rc == 0)
        rc = check_present(&t, l);
    if (rc == 0 && t.one_libc) {
        library_need_not(l, "libpthread.so.0");
        library_need_not(l, "libdl.so.2");
    }
    if (rc == 0)
        rc = enter_target(&t, l, o, settings);
    close_target(&t);
    return rc;
}

/* The other way in, where it was asked for or this one is taken: a debugger is there already. */
static int inject_by(const struct inject_options *o, struct library *l, struct buf *settings,
                     struct inject_result *result)
{
    char why[ERR_TEXT_BYTES];
    int rc = o->way == INJECT_REMOTE ? -EBUSY : inject_once(o, l, settings, result);
    if (rc != -EBUSY || o->way == INJECT_PTRACE)
        return rc;
    (void)snprintf(why, sizeof(why), "%s", err_text());
    result->remote = true;
    rc = remote_exec(o, l, settings, result);
    if (rc == 0 || o->way == INJECT_REMOTE)
        return rc;
    result->remote = false;
    return err_set(-EBUSY, "%s", why);
}

static int inject_here(const struct inject_options *o, struct inject_result *ret)
{
    struct inject_result result = {0};
    struct library library = {0};
    struct buf settings;
    uint64_t begin = clock_monotonic();
    buf_init(&settings, SETTINGS_MAX_BYTES);
    int rc = settings_text(o, &settings);
    if (rc == 0)
        rc = library_open(o->library, &library);
    bool ready = rc == 0;
    struct retry again = retry_begin(RETRY_ENTRY, UINT64_MAX);
    while (ready) {
        rc = inject_by(o, &library, &settings, &result);
        ready = retry_again(&again, rc, signal_pending);
    }
    library_done(&library);
    buf_done(&settings);
    result.total_ns = clock_monotonic() - begin;
    if (rc == 0)
        *ret = result;
    return rc;
}

/* ---- the process that does it ---- */

struct answer {
    int rc;
    struct inject_result result;
    char why[ERR_TEXT_BYTES];
};

/* Until the worker has ended.  Ctrl-C and the like are handed on; it undoes and ends. */
static bool wait_worker(pid_t worker)
{
    sigset_t child;
    int status;
    bool told = false;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    for (;;) {
        pid_t got = waitpid(worker, &status, WNOHANG);
        if (got == worker)
            return WIFEXITED(status);
        if (got == -1 && errno != EINTR)
            return false;
        if (!told && signal_pending()) {
            told = true;
            (void)kill(worker, SIGTERM);
        }
        (void)sigtimedwait(&child, NULL, &(struct timespec){.tv_nsec = 20 * NS_PER_MS});
    }
}

/* While a thread is stopped nobody should come before us.  Without the right to it, as we are. */
static void raise_priority(void)
{
    struct sched_param first = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_RR, &first) == -1)
        (void)setpriority(PRIO_PROCESS, 0, -10);
}

/* In a process of its own: kill -9 of the command cannot hit it half way, and when it ends the
 * kernel lets go of every thread that would not stop to be let go. */
int inject_into(const struct inject_options *o, struct inject_result *ret)
{
    sigset_t all, kept;
    if (o->pid == getpid())
        return err_set(-EINVAL, "process %d is this command itself", o->pid);
    struct answer *answer =
        mmap(NULL, sizeof(*answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answer == MAP_FAILED)
        return err_set(-ENOMEM, "no memory");
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &kept);
    pid_t worker = fork();
    if (worker == 0) {
        raise_priority();
        answer->rc = inject_here(o, &answer->result);
        (void)snprintf(answer->why, sizeof(answer->why), "%s", answer->rc < 0 ? err_text() : "");
        _exit(0);
    }
    int rc = worker == -1 ? -EPERM : wait_worker(worker) ? answer->rc : -EIO;
    (void)pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (rc == 0)
        *ret = answer->result;
    else if (rc == -EPERM) /* yama lets a parent trace its children, not their siblings */
        rc = inject_here(o, ret);
    else
        rc = err_set(rc, "%s",
                     rc == -EIO && !answer->why[0] ? "the injecting process was killed"
                                                   : answer->why);
    (void)munmap(answer, sizeof(*answer));
    return rc;
}
