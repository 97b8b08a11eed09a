/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/several.h - several pids in one text, as $(pgrep ...) finds them.
 */
#ifndef CLI_TARGET_SEVERAL_H
#define CLI_TARGET_SEVERAL_H

#define SEVERAL_BLANKS " \t\n"
#define SEVERAL_PID_BYTES 16

/* The pid whose workers all the others are, said on stderr; -EINVAL: which are meant is for the
 * user to say. */
int several_parent(const char *text, char ret[SEVERAL_PID_BYTES]);

#endif
