/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/inject_setup.h - settings and plugins in a core that answers.
 */
#ifndef CLI_COMMANDS_INJECT_INJECT_SETUP_H
#define CLI_COMMANDS_INJECT_INJECT_SETUP_H

#include <stdbool.h>
#include <stdint.h>

struct target;

/* Each "key=value" of a NULL-ended list: is it so?  What is goes to stdout, what is not to stderr,
 * with the reason and what holds instead.  but: the one of them that is not asked about; fresh: the
 * core has just started with them.  Gives how many, or -errno; -ESTALE: the process runs another
 * program now. */
int setup_settings(const struct target *t, const char *const *settings, const char *but,
                   bool fresh);
/* A core listens on `now` ("": on nothing) and is wanted on `wanted`, which would move it: may it?
 * A person at a terminal is asked.  0; 1: it is there already; -EEXIST with err_set(). */
int setup_listen(const struct target *t, const char *now, const char *wanted);
/* Load each of a NULL-ended list.  fresh: the core has just come, and those of its probing.plugins
 * that it could not find are loaded first.  Those that fail go to stderr.  Gives how many; -ESTALE:
 * the process runs another program now. */
int setup_plugins(const struct target *t, const char *const *plugins, bool fresh);
/* Tell the core which plugins are installed here, so that their views are known before they are
 * loaded.  What fails is nobody's loss. */
void setup_known(const struct target *t);

#endif
