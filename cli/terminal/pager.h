/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/pager.h - the terminal's size, and a pager for long answers.
 *
 * One thread.
 */
#ifndef CLI_TERMINAL_PAGER_H
#define CLI_TERMINAL_PAGER_H

#include <stdbool.h>
#include <stdint.h>

/* Width of the terminal when stdout is one, else 0; and its lines, 24 where it does not say. */
uint32_t cli_width(void);
uint32_t cli_rows(void);
/* From now on stdout goes through a pager, when a person is there who has one. */
void pager_begin(void);
bool pager_runs(void);
bool pager_colours(void); /* it shows them; or there is none */
void pager_end(void);     /* all is said: wait until it has been read */

#endif
