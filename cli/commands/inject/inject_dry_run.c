/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/inject_dry_run.c - what `inject --dry-run` says: the thread, the library, the
 * data's place, plugins.
 *
 * One thread.  It only looks.
 */
#include "cli/commands/inject/inject_dry_run.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/inject/inject_setup.h"
#include "cli/job/job.h"
#include "cli/target/installed.h"
#include "cli/target/target.h"
#include "cli/terminal/terminal.h"
#include "core/base/file.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/identity.h"
#include "sdk/lib/proc/task.h"

#define ENVIRON_MAX_BYTES (1u << 20)

static void name_of(pid_t pid, pid_t tid, char ret[32])
{
    if (proc_comm_of(pid, tid, ret, 32) < 0)
        (void)snprintf(ret, 32, "?");
    ret[strcspn(ret, "\n")] = '\0';
}

/* The root that the core would take: what PROBING_DATA_DIR was when the program began, or is now,
 * if its environment counts. */
static void data_root(pid_t pid, char *ret, size_t size)
{
    char path[64];
    struct proc_identity id = {.secure = true};
    struct buf text;

    (void)identity_of(pid, &id);
    (void)snprintf(ret, size, "/tmp/probing-%u", (unsigned)identity_owner(&id));
    if (!identity_believes_environment(&id))
        return;
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    buf_init(&text, ENVIRON_MAX_BYTES);
    (void)file_read(AT_FDCWD, path, &text);
    (void)buf_addc(&text, '\0');
    (void)job_read_environment_now(pid, &text);
    const char *said = proc_environ_find(buf_text(&text), text.size, "PROBING_DATA_DIR");
    if (said != NULL && said[0] == '/')
        (void)snprintf(ret, size, "%s", said);
    buf_done(&text);
}

void plan_print(const struct target *t, const struct inject_result *result, const char *library,
                const char *const *plugins)
{
    char name[32], root[4096], shown[4096], file[4096];
    uint64_t started = 0;

    name_of(t->pid, t->pid, name);
    printf("process %d (%s) can be entered\n", (int)t->pid, name);
    name_of(t->pid, result->tid, name);
    printf("thread:  %d (%s), %s\n", (int)result->tid, name,
           result->target_stopped ? "stopped: the core would answer after kill -CONT"
                                  : "it was at a safe point");
    printf("library: %s, probing %s%s\n", library, result->version,
           result->mapped ? " (its code is in the process already)" : "");
    data_root(t->pid, root, sizeof(root));
    (void)proc_start_time(t->pid, &started);
    printf("data:    %s/%d-%llu, as the process sees it\n",
           terminal_field(shown, sizeof(shown), root), (int)t->pid, (unsigned long long)started);
    if (result->filtered[0] != '\0')
        printf("seccomp: its filter refuses %s\n", result->filtered);
    if (plugin_find("python", file, sizeof(file)) == 0)
        printf("plugin:  python\n");
    for (; *plugins != NULL; plugins++)
        printf("plugin:  %s%s\n", *plugins,
               plugin_find(*plugins, file, sizeof(file)) == 0 ? "" : ", which is not installed");
}
