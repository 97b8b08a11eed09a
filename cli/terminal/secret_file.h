/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/secret_file.h - files that users name for what nobody else may know: tokens,
 * passwords, keys.  One rule for all: such a file is ours or root's, and closed to everybody else.
 *
 * One thread.  0 or -errno with err_set() done.
 */
#ifndef CLI_TERMINAL_SECRET_FILE_H
#define CLI_TERMINAL_SECRET_FILE_H

#include <stddef.h>

/* The first line of the file, with a NUL.  option: who named it, "--secret", for words.  A FIFO is
 * waited for until a signal comes; "-" is stdin, whoever may read that. */
int secret_read(const char *option, const char *path, char *ret, size_t size);
/* For a library that will read it by itself: -EPERM where the rule is broken, -errno where it
 * cannot be seen. */
int secret_check(const char *option, const char *path);

#endif
