/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/err.c - the last reason of each thread, in memory of its own.
 *
 * Any thread, never a signal handler.  It does not print and does not keep a history.
 * By pthread_getspecific() and not __thread: the rings' pointer makes all of our thread-local
 * storage static (initial-exec), and a process has only about 1.6 KB of that for what comes late.
 */
#include "core/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reason {
    int code; /* what `text` belongs to, 0: nothing */
    char text[ERR_TEXT_BYTES];
    char plain[128]; /* err_why() of a bare code */
};

static pthread_key_t key;    /* of struct reason *; made once */
static _Atomic bool has_key; /* until drop_key(), which a thread of ours may see come at exit() */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    atomic_store(&has_key, pthread_key_create(&key, free) == 0);
}

/* Threads outlive a library that is unloaded: they must not find a destructor of ours then. */
__attribute__((destructor)) static void drop_key(void)
{
    if (atomic_exchange(&has_key, false))
        (void)pthread_key_delete(key);
}

/* This thread's, NULL: none yet (or no memory for one, when `make`). */
static struct reason *mine(bool make)
{
    (void)pthread_once(&once, make_key);
    bool has = atomic_load(&has_key);
    struct reason *r = has ? pthread_getspecific(key) : NULL;
    if (r || !make || !has)
        return r;
    r = calloc(1, sizeof(*r));
    if (r && pthread_setspecific(key, r) != 0) {
        free(r);
        r = NULL;
    }
    return r;
}

int err_set(int code, const char *format, ...)
{
    /* The arguments may point into the old reason ("%s", err_text()), so format beside it. */
    char fresh[ERR_TEXT_BYTES];
    int saved = errno;
    va_list args;

    va_start(args, format);
    int n = vsnprintf(fresh, sizeof(fresh), format, args);
    va_end(args);
    struct reason *r = mine(/* make= */ true);
    if (r) {
        memcpy(r->text, n < 0 ? "" : fresh, n < 0 ? 1 : strlen(fresh) + 1);
        r->code = code;
    }
    errno = saved;
    return code;
}

const char *err_text(void)
{
    const struct reason *r = mine(/* make= */ false);
    return r ? r->text : "";
}

const char *err_why(int code)
{
    struct reason *r = mine(/* make= */ true);
    if (!r)
        return "no memory is left, not even to say for what";
    if (r->code == code && r->text[0])
        return r->text;
    /* The GNU form: it may give a constant text instead of filling `plain`. */
    return strerror_r(code < 0 ? -code : code, r->plain, sizeof(r->plain));
}

void err_clear(void)
{
    struct reason *r = mine(/* make= */ false);
    if (!r)
        return;
    r->text[0] = '\0';
    r->code = 0;
}
