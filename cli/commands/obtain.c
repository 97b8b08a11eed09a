/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/obtain.c - get what a command failed for, the core or a plugin in its process, so
 * that it can run again.
 *
 * One thread.  The place that makes the error notes what is lacking (target_no_core(), the reports'
 * no_plugin(), modes of flame graphs); nothing is got unless a person agreed or --yes was given.
 */
#include "cli/commands/obtain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/inject/await_core.h"
#include "cli/commands/inject/inject_setup.h"
#include "cli/inject/inject.h"
#include "cli/target/core_lookup.h"
#include "cli/target/installed.h"
#include "cli/target/live_run.h"
#include "cli/target/no_core.h"
#include "cli/target/plugin_door.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/proc/identity.h"

#define ENTER_NS (10 * NS_PER_S)
#define MEASURE_NS (5 * NS_PER_S) /* a plugin that has just come has measured nothing yet */

int obtain_plugin(const struct target *t, const char *plugin)
{
    const char *words[] = {"plugin", "load", plugin};
    char file[4096], note[ERR_TEXT_BYTES];

    if (t->there != NULL) /* the probing there knows where it lies */
        return remote_command(t, 3, words);
    if (t->host[0] != '\0' || plugin_find(plugin, file, sizeof(file)) < 0)
        return live_tell(t, 3, words); /* from the target's own plugin path */
    int rc = upload_plugin(t, plugin, file, note, sizeof(note));
    return rc == -EALREADY ? 0 : rc;
}

#define WHOSE_BYTES 32

/* " of uid 1000", where it is another user's; "": the asker's own. */
static void tell_whose(const struct target *t, char ret[WHOSE_BYTES])
{
    struct proc_identity id;

    ret[0] = '\0';
    if (t->pid != 0 && !process_is_of(t->pid, geteuid()) && identity_of(t->pid, &id) == 0)
        (void)snprintf(ret, WHOSE_BYTES, " of uid %u", (unsigned)identity_owner(&id));
}

/* Write the question: what is lacking, and what would be done about it. */
static void put_question(const struct target *t, const struct lack *lack, const char *whose,
                         char *ret, size_t size)
{
    if (lack->bare == 0)
        (void)snprintf(ret, size, "plugin %s is not loaded in %s%s. Load it?", lack->plugin,
                       t->text, whose);
    else
        (void)snprintf(ret, size, "process %d%s has no probing core in it. Enter it%s%s?",
                       (int)t->pid, whose, lack->plugin[0] != '\0' ? " and load plugin " : "",
                       lack->plugin);
}

/* As `inject` does, and without a word. */
static int enter_process(struct target *t)
{
    char library[4096];
    struct inject_options o = {.pid = t->pid, .timeout_ns = ENTER_NS, .library = library};
    static const char *const nothing[] = {NULL};
    struct inject_result result = {0};
    uint64_t started = 0;
    int rc = installed_file("libprobing.so", library, sizeof(library));

    o.settings = nothing;
    /* A person may think for long, and another process may have got the pid meanwhile. */
    if (rc == 0 && (proc_start_time(t->pid, &started) < 0 || started != t->start_time))
        rc = err_set(-ESRCH, "process %d has ended; nothing was entered", (int)t->pid);
    if (rc == 0)
        rc = inject_into(&o, &result);
    if (rc == 0 && result.target_stopped)
        return err_set(-EAGAIN,
                       "the core is in process %d, which is stopped: it will answer after kill "
                       "-CONT %d",
                       (int)t->pid, (int)t->pid);
    if (rc == 0)
        rc = await_core(t, ENTER_NS, /* mapped= */ !result.remote && !result.already_there);
    if (rc < 0)
        return rc;
    setup_known(t);
    rc = setup_plugins(t, nothing, /* fresh= */ true);
    return rc < 0 ? rc : 0;
}

static int get_lack(struct target *t, const struct lack *lack, const char *whose)
{
    const bool enters = lack->bare != 0;
    char measures[96];
    int rc = enters ? enter_process(t) : 0;

    if (rc < 0)
        return rc;
    int loaded = lack->plugin[0] != '\0' ? obtain_plugin(t, lack->plugin) : 0;
    bool plugin = lack->plugin[0] != '\0' && loaded == 0;
    if (enters)
        terminal_say("entered process %d%s%s%s; to leave it: probing -t %d eject", (int)t->pid,
                     whose, plugin ? " and loaded plugin " : "", plugin ? lack->plugin : "",
                     (int)t->pid);
    else if (plugin)
        terminal_say("loaded plugin %s into %s%s; to stop it: probing -t %s plugin stop %s",
                     lack->plugin, t->text, whose, t->text, lack->plugin);
    if (!plugin)
        return loaded;
    (void)snprintf(measures, sizeof(measures), "plugin %s measures", lack->plugin);
    return progress_wait(MEASURE_NS, measures);
}

int obtain_lack(struct target *t, int rc, bool agreed)
{
    const char *text = t->text;
    const struct lack lack = lack_take();
    char question[ERR_TEXT_BYTES], why[ERR_TEXT_BYTES], whose[WHOSE_BYTES];

    if (!lack.noted || (lack.bare != 0 && lack.bare != t->pid))
        return rc;
    tell_whose(t, whose);
    put_question(t, &lack, whose, question, sizeof(question));
    if (!agreed && !terminal_may_ask()) {
        (void)snprintf(why, sizeof(why), "%s", err_why(rc));
        return err_set(rc, "%s; or add --yes to this command", why);
    }
    if (!agreed && !terminal_agrees(question, /* by_default= */ whose[0] == '\0'))
        return rc;
    err_clear();
    rc = get_lack(t, &lack, whose);
    return rc < 0 ? rc : target_resolve(text, t);
}
