/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/host_list.c - see host_list.h.
 *
 * Any thread.  The numbers of a name's first brackets are counted, then the rest of it likewise, so
 * a list takes as much time as it has names, and no memory.
 */
#include "sdk/lib/host_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sdk/lib/number.h"

#define DIGITS_MAX 9

struct expansion {
    size_t left; /* names that may still come */
    int (*fn)(void *arg, const char *name);
    void *arg;
    const char *wrong;
};

/* One "7" or "01-16" of the brackets. */
struct range {
    uint64_t first, last;
    int width; /* of "01": with zeros before it */
};

/* Where the list's next name ends: at a comma that is in no brackets. */
static size_t item_size(const char *text)
{
    size_t n = 0;

    for (bool inside = false; text[n] != '\0' && (inside || text[n] != ','); n++)
        inside = text[n] == '[' || (inside && text[n] != ']');
    return n;
}

static int refuse(struct expansion *e, const char *where)
{
    e->wrong = where;
    return -EINVAL;
}

static int read_range(struct expansion *e, const char *text, size_t n, struct range *ret)
{
    const char *dash = memchr(text, '-', n);
    size_t first = dash != NULL ? (size_t)(dash - text) : n;
    const char *second = dash != NULL ? dash + 1 : text;
    size_t last = dash != NULL ? n - first - 1 : n;

    if (first > DIGITS_MAX || last > DIGITS_MAX || number_u64(text, first, &ret->first) < 0 ||
        number_u64(second, last, &ret->last) < 0 || ret->last < ret->first)
        return refuse(e, text);
    ret->width = text[0] == '0' ? (int)first : 0;
    return 0;
}

/* `done`: what is settled of the name; text, n: the rest of it. */
static int expand(struct expansion *e, const char *done, const char *text, size_t n)
{
    const char *open = memchr(text, '[', n);
    const char *close = open != NULL ? memchr(open, ']', n - (size_t)(open - text)) : NULL;
    char name[HOST_NAME_BYTES];
    int rc = 0;

    if (open != NULL && close == NULL)
        return refuse(e, open);
    if (open == NULL || (open == text && done[0] == '\0')) { /* "[::1]:9922" */
        if ((size_t)snprintf(name, sizeof(name), "%s%.*s", done, (int)n, text) >= sizeof(name))
            return -ENAMETOOLONG;
        if (e->left-- == 0)
            return -E2BIG;
        return e->fn(e->arg, name);
    }
    for (const char *at = open + 1; rc == 0 && at <= close;) {
        size_t size = strcspn(at, ",]");
        struct range r = {0};
        rc = read_range(e, at, size, &r);
        for (uint64_t i = r.first; rc == 0 && i <= r.last; i++) {
            int used = snprintf(name, sizeof(name), "%s%.*s%0*llu", done, (int)(open - text), text,
                                r.width, (unsigned long long)i);
            rc = used >= (int)sizeof(name)
                     ? -ENAMETOOLONG
                     : expand(e, name, close + 1, n - (size_t)(close + 1 - text));
        }
        at += size + 1;
    }
    return rc;
}

int host_list_each(const char *text, size_t most, int (*fn)(void *arg, const char *name), void *arg,
                   const char **ret_wrong)
{
    struct expansion e = {.left = most, .fn = fn, .arg = arg};
    int rc = 0;

    for (const char *at = text; rc == 0;) {
        size_t n = item_size(at);
        rc = n == 0 ? refuse(&e, at) : expand(&e, "", at, n);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    if (ret_wrong != NULL)
        *ret_wrong = e.wrong;
    return rc;
}
