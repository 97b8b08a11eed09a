/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/ranges.c - names with numbers in brackets among the targets: "node[01-16,20]:9922".
 *
 * One thread.
 */
#include <errno.h>
#include <string.h>

#include "cli/job/host_list.h"
#include "cli/many/find.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"

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
    uint32_t before = f->found->n + f->n_remote;
    int rc = host_list_each(text, before < MEMBERS_MAX ? MEMBERS_MAX - before : 0, fn, arg, &wrong);

    if (wrong == NULL)
        return rc; /* of fn */
    if (rc == -E2BIG)
        rc = err_set(rc, "'%.300s' names more than %u processes%s", text, MEMBERS_MAX,
                     before > 0 ? ", with those before it" : "");
    else if (rc == -ENAMETOOLONG)
        rc = err_set(rc, "'%s': a name is longer than %d bytes", f->text, HOST_NAME_BYTES - 1);
    else if (wrong[0] == '[')
        rc = err_set(rc, "'%s': a '[' without its ']'", f->text);
    else
        rc = err_set(rc,
                     "'%s': '%.*s' is not a range of numbers; write 'node[1-8]' or "
                     "'node[01-16,20]'",
                     f->text, (int)strcspn(wrong, ",]"), wrong);
    return cli_misuse(rc);
}
