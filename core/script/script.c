/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script.c - a script's thread: its state with safe libraries, its timers, its end.
 *
 * Threads: "probing/lua" runs all Lua code of its script; script_interrupt() comes from a worker.
 * Nothing here can reach the process's stdout, files, environment or Python: what a script may do
 * is in api.c.
 */
#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/script/inner.h"

#define SAY_MAX_BYTES 65536
#define FOREVER_NS (3600 * NS_PER_S)

/* ---- memory ---- */

static void *allocate(void *arg, void *old, size_t old_size, size_t size)
{
    struct script *s = arg;
    size_t had = old ? old_size : 0; /* of a new object Lua passes its type */

    if (size == 0) {
        s->memory_bytes -= had;
        free(old);
        return NULL;
    }
    if (size > had && size - had > SCRIPT_MEMORY_BYTES - s->memory_bytes)
        return NULL; /* Lua says "not enough memory" and the script may catch it */
    void *made = realloc(old, size);
    if (made)
        s->memory_bytes += size - had;
    return made;
}

/* ---- being stopped ---- */

static void end_it(lua_State *L, lua_Debug *where)
{
    (void)where;
    (void)luaL_error(L, "stopped");
}

/* A hook on every instruction costs half the speed, so there is none until it is needed; setting it
 * from another thread is what Lua's manual allows (lua_sethook, "signal handler").  The lock keeps
 * the coroutine that runs from ending meanwhile. */
void script_interrupt(struct script *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    atomic_store_explicit(&s->stop, 1, memory_order_release);
    for (int i = 0; i < s->depth; i++)
        (void)lua_sethook(s->stack[i], end_it, LUA_MASKCOUNT, 1);
    (void)pthread_mutex_unlock(&s->mutex);
    event_raise(&s->wake);
}

/* false: it is being stopped, or nested too deep. */
static bool running_push(struct script *s, lua_State *L)
{
    (void)pthread_mutex_lock(&s->mutex);
    bool fits =
        !atomic_load_explicit(&s->stop, memory_order_acquire) && s->depth < SCRIPT_RUNNING_MAX;
    if (fits)
        s->stack[s->depth++] = L;
    (void)pthread_mutex_unlock(&s->mutex);
    return fits;
}

static void running_pop(struct script *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->depth--;
    (void)pthread_mutex_unlock(&s->mutex);
}

/* Lua's own resume, except that script_interrupt() knows who runs.  Gives how many values lie on
 * L's stack, or -1 and the error there. */
static int resume(lua_State *L, lua_State *co, int n_args)
{
    struct script *s = script_of(L);
    int n_results = 0;

    if (!lua_checkstack(co, n_args)) {
        lua_pushliteral(L, "too many arguments to resume");
        return -1;
    }
    lua_xmove(L, co, n_args);
    if (!running_push(s, co)) {
        lua_pushliteral(L, "stopped, or too many coroutines inside one another");
        return -1;
    }
    int status = lua_resume(co, L, n_args, &n_results);
    running_pop(s);
    if (status != LUA_OK && status != LUA_YIELD) {
        lua_xmove(co, L, 1);
        return -1;
    }
    if (!lua_checkstack(L, n_results + 1)) {
        lua_pop(co, n_results);
        lua_pushliteral(L, "too many results to resume");
        return -1;
    }
    lua_xmove(co, L, n_results);
    return n_results;
}

static int co_resume(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    luaL_argcheck(L, co != NULL, 1, "coroutine expected");
    int n = resume(L, co, lua_gettop(L) - 1);
    lua_pushboolean(L, n >= 0);
    lua_insert(L, n >= 0 ? -(n + 1) : -2);
    return n >= 0 ? n + 1 : 2;
}

static int wrapped(lua_State *L)
{
    lua_State *co = lua_tothread(L, lua_upvalueindex(1));
    int n = resume(L, co, lua_gettop(L));
    return n >= 0 ? n : lua_error(L);
}

static int co_wrap(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    lua_pushcclosure(L, wrapped, 1);
    return 1;
}

int script_open_coroutines(lua_State *L)
{
    luaL_requiref(L, LUA_COLIBNAME, luaopen_coroutine, 1);
    lua_pushcfunction(L, co_resume);
    lua_setfield(L, -2, "resume");
    lua_pushcfunction(L, co_wrap);
    lua_setfield(L, -2, "wrap");
    lua_pop(L, 1);
    return 0;
}

/* ---- what it says ---- */

void script_error(struct script *s, const char *text)
{
    (void)pthread_mutex_lock(&s->mutex);
    (void)snprintf(s->error, sizeof(s->error), "%s", text);
    (void)pthread_mutex_unlock(&s->mutex);
}

void script_say(struct script *s, int level, const char *text)
{
    struct buf b;
    static const uint32_t room = 0; /* where the payload's size goes */

    host_logs(s->owner->host, level, s->topic, text);
    buf_init(&b, SAY_MAX_BYTES);
    (void)buf_add(&b, &room, sizeof(room));
    (void)json_add_text(&b, text, strnlen(text, SAY_MAX_BYTES / 8));
    if (!b.failed) {
        uint32_t size = (uint32_t)b.size;
        memcpy(b.data, &size, sizeof(size));
        (void)host_publish(s->owner->host, s->topic, b.data, size); /* full: followers miss it */
    }
    buf_done(&b);
}

/* ---- running ---- */

static int open_all(lua_State *L)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_MATHLIBNAME, luaopen_math},
                                         {LUA_UTF8LIBNAME, luaopen_utf8}};
    static const char *const away[] = {"dofile", "loadfile", "load", "print", "warn"};

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    for (size_t i = 0; i < sizeof(away) / sizeof(away[0]); i++) {
        lua_pushnil(L);
        lua_setglobal(L, away[i]);
    }
    lua_getglobal(L, LUA_STRLIBNAME); /* binary chunks can break out of Lua: none is made or read */
    lua_pushnil(L);
    lua_setfield(L, -2, "dump");
    lua_pop(L, 1);
    (void)script_open_coroutines(L);
    (void)script_open_rows(L);
    (void)script_open_table(L);
    return script_open_api(L);
}

/* Lua's message with the place; what is thrown need not be text. */
static int message_of(lua_State *L)
{
    if (!lua_isstring(L, 1))
        (void)luaL_tolstring(L, 1, NULL);
    return 1;
}

/* Call what is on the stack; on an error it is kept and said.  false: an error. */
static bool call(struct script *s, int n_args)
{
    lua_State *L = s->L;
    int base = lua_gettop(L) - n_args;

    lua_pushcfunction(L, message_of);
    lua_insert(L, base);
    if (!running_push(s, L)) {
        lua_settop(L, base - 1);
        return false;
    }
    int status = lua_pcall(L, n_args, 0, base);
    running_pop(s);
    if (status != LUA_OK) {
        const char *text = lua_tostring(L, -1);
        if (!atomic_load_explicit(&s->stop, memory_order_acquire))
            script_error(s, text ? text : "error without a message");
    }
    lua_settop(L, base - 1);
    return status == LUA_OK;
}

static bool open_state(struct script *s)
{
    s->L = lua_newstate(allocate, s);
    if (!s->L) {
        script_error(s, "no memory for a Lua state");
        return false;
    }
    *(struct script **)lua_getextraspace(s->L) = s;
    lua_pushcfunction(s->L, open_all);
    return call(s, 0);
}

/* Text only ("t"); the chunk's name makes messages say "slow_step:3: ...". */
static bool load_source(struct script *s)
{
    char chunk[SCRIPT_NAME_BYTES + 2];
    (void)snprintf(chunk, sizeof(chunk), "=%s", s->name);
    if (luaL_loadbufferx(s->L, s->source, s->size, chunk, "t") == LUA_OK)
        return call(s, 0);
    const char *text = lua_tostring(s->L, -1);
    script_error(s, text ? text : "the source could not be read");
    lua_settop(s->L, 0);
    return false;
}

static struct script_timer *next_timer(struct script *s)
{
    struct script_timer *first = s->timers;
    for (struct script_timer *t = s->timers; t; t = t->next)
        if (t->due < first->due)
            first = t;
    return first;
}

/* An error in a callback is said, and the script goes on. */
static void tick(struct script *s, struct script_timer *t)
{
    uint64_t now = clock_now();
    t->due += ((now - t->due) / t->period_ns + 1) * t->period_ns;
    lua_rawgeti(s->L, LUA_REGISTRYINDEX, t->function);
    if (!call(s, 0) && !atomic_load_explicit(&s->stop, memory_order_acquire))
        script_say(s, PROBING_ERROR, s->error);
}

static void run_timers(struct script *s)
{
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        struct script_timer *t = next_timer(s);
        uint64_t now = clock_now();
        if (!t)
            return;
        if (t->due <= now)
            tick(s, t);
        else
            (void)event_wait(&s->wake, t->due - now < FOREVER_NS ? t->due - now : FOREVER_NS);
    }
}

void *script_thread(void *arg)
{
    struct script *s = arg;
    int end = SCRIPT_ENDED;

    if (open_state(s) && load_source(s)) {
        atomic_store_explicit(&s->state, SCRIPT_RUNNING, memory_order_release);
        event_raise(&s->loaded);
        run_timers(s);
    } else {
        end = SCRIPT_FAILED;
    }
    if (atomic_load_explicit(&s->stop, memory_order_acquire))
        end = SCRIPT_STOPPED;
    if (s->L)
        lua_close(s->L);
    s->L = NULL;
    while (s->timers) {
        struct script_timer *t = s->timers;
        s->timers = t->next;
        free(t);
    }
    atomic_store_explicit(&s->state, end, memory_order_release);
    event_raise(&s->loaded);
    event_raise(&s->ended);
    return NULL;
}
