/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script_test.c - scripts: what they can do, what not, and that they always end.
 *
 * Threads: the test's, the host's, one a script.  The store is real, in a directory of its own.
 */
#include "core/script/script.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/thread.h"
#include "tests/script_world.h"
#include "tests/test.h"

/* How long first lines may take that fill 64 MB in a tenth of a core, in a sanitizer's build on a
 * busy machine: run_tests.py gives up before. */
#define PATIENCE (3000 * NS_PER_S)

/* The words that were heard of a script, one after another. */
static struct heard {
    pthread_mutex_t mutex;
    struct event more;
    char text[8192]; /* lock: mutex */
} heard = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void hear(void *arg, const char *topic, const void *payload, uint32_t size)
{
    uint32_t told;
    (void)arg;
    (void)topic;
    memcpy(&told, payload, sizeof(told));
    CHECK_INT(told, size);
    (void)pthread_mutex_lock(&heard.mutex);
    size_t n = strlen(heard.text);
    (void)snprintf(heard.text + n, sizeof(heard.text) - n, "%.*s\n", (int)(size - sizeof(told)),
                   (const char *)payload + sizeof(told));
    (void)pthread_mutex_unlock(&heard.mutex);
    event_raise(&heard.more);
}

/* Wait until `text` has been heard. */
static bool heard_of(const char *text)
{
    uint64_t limit = clock_now() + 60 * NS_PER_S; /* a busy machine: it comes, only later */
    bool found = false;
    while (!found && clock_now() < limit) {
        (void)pthread_mutex_lock(&heard.mutex);
        found = strstr(heard.text, text) != NULL;
        (void)pthread_mutex_unlock(&heard.mutex);
        if (!found)
            (void)event_wait(&heard.more, 100 * NS_PER_MS);
    }
    if (!found)
        printf("# heard only: %.200s\n", heard.text);
    return found;
}

static void setup(void)
{
    heard.text[0] = '\0';
    CHECK_INT(world_begin(), 0);
    CHECK(host_subscribe(host, "script.t", hear, NULL) > 0);
}

static void teardown(void)
{
    world_end();
}

static int run(const char *source)
{
    return scripts_run(scripts, "t", source, strlen(source));
}

TEST(makes_a_table_asks_it_and_publishes)
{
    setup();
    CHECK_INT(
        run("local t = probing.table('t1', {step = 'i64', ms = 'f64', who = 'str'}, {keep = "
            "'1h'})\n"
            "t:add{step = 1, ms = 2.5, who = 'a'} t:add{step = 2} \n"
            "probing.every('20ms', function()\n"
            "  local n = 0\n"
            "  for r in probing.query('select step, ms, who from script.t1 order by step') do\n"
            "    n = n + 1; probing.publish(r)\n"
            "  end\n"
            "  probing.publish{n, true, 'x'}\n"
            "  probing.stop()\n"
            "end)\n"),
        0);
    CHECK(heard_of("\"ms\":2.5"));
    CHECK(heard_of("[2,true,\"x\"]"));
    teardown();
}

TEST(prints_to_the_log_and_to_who_follows)
{
    setup();
    CHECK_INT(run("print('hello', 42, nil, probing.version)"), 0);
    CHECK(heard_of("\"hello\\t42\\tnil\\t0.1.0\""));
    teardown();
}

TEST(has_safe_libraries_only)
{
    setup();
    CHECK_INT(
        run("for _, name in ipairs{'io', 'require', 'package', 'debug', 'dofile', 'loadfile', "
            "'warn'} do\n"
            "  assert(_G[name] == nil, name) end\n"
            "for _, name in ipairs{'execute', 'exit', 'getenv', 'remove', 'rename', 'tmpname',\n"
            "  'setlocale'} do assert(os[name] == nil, name) end\n"
            "assert(string.dump == nil)\n"
            "assert(load('return 1 + 1')() == 2)\n"
            "assert(load('\\27Lua') == nil)\n"
            "assert(load('return x', 'c', 't', {x = 5})() == 5)\n"
            "assert(not pcall(load, function() return nil end))\n"
            "assert(os.time() > 1e9 and os.date('!%Y', 0) == '1970')\n"
            "assert(not pcall(os.date, '*t') and not pcall(os.date, '!*t'))\n"
            "assert(not pcall(os.time, {year = 2000, month = 1, day = 1}))\n"
            "assert(not pcall(probing.publish, {1, 2, name = 'x'}))\n"
            "assert(not pcall(probing.publish, {a = {1, nil, 3, x = 1}}))\n"
            "assert(pcall(probing.publish, {1, 2, {a = 1, b = {}}}))\n"
            "assert(not pcall(probing.config, 'torhc.sample_rate', '0.5'))\n"
            "assert(getmetatable(probing.query('select 1')) == false)\n"
            "local w = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 "
            "end)\n"
            "assert(w(1) == 2 and w(21) == 42)\n"
            "local ok, e = coroutine.resume(coroutine.create(function() error('x', 0) end))\n"
            "assert(ok == false and e == 'x')\n"
            "print('all well')"),
        0);
    CHECK(heard_of("all well"));
    teardown();
}

TEST(says_where_a_source_is_wrong)
{
    static const struct {
        const char *source, *says;
    } rows[] = {{"local x = = 1", "t:1: "},
                {"\n\nerror('bang')", "t:3: bang"},
                {"error({})", "table: "},
                {"\033Lua", "attempt to load a binary chunk"},
                {"probing.table('Bad Name', {x = 'i64'})", "a table's name"},
                {"probing.table('x', {x = 'int'})", "there are i64, f64, str and time"},
                {"probing.table('x', {x = 'i64'}, {kep = '1h'})", "option 'kep'"},
                {"probing.table('y', {x = 'i64'}):add{z = 1}", "no column 'z'"},
                {"probing.table('y', {x = 'i64'}):add{x = 1.5}", "not a fraction"},
                {"probing.every('soon', print)", "every: "},
                {"probing.every('1ms', print)", "the shortest period"},
                {"probing.publish(print)", "publish takes"},
                {"local a = {} a[1] = a probing.publish(a)", "at most 16 deep"},
                {"probing.query('select from where')", "query: "},
                {"probing.config('no.such')", "config: unknown setting"},
                {"local s = 'x' while true do s = s .. s end", "not enough memory"}};
    setup();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        /* run() waits for two seconds, and says then that the script runs. */
        CHECK_INT(
            scripts_run_within(scripts, "t", rows[i].source, strlen(rows[i].source), PATIENCE),
            -EINVAL);
        if (!CHECK(strstr(err_text(), rows[i].says) != NULL))
            printf("# %s says: %s\n", rows[i].source, err_text());
    }
    CHECK_INT(scripts_run(scripts, "Bad", "", 0), -EINVAL);
    teardown();
}

TEST(goes_on_after_an_error_in_a_callback)
{
    setup();
    CHECK_INT(run("local n = 0\n"
                  "probing.every('10ms', function()\n"
                  "  n = n + 1\n"
                  "  if n == 1 then error('once') end\n"
                  "  print('call ' .. n)\n"
                  "end)"),
              0);
    CHECK(heard_of("t:4: once"));
    CHECK(heard_of("call 3"));
    CHECK_INT(run("print(1)"), -EEXIST);
    CHECK_INT(scripts_stop(scripts, "t"), 0);
    CHECK_INT(scripts_stop(scripts, "t"), -ENOENT);
    CHECK_INT(run("print('again')"), 0);
    CHECK(heard_of("again"));
    teardown();
}

TEST(stops_what_never_ends)
{
    static const char *const runaways[] = {
        "probing.every('10ms', function() print('go') while true do end end)",
        "probing.every('10ms', function() print('go') while true do pcall(function() while true do "
        "end end)"
        " end end)",
        "probing.every('10ms', function() print('go')\n"
        " coroutine.wrap(function() while true do end end)() end)",
        "probing.every('10ms', function() print('go')\n"
        " local function f() return f() end f() end)",
        "probing.every('10ms', function() print('go')\n"
        " while true do local c = coroutine.create(function() end) coroutine.resume(c) end end)",
        "probing.every('10ms', function() print('go') while true do local s = ('x'):rep(100) end "
        "end)",
        /* No hook of Lua's reaches these. */
        "probing.every('10ms', function() print('go')\n"
        " setmetatable({}, {__gc = function() while true do end end}) collectgarbage() end)",
        "probing.every('10ms', function() print('go')\n"
        " xpcall(error, function() while true do end end) end)",
        "probing.every('10ms', function() print('go')\n"
        " local co = coroutine.create(function()\n"
        "   local x <close> = setmetatable({}, {__close = function() while true do end end})\n"
        "   coroutine.yield() end)\n"
        " coroutine.resume(co) coroutine.close(co) end)",
        "probing.every('10ms', function() print('go') string.rep('', math.maxinteger) end)",
        "probing.every('10ms', function() print('go')\n"
        " table.move({}, 1, math.maxinteger - 1, 2) end)",
        "probing.every('10ms', function() print('go')\n"
        " string.find(('a'):rep(3000), ('.-'):rep(30) .. 'b') end)",
        "probing.every('10ms', function() print('go')\n"
        " probing.query('select count(*) from generate_series(1, 100000000) a, "
        "generate_series(1, 1000) b') end)"};
    for (size_t i = 0; i < sizeof(runaways) / sizeof(runaways[0]); i++) {
        setup();
        CHECK_INT(run(runaways[i]), 0);
        CHECK(heard_of("go"));
        if (i % 2 == 0) {
            CHECK_INT(scripts_stop(scripts, "t"), 0);
            CHECK_INT(scripts_stop(scripts, "t"), -ENOENT); /* it does not run any more */
        }
        teardown(); /* every other one is ended by scripts_free() */
    }
}

TEST(runs_many_at_once)
{
    char name[16];
    setup();
    for (int i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof(name), "s%d", i);
        const char *source = "local t = probing.table('many', {n = 'i64'})\n"
                             "probing.every('10ms', function() t:add{n = 1} end)";
        CHECK_INT(scripts_run(scripts, name, source, strlen(source)), 0);
    }
    CHECK_INT(scripts_stop(scripts, "s7"), 0);
    CHECK_INT(scripts_stop(scripts, "s20"), -ENOENT);
    teardown();
}

TEST(a_script_with_a_finalizer_ends_without_it)
{
    setup();
    CHECK_INT(run("KEPT = setmetatable({}, {__gc = function() print('never') end})\n"
                  "setmetatable({}, {__gc = function() print('collected') end})\n"
                  "collectgarbage()"),
              0);
    CHECK(heard_of("collected"));
    CHECK_INT(run("print('next')"), 0);
    CHECK(heard_of("next"));
    CHECK(strstr(heard.text, "never") == NULL);
    teardown();
}

TEST(ended_scripts_do_not_count)
{
    char name[16];
    setup();
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "s%d", i);
        CHECK_INT(scripts_run(scripts, name, "", 0), 0);
    }
    static const char stays[] = "probing.every('1h', print)";
    for (int i = 0; i < 32; i++) {
        (void)snprintf(name, sizeof(name), "l%d", i);
        CHECK_INT(scripts_run(scripts, name, stays, sizeof(stays) - 1), 0);
    }
    CHECK_INT(scripts_run(scripts, "more", stays, sizeof(stays) - 1), -ENOSPC);
    CHECK(strstr(err_text(), "32 scripts run already") != NULL);
    CHECK_INT(scripts_stop(scripts, "l3"), 0);
    CHECK_INT(scripts_run(scripts, "more", stays, sizeof(stays) - 1), 0);
    teardown();
}

/* Tables stay for good, so there is a limit for one script and one for all of them. */
TEST(none_takes_all_tables)
{
    char name[16];
    setup();
    CHECK_INT(run("for i = 1, 33 do probing.table('t' .. i, {x = 'i64'}) end"), -EINVAL);
    CHECK(strstr(err_text(), "a script may have 32 tables") != NULL);
    CHECK_INT(run("for i = 1, 33 do probing.table('t1', {['c' .. i] = 'i64'}) end"), -EINVAL);
    CHECK_INT(run("for _ = 1, 99 do probing.table('t2', {x = 'i64'}) end"), 0);
    static const char more[] = "for i = 1, 30 do probing.table(probing.name .. i, {x = 'i64'}) end";
    int r = 0;
    for (int i = 0; i < 40 && r == 0; i++) {
        (void)snprintf(name, sizeof(name), "s%d_", i);
        r = scripts_run(scripts, name, more, sizeof(more) - 1);
    }
    CHECK_INT(r, -EINVAL);
    CHECK(strstr(err_text(), "the scripts of this process have made 256 tables") != NULL);
    CHECK_INT(run("probing.table('t2', {x = 'i64'}):add{x = 1}"), 0);
    CHECK_INT(run("probing.table('t2', {other = 'i64'})"), -EINVAL);
    teardown();
}

TEST(none_takes_all_else)
{
    static const struct {
        const char *source, *says;
    } rows[] = {
        {"local t = probing.table('s', {s = 'str'})\n"
         "for i = 1, 1e6 do t:add{s = i .. ('x'):rep(60000)} end",
         "scripts may store 16 MiB of distinct texts each"},
        {"for i = 1, 300 do probing.config('table.t' .. i .. '.keep', '1h') end", "config: "},
        {"for i = 1, 65 do probing.every('1h', print) end", "a script may have 64 timers"},
        {"local all = {} for i = 1, 1000 do all[i] = " /* each far from its ten seconds */
         "probing.query(\"select repeat('x', 1000) from generate_series(1, 2000)\") end",
         "not enough memory"},
        {"local all = {} for i = 1, 1e9 do all[i] = coroutine.create(print) end",
         "not enough memory"},
        {"('x'):rep(1e9)", "not enough memory"}};
    setup();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int r = scripts_run_within(scripts, "t", rows[i].source, strlen(rows[i].source), PATIENCE);
        CHECK_INT(r, -EINVAL);
        if (!CHECK(r == -EINVAL && strstr(err_text(), rows[i].says) != NULL))
            printf("# %s says: %s\n", rows[i].source, err_text());
    }
    /* A line of the log that was there before stays there. */
    host_log(host, PROBING_INFO, "the first");
    CHECK_INT(run("for i = 1, 3000 do probing.log('flood') end"), 0);
    static const char ask[] = "for r in probing.query(\"select count(*) as n from probing.log "
                              "where text = 'the first'\") do print('found ' .. r.n) end";
    CHECK_INT(scripts_run_within(scripts, "t", ask, sizeof(ask) - 1, PATIENCE), 0);
    CHECK(heard_of("found 1"));
    teardown();
}

int main(void)
{
    (void)event_init(&heard.more);
    RUN(makes_a_table_asks_it_and_publishes);
    RUN(prints_to_the_log_and_to_who_follows);
    RUN(has_safe_libraries_only);
    RUN(says_where_a_source_is_wrong);
    RUN(goes_on_after_an_error_in_a_callback);
    RUN(stops_what_never_ends);
    RUN(runs_many_at_once);
    RUN(a_script_with_a_finalizer_ends_without_it);
    RUN(ended_scripts_do_not_count);
    RUN(none_takes_all_tables);
    RUN(none_takes_all_else);
    return test_end();
}
