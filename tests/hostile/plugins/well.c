/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/well.c - as it should be: a table, a setting, a command, rows.
 */
#include <stdio.h>

#include "hostile.h"

static struct probing_table *ticks;
static const struct probing_config settings[] = {
    {.name = "pace", .value = "1", .doc = "nothing", .type = PROBING_I64}, {.name = NULL}};

static void tick(void *self, uint64_t now)
{
    const union probing_cell cell = {.i = 1};
    (void)self;
    (void)host->append(ticks, now, &cell, 1, NULL, 0);
}

static int run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    return host->reply(out, "well\n", 5);
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64, .doc = ""}};
    static const struct probing_table_desc table = {.size = sizeof(table),
                                                    .column_size = sizeof(columns[0]),
                                                    .name = "ticks",
                                                    .doc = "",
                                                    .columns = columns,
                                                    .n_columns = 1};
    static const struct probing_command command = {
        .size = sizeof(command), .name = "well", .usage = "", .doc = "", .run = run};

    (void)plain_init(h, ret_self);
    int r = h->table(h, &table, &ticks);
    return r < 0 ? r : h->command(h, &command);
}

static int start(void *self)
{
    (void)self;
    return host->every(host, 10000000, tick);
}

HOSTILE("well", .init = init, .start = start, .config = settings,
        .config_size = sizeof(settings[0]))
