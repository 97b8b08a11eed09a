/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/install.h - into torch and out of it.
 *
 * Threads: any that holds the GIL.
 */
#ifndef PLUGINS_TORCH_INSTALL_H
#define PLUGINS_TORCH_INSTALL_H

/* All hooks in; -errno, and then none is: ret_why (const char **) says why, and lives for ever. */
int install_do(void *ret_why);
/* All hooks out; gives how many places somebody else has changed since. */
int install_undo(void *unused);

#endif
