/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/table_schema.c - a stored table's description as one line of JSON, and back.
 *
 * Owner's thread.  It does not write files.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/store/internal.h"

#define CHECK_FORM ",\"check\":\"%016llx\"}" /* of everything before it */
#define CHECK_BYTES 28

static void add_text(struct buf *out, const char *key, const char *text)
{
    (void)buf_addf(out, "\"%s\":", key);
    (void)json_add_text(out, text, strlen(text));
}

int schema_write(const struct table *t, struct buf *out)
{
    (void)buf_addf(out, "{\"id\":%u,", t->id);
    add_text(out, "schema", t->schema);
    (void)buf_addc(out, ',');
    add_text(out, "name", t->name);
    (void)buf_addc(out, ',');
    add_text(out, "doc", t->doc);
    (void)buf_addf(out, ",\"keep_ns\":%lld,\"keep_bytes\":%lld,\"tail\":%s,\"columns\":[",
                   (long long)atomic_load_explicit(&t->keep_ns, memory_order_relaxed),
                   (long long)atomic_load_explicit(&t->keep_bytes, memory_order_relaxed),
                   t->has_tail ? "true" : "false");
    for (uint32_t i = 2; i < t->n_columns; i++) {
        const struct table_column *c = &t->columns[i];
        (void)buf_adds(out, i > 2 ? ",{" : "{");
        add_text(out, "name", c->name);
        (void)buf_addf(out, ",\"type\":%u,\"unit\":%u,", c->type, c->unit);
        add_text(out, "doc", c->doc);
        (void)buf_addc(out, '}');
    }
    (void)buf_addc(out, ']');
    uint64_t sum = segment_checksum(out->data, out->failed ? 0 : out->size);
    int rc = buf_addf(out, CHECK_FORM, (unsigned long long)sum);
    return rc ? err_set(rc, "no memory for the description of %s.%s", t->schema, t->name) : 0;
}

/* The columns of the description into an array in the arena. */
static int read_columns(struct arena *a, const struct json *root, struct probing_table_desc *d)
{
    const struct json *list = json_get(root, "columns");
    const struct json *tail = json_get(root, "tail");
    if (!list || list->type != JSON_ARRAY || list->size == 0 || list->size > TABLE_COLUMNS_MAX)
        return err_set(-EINVAL, "a table's description has no columns");
    struct probing_column *columns = arena_zalloc(a, list->size, sizeof(*columns));
    if (!columns)
        return err_set(-ENOMEM, "no memory for a table's description");
    uint32_t n = 0;
    for (const struct json *c = list->first; c; c = c->next, n++) {
        columns[n].name = json_text(c, "name", NULL);
        columns[n].doc = json_text(c, "doc", "");
        columns[n].type = (uint32_t)json_int(c, "type", 0);
        columns[n].unit = (uint32_t)json_int(c, "unit", 0);
    }
    d->columns = columns;
    d->n_columns = n;
    if (tail && tail->type == JSON_BOOL && tail->boolean) {
        d->n_columns--;
        d->tail_name = columns[n - 1].name;
        d->tail_type = columns[n - 1].type;
    }
    return 0;
}

static bool is_whole(const char *text, size_t size)
{
    char check[CHECK_BYTES + 1];
    if (size < CHECK_BYTES)
        return false;
    (void)snprintf(check, sizeof(check), CHECK_FORM,
                   (unsigned long long)segment_checksum(text, size - CHECK_BYTES));
    return memcmp(text + size - CHECK_BYTES, check, CHECK_BYTES) == 0;
}

int schema_read(const char *text, size_t size, struct tables *tables, struct table **ret)
{
    struct arena a;
    struct json *root;
    struct probing_table_desc d = {.size = sizeof(d), .column_size = sizeof(struct probing_column)};
    arena_init(&a, 4 << 20);
    int rc = is_whole(text, size) ? json_parse(&a, text, size, &root)
                                  : err_set(-EBADMSG, "a table's description is damaged");
    if (rc == 0)
        rc = read_columns(&a, root, &d);
    if (rc == 0) {
        int64_t id = json_int(root, "id", 0);
        const char *schema = json_text(root, "schema", "");
        d.name = json_text(root, "name", "");
        d.doc = json_text(root, "doc", "");
        d.keep_ns = (uint64_t)json_int(root, "keep_ns", 0);
        d.keep_bytes = (uint64_t)json_int(root, "keep_bytes", 0);
        rc = tables_restore(tables, id > 0 && id <= TABLES_STORED_MAX ? (uint32_t)id : 0, schema,
                            &d, ret);
        /* There already, and the same one: as good. */
        struct table *there = rc == -EEXIST ? tables_find(tables, schema, d.name) : NULL;
        if (there && there->id == id && tables_add(tables, schema, &d, NULL, ret) == 0)
            rc = 0;
    }
    arena_done(&a);
    return rc;
}
