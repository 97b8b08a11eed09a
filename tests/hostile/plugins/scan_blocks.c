/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/scan_blocks.c - a plugin whose table, command, setting and every() function
 * do not come back, as for a driver that hangs.
 */
#include <unistd.h>

#include "hostile.h"

static struct probing_table *table;
static const struct probing_config settings[] = {
    {.name = "stuck", .value = "0", .doc = "", .type = PROBING_I64, .flags = PROBING_LIVE},
    {.name = NULL}};

static int block(void)
{
    for (;;)
        (void)pause();
    return 0;
}

static int scan(void *self, struct probing_rows *out)
{
    (void)self, (void)out;
    return block();
}

static int run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv, (void)out;
    return block();
}

static int configure(void *self, const char *name, const char *value)
{
    (void)self, (void)name;
    return value[0] == '1' ? block() : 0;
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {{.name = "a", .type = PROBING_STR, .doc = ""}};
    static const struct probing_table_desc t = {.size = sizeof(t),
                                                .column_size = sizeof(columns[0]),
                                                .name = "t",
                                                .doc = "",
                                                .columns = columns,
                                                .n_columns = 1,
                                                .scan = scan};
    static const struct probing_command command = {
        .size = sizeof(command), .name = "stuck", .usage = "", .doc = "", .run = run};

    (void)plain_init(h, ret_self);
    int r = h->table(h, &t, &table);
    return r < 0 ? r : h->command(h, &command);
}

HOSTILE("scan_blocks", .init = init, .configure = configure, .config = settings,
        .config_size = sizeof(settings[0]))
