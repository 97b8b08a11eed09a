/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/inject_dry_run.h - what `inject --dry-run` says.
 */
#ifndef CLI_COMMANDS_INJECT_INJECT_DRY_RUN_H
#define CLI_COMMANDS_INJECT_INJECT_DRY_RUN_H

#include "cli/inject/inject.h"

struct target;

/* To stdout.  plugins: NULL-ended, those asked for. */
void plan_print(const struct target *t, const struct inject_result *result, const char *library,
                const char *const *plugins);

#endif
