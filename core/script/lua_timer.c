/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_timer.c - when a script's functions run: every, after, and at_stop.
 *
 * Threads: the script's own.
 */
#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"

#define CLASS "probing.timer"
#define TIMERS_MAX 64
#define PERIOD_MIN_NS (10 * NS_PER_MS) /* shorter ones would eat a core of the process */

/* ---- the list ---- */

struct script_timer *script_find_timer(const struct script *s, uint64_t id)
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

void script_remove_timer(struct script *s, const struct script_timer *gone)
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

struct script_timer *script_add_timer(lua_State *L, int function, const char *name)
{
    struct script *s = script_of(L);
    int n = 0;

    luaL_checktype(L, function, LUA_TFUNCTION);
    luaL_argcheck(L, strlen(name) < sizeof(s->timers->name), function + 1,
                  "a timer's name has at most 39 bytes");
    for (struct script_timer *t = s->timers, *next; t; t = next) {
        next = t->next;
        if (name[0] && strcmp(t->name, name) == 0)
            script_remove_timer(s, t);
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

int script_push_timer(lua_State *L, const struct script_timer *t)
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
    const struct script_timer *t = script_find_timer(s, *id);

    if (t)
        script_remove_timer(s, t);
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
    struct script_timer *t = script_add_timer(L, 2, luaL_optstring(L, 3, ""));

    t->period_ns = period;
    t->due = clock_now() + period;
    return script_push_timer(L, t);
}

/* after(delay, fn [, name]): once. */
int script_after(lua_State *L)
{
    uint64_t delay = read_period(L, "after", PERIOD_MIN_NS);
    struct script_timer *t = script_add_timer(L, 2, luaL_optstring(L, 3, ""));

    t->due = clock_now() + delay;
    return script_push_timer(L, t);
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
        lua_pushcfunction(s->L, script_run_point);
        lua_pushinteger(s->L, (lua_Integer)t->id);
        n_args = 1;
    } else {
        lua_rawgeti(s->L, LUA_REGISTRYINDEX, t->function);
    }
    if (t->period_ns == 0)
        script_remove_timer(s, t);
    else
        t->due += ((now - t->due) / t->period_ns + 1) * t->period_ns;
    return n_args;
}

int script_open_timers(lua_State *L)
{
    static const luaL_Reg methods[] = {{"cancel", cancel_timer}, {NULL, NULL}};

    script_new_class(L, CLASS, methods, /* more= */ NULL);
    return 0;
}
