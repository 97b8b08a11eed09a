/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/bad_tables.c - absurd tables and commands; those refused are counted.
 */
#include <stdio.h>

#include "hostile.h"

#define NOWHERE (uintptr_t)0x1000

static const struct probing_column good[] = {{.name = "n", .type = PROBING_I64, .doc = ""}};
static const struct probing_column bad_names[] = {
    {.name = (const char *)NOWHERE, .type = PROBING_I64, .doc = ""}};
static const struct probing_column no_names[] = {{.name = NULL, .type = PROBING_I64, .doc = NULL}};
static const struct probing_column bad_docs[] = {
    {.name = "n", .type = PROBING_I64, .doc = (const char *)NOWHERE}};

#define TABLE .size = sizeof(struct probing_table_desc), .column_size = sizeof(good[0]), .doc = ""

static const struct probing_table_desc tables[] = {
    {TABLE, .name = "t", .columns = good, .n_columns = UINT32_MAX},
    {TABLE, .name = "t", .columns = good, .n_columns = 0},
    {TABLE, .name = "t", .columns = bad_names, .n_columns = 1},
    {TABLE, .name = "t", .columns = no_names, .n_columns = 1},
    {TABLE, .name = "t", .columns = bad_docs, .n_columns = 1},
    {TABLE, .name = NULL, .columns = good, .n_columns = 1},
    {TABLE, .name = (const char *)NOWHERE, .columns = good, .n_columns = 1},
    {TABLE, .name = "t", .columns = (const struct probing_column *)NOWHERE, .n_columns = 1},
    {TABLE, .name = "t", .columns = NULL, .n_columns = 1},
    {TABLE, .name = "t", .columns = good, .n_columns = 1, .tail_type = PROBING_STR,
     .tail_name = (const char *)NOWHERE},
    {.size = UINT32_MAX,
     .column_size = sizeof(good[0]),
     .name = "t",
     .columns = good,
     .n_columns = 1},
    {.size = 0, .column_size = sizeof(good[0]), .name = "t", .columns = good, .n_columns = 1},
    {.size = sizeof(struct probing_table_desc),
     .column_size = UINT32_MAX - 7,
     .name = "t",
     .columns = good,
     .n_columns = 2},
    {.size = sizeof(struct probing_table_desc),
     .column_size = 0,
     .name = "t",
     .columns = good,
     .n_columns = 1},
    {TABLE, .name = "t", .columns = good, .n_columns = 1,
     .scan = (int (*)(void *, struct probing_rows *))NOWHERE},
};

static const struct probing_command commands[] = {
    {.size = sizeof(commands[0]), .name = (const char *)NOWHERE, .usage = "", .doc = ""},
    {.size = sizeof(commands[0]), .name = NULL, .usage = "", .doc = ""},
    {.size = sizeof(commands[0]),
     .name = "x",
     .usage = "",
     .doc = "",
     .run = (int (*)(void *, int, const char *const *, struct probing_reply *))NOWHERE},
    {.size = UINT32_MAX, .name = "x", .usage = "", .doc = ""},
};

static int init(const struct probing_host *h, void **ret_self)
{
    struct probing_table *made;
    char text[64];
    int refused = 0, all = 0;

    (void)plain_init(h, ret_self);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++, all++)
        refused += h->table(h, &tables[i], &made) < 0;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++, all++)
        refused += h->command(h, &commands[i]) < 0;
    refused += h->table(h, (const struct probing_table_desc *)NOWHERE, &made) < 0;
    refused += h->table(h, NULL, &made) < 0;
    refused += h->command(h, (const struct probing_command *)NOWHERE) < 0;
    refused += h->subscribe(h, (const char *)NOWHERE, NULL) < 0;
    refused += h->every(h, 1000000000, (void (*)(void *, uint64_t))NOWHERE) < 0;
    all += 5;
    h->log(h, PROBING_INFO, (const char *)NOWHERE);
    (void)snprintf(text, sizeof(text), "refused %d of %d", refused, all);
    h->log(h, PROBING_INFO, text);
    return refused == all ? 0 : h->fail(h, -EPROTO, text);
}

HOSTILE("bad_tables", .init = init)
