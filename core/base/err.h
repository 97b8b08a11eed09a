/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/err.h - a negative errno plus one sentence, kept per thread.
 *
 * The place that knows the reason says it: return err_set(-EINVAL, "column '%s' has no type",
 * name); everything above passes the code on.  Any thread; never from a signal handler (it formats
 * text and its thread storage may be allocated at first use).
 */
#ifndef CORE_BASE_ERR_H
#define CORE_BASE_ERR_H

#include <stddef.h>

#define ERR_TEXT_BYTES 1024 /* longest reason kept, NUL included; longer ones are cut */

/* Keep a reason for this thread and return `code` (negative).  The text says what was wrong,
 * where, and what to do; it has no newline at its end. */
int err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The reason of this thread's last err_set(), "" if none.  Borrowed until the next err_set(). */
const char *err_text(void);

/* err_text() when it belongs to `code`, else strerror: for callers that got a bare -errno. */
const char *err_why(int code);

/* Forget this thread's reason. */
void err_clear(void);

#endif
