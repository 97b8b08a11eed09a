/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/eject.c - `eject`: the core leaves, and this waits until it has left.
 *
 * One thread.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/inject/await_core.h"
#include "cli/inject/inject.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"

#define ANSWER_LOST_NS (60 * NS_PER_S) /* for so long it is looked at what became of the core */
#define AGAIN_MS 20
#define LOOK_NS (50 * NS_PER_MS) /* between looks at what program it is */

/* The answer to an eject was lost, and the core may have left all the same: what counts is what has
 * become of it.  start_time: of the process, 0 where it is not known.  0: it has left; -ESTALE: the
 * process runs another program; -ECONNRESET: neither, the reason stays. */
static int has_left(const struct target *t, uint64_t start_time)
{
    /* A process that cannot be seen to have died is not waited for long. */
    uint64_t now = clock_monotonic(), looked = now, other = 0;
    uint64_t deadline = now + ANSWER_LOST_NS / (start_time != 0 ? 1 : 10);
    char sock[4200];
    int rc = 1;

    (void)snprintf(sock, sizeof(sock), "%s/sock", t->directory);
    for (; rc == 1 && !cli_interrupted && now < deadline; now = clock_monotonic()) {
        bool dead =
            start_time != 0 && (proc_start_time(t->pid, &other) < 0 || other != start_time ||
                                !(inject_runs_on(t->pid) || target_state(t->pid) != 'Z'));
        if (dead || t->directory[0] == '\0')
            break;
        if (access(sock, F_OK) == -1 && errno == ENOENT)
            rc = 0;
        else if (t->pid != 0 && now - looked > LOOK_NS) {
            looked = now;
            rc = await_check_program(t->pid) < 0 ? -ESTALE : 1;
        }
        (void)poll(NULL, 0, rc == 1 ? AGAIN_MS : 0);
    }
    return rc == 1 ? -ECONNRESET : rc;
}

int command_eject(struct target *t, int argc, char **argv)
{
    uint64_t start_time = 0;
    char why[ERR_TEXT_BYTES];

    if (t->pid != 0)
        (void)proc_start_time(t->pid, &start_time);
    int rc = live_run(t, argc, (const char *const *)argv);
    if (rc == -ECONNRESET && t->host[0] == '\0') {
        (void)snprintf(why, sizeof(why), "%s", err_text());
        rc = has_left(t, start_time);
        if (rc == 0) {
            const char *inside = strstr(t->directory, "/root/"); /* as the process sees it */
            printf("ejected; what was measured stays in %s\n",
                   inside != NULL ? inside + 5 : t->directory);
            rc = EXIT_DONE;
        } else if (rc == -ECONNRESET) {
            (void)err_set(rc, "%s", why);
        }
    }
    /* The answer comes before the end does: be done only when the process is as it was. */
    return rc == EXIT_DONE ? await_core_end(t->pid) : rc;
}
