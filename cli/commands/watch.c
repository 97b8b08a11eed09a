/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/watch.c - `watch`: rows of a live process as they come, until Ctrl-C.
 *
 * One thread.
 */
#include <errno.h>
#include <probing/client.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"

/* ---- watch ---- */

static int parse_option(void *arg, const char *option, const char *value)
{
    struct probing_client_watch *w = arg;

    if (option == NULL) {
        if (w->sql != NULL)
            return err_set(-EINVAL, "unexpected argument '%s' (put the statement in quotes)",
                           value);
        w->sql = value;
        return 0;
    }
    if (strcmp(option, "--interval") == 0)
        return cli_take_time(option, value, &w->interval_ns);
    if (strcmp(option, "--last") == 0)
        return parse_u64(value, &w->last);
    w->format = value; /* --format */
    return 0;
}

int command_watch(struct target *t, int argc, char **argv)
{
    struct probing_client_watch w = {.size = sizeof(w), .format = "table", .width = cli_width()};
    struct probing_client *c = NULL;
    struct live_stream s = {.status = 0};
    int rc = cli_parse(argc, argv, parse_option, &w);

    if (rc == 0 && w.sql == NULL)
        rc = cli_misuse(err_set(-EINVAL, "watch needs an SQL statement"));
    if (rc == 0)
        rc = target_connect(t, &c);
    if (rc < 0)
        return rc;
    s.people = terminal_format(w.format);
    s.ids[0] = probing_client_start_watch(c, &w);
    rc = s.ids[0] < 0 ? (int)s.ids[0] : live_stream_follow(c, &s);
    probing_client_free(c);
    return rc;
}
