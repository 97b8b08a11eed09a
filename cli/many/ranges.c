/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/ranges.c - names with numbers in brackets among the targets: "node[01-16,20]:9922".
 *
 * One thread.
 */
#include <errno.h>
#include <string.h>

#include "cli/many/find.h"
#include "core/base/err.h"
#include "sdk/lib/host_list.h"

static int add_name(void *arg, const char *name)
{
    return find_add(arg, name);
}

int find_add_range(struct find *f, const char *text)
{
    return find_each_of_range(f, text, add_name, f);
}

int find_each_of_range(struct find *f, const char *text, int (*fn)(void *arg, const char *name),
                       void *arg)
{
    const char *wrong = NULL;
    int rc = host_list_each(text, MEMBERS_MAX, fn, arg, &wrong);

    if (wrong != NULL && wrong[0] == '[')
        rc = err_set(rc, "'%s': a '[' without its ']'", f->text);
    else if (wrong != NULL)
        rc = err_set(rc,
                     "'%s': '%.*s' is not a range of numbers; write 'node[1-8]' or "
                     "'node[01-16,20]'",
                     f->text, (int)strcspn(wrong, ",]"), wrong);
    else if (rc == -ENAMETOOLONG)
        rc = err_set(rc, "'%s': a name is too long", f->text);
    else if (rc == -E2BIG)
        rc = err_set(rc, "'%s' names more than %u processes", f->text, MEMBERS_MAX);
    else
        return rc; /* of fn */
    return cli_misuse(rc);
}
