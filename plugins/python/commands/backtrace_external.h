/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/backtrace_external.h - "python.external/1": stacks of a process that is
 * only read.
 */
#ifndef PYTHON_COMMANDS_BACKTRACE_EXTERNAL_H
#define PYTHON_COMMANDS_BACKTRACE_EXTERNAL_H

#include <probing/ext/draft/python_external.h>

extern const struct probing_python_external_1 external_part;

#endif
