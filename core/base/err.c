/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/err.c - the last reason of each thread, in memory of its own.
 *
 * Any thread, never a signal handler.  It does not print and does not keep a history.
 * By pthread_getspecific() and not __thread: the rings' pointer makes all of our thread-local
 * storage static (initial-exec), and a process has only about 1.6 KB of that for what comes late.
 */
#include "core/base/err.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reason {
    int code;      /* what `text` belongs to, 0: nothing */
    uint32_t hint; /* where it begins in `text`, also after err_clear(); 0: there is none */
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
static struct reason *thread_reason(bool make)
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

/* The offset in `text` of the last reason's hint, if `text` ends with it; else 0. */
static size_t repeated_hint(const struct reason *r, const char *text)
{
    if (r->hint == 0)
        return 0;
    size_t n = strlen(text), size = strlen(r->text + r->hint);
    bool ends = size > 0 && n > size + 2 && memcmp(text + n - size, r->text + r->hint, size) == 0 &&
                memcmp(text + n - size - 2, "; ", 2) == 0;
    return ends ? n - size : 0;
}

/* The offset of the words behind the first "; " outside quotes; 0: there are none.  A quote inside
 * a word is an apostrophe. */
static size_t find_hint(const char *text)
{
    char quote = 0;
    for (const char *p = text; *p; p++) {
        bool inside = p > text && isalnum((unsigned char)p[-1]);
        if (quote ? *p == quote && !isalnum((unsigned char)p[1])
                  : (*p == '\'' || *p == '"') && !inside)
            quote = quote ? 0 : *p;
        else if (!quote && p > text && p[0] == ';' && p[1] == ' ' && p[2])
            return (size_t)(p + 2 - text);
    }
    return 0;
}

/* The offset, in the formatted text, of the part behind the format's first "; ". */
static size_t format_hint(const char *format, va_list args)
{
    char before[ERR_TEXT_BYTES];
    const char *mark = strstr(format, "; ");
    size_t size = mark ? (size_t)(mark - format) + 2 : sizeof(before);
    if (size >= sizeof(before))
        return 0;
    memcpy(before, format, size);
    before[size] = '\0';
    int n = vsnprintf(NULL, 0, before, args);
    return n > 0 ? (size_t)n : 0;
}

/* `text` replaces the thread's reason. */
static void keep_reason(struct reason *r, int code, const char *text, size_t hint)
{
    size_t n = strlen(text);
    memmove(r->text, text, n + 1);
    r->code = code;
    r->hint = hint < n ? (uint32_t)hint : 0; /* a text that was cut has lost it */
}

int err_set(int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)err_vset(code, format, args);
    va_end(args);
    return code;
}

int err_vset(int code, const char *format, va_list args)
{
    /* The arguments may point into the old reason ("%s", err_text()), so format beside it. */
    char fresh[ERR_TEXT_BYTES];
    int saved = errno;
    va_list again;

    va_copy(again, args);
    int n = vsnprintf(fresh, sizeof(fresh), format, args);
    size_t hint = format_hint(format, again);
    va_end(again);
    if (n < 0)
        fresh[0] = '\0';
    struct reason *r = thread_reason(/* make= */ true);
    if (r) {
        if (hint == 0)
            hint = repeated_hint(r, fresh);
        if (hint == 0 && strcmp(format, "%s") == 0)
            hint = find_hint(fresh);
        keep_reason(r, code, fresh, hint);
    }
    errno = saved;
    return code;
}

const char *err_text(void)
{
    const struct reason *r = thread_reason(/* make= */ false);
    return r ? r->text : "";
}

const char *err_why(int code)
{
    struct reason *r = thread_reason(/* make= */ true);
    if (!r)
        return "no memory is left, not even to say for what";
    if (r->code == code && r->text[0])
        return r->text;
    /* The GNU form: it may give a constant text instead of filling `plain`. */
    return strerror_r(code < 0 ? -code : code, r->plain, sizeof(r->plain));
}

size_t err_hint(const char *text)
{
    const struct reason *r = thread_reason(/* make= */ false);
    return r ? repeated_hint(r, text) : 0;
}

void err_keep(struct err_kept *ret, int code)
{
    ret->code = code;
    (void)snprintf(ret->text, sizeof(ret->text), "%s", code < 0 ? err_why(code) : "");
    ret->hint = (uint32_t)err_hint(ret->text);
}

int err_restore(const struct err_kept *kept)
{
    struct reason *r = kept->code < 0 ? thread_reason(/* make= */ true) : NULL;
    if (r)
        keep_reason(r, kept->code, kept->text, kept->hint);
    return kept->code;
}

void err_clear(void)
{
    struct reason *r = thread_reason(/* make= */ false);
    if (!r)
        return;
    r->text[0] = '\0';
    r->code = 0;
}
