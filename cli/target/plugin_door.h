/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/plugin_door.h - sends a plugin's file through the door of a data directory.
 *
 * One thread.
 */
#ifndef CLI_TARGET_PLUGIN_DOOR_H
#define CLI_TARGET_PLUGIN_DOOR_H

#include <stddef.h>

struct target;

/* Send a plugin's file through the door of the target's data directory.  name: for messages; the
 * answer's text comes back as err_set().  -EALREADY: it is loaded; -ENODEV: the plugin itself
 * refused; -ECONNRESET: the process died or left.  ret_note: what is odd about a plugin that runs,
 * "". */
int upload_plugin(const struct target *t, const char *name, const char *file, char *ret_note,
                  size_t size);

/* Tell a core what the plugins declare that lie beside this command: an open file of lines. */
int door_tell_known(const struct target *t, int fd);

#endif
