/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/scan_endless.c - a plugin whose table never ends, and does not look at what
 * emit() says.
 */
#include <poll.h>

#include "hostile.h"

static struct probing_table *table;

static int scan(void *self, struct probing_rows *out)
{
    (void)self;
    for (;;) {
        const union probing_cell cell = {.s = "x"};
        (void)host->emit(out, &cell, 1);
        (void)poll(NULL, 0, 1); /* ms: the query's memory is not what ends it */
    }
    return 0;
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

    (void)plain_init(h, ret_self);
    return h->table(h, &t, &table);
}

HOSTILE("scan_endless", .init = init)
