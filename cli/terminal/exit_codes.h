/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/exit_codes.h - how the command ends: 0 done, 1 it failed, 2 the words were wrong.
 *
 * Constants only.
 */
#ifndef CLI_TERMINAL_EXIT_CODES_H
#define CLI_TERMINAL_EXIT_CODES_H

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#endif
