/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/plugin/plugin_check.h - `plugin check FILE [-- PROGRAM ...]`.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_PLUGIN_PLUGIN_CHECK_H
#define CLI_COMMANDS_PLUGIN_PLUGIN_CHECK_H

/* name: of the plugin. */
int plugin_check(const char *name, const char *file, char **program);
/* The program that waits for a check when no other is named. */
int plugin_check_inside(void);

#endif
