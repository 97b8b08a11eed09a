/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_api.c - what a script sees beside Lua's own: `probing`, a small `os`, print and
 * load.
 *
 * Threads: the script's own.  A Lua error or the script's end leaves a C function by longjmp, so
 * these hold nothing that would have to be freed while they call Lua.
 */
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <linux/magic.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"
#include "core/script/pack.h"
#include "core/script/poll.h"
#include "sdk/lib/proc/proc_file.h"

#define PUBLISH_MAX_BYTES 65536
#define READ_MAX_BYTES 65536
#define SETTINGS_AT_ONCE 200
#define SETTINGS_A_SECOND 10
#define SETTINGS_KEPT_MAX 128 /* for plugins and tables still to come: the host keeps 1,024 */

struct script *script_of(lua_State *L)
{
    return *(struct script **)lua_getextraspace(L);
}

void script_new_class(lua_State *L, const char *name, const luaL_Reg *methods, const luaL_Reg *more)
{
    luaL_newmetatable(L, name);
    if (more)
        luaL_setfuncs(L, more, /* nup= */ 0);
    lua_pushboolean(L, 0); /* getmetatable() gives no way in */
    lua_setfield(L, -2, "__metatable");
    if (methods) {
        lua_newtable(L);
        luaL_setfuncs(L, methods, /* nup= */ 0);
        lua_setfield(L, -2, "__index");
    }
    lua_pop(L, 1);
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

/* publish(value [, topic]): on topic script.NAME, or script.NAME.TOPIC. */
static int lua_publish(lua_State *L)
{
    struct script *s = script_of(L);
    static const uint32_t room = 0;
    struct buf *b = &s->out; /* the script may end inside add_value() */
    bool sent = false;

    luaL_checkany(L, 1);
    const char *topic = luaL_optstring(L, 2, "");
    luaL_argcheck(L, topic[0] == '\0' || (text_is_name(topic) && strcmp(topic, "end") != 0), 2,
                  "a topic is [a-z][a-z0-9_]*, and not 'end'");
    buf_done(b);
    buf_init(b, PUBLISH_MAX_BYTES);
    (void)buf_add(b, &room, sizeof(room));
    int rc = script_add_json(L, b, 1);
    if (rc == 0) {
        uint32_t size = (uint32_t)b->size;
        memcpy(b->data, &size, sizeof(size));
        sent = script_publish(s, topic, b->data, size);
    }
    buf_done(b);
    if (rc == -ENOBUFS)
        return luaL_error(L, "publish takes at most %d bytes", PUBLISH_MAX_BYTES);
    if (rc < 0)
        return luaL_error(L, "publish %s", err_why(rc));
    lua_pushboolean(L, sent); /* false: too many wait, this one was dropped */
    return 1;
}

/* ---- the rest of `probing` ---- */

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

/* stop(): the function of at_stop runs here, as the state is whole. */
static int lua_stop(lua_State *L)
{
    struct script *s = script_of(L);

    if (script_push_end(s)) {
        lua_xmove(s->L, L, s->L == L ? 0 : 1);
        if (lua_pcall(L, 0, 0, 0) != LUA_OK) {
            const char *text = lua_tostring(L, -1);
            script_error(s, text ? text : "error without a message");
        }
    }
    script_interrupt(s);
    script_poll(L);
    return 0; /* never: that did not come back */
}

/* ---- times ---- */

/* time(ns): a moment that a statement can be given as a value. */
static int make_time(lua_State *L)
{
    int64_t ns = luaL_checkinteger(L, 1);
    int64_t *t = lua_newuserdatauv(L, sizeof(*t), 0);
    *t = ns;
    luaL_setmetatable(L, SCRIPT_TIME_CLASS);
    return 1;
}

/* "2026-11-28T22:15:01.000000005Z"; "": there is no such time. */
static void format_time(int64_t ns, char ret[40])
{
    int64_t second = (int64_t)NS_PER_S, rest = ((ns % second) + second) % second;
    time_t when = (time_t)((ns - rest) / second);
    struct tm tm;

    ret[0] = '\0';
    if (gmtime_r(&when, &tm)) {
        size_t n = strftime(ret, 40, "%Y-%m-%dT%H:%M:%S", &tm);
        (void)snprintf(ret + n, 40 - n, ".%09lldZ", (long long)rest);
    }
}

int script_add_time(lua_State *L, struct buf *b, int at)
{
    const int64_t *t = luaL_checkudata(L, at, SCRIPT_TIME_CLASS);
    char text[40];

    format_time(*t, text);
    return buf_addf(b, "timestamp '%s'", text);
}

static int time_text(lua_State *L)
{
    const int64_t *t = luaL_checkudata(L, 1, SCRIPT_TIME_CLASS);
    char text[40];

    format_time(*t, text);
    lua_pushstring(L, text);
    return 1;
}

/* ---- the kernel's files ---- */

/* Is it a path below /proc or /sys that says nothing secret and leads nowhere else?  Links such as
 * /proc/self/root lead to files of the system, and memory and environments hold what is nobody's
 * business. */
static bool is_readable_path(const char *path)
{
    static const char *const refused[] = {"/root", "/cwd",  "/exe",   "/fd",        "/fdinfo",
                                          "/mem",  "/kmsg", "/kcore", "/environ",   "/pagemap",
                                          "/..",   "/auxv", "/keys",  "/map_files", "/ns"};
    bool good = strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0;

    for (size_t i = 0; good && i < sizeof(refused) / sizeof(refused[0]); i++) {
        size_t n = strlen(refused[i]);
        for (const char *at = path; (at = strstr(at, refused[i])) != NULL; at++)
            good = good && at[n] != '\0' && at[n] != '/';
    }
    return good;
}

/* read(path): a file of /proc or /sys; nil and why not. */
static int read_file(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct statfs fs;

    luaL_argcheck(L, is_readable_path(path), 1,
                  "only files below /proc and /sys are read, and of these no memory, environment "
                  "or link to other files");
    char *text = lua_newuserdatauv(L, READ_MAX_BYTES, 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int64_t n = fd < 0 ? -errno : 0;
    /* A link may lead out of them all the same. */
    if (n == 0 &&
        (fstatfs(fd, &fs) != 0 || (fs.f_type != PROC_SUPER_MAGIC && fs.f_type != SYSFS_MAGIC)))
        n = -EACCES;
    if (n == 0)
        n = proc_read_fd(fd, text, READ_MAX_BYTES);
    if (fd >= 0)
        (void)close(fd);
    if (n < 0) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s: %s", path, strerror((int)-n));
        return 2;
    }
    lua_pushlstring(L, text, (size_t)n);
    return 1;
}

/* plugin(name): load it where it is not loaded.  true; or false and why not. */
static int load_plugin(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    int rc = host_plugin_load(script_of(L)->owner->host, name, /* path= */ NULL, /* fd= */ -1);

    lua_pushboolean(L, rc == 0 || rc == -EALREADY);
    if (rc == 0 || rc == -EALREADY)
        return 1;
    lua_pushstring(L, err_why(rc));
    return 2;
}

/* ---- for the prelude ---- */

static int read_seconds(lua_State *L)
{
    uint64_t ns = 0;

    if (lua_type(L, 1) == LUA_TNUMBER)
        lua_pushnumber(L, lua_tonumber(L, 1));
    else if (parse_ns(luaL_checkstring(L, 1), &ns) == 0)
        lua_pushnumber(L, (double)ns / (double)NS_PER_S);
    else
        lua_pushnil(L);
    return 1;
}

static int read_bytes(lua_State *L)
{
    uint64_t bytes = 0;

    if (lua_isinteger(L, 1))
        lua_pushvalue(L, 1);
    else if (parse_bytes(luaL_checkstring(L, 1), &bytes) == 0 && bytes <= INT64_MAX)
        lua_pushinteger(L, (lua_Integer)bytes);
    else
        lua_pushnil(L);
    return 1;
}

/* The words "limit=5" as a table. */
static void push_words(lua_State *L, const char *words)
{
    lua_newtable(L);
    for (const char *w = words; w && *w; w += strlen(w) + 1) {
        const char *value = strchr(w, '=');
        lua_pushlstring(L, w, (size_t)(value - w));
        lua_pushstring(L, value + 1);
        lua_rawset(L, -3);
    }
}

/* Run prelude.lua, and keep its functions for us in the registry. */
static void open_prelude(lua_State *L)
{
    struct script *s = script_of(L);
    static const luaL_Reg own[] = {{"seconds", read_seconds}, {"bytes", read_bytes}, {NULL, NULL}};

    if (luaL_loadbufferx(L, (const char *)pack_prelude_lua, pack_prelude_lua_size, "=probing",
                         "t") != LUA_OK)
        (void)lua_error(L);
    luaL_newlib(L, own);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, SCRIPT_OWN);
    push_words(L, s->words);
    lua_call(L, 2, 0);
}

int script_open_api(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"table", script_table},  {"query", script_query}, {"every", script_every},
        {"after", script_after},  {"on", script_on},       {"at_stop", script_at_stop},
        {"publish", lua_publish}, {"log", log_line},       {"now", lua_now},
        {"time", make_time},      {"config", lua_config},  {"read", read_file},
        {"plugin", load_plugin},  {"stop", lua_stop},      {NULL, NULL}};
    static const luaL_Reg os_functions[] = {
        {"clock", os_clock}, {"time", os_time}, {"date", os_date}, {NULL, NULL}};
    static const luaL_Reg times[] = {{"__tostring", time_text}, {NULL, NULL}};
    struct script *s = script_of(L);

    luaL_newlib(L, functions);
    lua_pushstring(L, s->owner->version);
    lua_setfield(L, -2, "version");
    lua_pushstring(L, s->name);
    lua_setfield(L, -2, "name");
    (void)script_open_json(L);
    lua_setfield(L, -2, "json");
    if (!s->kept || script_push_json(L, s->kept, strlen(s->kept)) < 0)
        lua_newtable(L);
    lua_setfield(L, -2, "state");
    lua_setglobal(L, "probing");
    script_new_class(L, SCRIPT_TIME_CLASS, /* methods= */ NULL, times);
    luaL_newlib(L, os_functions);
    lua_setglobal(L, "os");
    lua_pushcfunction(L, lua_print);
    lua_setglobal(L, "print");
    lua_pushcfunction(L, load_text);
    lua_setglobal(L, "load");
    open_prelude(L);
    return 0;
}
