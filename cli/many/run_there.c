/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/run_there.c - see run_there.h.
 *
 * One thread.
 */
#include "cli/many/run_there.h"

#include "cli/link/link.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"

bool runs_there(const struct target *t, const struct cli_command *c, int argc, char *const *argv)
{
    if (t->there == NULL)
        return false;
    if (t->kind == TARGET_THERE)
        return c == NULL || !c->reads_rows;
    return c != NULL && cli_words_meet(c, c->runs_there, argc, argv);
}

int run_there(const struct target *t, int argc, char *const *argv)
{
    return link_run_print(t->there, argc, (const char *const *)argv);
}
