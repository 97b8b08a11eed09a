/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/script_world.h - what tests of scripts run in: a real store in a directory of its own,
 * an engine and a host.  For one program at a time: its parts are static.
 */
#ifndef PROBING_TESTS_SCRIPT_WORLD_H
#define PROBING_TESTS_SCRIPT_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/plugin_host/plugin_host.h"
#include "core/script/script.h"
#include "core/sql/sql.h"
#include "core/store/store.h"

static struct tables *tables;
static struct store *store;
static struct sql *sql;
static struct host *host;
static struct scripts *scripts;
static char folder[64];

static int world_table(void *arg, const char *schema, const struct probing_table_desc *d,
                       void *self, struct table **ret)
{
    return store_table_add(arg, schema, d, self, ret);
}

static int world_intern(void *arg, const void *p, size_t n, uint64_t *ret_id)
{
    return intern(store_interns(arg), p, n, ret_id);
}

static inline int world_begin(void)
{
    struct store_options o = {.directory = folder, .max_bytes = 64 << 20};
    (void)strncpy(folder, "/tmp/script_test.XXXXXX", sizeof(folder) - 1);
    int r = mkdtemp(folder) ? 0 : -1;
    if (r == 0)
        r = tables_new(&tables);
    if (r == 0)
        r = store_create(&o, tables, &store);
    if (r == 0)
        r = sql_new(tables, store, &sql);
    struct host_options h = {
        .version = "0.1.0",
        .tables = tables,
        .store = {.arg = store, .table_add = world_table, .intern = world_intern}};
    if (r == 0)
        r = host_new(&h, &host);
    struct scripts_options s = {.host = host, .sql = sql, .store = &h.store, .version = "0.1.0"};
    if (r == 0)
        r = scripts_new(&s, &scripts);
    return r == 0 ? host_start(host) : r;
}

static inline void world_end(void)
{
    scripts_free(scripts);
    host_free(host);
    sql_free(sql);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(folder);
}

#endif
