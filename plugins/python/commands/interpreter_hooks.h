/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/interpreter_hooks.h - what the interpreter does by itself: exceptions,
 * collections, imports; recorded where a setting asks for it.
 */
#ifndef PYTHON_COMMANDS_INTERPRETER_HOOKS_H
#define PYTHON_COMMANDS_INTERPRETER_HOOKS_H

#include <probing/plugin.h>

#include "cpython.h"

struct plugin;

extern const struct probing_config watch_settings[];

int watch_init(struct plugin *p);                                           /* its tables */
int watch_configure(struct plugin *p, const char *name, const char *value); /* [control] */
void watch_start(struct plugin *p);
int watch_stop(struct plugin *p); /* 0, or -errno: hooks are still in */
void watch_forked(void);          /* [child] */

extern struct cpython_method watch_natives[];

#endif
