/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/sealed_copy.h - a plugin's file, looked at and kept as nobody can change it any
 * more.
 *
 * A file that is mapped changes under its process when it is written over, and ends it (SIGBUS)
 * when it is cut short.  So what is loaded is a copy: in memory that is sealed; where that is not
 * to be had, in a file without a name.
 */
#ifndef CORE_PLUGIN_FILE_SEALED_COPY_H
#define CORE_PLUGIN_FILE_SEALED_COPY_H

#include <stdbool.h>

#include "core/plugin_file/elf_check.h"

/* Copy the open file `fd` and look at the copy: elf_check().  name: of the plugin, for
 * /proc/PID/maps.  A copy that is sealed already is taken as it is.  0: *ret_fd is close-on-exec,
 * the caller's; -ENOEXEC: it is no plugin that can be loaded; -ENOTSUP: copies cannot be made here,
 * or not be executed; -errno, always with err_set(). */
int seal_copy(int fd, const char *name, int *ret_fd, struct elf_facts *ret);
/* Only look at it, as it is at this moment. */
int sealed_inspect(int fd, struct elf_facts *ret);

#endif
