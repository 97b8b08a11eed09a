/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/trace_lines.c - on which line of a trace an event is shown that is on no thread's: a
 * stream of a GPU, a process group.
 *
 * One thread.  Whoever draws a trace has one stack a line: an event that ends after another which
 * began before it would be taken for that one.  It goes to the next line of the same name.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/export/export.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"

#define LINES_MAX 4096
#define OF_ONE_NAME 64 /* lines; what has no room on the last of them is shown there all the same */
#define DEPTH_MAX 64   /* events within each other */

struct line {
    char *name;
    uint32_t next;             /* of the same name, number plus 1; 0: none */
    int64_t begun;             /* of its newest event */
    int64_t end_ns[DEPTH_MAX]; /* of those that are under way then, the innermost last */
    uint32_t depth;
};

struct export_lines {
    struct line *all;
    uint32_t n, room;
};

struct export_lines *export_lines_new(void)
{
    return calloc(1, sizeof(struct export_lines));
}

void export_lines_free(struct export_lines *l)
{
    if (l == NULL)
        return;
    for (uint32_t i = 0; i < l->n; i++)
        free(l->all[i].name);
    free(l->all);
    free(l);
}

static bool has_room(const struct line *l, int64_t begin_ns, int64_t end_ns)
{
    uint32_t depth = l->depth;
    while (depth > 0 && l->end_ns[depth - 1] <= begin_ns)
        depth--;
    return begin_ns >= l->begun &&
           (depth == 0 || (depth < DEPTH_MAX && end_ns <= l->end_ns[depth - 1]));
}

static void put_event(struct line *l, int64_t begin_ns, int64_t end_ns)
{
    while (l->depth > 0 && l->end_ns[l->depth - 1] <= begin_ns)
        l->depth--;
    if (l->depth < DEPTH_MAX)
        l->end_ns[l->depth++] = end_ns;
    l->begun = begin_ns;
}

static int add_line(struct export_lines *l, const char *name, uint32_t *ret)
{
    struct line *more = array_grow(l->all, l->n, &l->room, sizeof(*more), LINES_MAX);
    if (more == NULL)
        return err_set(-ENOMEM, "no memory for a trace of more than %u lines", l->n);
    l->all = more;
    char *copy = strdup(name);
    if (copy == NULL)
        return err_set(-ENOMEM, "no memory for a trace of more than %u lines", l->n);
    l->all[l->n] = (struct line){.name = copy, .begun = INT64_MIN};
    *ret = l->n++;
    return 0;
}

int export_lines_place(struct export_lines *l, const char *name, int64_t begin_ns, int64_t end_ns,
                       int64_t *ret)
{
    uint32_t i = 0, last = 0, of_name = 0;
    int rc = 0;

    while (i < l->n && strcmp(l->all[i].name, name) != 0)
        i++;
    for (bool any = i<l->n; any; any = l->all[last].next> 0, i = any ? l->all[last].next - 1 : i) {
        last = i;
        of_name++;
        if (has_room(&l->all[i], begin_ns, end_ns) || of_name == OF_ONE_NAME) {
            put_event(&l->all[i], begin_ns, end_ns);
            *ret = LINES_FIRST + i;
            return 0;
        }
    }
    rc = add_line(l, name, &i);
    if (rc == 0 && of_name > 0)
        l->all[last].next = i + 1;
    if (rc == 0) {
        put_event(&l->all[i], begin_ns, end_ns);
        *ret = LINES_FIRST + i;
    }
    return rc;
}
