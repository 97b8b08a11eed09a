/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/several.c - several pids in one text, as $(pgrep ...) finds them.
 *
 * One thread.  It only looks.
 */
#include "cli/target/several.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/target/apart.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/task.h"

#define SEVERAL_MAX 256                 /* pids: a training with more workers names its own */
#define COMMAND_SHOWN 64                /* bytes of a command line, where several are listed */
#define COMMAND_BYTES ((size_t)8 << 20) /* Linux gives a program 6 MiB at most */

/* "4242 (python3 train.py)", as far as it fits. */
static void add_process(struct buf *b, const char *pid, size_t n)
{
    char number[24];
    uint64_t value = 0;
    struct buf command;

    buf_init(&command, COMMAND_BYTES);
    (void)snprintf(number, sizeof(number), "%.*s", (int)(n < 20 ? n : 20), pid);
    if (parse_u64(number, &value) == 0 && value > 0 && value <= INT32_MAX)
        (void)apart_read((pid_t)value, "cmdline", &command);
    while (command.size > 0 && command.data[command.size - 1] == '\0')
        command.size--;
    for (size_t i = 0; i < command.size; i++)
        command.data[i] = command.data[i] == '\0' ? ' ' : command.data[i];
    (void)buf_addf(b, "%s-t %.*s (%.*s)", b->size > 0 ? ", " : "", (int)n, pid, COMMAND_SHOWN,
                   command.size > 0 ? buf_text(&command)
                                    : "no process, or one without a command line");
    buf_done(&command);
}

/* Is it a child that one of the named has forked, and that runs on as the same program?  Its words
 * are the parent's then: a DataLoader's worker. */
static bool is_worker(pid_t pid, const pid_t *all, int n)
{
    struct proc_stat s;
    struct buf own, parents;
    bool worker = false;

    if (proc_stat_of(pid, 0, &s) < 0)
        return false;
    buf_init(&own, COMMAND_BYTES);
    buf_init(&parents, COMMAND_BYTES);
    for (int i = 0; i < n && !worker; i++)
        worker = s.ppid == (uint64_t)all[i] && apart_read(pid, "cmdline", &own) == 0 &&
                 apart_read(all[i], "cmdline", &parents) == 0 && own.size == parents.size &&
                 memcmp(buf_text(&own), buf_text(&parents), own.size) == 0;
    buf_done(&own);
    buf_done(&parents);
    return worker;
}

/* The one whose workers all the others are; 0: there is none. */
static pid_t find_parent(const char *text)
{
    pid_t all[SEVERAL_MAX], parent = 0;
    char number[24];
    uint64_t pid;
    int n = 0;

    for (const char *at = text + strspn(text, SEVERAL_BLANKS); *at != '\0';
         at += strspn(at, SEVERAL_BLANKS)) {
        int size = (int)strcspn(at, SEVERAL_BLANKS);
        (void)snprintf(number, sizeof(number), "%.*s", size, at);
        at += size;
        if (n == SEVERAL_MAX || parse_u64(number, &pid) < 0 || pid == 0 || pid > INT32_MAX)
            return 0;
        all[n++] = (pid_t)pid;
    }
    for (int i = 0; i < n; i++) {
        bool worker = is_worker(all[i], all, n);
        if (!worker && parent != 0)
            return 0;
        parent = worker ? parent : all[i];
    }
    if (parent != 0)
        fprintf(stderr, "probing: the target is %d; the other %d %s\n", (int)parent, n - 1,
                n == 2 ? "is its worker" : "are its workers");
    return parent;
}

/* ENDPOINT=$(pgrep -f train) may be more than one: which are meant is for the user to say. */
static int refuse_several(const char *text)
{
    struct buf all;
    int count = 0;

    buf_init(&all, ERR_TEXT_BYTES);
    for (const char *at = text + strspn(text, " \t\n"); *at != '\0'; count++) {
        size_t n = strcspn(at, " \t\n");
        add_process(&all, at, n);
        at += n;
        at += strspn(at, " \t\n");
    }
    int rc = err_set(-EINVAL,
                     "there are %d targets; name one, or those you mean with ',' between "
                     "(-t 12,13): %s",
                     count, buf_text(&all));
    buf_done(&all);
    return rc;
}

int several_parent(const char *text, char ret[SEVERAL_PID_BYTES])
{
    pid_t parent = find_parent(text);

    if (parent == 0)
        return refuse_several(text);
    (void)snprintf(ret, SEVERAL_PID_BYTES, "%d", (int)parent);
    return 0;
}
