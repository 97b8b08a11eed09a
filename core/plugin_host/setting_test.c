/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/setting_test.c - settings: what is taken, what is refused and with which words.
 *
 * Threads: the test's and the host's control thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/plugin_host/plugin_host.h"
#include "tests/test.h"

static struct tables *tables;
static struct host *host;
static char told[256]; /* "name=value" as the owner was told last */

static int set(void *self, const char *name, const char *value)
{
    CHECK(self == told);
    if (strcmp(value, "13") == 0)
        return err_set(-EINVAL, "thirteen brings bad luck");
    (void)snprintf(told, sizeof(told), "%s=%s", name, value);
    return 0;
}

static const struct probing_config table[] = {
    {.name = "rate",
     .value = "10",
     .doc = "d",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .min = 1,
     .max = 1000},
    {.name = "pause",
     .value = "10ms",
     .doc = "d",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .max = 3600000000000},
    {.name = "room",
     .value = "1MB",
     .doc = "d",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .flags = PROBING_LIVE,
     .min = 4096,
     .max = INT64_C(1) << 40},
    {.name = "on",
     .value = "off",
     .doc = "d",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .max = 1},
    {.name = "share", .value = "0.5", .doc = "d", .type = PROBING_F64, .flags = PROBING_LIVE},
    {.name = "fixed", .value = "x", .doc = "d", .type = PROBING_STR},
    {.name = NULL}};

static void setup(void)
{
    CHECK_INT(tables_new(&tables), 0);
    struct host_options o = {.version = "0.1.0", .tables = tables};
    CHECK_INT(host_new(&o, &host), 0);
    CHECK_INT(host_settings_add(host, "test", table, sizeof(table[0]), set, told), 0);
}

static void teardown(void)
{
    host_free(host);
    tables_free(tables);
}

static void check_value(const char *name, const char *value)
{
    struct buf b;
    buf_init(&b, 8192);
    CHECK_INT(host_config_get(host, name, &b), 0);
    CHECK_STR(buf_text(&b), value);
    buf_done(&b);
}

TEST(takes_the_names_that_the_field_writes)
{
    setup();
    CHECK_INT(host_config_set(host, "probing.test.rate", "11"), 0);
    check_value("test.rate", "11");
    check_value("probing.test.rate", "11");
    teardown();
}

TEST(ranges_are_told_as_they_are_written)
{
    static const char *const wrong[][3] = {
        {"test.pause", "2h", "test.pause is 0 to 1h, not 2h"},
        {"test.pause", "-5000000", "test.pause is 0 to 1h, not -5ms"},
        {"test.room", "1k", "test.room is 4KB to 1TB, not 1KB"},
        {"test.rate", "2000", "test.rate is 1 to 1000, not 2000"}};
    setup();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT(host_config_set(host, wrong[i][0], wrong[i][1]), -ERANGE);
        CHECK_STR(err_text(), wrong[i][2]);
    }
    teardown();
}

TEST(a_setting_may_have_probing_before_it)
{
    static const char *const names[][2] = {
        {"probing.torch.sample_rate", "torch.sample_rate"},
        {"probing.query.max_rows", "query.max_rows"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CHECK_STR(host_setting_name(names[i][0]), names[i][1]);
    CHECK_STR(host_setting_name("torch.sample_rate"), "torch.sample_rate");
    CHECK_STR(host_setting_name("sample_rate"), "sample_rate");
}

TEST(tells_the_owner_plain_numbers_and_shows_what_was_written)
{
    static const struct {
        const char *name, *value, *told;
    } rows[] = {{"test.rate", "25", "rate=25"},      {"test.pause", "2s", "pause=2000000000"},
                {"test.pause", "77", "pause=77"},    {"test.room", "64K", "room=65536"},
                {"test.on", "yes", "on=1"},          {"test.on", "0", "on=0"},
                {"test.share", "0.25", "share=0.25"}};
    setup();
    CHECK_INT(host_start(host), 0);
    check_value("test.pause", "10ms");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK_INT(host_config_set(host, rows[i].name, rows[i].value), 0);
        CHECK_STR(told, rows[i].told);
        check_value(rows[i].name, rows[i].value);
    }
    teardown();
}

TEST(refuses_and_says_what_is_allowed)
{
    static const struct {
        const char *name, *value;
        int code;
        const char *says;
    } rows[] = {{"test.rate", "0", -ERANGE, "1 to 1000"},
                {"test.rate", "ten", -EINVAL, "a whole number"},
                {"test.rate", "13", -EINVAL, "bad luck"},
                {"test.pause", "soon", -EINVAL, "a time like"},
                {"test.room", "much", -EINVAL, "a size like"},
                {"test.on", "perhaps", -EINVAL, "on or off"},
                {"test.share", "half", -EINVAL, "a number"},
                {"test.rat", "1", -ENOENT, "did you mean 'test.rate'?"},
                {"rate", "1", -EINVAL, "OWNER.NAME"},
                {"test.fixed", "y", -EBUSY, "when the core enters"},
                {"test.fixed", "a\nb", -EINVAL, "one line"}};
    setup();
    CHECK_INT(host_start(host), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK_INT(host_config_set(host, rows[i].name, rows[i].value), rows[i].code);
        if (!CHECK(strstr(err_text(), rows[i].says) != NULL))
            printf("# %s=%s says: %s\n", rows[i].name, rows[i].value, err_text());
    }
    check_value("test.rate", "10");
    teardown();
}

TEST(sets_the_fixed_ones_before_the_start)
{
    setup();
    CHECK_INT(host_config_set(host, "test.fixed", "early"), 0);
    check_value("test.fixed", "early");
    teardown();
}

TEST(keeps_settings_for_who_is_not_here_yet)
{
    static const struct probing_config late[] = {
        {.name = "depth", .value = "1", .doc = "d", .type = PROBING_I64, .flags = PROBING_LIVE},
        {.name = NULL}};
    setup();
    CHECK_INT(host_config_set(host, "late.depth", "7"), 1);
    check_value("late.depth", "7");
    CHECK_INT(host_settings_add(host, "late", late, sizeof(late[0]), NULL, NULL), 0);
    check_value("late.depth", "7");
    CHECK_INT(host_config_set(host, "late.width", "7"), -ENOENT); /* now its owner is known */
    teardown();
}

static int keep_of(void *arg, const char *name, const char *text)
{
    CHECK(arg == told);
    if (strcmp(text, "soon") == 0)
        return err_set(-EINVAL, "'soon' is no retention");
    (void)snprintf(told, sizeof(told), "%s=%s", name, text);
    return strcmp(name, "later") == 0;
}

/* table.<name>.keep: each comes into being when it is set, and the store has the say. */
TEST(what_to_keep_of_a_table_goes_to_the_store)
{
    CHECK_INT(tables_new(&tables), 0);
    struct host_options o = {
        .version = "0.1.0", .tables = tables, .store = {.arg = told, .keep = keep_of}};
    CHECK_INT(host_new(&o, &host), 0);
    CHECK_INT(host_start(host), 0);
    CHECK_INT(host_config_set(host, "table.python.torch_trace.keep", "1h"), 0);
    CHECK_STR(told, "python.torch_trace=1h");
    check_value("table.python.torch_trace.keep", "1h");
    CHECK_INT(host_config_set(host, "table.later.keep", "1MB"), 1);
    CHECK_STR(told, "later=1MB");
    CHECK_INT(host_config_set(host, "table.later.keep", "soon"), -EINVAL);
    check_value("table.later.keep", "1MB");
    CHECK_INT(host_config_set(host, "table.later.keep", "0"), 1);
    check_value("table.later.keep", "0");
    /* One table, one setting, whichever of its names is used. */
    CHECK_INT(host_config_set(host, "table.torch_trace.keep", "2h"), 0);
    check_value("table.python.torch_trace.keep", "2h");
    CHECK_INT(host_config_set(host, "table.python_torch_trace.keep", "3h"), 0);
    check_value("table.python.torch_trace.keep", "3h");
    CHECK_INT(host_config_set(host, "table.script.later.keep", "3h"), 0);
    check_value("table.later.keep", "3h");
    CHECK_INT(host_config_set(host, "table.other.later.keep", "4h"), 0);
    CHECK_STR(told, "other.later=4h");
    check_value("table.other.later.keep", "4h");
    check_value("table.script.later.keep", "3h");
    static const char *const wrong[] = {"table.keep",   "table..keep",   "table.a.b.c.keep",
                                        "table.A.keep", "table.a..keep", "table.x.keeps"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK(host_config_set(host, wrong[i], "1h") < 0 || i == 0);
    struct buf b;
    buf_init(&b, 100);
    CHECK_INT(host_config_get(host, "table.latr.keep", &b), -ENOENT);
    CHECK(strstr(err_text(), "did you mean 'table.later.keep'?") != NULL);
    buf_done(&b);
    teardown();
}

TEST(refuses_tables_that_make_no_sense)
{
    static const struct probing_config bad_default[] = {
        {.name = "n", .value = "many", .doc = "d", .type = PROBING_I64}, {.name = NULL}};
    static const struct probing_config bad_type[] = {
        {.name = "n", .value = "1", .doc = "d", .type = PROBING_BLOB}, {.name = NULL}};
    setup();
    CHECK_INT(host_settings_add(host, "x", bad_default, sizeof(table[0]), NULL, NULL), -EINVAL);
    CHECK_INT(host_settings_add(host, "x", bad_type, sizeof(table[0]), NULL, NULL), -EINVAL);
    CHECK_INT(host_settings_add(host, "x", table, 8, NULL, NULL), -EINVAL);
    teardown();
}

int main(void)
{
    RUN(takes_the_names_that_the_field_writes);
    RUN(ranges_are_told_as_they_are_written);
    RUN(a_setting_may_have_probing_before_it);
    RUN(tells_the_owner_plain_numbers_and_shows_what_was_written);
    RUN(refuses_and_says_what_is_allowed);
    RUN(sets_the_fixed_ones_before_the_start);
    RUN(keeps_settings_for_who_is_not_here_yet);
    RUN(what_to_keep_of_a_table_goes_to_the_store);
    RUN(refuses_tables_that_make_no_sense);
    return test_end();
}
