/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/gc.c - `gc`: data directories of dead processes go.
 *
 * One thread.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/target/core_lookup.h"
#include "cli/target/datadir.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define ANSWER_BYTES 16384
#define RESUME_S 60 /* by then a core that goes on with a directory has it open */

struct sweep {
    const char *only; /* the root that PROBING_DATA_DIR names; NULL: all of the user's */
    uint64_t older_ns;
    uint32_t removed, kept;
    bool json;
    int failed;
};

/* Does a core hold this directory that has no socket, because it starts or ends just now? */
static bool in_use(const struct datadir *d)
{
    char mapped[4096] = "";
    uint64_t pid, started, now;

    if (!directory_named(d, &pid, &started) || pid > INT32_MAX ||
        proc_start_time((pid_t)pid, &now) < 0 || now != started)
        return false;
    /* It is being made, or is gone on with just now: a core touches it first. */
    if (!datadir_has(d, "info", NULL) || time(NULL) - d->changed.tv_sec < RESUME_S)
        return true;
    (void)directory_of((pid_t)pid, mapped, sizeof(mapped)); /* found, even without socket */
    const char *slash = strrchr(mapped, '/');
    return slash != NULL && strcmp(slash + 1, d->leaf) == 0;
}

/* `list` shows directories in other roots, too; they are taken away only when no root is named. */
static bool is_below(const char *root, const char *path)
{
    size_t n = strlen(root);
    while (n > 1 && root[n - 1] == '/')
        n--;
    return strncmp(path, root, n) == 0 && path[n] == '/';
}

static int sweep_one(void *arg, const struct datadir *d)
{
    struct sweep *s = arg;
    pid_t pid;

    if (s->only && !is_below(s->only, d->path))
        return 0;
    if (directory_alive(d, &pid) || (d->owner != geteuid() && geteuid() != 0))
        return 0;
    uint64_t age_ns =
        (uint64_t)(time(NULL) > d->changed.tv_sec ? time(NULL) - d->changed.tv_sec : 0) *
        UINT64_C(1000000000);
    if (age_ns < s->older_ns || in_use(d) || directory_held(d)) {
        s->kept++;
        return 0;
    }
    int rc = datadir_remove(d);
    if (rc < 0) {
        terminal_say("%s", err_why(rc));
        s->failed = rc;
    } else {
        s->removed++;
    }
    return 0;
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct sweep *s = arg;
    uint64_t days = 0;

    if (option == NULL)
        return err_set(-EINVAL, "gc takes no argument '%s'", value);
    if (strcmp(option, "--json") == 0) {
        s->json = true;
        return 0;
    }
    if (parse_u64(value, &days) == 0 && days <= 36500) { /* --older */
        s->older_ns = days * UINT64_C(86400000000000);
        return 0;
    }
    if (parse_ns(value, &s->older_ns) < 0)
        return err_set(-EINVAL, "--older is a number of days, or a time like 7d or 12h, not '%s'",
                       value);
    return 0;
}

int command_gc(struct target *t, int argc, char **argv)
{
    const char *named = getenv("PROBING_DATA_DIR");
    struct sweep s = {.only = named && named[0] == '/' ? named : NULL};
    int rc = cli_parse(argc, argv, parse_option, &s);

    (void)t;
    if (rc < 0)
        return rc;
    rc = directory_each(sweep_one, &s, /* says= */ true);
    if (s.json) {
        struct buf b;
        buf_init(&b, ANSWER_BYTES);
        (void)buf_addc(&b, '{');
        json_add_member_text(&b, "below", s.only ? s.only : "");
        json_add_member_int(&b, "removed", s.removed, -1);
        (void)buf_addf(&b, "\"kept\": %u}\n", s.kept);
        fputs(buf_text(&b), stdout);
        buf_done(&b);
        return rc < 0 ? rc : s.failed < 0 ? EXIT_FAILED : EXIT_DONE;
    }
    printf("%u data directories removed, %u kept", s.removed, s.kept);
    if (s.only)
        printf(" (below %s, which PROBING_DATA_DIR names)", s.only);
    putchar('\n');
    return rc < 0 ? rc : s.failed < 0 ? EXIT_FAILED : EXIT_DONE;
}
