/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/ranges.c - names with numbers in brackets, as SLURM and pdsh write them:
 * "node[01-16,20]:9922", "r[1-2]n[0-7]".
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/many/find.h"
#include "core/base/err.h"
#include "sdk/lib/number.h"

#define DIGITS_MAX 9

/* One "7" or "01-16" of the brackets. */
struct range {
    uint64_t first, last;
    int width; /* of "01": with zeros before it */
};

static int refuse(const struct find *f, const char *range, size_t n)
{
    return err_set(-EINVAL,
                   "'%s': '%.*s' is not a range of numbers; write 'node[1-8]' or 'node[01-16,20]'",
                   f->text, (int)n, range);
}

static int read_range(const struct find *f, const char *text, size_t n, struct range *ret)
{
    const char *dash = memchr(text, '-', n);
    size_t first = dash != NULL ? (size_t)(dash - text) : n;
    const char *second = dash != NULL ? dash + 1 : text;
    size_t last = dash != NULL ? n - first - 1 : n;

    if (first > DIGITS_MAX || last > DIGITS_MAX || number_u64(text, first, &ret->first) < 0 ||
        number_u64(second, last, &ret->last) < 0 || ret->last < ret->first)
        return refuse(f, text, n);
    ret->width = text[0] == '0' ? (int)first : 0;
    return ret->last - ret->first < MEMBERS_MAX
               ? 0
               : err_set(-E2BIG, "'%s' names more than %u processes", f->text, MEMBERS_MAX);
}

static int add_numbers(struct find *f, const char *text, const char *open, const char *close,
                       const struct range *r)
{
    char name[512];
    int rc = 0;

    for (uint64_t i = r->first; i <= r->last && rc == 0; i++) {
        int n = snprintf(name, sizeof(name), "%.*s%0*llu%s", (int)(open - text), text, r->width,
                         (unsigned long long)i, close + 1);
        if (n >= (int)sizeof(name))
            return err_set(-EINVAL, "'%s': a name is too long", f->text);
        rc = strchr(name, '[') != NULL ? find_add_range(f, name) : find_add(f, name);
    }
    return rc;
}

int find_add_range(struct find *f, const char *text)
{
    const char *open = strchr(text, '['), *close = strchr(open, ']');
    int rc = 0;

    if (close == NULL)
        return err_set(-EINVAL, "'%s': a '[' without its ']'", f->text);
    for (const char *at = open + 1; rc == 0 && at <= close;) {
        size_t n = strcspn(at, ",]");
        struct range r;
        rc = read_range(f, at, n, &r);
        if (rc == 0)
            rc = add_numbers(f, text, open, close, &r);
        at += n + 1;
    }
    return rc;
}
