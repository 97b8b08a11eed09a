/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/number_text.h - a number as text, as printf's "%.9g" has it.
 *
 * Threads: any.
 */
#ifndef TORCH_VARIABLES_NUMBER_TEXT_H
#define TORCH_VARIABLES_NUMBER_TEXT_H

#define NUMBER_TEXT_BYTES 32

/* text: of NUMBER_TEXT_BYTES; "nan" has no sign. */
void number_text(double number, char *text);

#endif
