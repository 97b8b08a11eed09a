/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/retention_rules.c - what the user wants kept of a table, also of one that is still to
 * come.
 *
 * Any thread, under the drain lock.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/store/internal.h"

int store_retention_parse(const char *text, uint64_t *ret_ns, uint64_t *ret_bytes)
{
    char part[64];
    uint64_t ns = 0, bytes = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "|");
        if (n == 0 || n >= sizeof(part))
            return err_set(-EINVAL, "'%.60s' is not a retention: 2h, 100MB, 2h|100MB or 0", text);
        (void)snprintf(part, sizeof(part), "%.*s", (int)n, p);
        /* "0" is neither; a number without a unit would be seconds to one and bytes to another. */
        bool unit = part[n - 1] < '0' || part[n - 1] > '9';
        if (strcmp(part, "0") != 0 &&
            (!unit || (parse_ns(part, &ns) != 0 && parse_bytes(part, &bytes) != 0)))
            return err_set(-EINVAL, "'%.60s' is not a retention: 2h, 100MB, 2h|100MB or 0", text);
        p += n + (p[n] == '|');
    }
    *ret_ns = ns;
    *ret_bytes = bytes;
    return 0;
}

/* Is the table called `name`, with or without its schema?  "schema_name", too: a variable of the
 * environment can have no dot. */
static bool is_called(const struct table *t, const char *name)
{
    size_t n = strlen(t->schema);
    return strcmp(t->name, name) == 0 ||
           (strncmp(name, t->schema, n) == 0 && (name[n] == '.' || name[n] == '_') &&
            strcmp(name + n + 1, t->name) == 0);
}

void retention_wanted(struct store *s, struct table *t)
{
    for (const struct retention_rule *k = s->keeps; k;
         k = k->next) { /* the one set last is the last */
        if (is_called(t, k->name)) {
            atomic_store_explicit(&t->keep_ns, k->ns, memory_order_relaxed);
            atomic_store_explicit(&t->keep_bytes, k->bytes, memory_order_relaxed);
        }
    }
}

/* At the end of the list, whether it was in it or not. */
static int remember_retention(struct store *s, const char *name, uint64_t ns, uint64_t bytes)
{
    struct retention_rule *k = NULL, **at = &s->keeps;
    uint32_t n = 0;
    while (*at) {
        if (strcmp((*at)->name, name) == 0) {
            k = *at;
            *at = k->next;
        } else {
            at = &(*at)->next;
            n++;
        }
    }
    if (!k) {
        k = n < TABLES_MAX ? calloc(1, sizeof(*k)) : NULL;
        char *copy = k ? strdup(name) : NULL;
        if (!copy) {
            free(k);
            return err_set(-ENOMEM, "no memory for the retention of %.80s", name);
        }
        k->name = copy;
    }
    k->next = NULL;
    k->ns = ns;
    k->bytes = bytes;
    *at = k;
    return 0;
}

int store_retention_set(struct store *s, const char *name, const char *text)
{
    uint64_t ns, bytes;
    int rc = store_retention_parse(text, &ns, &bytes);
    if (rc)
        return rc;
    struct table **list = calloc(TABLES_MAX, sizeof(*list));
    if (!list)
        return err_set(-ENOMEM, "no memory for the list of tables");
    const struct table *one = NULL;
    uint32_t n = tables_list(s->tables, list, TABLES_MAX), called = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (!is_called(list[i], name))
            continue;
        if (list[i]->scan)
            rc = err_set(-EINVAL, "%s.%s is computed when asked: nothing of it is kept",
                         list[i]->schema, list[i]->name);
        else if (one)
            rc = err_set(-EINVAL, "'%.80s' may be %s.%s or %s.%s: say which", name, one->schema,
                         one->name, list[i]->schema, list[i]->name);
        one = list[i];
    }
    (void)pthread_mutex_lock(&s->drain_lock);
    rc = rc ? rc : remember_retention(s, name, ns, bytes);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (is_called(list[i], name)) {
            retention_wanted(s, list[i]);
            called++;
        }
    }
    (void)pthread_mutex_unlock(&s->drain_lock);
    free(list);
    atomic_store_explicit(&s->limits_changed, true, memory_order_release);
    return rc ? rc : called == 0;
}
