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

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define ERR_TEXT_BYTES 1024 /* longest reason kept, NUL included; longer ones are cut */

/* A reason on its way to another thread, which has none of this thread's memory. */
struct err_kept {
    int code; /* 0: nothing went wrong */
    uint32_t hint;
    char text[ERR_TEXT_BYTES];
};

/* Keep a reason for this thread and return `code` (negative).  The text says what was wrong,
 * where, and what to do; it has no newline at its end.  What to do is the hint: it follows the
 * first "; " of `format`.  A `format` without one passes on the hint of the reason at its end, and
 * that of "%s", a sentence made elsewhere, follows the first "; " outside quotes. */
int err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int err_vset(int code, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* The reason of this thread's last err_set(), "" if none.  Borrowed until the next err_set(). */
const char *err_text(void);

/* err_text() when it belongs to `code`, else strerror: for callers that got a bare -errno. */
const char *err_why(int code);

/* The offset of the hint in a copy of this thread's last reason; 0: it has none. */
size_t err_hint(const char *text);

/* Forget this thread's reason. */
void err_clear(void);

/* The reason of `code` for another thread, and that thread's end of it: it gives the code. */
void err_keep(struct err_kept *ret, int code);
int err_restore(const struct err_kept *kept);

#endif
