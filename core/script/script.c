/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script.c - a script's thread: its state with safe libraries, its timers, its end.
 *
 * Threads: "probing/lua" runs all Lua code of its script; script_interrupt() comes from a worker.
 * How a script is ended stands in internal.h.
 * Nothing here can reach the process's stdout, files, environment or Python: what a script may do
 * is in lua_api.c.
 */
#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/clock.h"
#include "core/script/internal.h"
#include "core/script/pack.h"
#include "core/script/poll.h"
#include "core/sql/sql.h"
#include "sdk/lib/json.h"

#define SAY_MAX_BYTES 65536
#define STATE_MAX_BYTES 65536
#define FOREVER_NS (3600 * NS_PER_S)
#define LOG_AT_ONCE 200      /* lines of the 1,000 in probing.log */
#define LOG_A_SECOND 1       /* lines */
#define EVENTS_AT_ONCE 512   /* of all scripts: half of the queue that they share with the rest */
#define EVENTS_A_SECOND 5000 /* a tenth of what the control thread hands on */

/* ---- being stopped ---- */

void script_interrupt(struct script *s)
{
    atomic_store_explicit(&s->stop, 1, memory_order_release);
    atomic_store_explicit(&s->poll, 1, memory_order_release);
    event_raise(&s->wake);
}

/* Called by Lua's own code wherever it could run long, when `poll` is raised: the keeper's tick, or
 * the end.  The flag is lowered before `stop` is looked at, so that no stop is missed. */
void script_polled(lua_State *L)
{
    struct script *s = script_of(L);
    (void)atomic_exchange_explicit(&s->poll, 0, memory_order_acq_rel);
    if (!atomic_load_explicit(&s->stop, memory_order_acquire))
        share_pay(s);
    if (atomic_load_explicit(&s->stop, memory_order_acquire)) {
        s->end = SCRIPT_STOPPED;
        longjmp(s->way_out, 1);
    }
}

/* Lua calls this where an error has nobody to catch it, and would then end the process. */
static int lua_panicked(lua_State *L)
{
    struct script *s = script_of(L);
    const char *text = lua_tostring(L, -1);
    script_error(s, text ? text : "error without a message");
    s->end = SCRIPT_FAILED;
    longjmp(s->way_out, 1);
}

/* ---- what it says ---- */

void script_error(struct script *s, const char *text)
{
    (void)pthread_mutex_lock(&s->mutex);
    (void)snprintf(s->error, sizeof(s->error), "%s", text);
    (void)pthread_mutex_unlock(&s->mutex);
    (void)atomic_fetch_add_explicit(&s->errors, 1, memory_order_relaxed);
}

/* probing.log keeps the last thousand lines of everybody, so one script may not fill it. */
void script_log(struct script *s, int level, const char *text)
{
    char line[128];
    if (!bucket_take(&s->log, LOG_AT_ONCE, LOG_A_SECOND)) {
        s->unlogged++;
        return;
    }
    if (s->unlogged) {
        (void)snprintf(line, sizeof(line),
                       "%llu of its lines were not kept because it logs too much",
                       (unsigned long long)s->unlogged);
        host_logs(s->owner->host, PROBING_WARN, s->topic, line);
    }
    s->unlogged = 0;
    host_logs(s->owner->host, level, s->topic, text);
}

/* Events of everybody wait in one queue of 1,024. */
bool script_publish(struct script *s, const char *topic, const void *payload, uint32_t size)
{
    struct scripts *all = s->owner;
    char name[2 * sizeof(s->topic)];

    (void)snprintf(name, sizeof(name), "%s%s%s", s->topic, topic[0] ? "." : "", topic);
    (void)pthread_mutex_lock(&all->limits);
    bool may = bucket_take(&all->events, EVENTS_AT_ONCE, EVENTS_A_SECOND);
    (void)pthread_mutex_unlock(&all->limits);
    return may && host_publish(all->host, name, payload, size) == 0;
}

void script_say(struct script *s, int level, const char *text)
{
    struct buf b;
    static const uint32_t room = 0; /* where the payload's size goes */

    script_log(s, level, text);
    buf_init(&b, SAY_MAX_BYTES);
    (void)buf_add(&b, &room, sizeof(room));
    (void)json_add_text(&b, text, strnlen(text, SAY_MAX_BYTES / 8));
    if (!b.failed) {
        uint32_t size = (uint32_t)b.size;
        memcpy(b.data, &size, sizeof(size));
        (void)script_publish(s, "", b.data, size); /* full: followers miss it */
    }
    buf_done(&b);
}

#define END_TRIES 100 /* rests of 10 ms until the queue of events takes its end */

/* Tell the followers of the script that it has ended: an event on a topic of its own, in order
 * behind what it has published. */
static void publish_end(struct script *s)
{
    char topic[sizeof(s->topic) + 4];
    struct buf b;
    uint32_t size = 0;

    buf_init(&b, SAY_MAX_BYTES);
    (void)buf_add(&b, &size, sizeof(size));
    (void)buf_addc(&b, '{');
    (void)pthread_mutex_lock(&s->mutex);
    json_add_member_text(&b, "error", s->error);
    (void)pthread_mutex_unlock(&s->mutex);
    (void)buf_addf(&b, "\"state\": \"%s\"}", script_state_name(s->end));
    (void)snprintf(topic, sizeof(topic), "%s.end", s->topic);
    if (!b.failed) {
        size = (uint32_t)b.size;
        memcpy(b.data, &size, sizeof(size));
        for (int i = 0; i < END_TRIES; i++) {
            if (host_publish(s->owner->host, topic, b.data, size) != -ENOBUFS)
                break;
            (void)event_wait(&s->wake, 10 * NS_PER_MS);
        }
    }
    buf_done(&b);
}

/* ---- running ---- */

static int open_all(lua_State *L)
{
    static const luaL_Reg libraries[] = {
        {LUA_GNAME, luaopen_base},        {LUA_TABLIBNAME, luaopen_table},
        {LUA_STRLIBNAME, luaopen_string}, {LUA_MATHLIBNAME, luaopen_math},
        {LUA_UTF8LIBNAME, luaopen_utf8},  {LUA_COLIBNAME, luaopen_coroutine}};
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
    (void)script_open_rows(L);
    (void)script_open_table(L);
    (void)script_open_timers(L);
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
static bool call_lua(struct script *s, int n_args)
{
    lua_State *L = s->L;
    int base = lua_gettop(L) - n_args;

    lua_pushcfunction(L, message_of);
    lua_insert(L, base);
    share_begin(s);
    int status = lua_pcall(L, n_args, 0, base);
    share_end(s);
    if (status != LUA_OK) {
        const char *text = lua_tostring(L, -1);
        script_error(s, text ? text : "error without a message");
    }
    lua_settop(L, base - 1);
    return status == LUA_OK;
}

static void *allocate_block(void *arg, void *old, size_t old_size, size_t size)
{
    struct script *s = arg;
    return memory_change(&s->memory, old, old_size, size);
}

static bool open_state(struct script *s)
{
    s->L = lua_newstate(allocate_block, s); /* which keeps s where script_of() finds it */
    if (!s->L) {
        script_error(s, "no memory for a Lua state");
        return false;
    }
    (void)lua_atpanic(s->L, lua_panicked);
    lua_pushcfunction(s->L, open_all);
    return call_lua(s, 0);
}

/* Words that no probing.args() has asked for are a mistake. */
static bool refuse_unused_words(struct script *s)
{
    lua_getfield(s->L, LUA_REGISTRYINDEX, SCRIPT_OWN);
    lua_getfield(s->L, -1, "refuse_unused_words");
    lua_remove(s->L, -2);
    return call_lua(s, 0);
}

/* Text only ("t"); the chunk's name makes messages say "slow_step:3: ...". */
static bool load_source(struct script *s)
{
    char chunk[SCRIPT_NAME_BYTES + 2];
    (void)snprintf(chunk, sizeof(chunk), "=%s", s->name);
    share_begin(s);
    int status = luaL_loadbufferx(s->L, s->source, s->size, chunk, "t");
    share_end(s);
    if (status == LUA_OK)
        return call_lua(s, 0) && refuse_unused_words(s);
    const char *text = lua_tostring(s->L, -1);
    script_error(s, text ? text : "the source could not be read");
    lua_settop(s->L, 0);
    return false;
}

/* An error in a callback is said, and the script goes on. */
static void run_timers(struct script *s)
{
    while (!atomic_load_explicit(&s->stop, memory_order_acquire) &&
           !atomic_load_explicit(&s->ends, memory_order_acquire)) {
        uint64_t wait = 0;
        int n_args = script_push_due(s, clock_now(), &wait);
        if (n_args == -ENOENT)
            return;
        if (n_args < 0)
            (void)event_wait(&s->wake, wait < FOREVER_NS ? wait : FOREVER_NS);
        else if (!call_lua(s, n_args))
            script_say(s, PROBING_ERROR, s->error);
    }
}

/* ---- the end ---- */

static int encode_state(lua_State *L)
{
    struct script *s = script_of(L);

    lua_getglobal(L, "probing");
    if (lua_getfield(L, -1, "state") != LUA_TTABLE)
        return luaL_error(L, "probing.state is no table any more, so it is not kept");
    buf_done(&s->out);
    buf_init(&s->out, STATE_MAX_BYTES);
    int rc = script_add_json(L, &s->out, -1);
    if (rc < 0)
        return luaL_error(L, "probing.state is not kept: it %s",
                          rc == -ENOBUFS ? "has more than 64 KiB as JSON" : err_why(rc));
    s->left = strdup(buf_text(&s->out));
    return 0;
}

/* The script's own last words.  A stop that comes meanwhile ends these, too. */
static void run_last_words(struct script *s)
{
    if (script_push_end(s) && !call_lua(s, 0))
        script_say(s, PROBING_ERROR, s->error);
    if (!atomic_load_explicit(&s->keeps_state, memory_order_acquire))
        return;
    lua_pushcfunction(s->L, encode_state);
    if (!call_lua(s, 0))
        script_say(s, PROBING_WARN, s->error);
}

/* ---- a source that is only looked at ---- */

/* sql_check_select() knows selects only. */
static bool is_other_statement(const char *text)
{
    static const char *const words[] = {"show", "describe", "explain", "set", "summarize"};

    text += strspn(text, " \t\n");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncasecmp(text, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static int check_sql(lua_State *L)
{
    struct script *s = script_of(L);
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    struct sql_placeholder p = {0};
    size_t from = 0;

    buf_done(&s->out);
    buf_init(&s->out, 2 * size + 1);
    while (sql_next_placeholder(text, size, &p)) {
        (void)buf_add(&s->out, text + from, p.begin - from);
        (void)buf_adds(&s->out, "null");
        from = p.end;
    }
    (void)buf_add(&s->out, text + from, size - from);
    if (s->out.failed || is_other_statement(buf_text(&s->out)) ||
        sql_check_select(s->out.data, s->out.size) >= 0)
        lua_pushnil(L);
    else
        lua_pushstring(L, err_text());
    buf_done(&s->out);
    return 1;
}

/* Leave the functions of source.lua in the table of the prelude's own. */
static int open_questions(lua_State *L)
{
    if (luaL_loadbufferx(L, (const char *)pack_source_lua, pack_source_lua_size, "=probing", "t") !=
        LUA_OK)
        return lua_error(L);
    lua_getfield(L, LUA_REGISTRYINDEX, SCRIPT_OWN);
    lua_pushcfunction(L, check_sql);
    lua_setfield(L, -2, "check_sql");
    lua_call(L, 1, 0);
    return 0;
}

static int answer_question(lua_State *L)
{
    struct script *s = script_of(L);

    (void)open_questions(L);
    lua_getfield(L, LUA_REGISTRYINDEX, SCRIPT_OWN);
    lua_getfield(L, -1, s->question);
    lua_pushlstring(L, s->source, s->size);
    lua_call(L, 1, 1);
    s->answer = lua_isnil(L, -1) ? NULL : strdup(lua_tostring(L, -1));
    return 0;
}

/* Gives how it ended, unless it was ended: that leaves by `way_out`. */
static int run_script(struct script *s)
{
    int end = SCRIPT_ENDED;

    if (!open_state(s))
        return SCRIPT_FAILED;
    if (s->question) {
        lua_pushcfunction(s->L, answer_question);
        return call_lua(s, 0) ? SCRIPT_ENDED : SCRIPT_FAILED;
    }
    if (!load_source(s)) {
        end = SCRIPT_FAILED;
    } else if (s->timers) { /* else it has ended, and who waits for `loaded` shall see that */
        atomic_store_explicit(&s->state, SCRIPT_RUNNING, memory_order_release);
        event_raise(&s->loaded);
        run_timers(s);
    }
    run_last_words(s);
    bool ended = atomic_load_explicit(&s->stop, memory_order_acquire) ||
                 atomic_load_explicit(&s->ends, memory_order_acquire);
    return ended ? SCRIPT_STOPPED : end;
}

void *script_thread(void *arg)
{
    struct script *s = arg;

    memory_init(&s->memory, &s->owner->memory_bytes);
    if (setjmp(s->way_out) == 0)
        s->end = run_script(s);
    share_end(s);
    s->L = NULL;
    memory_done(&s->memory); /* no lua_close(): it would run the script's finalizers */
    buf_done(&s->out);
    buf_done(&s->names);
    arena_done(&s->tree);
    script_timers_free(s);
    if (!s->question)
        publish_end(s);
    atomic_store_explicit(&s->state, s->end, memory_order_release);
    event_raise(&s->loaded);
    event_raise(&s->ended);
    return NULL;
}
