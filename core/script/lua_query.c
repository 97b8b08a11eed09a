/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_query.c - probing.query(): a statement's answer as an iterator of Lua tables.
 *
 * Threads: the script's own.  The answer is first copied into C memory, with a limit, because a
 * Lua error inside the engine's callback would jump over the engine's own cleaning up; then into
 * the state's, where it counts against the script's memory and needs no finalizer.
 */
#include <errno.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/script/internal.h"
#include "core/sql/sql.h"
#include "sdk/lib/buf.h"

#define CLASS "probing.rows"
#define ANSWER_MAX_BYTES ((size_t)32 << 20)
#define QUERY_NS (10 * NS_PER_S)
#define ROWS_MAX 100000
#define STATEMENT_MAX_BYTES (256 * 1024)

struct taken { /* while it comes: names, with a NUL after each, and values of the script's */
    struct buf *names, *values;
    uint32_t n_columns;
    uint64_t n_rows;
};

struct answer {
    uint32_t n_columns;
    bool cut;
    uint64_t n_rows, row; /* how many, the next to give */
    size_t at;            /* the next value, in `data` */
    /* The names, then value after value: type (1), then 8 of value, or 4 of size and text. */
    char data[];
};

static int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct taken *a = arg;
    for (uint32_t i = 0; i < n; i++)
        (void)buf_add(a->names, columns[i].name, strlen(columns[i].name) + 1);
    a->n_columns = n;
    return a->names->failed;
}

static void take_value(struct buf *b, const struct sql_value *v)
{
    (void)buf_addc(b, (char)v->type);
    switch (v->type) {
    case SQL_NULL:
        return;
    case SQL_BOOL: {
        int64_t flag = v->boolean;
        (void)buf_add(b, &flag, sizeof(flag));
        return;
    }
    case SQL_INT:
    case SQL_TIMESTAMP:
    case SQL_INTERVAL:
    case SQL_DATE:
        (void)buf_add(b, &v->integer, sizeof(v->integer));
        return;
    case SQL_CALENDAR: {
        char text[SQL_CELL_BYTES];
        uint32_t size = (uint32_t)sql_cell_text(v, /* exact= */ true, text);
        (void)buf_add(b, &size, sizeof(size));
        (void)buf_add(b, text, size);
        return;
    }
    case SQL_DOUBLE:
        (void)buf_add(b, &v->number, sizeof(v->number));
        return;
    case SQL_TEXT:
    case SQL_BLOB:
        (void)buf_add(b, &v->text.size, sizeof(v->text.size));
        (void)buf_add(b, v->text.data, v->text.size);
        return;
    }
}

static int take_rows(void *arg, const struct sql_rows *rows)
{
    struct taken *a = arg;
    uint32_t n = sql_rows_count(rows);
    for (uint32_t row = 0; row < n; row++) {
        for (uint32_t column = 0; column < a->n_columns; column++) {
            struct sql_value v;
            sql_rows_value(rows, row, column, &v);
            take_value(a->values, &v);
        }
    }
    a->n_rows += n;
    if (a->values->failed)
        return err_set(a->values->failed, "the answer is larger than %zu MiB; select less of it",
                       ANSWER_MAX_BYTES >> 20);
    return 0;
}

/* The answer in the state's own memory, on the stack. */
static void keep_answer(lua_State *L, const struct taken *t, bool cut)
{
    size_t names = t->names->size, values = t->values->size;
    struct answer *a = lua_newuserdatauv(L, sizeof(*a) + names + values, 0);
    *a = (struct answer){.n_columns = t->n_columns, .cut = cut, .n_rows = t->n_rows, .at = names};
    if (names)
        memcpy(a->data, t->names->data, names);
    if (values)
        memcpy(a->data + names, t->values->data, values);
    luaL_setmetatable(L, CLASS);
}

int script_push_answer(lua_State *L, const char *text, size_t size, uint64_t from_row,
                       uint64_t to_row)
{
    struct script *s = script_of(L);
    struct sql_options o = {.timeout_ns = QUERY_NS,
                            .max_rows = ROWS_MAX,
                            .cancel = &s->stop,
                            .from_row = from_row,
                            .to_row = to_row};
    struct sql_report report = {0};
    struct taken t = {.names = &s->names, .values = &s->out};

    buf_done(t.names); /* an earlier one may have ended in an error of Lua's */
    buf_done(t.values);
    buf_init(t.names, 65536);
    buf_init(t.values, ANSWER_MAX_BYTES);
    struct sql_sink sink = {.arg = &t, .columns = take_columns, .rows = take_rows};
    int rc = sql_run(s->owner->sql, text, size, &o, &sink, &report);
    if (rc >= 0)
        keep_answer(L, &t, report.cut);
    buf_done(t.names);
    buf_done(t.values);
    if (rc >= 0)
        share_pay(s);
    return rc < 0 ? rc : 0;
}

/* ---- values for the placeholders of a statement ---- */

/* Add the value on the stack as SQL writes it.  1: it is no value. */
static int add_literal(lua_State *L, struct buf *b, int at)
{
    size_t size;
    const char *text;

    switch (lua_type(L, at)) {
    case LUA_TNIL:
        return buf_adds(b, "null");
    case LUA_TBOOLEAN:
        return buf_adds(b, lua_toboolean(L, at) ? "true" : "false");
    case LUA_TNUMBER:
        if (lua_isinteger(L, at))
            return buf_addf(b, "(%lld)", (long long)lua_tointeger(L, at));
        return buf_addf(b, "('%.17g'::double)", lua_tonumber(L, at));
    case LUA_TSTRING:
        text = lua_tolstring(L, at, &size);
        (void)buf_addc(b, '\'');
        for (size_t i = 0; i < size; i++) {
            if (text[i] == '\'')
                (void)buf_addc(b, '\'');
            (void)buf_addc(b, text[i]);
        }
        return buf_addc(b, '\'');
    case LUA_TUSERDATA:
        if (luaL_testudata(L, at, SCRIPT_TIME_CLASS))
            return script_add_time(L, b, at);
        return 1;
    }
    return 1;
}

/* The statement with its placeholders filled, at the stack's index 1; the values follow it. */
static void fill_placeholders(lua_State *L)
{
    struct script *s = script_of(L);
    size_t size, from = 0;
    const char *text = luaL_checklstring(L, 1, &size);
    int n_values = lua_gettop(L) - 1, n_used = 0;
    struct sql_placeholder p = {0};

    buf_done(&s->out);
    buf_init(&s->out, STATEMENT_MAX_BYTES);
    while (sql_next_placeholder(text, size, &p)) {
        if (p.number > (uint32_t)n_values)
            (void)luaL_error(L, "query: placeholder %d has no value; %d were given", (int)p.number,
                             n_values);
        (void)buf_add(&s->out, text + from, p.begin - from);
        if (add_literal(L, &s->out, (int)p.number + 1) > 0)
            (void)luaL_error(L,
                             "query: value %d is a %s; it must be nil, a boolean, a number, a "
                             "string or a probing.time",
                             (int)p.number, luaL_typename(L, (int)p.number + 1));
        n_used = (int)p.number > n_used ? (int)p.number : n_used;
        from = p.end;
    }
    if (n_used != n_values)
        (void)luaL_error(L, "query: %d values were given for %d placeholders", n_values, n_used);
    (void)buf_add(&s->out, text + from, size - from);
    if (s->out.failed)
        (void)luaL_error(L, "query: the statement is larger than %d KiB with its values",
                         STATEMENT_MAX_BYTES / 1024);
    lua_pushlstring(L, s->out.data, s->out.size);
    lua_replace(L, 1);
    lua_settop(L, 1);
}

/* query(sql [, value ...]): `?` or `$1` in the statement stands for a value. */
int script_query(lua_State *L)
{
    size_t size;

    if (lua_gettop(L) > 1)
        fill_placeholders(L);
    const char *text = luaL_checklstring(L, 1, &size);
    int rc = script_push_answer(L, text, size, 0, 0);
    return rc < 0 ? luaL_error(L, "query: %s", err_why(rc)) : 1;
}

static size_t push_value(lua_State *L, const char *data, size_t at)
{
    enum sql_type type = (enum sql_type)data[at++];
    int64_t integer;
    double number;
    uint32_t size;

    switch (type) {
    case SQL_NULL:
        lua_pushnil(L);
        return at;
    case SQL_BOOL:
        memcpy(&integer, data + at, sizeof(integer));
        lua_pushboolean(L, integer != 0);
        return at + sizeof(integer);
    case SQL_INT:
    case SQL_TIMESTAMP:
    case SQL_INTERVAL:
    case SQL_DATE:
        memcpy(&integer, data + at, sizeof(integer));
        lua_pushinteger(L, integer);
        return at + sizeof(integer);
    case SQL_DOUBLE:
        memcpy(&number, data + at, sizeof(number));
        lua_pushnumber(L, number);
        return at + sizeof(number);
    case SQL_TEXT:
    case SQL_BLOB:
    case SQL_CALENDAR: /* as text: Lua has no such number */
        memcpy(&size, data + at, sizeof(size));
        lua_pushlstring(L, data + at + sizeof(size), size);
        return at + sizeof(size) + size;
    }
    lua_pushnil(L);
    return at;
}

/* The next row as a table, or nil. */
static int push_row(lua_State *L, struct answer *a)
{
    if (a->row >= a->n_rows) {
        lua_pushnil(L);
        return 1;
    }
    lua_createtable(L, 0, (int)a->n_columns);
    const char *name = a->data;
    size_t at = a->at;
    for (uint32_t i = 0; i < a->n_columns; i++) {
        at = push_value(L, a->data, at);
        lua_setfield(L, -2, name);
        name += strlen(name) + 1;
    }
    a->at = at; /* only now: a Lua error above must not lose our place */
    a->row++;
    return 1;
}

bool script_push_row(lua_State *L, int at)
{
    return push_row(L, luaL_checkudata(L, at, CLASS)) == 1 && !lua_isnil(L, -1);
}

static int next_row(lua_State *L)
{
    return push_row(L, luaL_checkudata(L, 1, CLASS));
}

static int all_rows(lua_State *L)
{
    struct answer *a = luaL_checkudata(L, 1, CLASS);
    lua_newtable(L);
    for (lua_Integer i = 1; a->row < a->n_rows; i++) {
        (void)push_row(L, a);
        lua_rawseti(L, -2, i);
    }
    return 1;
}

static int is_truncated(lua_State *L)
{
    struct answer *a = luaL_checkudata(L, 1, CLASS);
    lua_pushboolean(L, a->cut);
    return 1;
}

static int rows_length(lua_State *L)
{
    struct answer *a = luaL_checkudata(L, 1, CLASS);
    lua_pushinteger(L, (lua_Integer)a->n_rows);
    return 1;
}

int script_open_rows(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"all", all_rows}, {"next", next_row}, {"truncated", is_truncated}, {NULL, NULL}};
    static const luaL_Reg more[] = {{"__call", next_row}, {"__len", rows_length}, {NULL, NULL}};

    script_new_class(L, CLASS, methods, more);
    return 0;
}
