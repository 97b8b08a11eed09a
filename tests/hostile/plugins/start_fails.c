/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/start_fails.c - it registers things, starts a thread, and says no.
 */
#include <pthread.h>
#include <unistd.h>

#include "hostile.h"

static void *wait_for_ever(void *arg)
{
    for (;;)
        (void)pause();
    return arg;
}

static int run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    return host->reply(out, "it runs\n", 8);
}

static int scan(void *self, struct probing_rows *out)
{
    const union probing_cell cell = {.i = 1};
    (void)self;
    return host->emit(out, &cell, 1);
}

static void tick(void *self, uint64_t now)
{
    (void)self, (void)now;
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64, .doc = ""}};
    static const struct probing_table_desc table = {.size = sizeof(table),
                                                    .column_size = sizeof(columns[0]),
                                                    .name = "things",
                                                    .doc = "",
                                                    .columns = columns,
                                                    .n_columns = 1,
                                                    .scan = scan};
    static const struct probing_command command = {
        .size = sizeof(command), .name = "hostile_thing", .usage = "", .doc = "", .run = run};
    struct probing_table *made;

    (void)plain_init(h, ret_self);
    int r = h->table(h, &table, &made);
    if (r == 0)
        r = h->command(h, &command);
    return r;
}

static int start(void *self)
{
    pthread_t thread;

    (void)pthread_create(&thread, NULL, wait_for_ever, self);
    (void)host->every(host, 10000000, tick);
    return host->fail(host, -ENODEV, "no such device");
}

HOSTILE("start_fails", .init = init, .start = start)
