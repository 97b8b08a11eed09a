/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/await_core.c - see await_core.h.
 *
 * One thread.
 */
#include "cli/commands/inject/await_core.h"

#include <errno.h>
#include <poll.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/inject/starved.h"
#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/stack/stack.h"
#include "sdk/lib/proc/task.h"

#define LOOK_NS (50 * NS_PER_MS)     /* between looks at what program it is */
#define END_WAIT_NS (60 * NS_PER_S)  /* in which no thread ends: rows go to a slow disk */
#define END_MOST_NS (600 * NS_PER_S) /* while threads end, or get no processor */

struct core_place {
    struct stack_process *p;
    uint64_t at; /* 0: not known */
};

static int find_symbol(void *arg, const struct stack_module *m)
{
    struct core_place *w = arg;
    w->at = stack_symbol_address(w->p, m, "probing_why");
    return w->at != 0;
}

static int try_connect(struct target *t)
{
    struct probing_client *c = NULL;
    int rc = directory_of(t->pid, t->directory, sizeof(t->directory));

    if (rc < 0)
        return rc;
    t->kind = TARGET_LIVE;
    rc = target_connect(t, &c);
    if (rc == 0)
        probing_client_free(c);
    return rc;
}

/* Finds the core in the process.  w->at is 0 when it is not there, or cannot be seen. */
static bool find_core(struct core_place *w, pid_t pid)
{
    w->at = 0;
    if (w->p != NULL)
        stack_process_refresh(w->p, /* maps_too= */ true);
    else if (stack_process_open(pid, &w->p) < 0) /* not in the middle of an exec */
        return false;
    (void)stack_modules(w->p, find_symbol, w);
    return w->at != 0;
}

/* The core was in it: is it still?  An exec takes everything along but the pid and the start time.
 * 0, or -ESTALE. */
static int check_program(struct core_place *w, pid_t pid)
{
    char path[64], program[4096];

    (void)find_core(w, pid);
    if (w->p == NULL)
        return 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, program, sizeof(program) - 1);
    if (w->at != 0 || n <= 0) /* no link: it is ending, which is another thing */
        return 0;
    program[n] = '\0';
    return err_set(
        -ESTALE,
        "process %d now runs another program (exec of %s), and the core ended with the previous "
        "one; enter it again: probing -t %d inject (--wait does this automatically)",
        (int)pid, program, (int)pid);
}

int await_check_program(pid_t pid)
{
    struct core_place w = {.p = NULL};
    int rc = check_program(&w, pid);

    stack_process_free(w.p);
    return rc;
}

/* A core that cannot start may have no directory to say why: it leaves a line in its memory, which
 * is that of another program after an exec. */
static int check_why(struct core_place *w, pid_t pid)
{
    char why[ERR_TEXT_BYTES] = "";

    if (w->at == 0)
        return 0;
    stack_process_refresh(w->p, /* maps_too= */ false);
    if (stack_read(w->p, w->at, why, sizeof(why) - 1) < 0 || why[0] == '\0')
        return 0;
    if (check_program(w, pid) < 0)
        return -ESTALE;
    return err_set(-ECANCELED, "the core in process %d could not start: %s", (int)pid, why);
}

static int say_silent(const struct target *t, struct starved *looks, uint64_t waited_ns,
                      bool mapped, const char *why)
{
    char starved[STARVED_WORDS_BYTES];

    if (!mapped)
        return err_set(-ETIMEDOUT,
                       "process %d was entered, and no core can be seen in it now: it may run "
                       "another program (exec); enter it again: probing -t %d inject",
                       (int)t->pid, (int)t->pid);
    starved_words(looks, waited_ns, starved, sizeof(starved));
    return err_set(
        -ETIMEDOUT, "the core is in process %d but does not answer yet (%s)%s", (int)t->pid, why,
        starved[0] != '\0' ? starved : "; try again, and see probing.log in its data directory");
}

int await_core(struct target *t, uint64_t timeout_ns, bool mapped)
{
    uint64_t begin = clock_monotonic(), look = 0;
    struct core_place w = {.p = NULL};
    struct starved looks;
    int rc;

    starved_begin(&looks, t->pid, /* only= */ 0, /* from_birth= */ true);
    mapped = find_core(&w, t->pid) || mapped;
    while ((rc = try_connect(t)) < 0) {
        uint64_t waited = clock_monotonic() - begin;
        starved_look(&looks, begin + waited);
        if (rc == -ESTALE)
            break;
        int gave_up = check_why(&w, t->pid);
        if (gave_up < 0) {
            rc = gave_up;
            break;
        }
        if (waited >= look) {
            rc = mapped ? check_program(&w, t->pid) : 0;
            if (rc < 0)
                break;
            mapped = mapped || find_core(&w, t->pid);
            look = waited + LOOK_NS;
            rc = try_connect(t); /* its sentence, for below */
            if (rc == 0)
                break;
        }
        if (cli_interrupted) {
            rc = err_set(-ECANCELED, "interrupted; the core is in process %d and may still start",
                         (int)t->pid);
            break;
        }
        if (rc == -ESRCH) {
            rc = err_set(rc, "process %d ended while its core started", (int)t->pid);
            break;
        }
        if (waited > timeout_ns) {
            char why[ERR_TEXT_BYTES] = "it has made no data directory";
            if (rc != -ENOENT)
                (void)snprintf(why, sizeof(why), "%s", err_text());
            rc = say_silent(t, &looks, waited, mapped, why);
            break;
        }
        /* A core that starts takes 5 to 20 ms: look often at first. */
        (void)poll(NULL, 0, waited < 160 * NS_PER_MS ? 1 + (int)(waited / (8 * NS_PER_MS)) : 20);
    }
    stack_process_free(w.p);
    return rc;
}

/* How many threads of ours run in the process. */
static uint32_t our_threads(pid_t pid)
{
    struct proc_numbers all;
    struct proc_number one;
    char comm[PROC_COMM_BYTES];
    uint32_t n = 0;

    (void)proc_threads_open(&all, pid);
    while (proc_numbers_next(&all, &one))
        n += proc_comm_of(pid, (pid_t)one.value, comm, sizeof(comm)) == 0 &&
             strncmp(comm, "probing/", 8) == 0;
    proc_numbers_close(&all);
    return n;
}

int await_core_end(pid_t pid)
{
    uint64_t begin = clock_monotonic(), now = begin, counted = begin;
    uint32_t fewest = UINT32_MAX, n;
    char starved[STARVED_WORDS_BYTES] = "";
    struct starved looks;

    starved_begin(&looks, pid, /* only= */ 0, /* from_birth= */ false);
    while (pid != 0 && (n = our_threads(pid)) > 0) {
        if (cli_interrupted)
            return err_set(-ECANCELED, "interrupted; the core is leaving process %d", (int)pid);
        now = clock_monotonic();
        starved_look(&looks, now);
        counted = n < fewest ? now : counted;
        fewest = n < fewest ? n : fewest;
        if (now - counted > END_WAIT_NS)
            starved_words(&looks, now - begin, starved, sizeof(starved));
        if (now - begin > END_MOST_NS || (now - counted > END_WAIT_NS && !starved[0]))
            return err_set(-ETIMEDOUT,
                           "process %d was asked to let go of its core, of which %u threads have "
                           "not ended within %d s%s",
                           (int)pid, n, (int)((now - begin) / NS_PER_S), starved);
        (void)poll(NULL, 0, 5);
    }
    return EXIT_DONE;
}
