/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/unwind_index.h - the executable memory of this process, and the rules to leave it
 * by.
 *
 * Its owner's thread only.  Modules may come and go at any moment and take their unwind tables
 * with them, so all of it is read by the kernel (an error, never a fault), and what was learnt is
 * thrown away when the list of modules is another one.
 */
#ifndef SAMPLING_UNWIND_INDEX_H
#define SAMPLING_UNWIND_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cfi.h"

struct code;

/* Exactly `size` bytes of this process at `address`. */
bool code_read(uint64_t address, void *ret, size_t size);

int code_open(struct code **ret);
void code_free(struct code *c);

/* Look whether modules came or went; true: yes, all that was known is forgotten. */
bool code_changed(struct code *c);

/* How to leave the function at `ip` (of a caller: the return address - 1).  CFI_LOST when no table
 * says. */
struct cfi_rule code_rule(struct code *c, uint64_t ip);

/* The start of the function that holds `ip`, by the same tables; 0: not known. */
uint64_t code_function(struct code *c, uint64_t ip);

/* x86-64, for a thread whose ip and sp alone are known: bytes between the frame pointer and sp at
 * `ip`, by the function's code; -1: not known.  exact: ip is no return address.  The sum may be
 * short: believe it only if the frame pointer then leads to a return address behind a call. */
int64_t code_held(struct code *c, uint64_t ip, bool exact);
bool code_is_behind_call(uint64_t ip);

/* Is this code that no table covers, as just-in-time compilers make it? */
bool code_has_no_table(struct code *c, uint64_t ip);

#endif
