/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/view_list.c - the engine's list of views.
 *
 * Any thread, several at once: things are added at the front, and nothing is taken from it.
 */
#include "core/sql/value/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

static void free_view(struct view *v)
{
    free((char *)(uintptr_t)v->schema);
    free((char *)(uintptr_t)v->name);
    free((char *)(uintptr_t)v->definition);
    free((char *)(uintptr_t)v->doc);
    free(v);
}

void sql_views_free(struct sql *s)
{
    struct view *next, *v = atomic_load_explicit(&s->views, memory_order_acquire);
    for (; v; v = next) {
        next = v->next;
        free_view(v);
    }
}

int sql_add_view(struct sql *s, const char *name, const char *definition, const char *doc)
{
    struct view *v = calloc(1, sizeof(*v));
    const char *dot = strchr(name, '.');
    if (!v)
        return err_set(-ENOMEM, "no memory for the view %s", name);
    v->schema = strndup(name, dot ? (size_t)(dot - name) : 0);
    v->name = strdup(dot ? dot + 1 : name);
    v->definition = strdup(definition);
    v->doc = strdup(doc ? doc : "");
    if (!v->schema || !v->name || !v->definition || !v->doc) {
        free_view(v);
        return err_set(-ENOMEM, "no memory for the view %s", name);
    }
    v->next = atomic_load_explicit(&s->views, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->views, &v->next, v, memory_order_release,
                                                  memory_order_relaxed))
        ;
    return 0;
}
