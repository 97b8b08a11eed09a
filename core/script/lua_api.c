/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_api.c - what a script sees beside Lua's own: `probing`, a small `os`, print and
 * load.
 *
 * Threads: the script's own.  A Lua error or the script's end leaves a C function by longjmp, so
 * these hold nothing that would have to be freed while they call Lua.
 */
#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"
#include "core/script/poll.h"
#include "sdk/lib/json.h"

#define PUBLISH_MAX_BYTES 65536
#define PUBLISH_DEPTH 16
#define TIMERS_MAX 64
#define SETTINGS_AT_ONCE 200
#define SETTINGS_A_SECOND 10
#define SETTINGS_KEPT_MAX 128 /* for plugins and tables still to come: the host keeps 1,024 */
#define PERIOD_MIN_NS (10 * NS_PER_MS) /* shorter ones would eat a core of the process */

struct script *script_of(lua_State *L)
{
    return *(struct script **)lua_getextraspace(L);
}

/* ---- in place of what was taken away ---- */

static int lua_print(lua_State *L)
{
    struct script *s = script_of(L);
    const size_t room = sizeof(s->line) - 1;
    size_t used = 0, size;
    int n = lua_gettop(L);

    for (int i = 1; i <= n; i++) { /* first, as a __tostring may print, too, and use the line */
        (void)luaL_tolstring(L, i, NULL);
        lua_replace(L, i);
    }
    for (int i = 1; i <= n && used < room - 1; i++) {
        const char *text = lua_tolstring(L, i, &size);
        if (i > 1)
            s->line[used++] = '\t';
        size = size < room - used ? size : room - used;
        memcpy(s->line + used, text, size);
        used += size;
    }
    s->line[used] = '\0';
    script_say(s, PROBING_INFO, s->line);
    return 0;
}

/* load(text [, name [, mode [, env]]]): text only, whatever mode says. */
static int load_text(lua_State *L)
{
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    const char *name = luaL_optstring(L, 2, text);
    bool has_env = !lua_isnone(L, 4);

    if (luaL_loadbufferx(L, text, size, name, "t") != LUA_OK) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (has_env) {
        lua_pushvalue(L, 4);
        (void)lua_setupvalue(L, -2, 1);
    }
    return 1;
}

static int os_clock(lua_State *L)
{
    lua_pushnumber(L, (double)clock_now() / (double)NS_PER_S);
    return 1;
}

static int os_time(lua_State *L)
{
    if (!lua_isnone(L, 1))
        return luaL_error(L, "os.time takes no arguments here and gives the time now");
    lua_pushinteger(L, (lua_Integer)time(NULL));
    return 1;
}

/* In UTC always: the zone is the environment's, and that belongs to the process. */
static int os_date(lua_State *L)
{
    const char *format = luaL_optstring(L, 1, "%Y-%m-%dT%H:%M:%SZ");
    time_t when = (time_t)luaL_optinteger(L, 2, (lua_Integer)time(NULL));
    char text[256];
    struct tm tm;

    format += format[0] == '!';
    if (strncmp(format, "*t", 2) == 0)
        return luaL_error(L, "os.date gives texts only: os.date('%%Y'), os.date('%%H:%%M')");
    if (!gmtime_r(&when, &tm))
        return luaL_error(L, "os.date: no such time");
    size_t n = strftime(text, sizeof(text), format, &tm);
    lua_pushlstring(L, text, n);
    return 1;
}

/* ---- publish ---- */

static int add_value(lua_State *L, struct buf *b, int at, int depth);

/* Has it keys beside 1 to n?  JSON has no such thing. */
static bool is_mixed(lua_State *L, int at, lua_Unsigned n)
{
    lua_pushnil(L);
    while (lua_next(L, at)) {
        lua_pop(L, 1);
        if (lua_isinteger(L, -1) && (lua_Unsigned)lua_tointeger(L, -1) - 1 < n)
            continue;
        lua_pop(L, 1);
        return true;
    }
    return false;
}

/* A table is an array when its keys are 1 to n. */
static int add_table(lua_State *L, struct buf *b, int at, int depth)
{
    lua_Unsigned n = lua_rawlen(L, at);
    bool array = n > 0, first = true;

    if (array && is_mixed(L, at, n))
        return -EINVAL;
    (void)buf_addc(b, array ? '[' : '{');
    for (lua_Unsigned i = 1; array && i <= n && !b->failed; i++) {
        if (i > 1)
            (void)buf_addc(b, ',');
        lua_rawgeti(L, at, (lua_Integer)i);
        int rc = add_value(L, b, lua_gettop(L), depth + 1);
        lua_pop(L, 1);
        if (rc < 0)
            return rc;
    }
    if (!array)
        lua_pushnil(L);
    while (!array && lua_next(L, at)) {
        if (lua_type(L, -2) != LUA_TSTRING) { /* lua_tolstring would change a number in place */
            lua_pop(L, 2);
            return -EINVAL;
        }
        size_t size;
        const char *key = lua_tolstring(L, -2, &size);
        if (!first)
            (void)buf_addc(b, ',');
        first = false;
        (void)json_add_text(b, key, size);
        (void)buf_addc(b, ':');
        int rc = add_value(L, b, lua_gettop(L), depth + 1);
        if (rc < 0) {
            lua_pop(L, 2);
            return rc;
        }
        lua_pop(L, 1);
    }
    return buf_addc(b, array ? ']' : '}');
}

static int add_value(lua_State *L, struct buf *b, int at, int depth)
{
    size_t size;
    const char *text;

    if (depth > PUBLISH_DEPTH || !lua_checkstack(L, 8))
        return -ELOOP;
    switch (lua_type(L, at)) {
    case LUA_TNIL:
        return buf_adds(b, "null");
    case LUA_TBOOLEAN:
        return buf_adds(b, lua_toboolean(L, at) ? "true" : "false");
    case LUA_TNUMBER:
        if (lua_isinteger(L, at))
            return buf_addf(b, "%lld", (long long)lua_tointeger(L, at));
        return json_add_f64(b, lua_tonumber(L, at));
    case LUA_TSTRING:
        text = lua_tolstring(L, at, &size);
        return json_add_text(b, text, size);
    case LUA_TTABLE:
        return add_table(L, b, at, depth);
    }
    return -EINVAL; /* a function, a thread: nothing a client could read */
}

static int lua_publish(lua_State *L)
{
    struct script *s = script_of(L);
    static const uint32_t room = 0;
    struct buf *b = &s->out; /* the script may end inside add_value() */
    bool sent = false;

    luaL_checkany(L, 1);
    buf_done(b);
    buf_init(b, PUBLISH_MAX_BYTES);
    (void)buf_add(b, &room, sizeof(room));
    int r = add_value(L, b, 1, 0);
    if (r == 0 && !b->failed) {
        uint32_t size = (uint32_t)b->size;
        memcpy(b->data, &size, sizeof(size));
        sent = script_publish(s, b->data, size);
    }
    int failed = b->failed;
    buf_done(b);
    if (!failed && (r == -EINVAL || r == -ELOOP))
        return luaL_error(L,
                          "publish takes nil, booleans, numbers, strings and tables of them with "
                          "string keys or as arrays, not both, at most %d deep",
                          PUBLISH_DEPTH);
    if (failed)
        return luaL_error(L, "publish takes at most %d bytes", PUBLISH_MAX_BYTES);
    lua_pushboolean(L, sent); /* false: too many wait, this one was dropped */
    return 1;
}

/* ---- the rest of `probing` ---- */

static int lua_every(lua_State *L)
{
    struct script *s = script_of(L);
    uint64_t period = 0;
    int n = 0;

    if (lua_type(L, 1) == LUA_TNUMBER) {
        double seconds = lua_tonumber(L, 1);
        luaL_argcheck(L, seconds > 0 && seconds < 1e9, 1, "a period is more than 0 seconds");
        period = (uint64_t)(seconds * (double)NS_PER_S);
    } else if (parse_ns(luaL_checkstring(L, 1), &period) < 0) {
        return luaL_error(L, "every: %s", err_text());
    }
    luaL_checktype(L, 2, LUA_TFUNCTION);
    luaL_argcheck(L, period >= PERIOD_MIN_NS, 1, "the shortest period is 10ms");
    for (struct script_timer *t = s->timers; t; t = t->next)
        n++;
    if (n >= TIMERS_MAX)
        return luaL_error(L, "a script may have %d timers", TIMERS_MAX);
    lua_pushvalue(L, 2);
    int function = luaL_ref(L, LUA_REGISTRYINDEX);
    struct script_timer *t = calloc(1, sizeof(*t));
    if (!t)
        return luaL_error(L, "no memory for a timer");
    *t = (struct script_timer){
        .next = s->timers, .period_ns = period, .due = clock_now() + period, .function = function};
    s->timers = t;
    return 0;
}

static int log_line(lua_State *L)
{
    static const char *const names[] = {"error", "warn", "info", "debug", NULL};
    static const int levels[] = {PROBING_ERROR, PROBING_WARN, PROBING_INFO, PROBING_DEBUG};
    const char *text = luaL_checkstring(L, 1);
    struct script *s = script_of(L);

    script_log(s, levels[luaL_checkoption(L, 2, "info", names)], text);
    return 0;
}

static int lua_now(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)clock_now() + (lua_Integer)clock_utc_offset());
    return 1;
}

/* config(name [, value]): the value, set before where one is given. */
static int lua_config(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1), *new_value = luaL_optstring(L, 2, NULL);
    struct script *s = script_of(L);
    char value[4096];
    struct buf b;

    if (new_value && !bucket_take(&s->settings, SETTINGS_AT_ONCE, SETTINGS_A_SECOND))
        return luaL_error(L, "config: a script may set %d settings at once and %d a second",
                          SETTINGS_AT_ONCE, SETTINGS_A_SECOND);
    if (new_value && s->n_kept_settings >= SETTINGS_KEPT_MAX)
        return luaL_error(L,
                          "config: %d settings of plugins and tables still to come were set "
                          "already",
                          SETTINGS_KEPT_MAX);
    if (new_value && !host_setting_has_owner(s->owner->host, name))
        return luaL_error(L,
                          "config: '%s' is a setting of nobody: no plugin of that name is loaded, "
                          "installed or named in probing.plugins",
                          name);
    int rc = new_value ? host_config_set(s->owner->host, name, new_value) : 0;
    s->n_kept_settings += rc == 1;
    buf_init(&b, sizeof(value) - 1);
    if (rc >= 0)
        rc = host_config_get(s->owner->host, name, &b);
    (void)snprintf(value, sizeof(value), "%s", rc < 0 ? "" : buf_text(&b));
    buf_done(&b);
    if (rc < 0)
        return luaL_error(L, "config: %s", err_why(rc));
    lua_pushstring(L, value);
    return 1;
}

static int lua_stop(lua_State *L)
{
    script_interrupt(script_of(L));
    script_poll(L);
    return 0; /* never: that did not come back */
}

int script_open_api(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"table", script_table},  {"query", script_query}, {"every", lua_every},
        {"publish", lua_publish}, {"log", log_line},       {"now", lua_now},
        {"config", lua_config},   {"stop", lua_stop},      {NULL, NULL}};
    static const luaL_Reg os_functions[] = {
        {"clock", os_clock}, {"time", os_time}, {"date", os_date}, {NULL, NULL}};
    struct script *s = script_of(L);

    luaL_newlib(L, functions);
    lua_pushstring(L, s->owner->version);
    lua_setfield(L, -2, "version");
    lua_pushstring(L, s->name);
    lua_setfield(L, -2, "name");
    lua_setglobal(L, "probing");
    luaL_newlib(L, os_functions);
    lua_setglobal(L, "os");
    lua_pushcfunction(L, lua_print);
    lua_setglobal(L, "print");
    lua_pushcfunction(L, load_text);
    lua_setglobal(L, "load");
    return 0;
}
