/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/err.c - the last reason of each thread, in thread storage of fixed size.
 *
 * Any thread, never a signal handler.  It does not print and does not keep a history.
 */
#include "core/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread char reason[ERR_TEXT_BYTES]; /* each thread its own */
static __thread int reason_code;             /* what `reason` belongs to, 0: nothing */
static __thread char plain[128];             /* err_why() of a bare code */

int err_set(int code, const char *format, ...)
{
    /* The arguments may point into the old reason ("%s", err_text()), so format beside it. */
    char fresh[ERR_TEXT_BYTES];
    int saved = errno;
    va_list args;

    va_start(args, format);
    int n = vsnprintf(fresh, sizeof(fresh), format, args);
    va_end(args);
    if (n < 0)
        fresh[0] = '\0';
    memcpy(reason, fresh, strlen(fresh) + 1);
    reason_code = code;
    errno = saved;
    return code;
}

const char *err_text(void)
{
    return reason;
}

const char *err_why(int code)
{
    if (reason_code == code && reason[0])
        return reason;
    /* The GNU form: it may give a constant text instead of filling `plain`. */
    return strerror_r(code < 0 ? -code : code, plain, sizeof(plain));
}

void err_clear(void)
{
    reason[0] = '\0';
    reason_code = 0;
}
