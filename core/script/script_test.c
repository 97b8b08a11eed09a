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
#include "core/script/internal.h"
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

TEST(takes_values_for_placeholders)
{
    setup();
    CHECK_INT(
        run("local function q(...) return probing.query(...):next() end\n"
            "local r = q([[select $1 as a, $2 as b, '?' as c /* ? */, $1 + 1 as d -- ?]], 1, "
            "\"it's\")\n"
            "assert(r.a == 1 and r.b == \"it's\" and r.c == '?' and r.d == 2)\n"
            "r = q('select ? as a, ? as b, ?::bigint is null as c', 1.5, true, nil)\n"
            "assert(r.a == 1.5 and r.b == true and r.c == true)\n"
            "r = q('select ? as a', probing.time(1))\n"
            "assert(r.a == 1 and tostring(probing.time(1)) == '1970-01-01T00:00:00.000000001Z')\n"
            "assert(q('select ? as a', probing.time(-1)).a == -1)\n"
            "assert(q([[select ? as a]], math.mininteger).a == math.mininteger)\n"
            "for _, bad in ipairs{{'select ?'}, {'select 1', 2}, {'select $2', 1}, {'select ?', "
            "print}} do\n"
            "  assert(#bad == 1 or not pcall(q, table.unpack(bad))) end\n"
            "print('all well')"),
        0);
    CHECK(heard_of("all well"));
    teardown();
}

TEST(calls_with_rows_as_they_come)
{
    setup();
    CHECK_INT(run("local t = probing.table('c1', {n = 'i64'})\n"
                  "t:add{n = 100}\n" /* was there before */
                  "local seen, later = 0, nil\n"
                  "probing.on('row:script.c1', 'n % 2 = 0 -- even', function(r)\n"
                  "  seen = seen + 1\n"
                  "  if r.n == 4 then error('at four') end\n"
                  "  if r.n == 10 then print('seen ' .. seen) later:cancel() end\n"
                  "end)\n"
                  "later = probing.on('script.c1', function() end)\n"
                  "probing.on('script.c2', function(r) print('late ' .. r.n) probing.stop() end, "
                  "{wait = true})\n"
                  "probing.after('10ms', function() for n = 1, 10 do t:add{n = n} end end)\n"
                  "probing.after('1500ms', function() probing.table('c2', {n = 'i64'})\n"
                  "  probing.every('200ms', function() probing.table('c2', {n = 'i64'}):add{n = 7} "
                  "end) end)"),
              0);
    CHECK(heard_of("at four"));
    CHECK(heard_of("seen 5") || heard_of("seen 6")); /* the drain may have been slower than on() */
    CHECK(heard_of("late 7"));
    teardown();
}

TEST(a_timer_has_a_name_and_can_be_cancelled)
{
    setup();
    CHECK_INT(run("local n, once = 0, 0\n"
                  "probing.every('10ms', function() print('never') end, 'tick')\n"
                  "probing.every('10ms', function() n = n + 1 end, 'tick')\n"
                  "local t = probing.after('20ms', function() print('never') end)\n"
                  "assert(t:cancel() == true and t:cancel() == false)\n"
                  "probing.after('10ms', function() once = once + 1 end)\n"
                  "probing.at_stop(function() print('bye ' .. once) end)\n"
                  "probing.every('10ms', function() if n > 5 then probing.stop() end end)"),
              0);
    CHECK(heard_of("bye 1"));
    CHECK(strstr(heard.text, "never") == NULL);
    teardown();
}

TEST(says_goodbye_when_it_is_stopped)
{
    setup();
    CHECK_INT(run("probing.at_stop(function() print('bye') end) probing.every('1h', print)"), 0);
    CHECK_INT(scripts_stop(scripts, "t"), 0);
    CHECK(heard_of("bye"));
    /* One that does not come back from it is ended all the same. */
    CHECK_INT(run("probing.at_stop(function() while true do end end) probing.every('1h', print)"),
              0);
    CHECK_INT(scripts_stop(scripts, "t"), 0);
    CHECK_INT(run("probing.at_stop(print) probing.every('10ms', function() print('busy') while "
                  "true do end end)"),
              0);
    CHECK(heard_of("busy"));
    CHECK_INT(scripts_stop(scripts, "t"), 1);
    CHECK_INT(run("probing.at_stop(function() while true do end end) probing.every('1h', print)"),
              0);
    teardown();
}

static const char with_state[] =
    "local a = probing.args{limit = {type = 'duration', default = '1s', min = '10ms'}, top = 5}\n"
    "probing.state.n = (probing.state.n or 0) + 1\n"
    "print('n ' .. probing.state.n, a.limit, a.top)\n"
    "probing.every('1h', print)";

static int start_with(const char *words, size_t size)
{
    struct script_start start = {.name = "t",
                                 .source = with_state,
                                 .size = sizeof(with_state) - 1,
                                 .words = words,
                                 .words_size = size,
                                 .limit_ns = SCRIPT_LOAD_NS};
    return scripts_start(scripts, &start);
}

TEST(has_parameters_and_keeps_its_state)
{
    static const char words[] = "limit=250ms\0top=7\0";
    static const char low[] = "limit=1ms\0", unknown[] = "tpo=1\0", wrong[] = "top=1.5\0";
    setup();
    CHECK_INT(start_with(low, sizeof(low)), -EINVAL);
    CHECK(strstr(err_text(), "limit=1ms must be at least 10ms") != NULL);
    CHECK_INT(start_with(unknown, sizeof(unknown)), -EINVAL);
    CHECK(strstr(err_text(), "no parameter 'tpo'; this script has limit, top") != NULL);
    CHECK_INT(start_with(wrong, sizeof(wrong)), -EINVAL);
    CHECK_INT(start_with(words, sizeof(words)), 0);
    CHECK(heard_of("n 1\\t0.25\\t7"));
    struct script_start again = {.name = "t", .limit_ns = SCRIPT_LOAD_NS};
    CHECK_INT(scripts_reload(scripts, &again), 0);
    CHECK(heard_of("n 2\\t0.25\\t7"));
    /* A source that cannot be compiled leaves it as it is; one that fails gives its place back. */
    again.source = "x = = 1";
    again.size = strlen(again.source);
    CHECK_INT(scripts_reload(scripts, &again), -EINVAL);
    again.source = "probing.args{limit = '1s', top = 1} error('no')";
    again.size = strlen(again.source);
    CHECK_INT(scripts_reload(scripts, &again), -EINVAL);
    CHECK(strstr(err_text(), "the old one goes on") != NULL);
    CHECK(heard_of("n 3\\t0.25\\t7"));
    CHECK_INT(scripts_stop(scripts, "t"), 0);
    CHECK_INT(scripts_reload(scripts, &again), -ENOENT);
    /* One that loops can't give its state away, and that is said. */
    CHECK_INT(run("probing.every('10ms', function() print('loops') while true do end end)"), 0);
    CHECK(heard_of("loops"));
    again.source = NULL;
    CHECK_INT(scripts_reload(scripts, &again), 1);
    teardown();
}

static char *answer_about(const char *question, const char *source)
{
    struct script_start start = {
        .name = "t", .source = source, .size = strlen(source), .limit_ns = 60 * NS_PER_S};
    char *text = NULL;
    CHECK_INT(scripts_ask(scripts, question, &start, &text), 0);
    return text;
}

TEST(finds_mistakes_without_running)
{
    static const struct {
        const char *source, *says;
    } rows[] = {{"x = = 1", "t:1: "},
                {"local a = 1\nprnt(a)", "t:2: unknown name 'prnt'; did you mean 'print'?"},
                {"probing.tabel('x', {})", "probing has no 'tabel'; did you mean 'table'?"},
                {"string.fromat('x')", "string has no 'fromat'; did you mean 'format'?"},
                {"probing.every('soon', print)", "a time such as \"5s\" as argument 1"},
                {"probing.every(print, '1s')", "t:1: probing.every"},
                {"probing.every('1s')", "probing.every takes a function as argument 2"},
                {"probing.query('selec 1')", "the statement: line 1, column 1"},
                {"probing.now(1)", "probing.now takes 0 arguments at most, not 1"}};
    static const char *const right[] = {
        with_state,
        "local t <const> = 1\nfor k, v in pairs{a = 1} do print(k, v, t) end",
        "local function f(a, ...) local x, y = a, ... return x + y end\nprint(f(1, 2))",
        "a, b = 1, 2 print(a, b) goto done do local q = {} function q:m() return self end end "
        "::done::",
        "probing.query('select ? from probing.log', 1)\nprobing.query('show tables')",
        "-- probing.nothing\nlocal s = [[ probing.nothing() ]] print(s, 'probing.nothing')"};
    setup();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *text = answer_about("check", rows[i].source);
        if (!CHECK(text != NULL && strstr(text, rows[i].says) != NULL))
            printf("# %s says: %s\n", rows[i].source, text ? text : "nothing");
        free(text);
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        char *text = answer_about("check", right[i]);
        if (!CHECK(text == NULL))
            printf("# %s says: %s\n", right[i], text);
        free(text);
    }
    char *help = answer_about("help", with_state);
    CHECK(help != NULL && strstr(help, "limit=1s") != NULL && strstr(help, "at least 10ms"));
    free(help);
    /* A parameter's table may not run for ever. */
    struct script_start loops = {.name = "t",
                                 .source = "probing.args{x = (function() while true do end end)()}",
                                 .limit_ns = 100 * NS_PER_MS};
    loops.size = strlen(loops.source);
    CHECK_INT(scripts_ask(scripts, "help", &loops, &help), -ETIMEDOUT);
    teardown();
}

TEST(reads_the_kernels_files_only)
{
    setup();
    CHECK_INT(run("assert(probing.read('/proc/self/status'):match('Pid:'))\n"
                  "local text, why = probing.read('/proc/self/nosuch')\n"
                  "assert(text == nil and why:match('No such file'))\n"
                  "for _, path in ipairs{'/etc/passwd', '/proc/self/environ', "
                  "'/proc/self/root/etc/passwd', '/proc/self/cwd/x', '/proc/self/fd/0', "
                  "'/proc/self/mem', '/proc/../etc/passwd', '/proc/1/task/1/environ'} do\n"
                  "  assert(not pcall(probing.read, path), path) end\n"
                  "print('all well')"),
              0);
    CHECK(heard_of("all well"));
    teardown();
}

TEST(windows_agree_with_a_calculation_by_hand)
{
    setup();
    CHECK_INT(
        run("local t = probing.table('w', {v = 'f64'})\n"
            "for i = 1, 100 do t:add{v = i * 2.0} end\n"
            "local w = probing.window('script.w.v', '1m')\n"
            "probing.every('20ms', function()\n"
            "  if w:count() < 100 then return end\n"
            "  assert(w:mean() == 101 and w:median() == 101 and w:min() == 2)\n"
            "  assert(w:max() == 200 and w:sum() == 10100 and w:p(100) == 200)\n"
            "  assert(w:slope() > 0 and w:last() == 200)\n"
            "  assert(probing.window('script.w.v', '1h'):p(0) == 2)\n"
            "  print('all well') probing.stop()\n"
            "end)\n"
            "for _, bad in ipairs{{'w', '1m'}, {'script.w.v', 'soon'}, {'script.w.v', 0}} do\n"
            "  assert(not pcall(probing.window, table.unpack(bad))) end"),
        0);
    CHECK(heard_of("all well"));
    teardown();
}

static int ignore_words(struct probing_reply *r, const void *data, size_t size)
{
    (void)r, (void)data, (void)size;
    return 0;
}

/* Reload a script that can't be ended at once, as a worker does. */
static void *reload_slowly(void *inside)
{
    const char *const words[] = {"script", "reload", "t"};
    struct probing_reply reply = {.write = ignore_words};

    event_raise(inside);
    (void)host_run(host, 3, words, &reply);
    return NULL;
}

TEST(an_end_waits_for_the_commands_that_are_inside)
{
    pthread_t worker;
    struct event inside;

    CHECK_INT(event_init(&inside), 0);
    for (int i = 0; i < 5; i++) {
        setup();
        CHECK_INT(run("probing.at_stop(function() while true do end end)\n"
                      "probing.every('10ms', function() print('turn') end)"),
                  0);
        CHECK(heard_of("turn"));
        CHECK_INT(thread_start(&worker, "reload", 0, reload_slowly, &inside), 0);
        (void)event_wait(&inside, 60 * NS_PER_S);
        scripts_free(scripts);
        scripts = NULL;
        (void)pthread_join(worker, NULL);
        world_end();
    }
    event_done(&inside);
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
    RUN(takes_values_for_placeholders);
    RUN(calls_with_rows_as_they_come);
    RUN(a_timer_has_a_name_and_can_be_cancelled);
    RUN(says_goodbye_when_it_is_stopped);
    RUN(has_parameters_and_keeps_its_state);
    RUN(finds_mistakes_without_running);
    RUN(reads_the_kernels_files_only);
    RUN(windows_agree_with_a_calculation_by_hand);
    RUN(an_end_waits_for_the_commands_that_are_inside);
    return test_end();
}
