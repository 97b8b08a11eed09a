/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/install.h - into torch and out of it.
 *
 * Threads: any that holds the GIL.
 */
#ifndef PLUGINS_TORCH_INSTALL_H
#define PLUGINS_TORCH_INSTALL_H

#include "internal.h"

/* All hooks in; -errno after plugin_refuse(), and then none is. */
int install_do(void *unused);
/* All hooks out; gives how many places somebody else has changed since. */
int install_undo(void *unused);

/* plugin.c: from now on, until init(), what stands in the host's place does nothing. */
void plugin_leave_host(void);

/* plugin.c: why start() fails; gives the code. */
int plugin_refuse(int code, const char *text);
/* Set anew what all rows have in common. */
void plugin_reset_rows(void);

#endif
