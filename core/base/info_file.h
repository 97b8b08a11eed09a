/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/info_file.h - the file `info` of a data directory: who the process was, and how it
 * left.
 *
 * Lines "key: value", a key may come several times; the last line is
 *
 *     check: 16 hex digits             FNV-1a of all bytes before the line
 *
 * so that a damaged, cut or edited file is not believed: a pid or a boot in it decides what may be
 * removed and what is gone on with.  Any thread; never [signal].
 */
#ifndef CORE_BASE_INFO_FILE_H
#define CORE_BASE_INFO_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "sdk/lib/buf.h"

#define INFO_MAX_BYTES ((size_t)4 << 20)

/* Add the last line.  0 or -ENOMEM. */
int info_commit_sum(struct buf *text);

/* Take the check away from what was read of such a file, so that the lines before it are left.
 * -EBADMSG: it is damaged (name: for words), and nothing is taken away. */
int info_check(struct buf *text, const char *name);

/* The value of the first line with the key, up to its end: false when there is none. */
bool info_get(const struct buf *text, const char *key, char *ret, size_t size);

#endif
