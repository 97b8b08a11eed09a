/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/settings.h - what the user sets, from one setting each or all in one line.
 *
 * Threads: [control].
 */
#ifndef PLUGINS_TORCH_SETTINGS_H
#define PLUGINS_TORCH_SETTINGS_H

#include "internal.h"

extern const struct probing_config settings_table[];
void settings_init(void);
void settings_begin(void);
int settings_configure(const char *name, const char *value);

#endif
