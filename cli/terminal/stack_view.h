/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/stack_view.h - the lines of `backtrace` as a person at a terminal reads them: calls
 * of torch's modules folded, variables one a line, colours.
 *
 * One thread.  What is a stack in plain lines stays so in pipes and files: this sees only what
 * terminal_fit() sees.
 */
#ifndef CLI_TERMINAL_STACK_VIEW_H
#define CLI_TERMINAL_STACK_VIEW_H

#include <stdbool.h>

#include "cli/terminal/fit_text.h"

/* full: fold nothing and cut nothing.  Lives as long as the command. */
const struct fit_view *stack_view(bool full, bool colours);

#endif
