/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_json.c - Lua values as JSON and back: what is published, probing.json, and the
 * state that a script keeps over a reload.
 *
 * Threads: the script's own.  The text grows in the script's `out`, as the script may end inside.
 */
#include <errno.h>
#include <lauxlib.h>
#include <string.h>

#include "core/script/internal.h"
#include "core/script/poll.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"

#define JSON_LEVELS 16
#define READ_MAX_BYTES ((size_t)1 << 20)
#define TREE_MAX_BYTES ((size_t)16 << 20)

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

    if (depth > JSON_LEVELS || !lua_checkstack(L, 8))
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

int script_add_json(lua_State *L, struct buf *b, int at)
{
    int rc = add_value(L, b, lua_absindex(L, at), 0);
    if (rc == -EINVAL || rc == -ELOOP)
        return err_set(rc,
                       "takes nil, booleans, numbers, strings and tables of them with string keys "
                       "or as arrays, not both, at most %d deep",
                       JSON_LEVELS);
    return b->failed ? b->failed : rc;
}

/* The tree's depth is bounded by json_read(). */
static void push_json(lua_State *L, const struct json *v)
{
    lua_Integer i = 0;

    luaL_checkstack(L, 4, "JSON");
    switch (v->type) {
    case JSON_NULL:
        lua_pushnil(L);
        return;
    case JSON_BOOL:
        lua_pushboolean(L, v->boolean);
        return;
    case JSON_NUMBER:
        if (v->is_integer)
            lua_pushinteger(L, v->integer);
        else
            lua_pushnumber(L, v->number);
        return;
    case JSON_STRING:
        lua_pushlstring(L, v->text, v->size);
        return;
    case JSON_ARRAY:
        lua_createtable(L, (int)v->size, 0);
        for (const struct json *m = v->first; m; m = m->next) {
            push_json(L, m);
            lua_rawseti(L, -2, ++i);
        }
        return;
    case JSON_OBJECT:
        lua_createtable(L, 0, (int)v->size);
        for (const struct json *m = v->first; m; m = m->next) {
            push_json(L, m);
            lua_setfield(L, -2, m->key);
        }
        return;
    }
}

int script_push_json(lua_State *L, const char *text, size_t size)
{
    struct script *s = script_of(L);
    struct json_error bad = {0};
    struct json *value;

    if (size > READ_MAX_BYTES)
        return err_set(-E2BIG, "JSON text of %zu bytes; at most %zu are read", size,
                       READ_MAX_BYTES);
    arena_done(&s->tree); /* of one that ended in an error of Lua's */
    arena_init(&s->tree, TREE_MAX_BYTES);
    int rc = json_read(&s->tree, text, size, &value, &bad);
    if (rc < 0)
        rc = err_set(rc, "byte %zu: %s", bad.at + 1, bad.what ? bad.what : "no memory");
    else
        push_json(L, value);
    arena_done(&s->tree);
    return rc;
}

static int encode_json(lua_State *L)
{
    struct script *s = script_of(L);

    luaL_checkany(L, 1);
    buf_done(&s->out);
    buf_init(&s->out, READ_MAX_BYTES);
    int rc = script_add_json(L, &s->out, 1);
    if (rc < 0) {
        buf_done(&s->out);
        return luaL_error(L, "json.encode %s",
                          rc == -ENOBUFS ? "makes at most 1 MiB of text" : err_why(rc));
    }
    lua_pushlstring(L, s->out.data, s->out.size);
    buf_done(&s->out);
    return 1;
}

static int decode_json(lua_State *L)
{
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);

    if (script_push_json(L, text, size) < 0)
        return luaL_error(L, "json.decode: %s", err_text());
    return 1;
}

int script_open_json(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"encode", encode_json}, {"decode", decode_json}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
