/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/gzip.h - gzip for HTTP answers and files, piece by piece, in little memory.
 *
 * The CPU is the host's, so it is the fastest level and a small window: 20 KiB a stream instead of
 * the usual 260.  Owner's thread only.
 */
#ifndef CORE_BASE_GZIP_H
#define CORE_BASE_GZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "sdk/lib/buf.h"

struct squeeze;

struct squeeze *squeeze_new(void); /* NULL: no memory */
void squeeze_free(struct squeeze *q);
/* Add the compressed form of `data` to `out`.  All of it can be read by who got `out` so far;
 * `last` ends the stream.  0, -ENOMEM, or the buffer's failure. */
int squeeze_add(struct squeeze *q, const char *data, size_t size, bool last, struct buf *out);

#endif
