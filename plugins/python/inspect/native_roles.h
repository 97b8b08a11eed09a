/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/native_roles.h - what native functions mean between Python ones.
 *
 * Any thread; nothing kept.
 */
#ifndef PYTHON_INSPECT_NATIVE_ROLES_H
#define PYTHON_INSPECT_NATIVE_ROLES_H

#include <probing/ext/draft/stack.h>
#include <stddef.h>

#include "cpython.h"

/* Path of the object file that holds the eval function; "" when it cannot be found. */
void native_interpreter(const struct probing_stack_1 *stack, const struct cpython *py, char *ret,
                        size_t size);

/* PROBING_PYTHON_NATIVE ... (python_frames.h) of a function in an object file. */
int native_kind(const char *interpreter, const char *function, const char *module);

#endif
