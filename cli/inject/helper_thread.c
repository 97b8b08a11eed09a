/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/helper_thread.c - a thread of our own in the target, so that no thread of the program
 * has to wait for the loader: the borrowed one only makes it, in a fraction of the time.
 *
 * The helper sleeps until it is told to leave, and meanwhile is used like any stopped thread.  It
 * unmaps the memory that its own code is in with its last step, and it leaves by itself when nobody
 * has told it anything for PATIENCE naps: whoever sent it is dead.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "cli/inject/starved.h"
#include "core/guest/thread_sched.h"
#include "sdk/lib/proc/task.h"

#define NAP_NS (50 * NS_PER_US) /* and as much again until the kernel wakes it */
#ifndef PATIENCE
#define PATIENCE 100000
#endif
#define GONE_NS NS_PER_S /* for it to leave; a busy machine may take longer, and nothing is lost */

/* The data of its code (arch_helper), in the target's memory; the offsets are written there. */
struct helper_mail {
    uint64_t pthread_detach, id;
    uint64_t tid; /* it writes that when it has begun */
    uint64_t leave;
    uint64_t patience;
    uint64_t unused;
    uint64_t mask; /* every signal */
    int64_t nap[2];
    uint64_t munmap, base, size;
};
_Static_assert(sizeof(struct helper_mail) == 0x60, "offsets of arch_helper");
_Static_assert(SCRATCH_HELPER + sizeof(arch_helper) <= SCRATCH_STUB + STUB_BYTES, "its place");

static uint64_t mail_at(const struct target *t, size_t offset)
{
    return t->scratch + SCRATCH_MAIL + offset;
}

/* The kernel lists threads in the order in which they were made. */
static pid_t newest_thread(const struct target *t)
{
    struct proc_numbers all;
    struct proc_number one;
    pid_t last = t->pid;
    (void)proc_threads_open(&all, t->pid);
    while (proc_numbers_next(&all, &one))
        last = (pid_t)one.value;
    proc_numbers_close(&all);
    return last;
}

static int does_not_start(const struct target *t, struct starved *looks)
{
    char starved[STARVED_WORDS_BYTES];
    starved_words(looks, t->timeout_ns, starved, sizeof(starved));
    return err_set(-ETIMEDOUT, "the thread created in process %d did not start within %llu ms%s",
                   t->pid, (unsigned long long)(t->timeout_ns / NS_PER_MS), starved);
}

/* Its thread: 0 while it has not begun. */
static int wait_begun(struct target *t, uint64_t *ret_tid)
{
    struct starved looks;
    uint64_t now = clock_monotonic(), end = now + t->timeout_ns;
    starved_begin(&looks, t->pid, newest_thread(t), /* from_birth= */ true);
    *ret_tid = 0;
    while (*ret_tid == 0) {
        if (stack_read(t->view, mail_at(t, offsetof(struct helper_mail, tid)), ret_tid,
                       sizeof(*ret_tid)) < 0)
            return err_set(-ESRCH, "process %d ended while it was being inspected", t->pid);
        now = clock_monotonic();
        if (*ret_tid == 0 && now > end)
            return does_not_start(t, &looks);
        if (*ret_tid == 0)
            starved_look(&looks, now);
        if (*ret_tid == 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = 20 * NS_PER_US}, NULL);
    }
    return 0;
}

static bool is_number_of(const struct target *t, pid_t tid, uint64_t number)
{
    struct proc_status s;
    return proc_status_of(t->pid, tid, &s) == 0 &&
           (s.inner_id != PROC_UNKNOWN ? s.inner_id : (uint64_t)tid) == number;
}

/* Give the number out here of the thread that calls itself `number`. */
static pid_t seen_from_here(const struct target *t, uint64_t number)
{
    struct proc_numbers all;
    struct proc_number one;
    pid_t found = (pid_t)number;
    if (is_number_of(t, found, number))
        return found;
    (void)proc_threads_open(&all, t->pid);
    while (proc_numbers_next(&all, &one))
        if (is_number_of(t, (pid_t)one.value, number))
            found = (pid_t)one.value;
    proc_numbers_close(&all);
    return found;
}

/* It loads the library, which takes milliseconds, and makes the core's first thread: not in the
 * real-time class, and not on the one CPU, of the thread that was borrowed. */
static void copy_schedule(const struct target *t, pid_t tid)
{
    struct schedule s;
    schedule_of(t->pid, &s);
    schedule_apply(tid, &s);
}

static int create_thread(struct target *t, uint64_t *ret_result)
{
    const struct helper_mail mail = {.pthread_detach = t->pthread_detach,
                                     .patience = PATIENCE,
                                     .mask = UINT64_MAX,
                                     .nap = {0, NAP_NS},
                                     .munmap = t->munmap,
                                     .base = t->scratch,
                                     .size = SCRATCH_BYTES};
    uint64_t code = t->scratch + SCRATCH_HELPER;
    int rc = tracee_write(t, mail_at(t, 0), &mail, sizeof(mail));
    if (rc == 0)
        rc = tracee_write(t, code, arch_helper, sizeof(arch_helper));
    if (rc == 0)
        rc = tracee_call(
            t, t->pthread_create,
            (uint64_t[4]){mail_at(t, offsetof(struct helper_mail, id)), 0, code, mail_at(t, 0)},
            ret_result);
    return rc;
}

int helper_make(struct target *t)
{
    uint64_t result, tid;
    if (!t->pthread_create || !t->pthread_detach || !t->munmap || t->result->target_stopped)
        return 0;
    int rc = create_thread(t, &result);
    if (rc < 0 || result != 0) /* no more threads: the borrowed one does it all */
        return rc;
    (void)tracee_write(t, t->errno_at, &t->errno_kept, sizeof(t->errno_kept));
    t->errno_at = 0;
    tracee_release(t);
    t->own_thread = true; /* from here on nothing of the program stands still */
    t->tid = 0;
    rc = wait_begun(t, &tid);
    pid_t seen = rc == 0 ? seen_from_here(t, tid) : 0;
    if (rc == 0)
        copy_schedule(t, seen);
    if (rc == 0)
        rc = tracee_seize(t, seen);
    if (rc < 0)
        return rc;
    rc = tracee_stop(t, t->timeout_ns);
    if (rc == 0)
        rc = tracee_save(t);
    return rc < 0 ? rc : tracee_make_stub(t);
}

bool helper_is_gone(const struct target *t)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d", t->pid, t->tid);
    return access(path, F_OK) == -1;
}

static void wait_gone(const struct target *t)
{
    uint64_t end = clock_monotonic() + GONE_NS;
    while (!helper_is_gone(t) && clock_monotonic() < end)
        (void)nanosleep(&(struct timespec){.tv_nsec = 50 * NS_PER_US}, NULL);
}

void helper_leave(struct target *t)
{
    const uint64_t yes = 1;
    int rc = tracee_write(t, mail_at(t, offsetof(struct helper_mail, leave)), &yes, sizeof(yes));
    bool stays = t->left_alone || rc < 0;
    tracee_release(t);
    if (!stays)
        wait_gone(t);
}
