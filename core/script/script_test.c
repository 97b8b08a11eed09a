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
#include "core/base/thread.h"
#include "core/script/test_world.h"
#include "tests/test.h"

/* What was heard of a script: its words one after another. */
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
    uint64_t limit = clock_now() + 5 * NS_PER_S;
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
                {"probing.config('no.such')", "config: no setting"},
                {"local s = 'x' while true do s = s .. s end", "not enough memory"}};
    setup();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK_INT(run(rows[i].source), -EINVAL);
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
        "end)"};
    for (size_t i = 0; i < sizeof(runaways) / sizeof(runaways[0]); i++) {
        setup();
        CHECK_INT(run(runaways[i]), 0);
        CHECK(heard_of("go"));
        uint64_t begin = clock_now();
        if (i % 2 == 0) {
            CHECK_INT(scripts_stop(scripts, "t"), 0);
            CHECK(clock_now() - begin < 2 * NS_PER_S);
        }
        teardown(); /* every other one is ended by scripts_free() */
        CHECK(clock_now() - begin < 4 * NS_PER_S);
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
    return test_end();
}
