/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/declarations.h - what plugins declare, without a process: of those that are installed
 * beside this command or in PROBING_PLUGIN_PATH, and of those that a dead process had.
 *
 * One thread.  Nothing of a plugin runs.
 */
#ifndef CLI_TARGET_DECLARATIONS_H
#define CLI_TARGET_DECLARATIONS_H

#include "core/plugin_file/declared.h"

struct sql;

/* Each of them; below 0 ends it.  What is wrong with a file is left out. */
int installed_declarations(int (*fn)(void *arg, const struct declared *d), void *arg);
/* rc: what nobody finding a plugin of that name gave; with the name that it may have meant instead
 * of its reason, where one is installed. */
int installed_plugin_near(const char *word, int rc);
/* Go through the declarations in a data directory, the one that was loaded last at the end. */
int directory_declarations(const char *directory, int (*fn)(void *arg, const struct declared *d),
                           void *arg);
/* Give an engine over a data directory the views of both: its own first. */
void offer_views(struct sql *engine, const char *directory);

#endif
