/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/host_test.h - a host for its tests, with a store that is none, and a client of
 * it.
 *
 * Threads: the test's, and the host's own.
 */
#ifndef CORE_PLUGIN_HOST_HOST_TEST_H
#define CORE_PLUGIN_HOST_HOST_TEST_H

#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "tests/test.h"

static struct tables *tables;
static struct host *host;
static char folder[64]; /* of plugins */

/* ---- a store that is none: stored tables go into the directory only ---- */

static inline int add_table(void *arg, const char *schema, const struct probing_table_desc *d,
                            void *self, struct table **ret)
{
    return tables_add(arg, schema, d, self, ret);
}

static inline int no_intern(void *arg, const void *p, size_t n, uint64_t *ret_id)
{
    (void)arg;
    (void)p;
    (void)n;
    *ret_id = 1;
    return 0;
}

static inline void setup(bool start)
{
    CHECK_INT(tables_new(&tables), 0);
    struct host_options o = {.version = "0.1.0",
                             .plugin_path = folder,
                             .tables = tables,
                             .store = {.arg = tables, .table_add = add_table, .intern = no_intern}};
    CHECK_INT(host_new(&o, &host), 0);
    if (start)
        CHECK_INT(host_start(host), 0);
}

static inline void teardown(void)
{
    host_free(host);
    tables_free(tables);
}

/* ---- a client ---- */

struct client {
    struct probing_reply reply; /* first: the host gives its address back */
    struct buf text;
    struct event done;
    int status;
    char why[ERR_TEXT_BYTES];
};

static inline int take(struct probing_reply *r, const void *data, size_t size)
{
    struct client *c = (struct client *)r;
    return buf_add(&c->text, data, size);
}

static inline void client_init(struct client *c)
{
    *c = (struct client){.reply = {.write = take}, .status = 999};
    buf_init(&c->text, 1 << 20);
    (void)event_init(&c->done);
}

static inline void client_done(struct client *c)
{
    buf_done(&c->text);
    event_done(&c->done);
}

#define WORDS(...)                                                                  \
    (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]) \
    {                                                                               \
        __VA_ARGS__                                                                 \
    }

#endif
