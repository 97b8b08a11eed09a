/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/host_list.c - see host_list.h.
 *
 * Any thread.  A list is read twice.  First it is measured, in time proportional to its text.  Then
 * it is expanded: the numbers of a name's first brackets, and for each of them the rest of the
 * name.  Neither takes memory.
 */
#include "cli/job/host_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sdk/lib/number.h"

#define DIGITS_MAX 9

struct expansion {
    size_t names, bytes; /* that may still come */
    int (*fn)(void *arg, const char *name);
    void *arg;
    const char *wrong;
};

/* One "7" or "01-16" of the brackets. */
struct range {
    uint64_t first, last;
    int width; /* of "01": with zeros before it */
};

/* The end of the list's next name: a comma that is in no brackets. */
static size_t item_size(const char *text)
{
    size_t n = 0;

    for (bool inside = false; text[n] != '\0' && (inside || text[n] != ','); n++)
        inside = text[n] == '[' || (inside && text[n] != ']');
    return n;
}

static int refuse_list(struct expansion *e, int rc, const char *where)
{
    e->wrong = where;
    return rc;
}

/* The range at *at, which is then behind it and its comma or ']'. */
static int next_range(struct expansion *e, const char **at, struct range *ret)
{
    const char *text = *at;
    size_t n = strcspn(text, ",]");
    const char *dash = memchr(text, '-', n);
    size_t first = dash != NULL ? (size_t)(dash - text) : n;
    const char *second = dash != NULL ? dash + 1 : text;
    size_t last = dash != NULL ? n - first - 1 : n;

    if (first > DIGITS_MAX || last > DIGITS_MAX || number_u64(text, first, &ret->first) < 0 ||
        number_u64(second, last, &ret->last) < 0 || ret->last < ret->first)
        return refuse_list(e, -EINVAL, text);
    ret->width = text[0] == '0' ? (int)first : 0;
    *at += n + 1;
    return 0;
}

/* The first brackets in text, n; false: there are none, as in "[::1]:9922" where `first`, or they
 * do not end (*ret_close: NULL). */
static bool find_brackets(const char *text, size_t n, bool first, const char **ret_open,
                          const char **ret_close)
{
    const char *open = memchr(text, '[', n);

    *ret_open = open != NULL && (open != text || !first) ? open : NULL;
    *ret_close = *ret_open != NULL ? memchr(open, ']', n - (size_t)(open - text)) : NULL;
    return *ret_close != NULL;
}

/* How many names it means, and how long the longest of them may be. */
static int measure_names(struct expansion *e, const char *text, size_t n, size_t *ret_names,
                         size_t *ret_size)
{
    const char *item = text, *end = text + n, *open, *close;
    uint64_t names = 1;
    size_t size = 1; /* its NUL */

    while (find_brackets(text, (size_t)(end - text), text == item, &open, &close)) {
        uint64_t here = 0;
        int longest = 0;
        for (const char *at = open + 1; at <= close;) {
            struct range r;
            int rc = next_range(e, &at, &r);
            if (rc < 0)
                return rc;
            int width = snprintf(NULL, 0, "%0*llu", r.width, (unsigned long long)r.last);
            here += r.last - r.first + 1;
            longest = width > longest ? width : longest;
        }
        if (__builtin_mul_overflow(names, here, &names))
            names = UINT64_MAX;
        size += (size_t)(open - text) + (size_t)longest;
        text = close + 1;
    }
    if (open != NULL)
        return refuse_list(e, -EINVAL, open);
    size += (size_t)(end - text);
    if (size > HOST_NAME_BYTES)
        return refuse_list(e, -ENAMETOOLONG, item);
    *ret_names = names;
    *ret_size = size;
    return 0;
}

/* Take it off what may still come. */
static int take_room(struct expansion *e, const char *text, size_t n)
{
    size_t names = 0, size = 0, bytes = 0;
    int rc = measure_names(e, text, n, &names, &size);

    if (rc < 0)
        return rc;
    if (names > e->names || __builtin_mul_overflow(names, size, &bytes) || bytes > e->bytes)
        return refuse_list(e, -E2BIG, text);
    e->names -= names;
    e->bytes -= bytes;
    return 0;
}

/* `done`: what is settled of the name; text, n: the rest of it.  All of it was measured. */
static int expand_names(struct expansion *e, const char *done, const char *text, size_t n)
{
    const char *open, *close;
    char name[HOST_NAME_BYTES];
    int rc = 0;

    if (!find_brackets(text, n, done[0] == '\0', &open, &close)) {
        (void)snprintf(name, sizeof(name), "%s%.*s", done, (int)n, text);
        return e->fn(e->arg, name);
    }
    for (const char *at = open + 1; rc == 0 && at <= close;) {
        struct range r = {0};
        rc = next_range(e, &at, &r);
        for (uint64_t i = r.first; rc == 0 && i <= r.last; i++) {
            (void)snprintf(name, sizeof(name), "%s%.*s%0*llu", done, (int)(open - text), text,
                           r.width, (unsigned long long)i);
            rc = expand_names(e, name, close + 1, n - (size_t)(close + 1 - text));
        }
    }
    return rc;
}

/* fn for each item of the list. */
static int each_item(struct expansion *e, const char *text,
                     int (*fn)(struct expansion *e, const char *item, size_t n))
{
    int rc = 0;

    for (const char *at = text; rc == 0;) {
        size_t n = item_size(at);
        rc = n == 0 ? refuse_list(e, -EINVAL, at) : fn(e, at, n);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    return rc;
}

static int expand_item(struct expansion *e, const char *item, size_t n)
{
    return expand_names(e, "", item, n);
}

int host_list_each(const char *text, size_t most, int (*fn)(void *arg, const char *name), void *arg,
                   const char **ret_wrong)
{
    struct expansion e = {.names = most, .bytes = HOST_LIST_BYTES, .fn = fn, .arg = arg};
    int rc = each_item(&e, text, take_room);

    if (rc == 0)
        rc = each_item(&e, text, expand_item);
    if (ret_wrong != NULL)
        *ret_wrong = e.wrong;
    return rc;
}
