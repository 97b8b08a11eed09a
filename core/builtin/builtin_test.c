/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/builtin_test.c - the built-in commands over a real store, SQL and host: words in,
 * text out.
 *
 * Threads: the test's (commands are run on it) and those of store and host.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/builtin/builtin.h"
#include "core/plugin_host/plugin_host.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

static struct core core;
static char folder[64];
static bool asked_to_stop;

struct client {
    struct probing_reply reply;
    struct buf text;
};

static int take(struct probing_reply *r, const void *data, size_t size)
{
    return buf_add(&((struct client *)r)->text, data, size);
}

static int add_table(void *arg, const char *schema, const struct probing_table_desc *d, void *self,
                     struct table **ret)
{
    return store_table_add(arg, schema, d, self, ret);
}

static void stop(void *arg)
{
    *(bool *)arg = true;
}

static void setup(void)
{
    static const struct probing_config settings[] = {{.name = "level",
                                                      .value = "3",
                                                      .doc = "d",
                                                      .type = PROBING_I64,
                                                      .flags = PROBING_LIVE,
                                                      .max = 9},
                                                     {.name = NULL}};
    core = (struct core){.version = "0.1.0", .stop = stop, .stop_arg = &asked_to_stop};
    CHECK_INT(own_dir_make(folder, NULL, &core.place), 0);
    struct store_options o = {.directory = core.place.directory, .max_bytes = 64 << 20};
    CHECK_INT(tables_new(&core.tables), 0);
    CHECK_INT(store_create(&o, core.tables, &core.store), 0);
    CHECK_INT(sql_new(core.tables, core.store, &core.sql), 0);
    struct host_options h = {.version = "0.1.0",
                             .tables = core.tables,
                             .store = {.arg = core.store, .table_add = add_table}};
    CHECK_INT(host_new(&h, &core.host), 0);
    CHECK_INT(host_settings_add(core.host, "test", settings, sizeof(settings[0]), NULL, NULL), 0);
    CHECK_INT(queries_settings_add(&core), 0);
    CHECK_INT(commands_add(&core), 0);
    CHECK_INT(store_about_add(core.store), 0);
    CHECK_INT(host_start(core.host), 0);
}

static void teardown(void)
{
    host_free(core.host);
    sql_free(core.sql);
    store_free(core.store);
    tables_free(core.tables);
    (void)file_remove_dir(core.place.directory);
    if (core.place.fast[0])
        (void)file_remove_dir(core.place.fast);
}

TEST(answers)
{
    static const struct {
        const char *words[6];
        int n;
        const char *says; /* is in the answer */
    } rows[] = {
        {{"query", "select", "1 + 1 as two"}, 3, "two"},
        {{"query", "--format", "jsonl", "select 1 as one"}, 4, "{\"one\":1}"},
        {{"query", "--format=csv", "select name from probing.settings"}, 3, "test.level"},
        {{"query", "select count(*) from probing.log"}, 2, "1 row"},
        {{"query", "select name, live from probing.settings where name = 'test.level'"},
         2,
         "test.level"},
        {{"query", "select * from information_schema.df_settings"}, 2, "test.level"},
        {{"query", "select usage from probing.commands where name = 'eject'"}, 2, "1 row"},
        {{"query", "select * from probing.lost"}, 2, "0 rows"},
        {{"tables", "--format", "csv"}, 3, "probing,tables,computed"},
        {{"describe", "probing.tables"}, 2, "keep_bytes"},
        {{"plugin", "list"}, 2, "0 rows"},
        {{"plugins"}, 1, "0 rows"},
        {{"config"}, 1, "test.level"},
        {{"config", "list"}, 2, "test.level"},
        {{"config", "test.level"}, 2, "3\n"},
        {{"config", "test.level=4"}, 2, "test.level=4"},
        {{"config", "get", "test.level"}, 3, "4\n"},
        {{"config", "set", "test.level", "5"}, 4, "test.level=5"},
        {{"config", "set", "later.x", "5"}, 4, "kept until plugin later is loaded"},
        {{"config", "query.max_memory=64MB"}, 2, "query.max_memory=64MB"},
        {{"query", "show query.max_memory"}, 2, "64MB"},
        {{"config", "query.max_rows=2"}, 2, "query.max_rows=2"},
        {{"query", "select n from generate_series(1, 9) n"}, 2, "stopped after 2 rows"},
        {{"config", "query.max_rows=0"}, 2, "query.max_rows=0"},
        {{"info"}, 1, "data: "},
        {{"version"}, 1, "0.1.0"},
        {{"help", "plugin"}, 2, "plugin load NAME [PATH]"},
    };
    setup();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct client c = {.reply = {.write = take}};
        buf_init(&c.text, 1 << 20);
        int rc = host_run(core.host, rows[i].n, rows[i].words, &c.reply);
        if (!CHECK_INT(rc, 0) || !CHECK(strstr(buf_text(&c.text), rows[i].says) != NULL))
            printf("# %s %s says: %s%.300s\n", rows[i].words[0],
                   rows[i].n > 1 ? rows[i].words[1] : "", rc < 0 ? err_text() : "",
                   buf_text(&c.text));
        buf_done(&c.text);
    }
    teardown();
}

TEST(refuses_what_it_does_not_know)
{
    static const struct {
        const char *words[6];
        int n, code;
        const char *says;
    } rows[] = {
        {{"query"}, 1, -EINVAL, "needs a statement"},
        {{"query", "--fromat", "csv", "select 1"}, 4, -EINVAL, "did you mean '--format'?"},
        {{"query", "--format", "xml", "select 1"}, 4, -EINVAL, "csv"},
        {{"query", "--limit", "-1", "select 1"}, 4, -EINVAL, "--limit must be a number"},
        {{"query", "--timeout"}, 2, -EINVAL, "--timeout needs a value"},
        {{"tables", "all"}, 2, -EINVAL, "unexpected argument"},
        {{"tables", "--limit", "1"}, 3, -EINVAL, "no option '--limit'"},
        {{"describe"}, 1, -EINVAL, "needs a table's name"},
        {{"describe", "x; drop"}, 2, -EINVAL, "needs a table's name"},
        {{"describe", "probing.nothing"}, 2, -ENOENT, "nothing"},
        {{"plugin"}, 1, -EINVAL, "needs a subcommand"},
        {{"plugin", "lod"}, 2, -ENOENT, "no subcommand 'lod'"},
        {{"plugin", "load"}, 2, -EINVAL, "needs a name"},
        {{"plugin", "load", "x", "y", "z"}, 5, -EINVAL, "unexpected argument"},
        {{"plugin", "load", "nowhere"}, 3, -ENOENT, "no plugin 'nowhere' is installed"},
        {{"plugin", "load", "./nowhere.so"}, 3, -ENOENT, "cannot open plugin 'nowhere'"},
        {{"plugin", "stop", "nowhere"}, 3, -ENOENT, "no plugin 'nowhere'"},
        {{"config", "get", "test.levle"}, 3, -ENOENT, "did you mean 'test.level'?"},
        {{"config", "test.level=12"}, 2, -ERANGE, "0 to 9"},
        {{"config", "set", "test.level"}, 3, -EINVAL, "needs NAME VALUE"},
        {{"info", "now"}, 2, -EINVAL, "unexpected argument"},
        {{"eject", "now"}, 2, -EINVAL, "unexpected argument"},
        {{"ejct"}, 1, -ENOENT, "did you mean 'eject'?"},
    };
    setup();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct client c = {.reply = {.write = take}};
        buf_init(&c.text, 1 << 20);
        int r = host_run(core.host, rows[i].n, rows[i].words, &c.reply);
        if (!CHECK_INT(r, rows[i].code) || !CHECK(strstr(err_text(), rows[i].says) != NULL))
            printf("# %s %s says: %s\n", rows[i].words[0], rows[i].n > 1 ? rows[i].words[1] : "",
                   err_text());
        buf_done(&c.text);
    }
    CHECK(!asked_to_stop);
    teardown();
}

TEST(ejects_after_the_answer)
{
    struct client c = {.reply = {.write = take}};
    static const char *const words[] = {"eject"};
    setup();
    buf_init(&c.text, 4096);
    CHECK_INT(host_run(core.host, 1, words, &c.reply), 0);
    CHECK(strstr(buf_text(&c.text), core.place.directory) != NULL);
    CHECK(asked_to_stop);
    buf_done(&c.text);
    teardown();
}

int main(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/commands_test.XXXXXX");
    if (!mkdtemp(folder))
        return test_skip("no directory in /tmp");
    RUN(answers);
    RUN(refuses_what_it_does_not_know);
    RUN(ejects_after_the_answer);
    (void)file_remove_dir(folder);
    return test_end();
}
