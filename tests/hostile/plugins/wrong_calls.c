/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/wrong_calls.c - makes calls that probing/plugin.h rules out, and answers
 * the command wrong_calls with what each gave.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <probing/ext/draft/setting.h>

#include "hostile.h"

enum { ANSWERS_MAX = 32, ANSWER_BYTES = 80 };

static struct probing_table *rows, *texts, *made;
static struct probing_rows *_Atomic scanning; /* what the thread below uses wrongly */
static struct probing_reply *_Atomic running;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char answers[ANSWERS_MAX][ANSWER_BYTES]; /* lock: lock */
static int n_answers;                           /* lock: lock */

static const struct probing_column columns[] = {{.name = "name", .type = PROBING_STR, .doc = ""},
                                                {.name = "n", .type = PROBING_I64, .doc = ""}};
static const struct probing_table_desc stored = {.size = sizeof(stored),
                                                 .column_size = sizeof(columns[0]),
                                                 .name = "rows",
                                                 .doc = "",
                                                 .columns = columns,
                                                 .n_columns = 2};

static void note(const char *what, int rc)
{
    (void)pthread_mutex_lock(&lock);
    if (n_answers < ANSWERS_MAX)
        (void)snprintf(answers[n_answers++], ANSWER_BYTES, "%s %d\n", what, rc);
    (void)pthread_mutex_unlock(&lock);
}

static void handle(void *self, const char *topic, const void *p, uint32_t n)
{
    (void)self, (void)topic, (void)p, (void)n;
}

static void later(void *self, uint64_t now)
{
    (void)self, (void)now;
}

static int run_nothing(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv, (void)out;
    return 0;
}

/* On a thread that is not the control thread. */
static void register_things(const char *where)
{
    static const struct probing_command command = {
        .size = sizeof(command), .name = "never", .usage = "", .doc = "", .run = run_nothing};
    char what[40];
    (void)snprintf(what, sizeof(what), "table %s", where);
    note(what, host->table(host, &stored, &made));
    (void)snprintf(what, sizeof(what), "command %s", where);
    note(what, host->command(host, &command));
    (void)snprintf(what, sizeof(what), "subscribe %s", where);
    note(what, host->subscribe(host, "wrong/1", handle));
    (void)snprintf(what, sizeof(what), "every %s", where);
    note(what, host->every(host, 1000000000, later));
}

static void *run_thread(void *arg)
{
    const union probing_cell cells[] = {{.s = "text"}, {.i = 1}};
    const char *what = arg;
    if (strcmp(what, "register") == 0)
        register_things("thread");
    else if (strcmp(what, "emit") == 0)
        note("emit thread", host->emit(scanning, cells, 2));
    else
        note("reply thread", host->reply(running, "no\n", 3));
    return arg;
}

static void on_thread(const char *what)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, (void *)(uintptr_t)what) == 0)
        (void)pthread_join(thread, NULL);
}

static void append_wrongly(uint64_t now)
{
    const char *pointer = "a pointer";
    union probing_cell cells[] = {{.s = pointer}, {.i = 1}, {.i = 2}, {.i = 3}};
    uint64_t id = 0;
    note("append id", host->append(rows, now, cells, 2, NULL, 0));
    (void)host->intern(host, "right", 5, &id);
    cells[0].u = id;
    note("append right", host->append(rows, now, cells, 2, NULL, 0));
    note("append short", host->append(rows, now, cells, 1, NULL, 0)); /* the rest is NULL */
    note("append more", host->append(rows, now, cells, 4, NULL, 0));
    note("append tail", host->append(rows, now, cells, 2, "tail", 4));
    note("append computed", host->append(texts, now, cells, 2, NULL, 0));
    note("append nothing", host->append(NULL, now, cells, 2, NULL, 0));
}

static void tick(void *self, uint64_t now)
{
    static _Atomic int once;
    const struct probing_setting_1 *setting = host->extension(host, PROBING_SETTING_1);
    uint64_t id;
    uint32_t size = 3;
    (void)self;
    if (once++)
        return;
    register_things("every");
    append_wrongly(now);
    note("intern nothing", host->intern(host, NULL, 5, &id));
    note("intern nowhere", host->intern(host, "x", 1, NULL));
    note("publish", host->publish(host, "wrong/1", &size, sizeof(size)));
    note("holds", setting->holds(host, "any", "2"));
    note("done", 0);
}

static int scan(void *self, struct probing_rows *out)
{
    union probing_cell cells[] = {{.s = "text"}, {.i = 1}, {.i = 2}};
    (void)self;
    note("emit right", host->emit(out, cells, 2));
    note("emit less", host->emit(out, cells, 1));
    note("emit more", host->emit(out, cells, 3));
    note("emit nothing", host->emit(out, NULL, 2));
    note("emit nowhere", host->emit(NULL, cells, 2));
    cells[0].u = 42; /* an id, where an address belongs */
    note("emit id", host->emit(out, cells, 2));
    scanning = out;
    on_thread("emit");
    return 0;
}

static int run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    note("reply nothing", host->reply(out, NULL, 5));
    running = out;
    on_thread("reply");
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < n_answers; i++)
        (void)host->reply(out, answers[i], strlen(answers[i]));
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

static int scan_positive(void *self, struct probing_rows *out)
{
    (void)self, (void)out;
    return EIO;
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_table_desc computed = {.size = sizeof(computed),
                                                       .column_size = sizeof(columns[0]),
                                                       .name = "texts",
                                                       .doc = "",
                                                       .columns = columns,
                                                       .n_columns = 2,
                                                       .scan = scan};
    struct probing_table_desc positive = computed;
    static const struct probing_command command = {
        .size = sizeof(command), .name = "wrong_calls", .usage = "", .doc = "", .run = run};

    (void)plain_init(h, ret_self);
    int rc = h->table(h, &stored, &rows);
    rc = rc < 0 ? rc : h->table(h, &computed, &texts);
    positive.name = "positive";
    positive.scan = scan_positive;
    rc = rc < 0 ? rc : h->table(h, &positive, &made);
    return rc < 0 ? rc : h->command(h, &command);
}

static int start(void *self)
{
    (void)self;
    on_thread("register");
    return host->every(host, 10000000, tick);
}

static const struct probing_config settings[] = {
    {.name = "any", .value = "1", .doc = "", .type = PROBING_I64, .flags = PROBING_LIVE},
    {.name = NULL}};

HOSTILE("wrong_calls", .init = init, .start = start, .config = settings,
        .config_size = sizeof(settings[0]))
