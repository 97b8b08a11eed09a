/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/no_core.c - why a living process has no core: nobody brought one, or `launch` led it
 * past the process.
 *
 * One thread.  It only looks.
 */
#include "cli/target/no_core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cli/target/core_lookup.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/task.h"

#define ENVIRONMENT_MAX_BYTES ((size_t)4 << 20)
#define GENERATIONS_MAX 64 /* of processes; deeper ones are not looked for */

static struct lack lack; /* one thread: of the command that runs */

void lack_note(pid_t bare, const char *plugin)
{
    lack.noted = true;
    lack.bare = bare;
    (void)snprintf(lack.plugin, sizeof(lack.plugin), "%s", plugin);
}

struct lack lack_take(void)
{
    struct lack noted = lack;

    lack.noted = false;
    return noted;
}

/* Was it told to lead on to the program that is meant (core/runtime/preload.c)? */
static bool was_led_on(pid_t pid)
{
    char path[64];
    struct buf text;

    buf_init(&text, ENVIRONMENT_MAX_BYTES);
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    int r = file_read(AT_FDCWD, path, &text);
    bool led = r == 0 && proc_environ_find(buf_text(&text), text.size, "PROBING_LAUNCH") != NULL;
    buf_done(&text);
    return led;
}

static pid_t parent_of(pid_t pid)
{
    struct proc_stat s;

    return proc_stat_of(pid, 0, &s) == 0 && s.ppid != PROC_UNKNOWN ? (pid_t)s.ppid : 0;
}

static bool is_below(pid_t pid, pid_t above)
{
    for (int i = 0; i < GENERATIONS_MAX && pid > 1 && pid != above; i++)
        pid = parent_of(pid);
    return pid == above;
}

/* Processes below it that have a core: " 4711 4712". */
static void find_below(pid_t above, struct buf *ret)
{
    char directory[4096];
    struct proc_numbers all;
    struct proc_number one;

    (void)proc_numbers_open(&all, "/proc");
    while (proc_numbers_next(&all, &one)) {
        pid_t pid = (pid_t)one.value;
        if (is_below(pid, above) && directory_of(pid, directory, sizeof(directory)) == 0)
            (void)buf_addf(ret, " %d", (int)pid);
    }
    proc_numbers_close(&all);
}

int target_no_core(pid_t pid, const char *plugin)
{
    const char *with = plugin[0] != '\0' ? " --plugin " : "";
    struct buf below;
    int rc;

    if (!was_led_on(pid)) {
        lack_note(pid, plugin);
        return err_set(-ENOENT,
                       "process %d has no probing core in it; enter it with: probing -t %d "
                       "inject%s%s",
                       (int)pid, (int)pid, with, plugin);
    }
    buf_init(&below, 400);
    find_below(pid, &below);
    if (below.size > 0)
        rc = err_set(-ENOENT,
                     "process %d started the program that `launch` was given; the core is in:%s",
                     (int)pid, buf_text(&below));
    else
        rc =
            err_set(-ENOENT,
                    "process %d is a shell or launcher, through which `launch` passes the core on; "
                    "it has not started a Python yet; to enter it anyway: probing -t %d inject%s%s",
                    (int)pid, (int)pid, with, plugin);
    buf_done(&below);
    return rc;
}
