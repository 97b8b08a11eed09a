/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject_setup.h - settings and plugins in a core that answers.
 */
#ifndef CLI_COMMANDS_INJECT_SETUP_H
#define CLI_COMMANDS_INJECT_SETUP_H

#include "cli/cli.h"
#include "core/base/buf.h"

/* Each "key=value" of a NULL-ended list: is it so?  What is not goes to stderr, with the reason and
 * what holds instead.  but: the one of them that is not asked about.  Gives how many, or -errno. */
int settle_settings(const struct target *t, const char *const *settings, const char *but);
/* Load each of a NULL-ended list.  fresh: the settings of a core that has just come, whose
 * probing.plugins ("python" where it is not among them) are loaded first; NULL: none are.  Those
 * that fail go to stderr.  Gives how many; -ESTALE: the process runs another program now. */
int settle_plugins(const struct target *t, const char *const *plugins, const char *const *fresh);
/* One command's answer.  0, or -errno when it could not be asked or said no. */
int settle_ask(struct probing_client *c, int argc, const char *const *argv, struct buf *answer);

#endif
