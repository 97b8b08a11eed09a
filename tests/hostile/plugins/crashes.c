/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/crashes.c - crashes in the function and in the way that CRASHES in the
 * environment names: "every overflow".
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <probing/ext/draft/cost.h>

#include "hostile.h"

static volatile int depth, zero;
static volatile int *volatile nowhere = (int *)(uintptr_t)64;
static struct probing_table *table;

static __attribute__((noinline)) int overflow(const volatile char *outer)
{
    volatile char frame[2048];
    frame[0] = outer[0];
    return ++depth > 0 ? overflow(frame) + frame[0] : 0;
}

static void here(const char *function)
{
    const char *wanted = getenv("CRASHES");
    size_t n = strlen(function);
    volatile char first = 0;
    if (!wanted || strncmp(wanted, function, n) != 0 || wanted[n] != ' ')
        return;
    const char *how = wanted + n + 1;
    if (strcmp(how, "overflow") == 0)
        zero = overflow(&first);
    else if (strcmp(how, "null") == 0)
        *nowhere = 1;
    else if (strcmp(how, "abort") == 0)
        abort();
    else if (strcmp(how, "divide") == 0)
        depth = 1000 / zero;
    else if (strcmp(how, "bus") == 0)
        (void)raise(SIGBUS);
}

__attribute__((constructor)) static void constructor(void)
{
    here("constructor");
}

static void tick(void *self, uint64_t now)
{
    (void)self, (void)now;
    here("every");
}

static void handle(void *self, const char *topic, const void *p, uint32_t n)
{
    (void)self, (void)topic, (void)p, (void)n;
    here("handler");
}

static void *run_thread(void *arg)
{
    here("thread");
    return arg;
}

static int run_command(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv, (void)out;
    here("command");
    return 0;
}

static int scan(void *self, struct probing_rows *out)
{
    (void)self, (void)out;
    here("scan");
    return 0;
}

static int configure(void *self, const char *name, const char *value)
{
    (void)self, (void)name, (void)value;
    here("configure");
    return 0;
}

static const void *extension(void *self, const char *id)
{
    (void)self;
    if (strcmp(id, PROBING_COST_1) == 0)
        here("extension");
    return NULL;
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64, .doc = ""}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(columns[0]),
                                                   .name = "rows",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 1,
                                                   .scan = scan};
    static const struct probing_command command = {
        .size = sizeof(command), .name = "crash now", .usage = "", .doc = "", .run = run_command};

    (void)plain_init(h, ret_self);
    here("init");
    int rc = h->table(h, &desc, &table);
    return rc < 0 ? rc : h->command(h, &command);
}

static int start(void *self)
{
    const uint32_t size = sizeof(size);
    pthread_t thread;
    (void)self;
    here("start");
    (void)host->subscribe(host, "crashes/1", handle);
    (void)host->publish(host, "crashes/1", &size, size);
    if (pthread_create(&thread, NULL, run_thread, NULL) == 0)
        (void)pthread_detach(thread);
    return host->every(host, 10000000, tick);
}

static int stop(void *self)
{
    (void)self;
    here("stop");
    return 0;
}

static void destroy(void *self)
{
    (void)self;
    here("destroy");
}

static const struct probing_config settings[] = {
    {.name = "any", .value = "1", .doc = "", .type = PROBING_I64, .flags = PROBING_LIVE},
    {.name = NULL}};

HOSTILE("crashes", .init = init, .start = start, .stop = stop, .destroy = destroy,
        .configure = configure, .extension = extension, .config = settings,
        .config_size = sizeof(settings[0]))
