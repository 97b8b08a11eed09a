/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/limits.c - what the shell allows this command (ulimit), in words that help.
 *
 * One thread.
 */
#include "cli/terminal/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#include "core/base/err.h"
#include "sdk/lib/proc/task.h"

#define STACK_BYTES ((size_t)4 << 20) /* half of what is usual, which has been enough for all */
#define ROOM_BYTES ((size_t)1 << 20)  /* what a thread takes, and more */
#define FILES_NEEDED 24 /* to ask several, one after the other: below 16 something always fails */

/* libc says EAGAIN of a thread's stack that found no room, too. */
static bool address_space_ends(char *ret, size_t size)
{
    struct rlimit limit;
    struct proc_status s;

    if (getrlimit(RLIMIT_AS, &limit) == -1 || limit.rlim_cur == RLIM_INFINITY ||
        proc_status_of(0, 0, &s) < 0 || s.size_bytes == PROC_UNKNOWN ||
        s.size_bytes + ROOM_BYTES < limit.rlim_cur)
        return false;
    (void)snprintf(ret, size,
                   "this shell allows %llu MB of address space (ulimit -v), and they are used up",
                   (unsigned long long)limit.rlim_cur >> 20);
    return true;
}

const char *cli_fork_why(int e)
{
    static char why[120]; /* until the next call; one thread asks */

    if ((e == EAGAIN || e == ENOMEM) && address_space_ends(why, sizeof(why)))
        return why;
    return e == EAGAIN ? "you may have no more processes and threads (ulimit -u), or the container "
                         "may not (pids of its cgroup)"
                       : strerror(e);
}

/* ---- a small stack ---- */

static struct {
    int (*run)(int argc, char **argv);
    char **argv;
    int argc, rc;
    ucontext_t back, own;
} elsewhere; /* makecontext() hands on no pointers; main()'s thread */

static void run_elsewhere(void)
{
    elsewhere.rc = elsewhere.run(elsewhere.argc, elsewhere.argv);
}

int cli_with_stack(int (*run)(int argc, char **argv), int argc, char **argv)
{
    struct rlimit limit;
    void *stack = MAP_FAILED;

    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK_BYTES)
        stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED || getcontext(&elsewhere.own) == -1)
        return run(argc, argv);
    elsewhere.run = run;
    elsewhere.argc = argc;
    elsewhere.argv = argv;
    elsewhere.own.uc_stack.ss_sp = stack;
    elsewhere.own.uc_stack.ss_size = STACK_BYTES;
    elsewhere.own.uc_link = &elsewhere.back;
    makecontext(&elsewhere.own, run_elsewhere, 0);
    (void)swapcontext(&elsewhere.back, &elsewhere.own);
    return elsewhere.rc;
}

int cli_check_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == -1 || files.rlim_cur >= FILES_NEEDED)
        return 0;
    files.rlim_cur = files.rlim_max < FILES_NEEDED ? files.rlim_max : FILES_NEEDED;
    if (setrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= FILES_NEEDED)
        return 0;
    return err_set(-EMFILE,
                   "this shell allows %llu open files (ulimit -n), and to ask several processes "
                   "takes %d at least: ulimit -n 1024, in a new shell if it is refused",
                   (unsigned long long)files.rlim_cur, FILES_NEEDED);
}
