/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/interrupt.h - Ctrl-C and SIGTERM, as long commands see them.
 *
 * One thread.
 */
#ifndef CLI_TERMINAL_INTERRUPT_H
#define CLI_TERMINAL_INTERRUPT_H

#include <signal.h>

/* Ctrl-C and SIGTERM raise this; long commands look at it. */
extern volatile sig_atomic_t cli_interrupted;
extern volatile sig_atomic_t cli_terminated; /* by SIGTERM: what goes on after Ctrl-C ends, too */
extern volatile sig_atomic_t cli_prompts; /* a line is being read: prompt.c waits for SIGALRM too */
extern _Atomic int cli_cancel;            /* the same, as the engine wants it */
/* Ctrl-C has ended what it was typed for, and the session goes on. */
void cli_interrupt_over(void);
/* Ours; and as they were when main() kept them: before an exec, and while files of the dead are
 * read, which takes as long as whoever wrote them likes (terminal/interrupt.c). */
void cli_signals_keep(void);
void cli_signals_catch(void);
void cli_signals_back(void);

#endif
