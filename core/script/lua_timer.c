/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_timer.c - when a script's functions run: every, after, on (rows of a table as
 * they come), and at_stop.
 *
 * Threads: the script's own.  A point of rows is a timer, too: at each tick it asks for the rows
 * that came since the last one, so nothing at all happens on the program's threads.
 */
#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"
#include "core/sql/sql.h"

#define CLASS "probing.timer"
#define TIMERS_MAX 64
#define PERIOD_MIN_NS (10 * NS_PER_MS) /* shorter ones would eat a core of the process */
#define POINT_NS (100 * NS_PER_MS)
#define POINT_REST_NS (500 * NS_PER_MS) /* while no rows come: a look takes some 100 us */
#define POINT_RETRY_NS NS_PER_S         /* while the table is not there */
#define POINT_ROWS 20000                /* of one look: a query gives at most 100,000 */
#define POINT_BEHIND_ROWS 1000000       /* further behind, rows are dropped and counted */
#define WHERE_MAX_BYTES 4096

/* ---- the list ---- */

static struct script_timer *find_timer(const struct script *s, uint64_t id)
{
    struct script_timer *t = s->timers;
    while (t && t->id != id)
        t = t->next;
    return t;
}

static void free_timer(struct script_timer *t)
{
    free(t->select);
    free(t);
}

static void remove_timer(struct script *s, const struct script_timer *gone)
{
    for (struct script_timer **at = &s->timers; *at; at = &(*at)->next) {
        if (*at == gone) {
            struct script_timer *t = *at;
            *at = t->next;
            luaL_unref(s->L, LUA_REGISTRYINDEX, t->function);
            free_timer(t);
            return;
        }
    }
}

void script_timers_free(struct script *s)
{
    while (s->timers) {
        struct script_timer *t = s->timers;
        s->timers = t->next;
        free_timer(t);
    }
}

/* A name that a timer has already is given to the new one, and the old one is cancelled. */
static struct script_timer *add_timer(lua_State *L, int function, const char *name)
{
    struct script *s = script_of(L);
    int n = 0;

    luaL_checktype(L, function, LUA_TFUNCTION);
    luaL_argcheck(L, strlen(name) < sizeof(s->timers->name), function + 1,
                  "a timer's name has at most 39 bytes");
    for (struct script_timer *t = s->timers, *next; t; t = next) {
        next = t->next;
        if (name[0] && strcmp(t->name, name) == 0)
            remove_timer(s, t);
        else
            n++;
    }
    if (n >= TIMERS_MAX)
        (void)luaL_error(L, "a script may have %d timers and points", TIMERS_MAX);
    lua_pushvalue(L, function);
    int reference = luaL_ref(L, LUA_REGISTRYINDEX);
    struct script_timer *t = calloc(1, sizeof(*t));
    if (!t)
        (void)luaL_error(L, "no memory for a timer");
    *t = (struct script_timer){.next = s->timers, .id = ++s->last_timer, .function = reference};
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    s->timers = t;
    return t;
}

/* Leave a handle by which the script cancels it: a number, since the timer may end before. */
static int push_handle(lua_State *L, const struct script_timer *t)
{
    uint64_t *id = lua_newuserdatauv(L, sizeof(*id), 0);
    *id = t->id;
    luaL_setmetatable(L, CLASS);
    return 1;
}

static int cancel_timer(lua_State *L)
{
    const uint64_t *id = luaL_checkudata(L, 1, CLASS);
    struct script *s = script_of(L);
    const struct script_timer *t = find_timer(s, *id);

    if (t)
        remove_timer(s, t);
    lua_pushboolean(L, t != NULL); /* false: it had ended already */
    return 1;
}

/* ---- every, after ---- */

static uint64_t read_period(lua_State *L, const char *what, uint64_t least)
{
    uint64_t period = 0;

    if (lua_type(L, 1) == LUA_TNUMBER) {
        double seconds = lua_tonumber(L, 1);
        luaL_argcheck(L, seconds > 0 && seconds < 1e9, 1, "a period is more than 0 seconds");
        period = (uint64_t)(seconds * (double)NS_PER_S);
    } else if (parse_ns(luaL_checkstring(L, 1), &period) < 0) {
        (void)luaL_error(L, "%s: %s", what, err_text());
    }
    luaL_argcheck(L, period >= least, 1, "the shortest period is 10ms");
    return period;
}

/* every(period, fn [, name]) */
int script_every(lua_State *L)
{
    uint64_t period = read_period(L, "every", PERIOD_MIN_NS);
    struct script_timer *t = add_timer(L, 2, luaL_optstring(L, 3, ""));

    t->period_ns = period;
    t->due = clock_now() + period;
    return push_handle(L, t);
}

/* after(delay, fn [, name]): once. */
int script_after(lua_State *L)
{
    uint64_t delay = read_period(L, "after", PERIOD_MIN_NS);
    struct script_timer *t = add_timer(L, 2, luaL_optstring(L, 3, ""));

    t->due = clock_now() + delay;
    return push_handle(L, t);
}

/* ---- on: rows as they come ---- */

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
    struct script_timer *t = add_timer(L, function, "");
    t->select = strdup(buf_text(&s->out));
    buf_done(&s->out);
    if (!t->select) {
        remove_timer(s, t);
        return luaL_error(L, "no memory for a point");
    }
    t->row = row;
    t->waits = waits;
    t->period_ns = waits ? POINT_RETRY_NS : POINT_NS;
    t->due = clock_now() + t->period_ns;
    return push_handle(L, t);
}

/* Call fn(row) for each row of the answer below the top: an error of one does not cost the others
 * theirs, and is reported. */
static void call_for_rows(lua_State *L, uint64_t id)
{
    struct script *s = script_of(L);
    int answer = lua_gettop(L);

    for (const struct script_timer *t; (t = find_timer(s, id)) != NULL;) { /* or it was cancelled */
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

/* Called with the timer's number. */
static int run_point(lua_State *L)
{
    struct script *s = script_of(L);
    uint64_t id = (uint64_t)lua_tointeger(L, 1), end = 0;
    struct script_timer *t = find_timer(s, id);
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

/* ---- at_stop ---- */

/* at_stop(fn): once, when the script ends. */
int script_at_stop(lua_State *L)
{
    struct script *s = script_of(L);

    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    if (atomic_load_explicit(&s->has_end, memory_order_relaxed))
        return luaL_error(L, "at_stop takes one function, and has one");
    s->at_end = luaL_ref(L, LUA_REGISTRYINDEX);
    atomic_store_explicit(&s->has_end, true, memory_order_release);
    return 0;
}

bool script_push_end(struct script *s)
{
    if (!atomic_exchange_explicit(&s->has_end, false, memory_order_acq_rel))
        return false;
    lua_rawgeti(s->L, LUA_REGISTRYINDEX, s->at_end);
    return true;
}

/* ---- running ---- */

static struct script_timer *first_timer(const struct script *s)
{
    struct script_timer *first = s->timers;
    for (struct script_timer *t = s->timers; t; t = t->next)
        if (t->due < first->due)
            first = t;
    return first;
}

int script_push_due(struct script *s, uint64_t now, uint64_t *ret_wait_ns)
{
    struct script_timer *t = first_timer(s);
    int n_args = 0;

    if (!t)
        return -ENOENT;
    if (t->due > now) {
        *ret_wait_ns = t->due - now;
        return -EAGAIN;
    }
    if (t->select) {
        lua_pushcfunction(s->L, run_point);
        lua_pushinteger(s->L, (lua_Integer)t->id);
        n_args = 1;
    } else {
        lua_rawgeti(s->L, LUA_REGISTRYINDEX, t->function);
    }
    if (t->period_ns == 0)
        remove_timer(s, t);
    else
        t->due += ((now - t->due) / t->period_ns + 1) * t->period_ns;
    return n_args;
}

int script_open_timers(lua_State *L)
{
    static const luaL_Reg methods[] = {{"cancel", cancel_timer}, {NULL, NULL}};

    luaL_newmetatable(L, CLASS);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    return 0;
}
