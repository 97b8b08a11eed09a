/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/secret.h - which names sound as if their values were nobody else's business.
 *
 * Any thread.  Asked for everything that is shown to clients, of whom some may only read.
 */
#ifndef CORE_BASE_SECRET_H
#define CORE_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"

#define SECRET_SHOWN "***"

/* "HF_TOKEN", "server.password", "aws-access-key". */
bool secret_name(const char *name, size_t n);
/* Add the value as it may be shown: SECRET_SHOWN for a secret, a URL without its password, anything
 * else as it is.  0, or what buf_add() gives. */
int secret_show(const char *name, size_t name_n, const char *value, struct buf *ret);

#endif
