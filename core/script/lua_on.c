/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_on.c - probing.on(): calls a script's function with the rows of a table as they
 * come.
 *
 * Threads: the script's own.  A point of rows is a timer: at each tick it asks for the rows that
 * came since the last one, so nothing at all happens on the program's threads.
 */
#include <errno.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/script/internal.h"
#include "core/sql/sql.h"

#define POINT_NS (100 * NS_PER_MS)
#define POINT_REST_NS (500 * NS_PER_MS) /* while no rows come: a look takes some 100 us */
#define POINT_RETRY_NS NS_PER_S         /* while the table is not there */
#define POINT_ROWS 20000                /* of one look: a query gives at most 100,000 */
#define POINT_BEHIND_ROWS 1000000       /* further behind, rows are dropped and counted */
#define WHERE_MAX_BYTES 4096

/* Write the statement that gives the rows: of a table or view by its name, those that `where`
 * takes. */
static int write_select(const char *name, const char *where, struct buf *b)
{
    if (strncmp(name, "row:", 4) == 0)
        name += 4;
    for (const char *p = name; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.", *p))
            return err_set(-EINVAL, "'%.80s' is no name of a table or view", name);
    (void)buf_addf(b, "select * from %s", name);
    /* In lines of their own: the condition may end in a comment. */
    if (where)
        (void)buf_addf(b, " where (\n%s\n)", where);
    return b->failed;
}

static int no_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    (void)arg, (void)columns, (void)n;
    return 0;
}

static int no_rows(void *arg, const struct sql_rows *rows)
{
    (void)arg, (void)rows;
    return 0;
}

/* Find where the table ends now: the rows after that are new.  -ENOENT: it is not there. */
static int find_end(struct script *s, const char *select, uint64_t *ret_row)
{
    struct sql_sink nothing = {.columns = no_columns, .rows = no_rows};
    struct sql_options o = {.from_row = UINT64_MAX, .cancel = &s->stop};
    struct sql_report report = {0};
    int rc = sql_run(s->owner->sql, select, strlen(select), &o, &nothing, &report);

    *ret_row = report.next_row;
    return rc;
}

/* The same, the first time. */
static int begin_point(struct script *s, const char *select, uint64_t *ret_row)
{
    const struct table *table;
    int rc = sql_followable(s->owner->sql, select, strlen(select), &table);

    if (rc == 0 && sql_lacks(s->owner->sql, select, strlen(select)) > 0)
        return err_set(-ENOENT, "the plugin that makes these rows is not loaded; {wait = true} "
                                "lets it come later");
    if (rc == 0)
        return err_set(
            -EINVAL, "the rows of that table or view are computed when it is asked, so none come; "
                     "use probing.every and probing.query");
    return rc < 0 ? rc : find_end(s, select, ret_row);
}

static bool read_wait(lua_State *L, int at)
{
    bool wait = false;

    if (lua_isnoneornil(L, at))
        return false;
    luaL_checktype(L, at, LUA_TTABLE);
    lua_pushnil(L);
    while (lua_next(L, at)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        if (strcmp(key, "wait") != 0)
            (void)luaL_error(L, "option '%s' of on: there is wait = true", key);
        wait = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    return wait;
}

/* on(name, [where,] fn [, options]) */
int script_on(lua_State *L)
{
    struct script *s = script_of(L);
    const char *name = luaL_checkstring(L, 1);
    bool has_where = lua_type(L, 2) == LUA_TSTRING;
    const char *where = has_where ? lua_tostring(L, 2) : NULL;
    int function = has_where ? 3 : 2;
    uint64_t row = 0;

    luaL_checktype(L, function, LUA_TFUNCTION);
    bool wait = read_wait(L, function + 1);
    lua_settop(L, function);
    buf_done(&s->out);
    buf_init(&s->out, WHERE_MAX_BYTES);
    int rc = write_select(name, where, &s->out);
    if (rc == -ENOBUFS)
        rc = err_set(-E2BIG, "the condition has more than %d bytes", WHERE_MAX_BYTES);
    if (rc == 0)
        rc = begin_point(s, buf_text(&s->out), &row);
    bool waits = rc == -ENOENT && wait;
    if (rc < 0 && !waits)
        return luaL_error(L, "on: %s", err_why(rc));
    struct script_timer *t = script_add_timer(L, function, "");
    t->select = strdup(buf_text(&s->out));
    buf_done(&s->out);
    if (!t->select) {
        script_remove_timer(s, t);
        return luaL_error(L, "no memory for a point");
    }
    t->row = row;
    t->waits = waits;
    t->period_ns = waits ? POINT_RETRY_NS : POINT_NS;
    t->due = clock_now() + t->period_ns;
    return script_push_timer(L, t);
}

/* Call fn(row) for each row of the answer below the top: an error of one does not cost the others
 * theirs, and is reported. */
static void call_for_rows(lua_State *L, uint64_t id)
{
    struct script *s = script_of(L);
    int answer = lua_gettop(L);

    for (const struct script_timer *t;
         (t = script_find_timer(s, id)) != NULL;) { /* or it was cancelled */
        lua_rawgeti(L, LUA_REGISTRYINDEX, t->function);
        if (!script_push_row(L, answer)) {
            lua_settop(L, answer);
            return;
        }
        if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
            const char *text = lua_tostring(L, -1);
            script_error(s, text ? text : "error without a message");
            script_say(s, PROBING_ERROR, text ? text : "error without a message");
        }
        lua_settop(L, answer);
    }
}

/* The plugin is not loaded yet, or has stopped and its table went with it. */
static void wait_for_table(struct script_timer *t)
{
    t->waits = true;
    t->period_ns = POINT_RETRY_NS;
}

int script_run_point(lua_State *L)
{
    struct script *s = script_of(L);
    uint64_t id = (uint64_t)lua_tointeger(L, 1), end = 0;
    struct script_timer *t = script_find_timer(s, id);
    int rc = t->waits ? begin_point(s, t->select, &t->row) : find_end(s, t->select, &end);

    if (rc == -ENOENT) {
        wait_for_table(t);
        return 0;
    }
    if (rc < 0)
        return luaL_error(L, "on: %s", err_why(rc));
    if (t->waits) {
        t->waits = false;
        t->period_ns = POINT_NS;
        return 0;
    }
    if (end > t->row && end - t->row > POINT_BEHIND_ROWS) { /* it is too slow for what comes */
        (void)atomic_fetch_add_explicit(&s->dropped, end - t->row, memory_order_relaxed);
        t->row = end;
    }
    if (end <= t->row) {
        t->period_ns = 2 * t->period_ns < POINT_REST_NS ? 2 * t->period_ns : POINT_REST_NS;
        return 0;
    }
    t->period_ns = POINT_NS;
    uint64_t from = t->row;
    if (end - from > POINT_ROWS) { /* the rest comes at once */
        end = from + POINT_ROWS;
        t->due = clock_now();
    }
    t->row = end;
    rc = script_push_answer(L, t->select, strlen(t->select), from, end);
    if (rc < 0)
        return luaL_error(L, "on: %s", err_why(rc));
    call_for_rows(L, id);
    return 0;
}
