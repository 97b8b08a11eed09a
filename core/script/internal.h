/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/internal.h - one script's state, shared by the thread that runs it (script.c,
 * lua_api.c) and the workers that start, list and stop scripts (script_manager.c).
 *
 * How a script ends: script_interrupt() raises `stop` and `poll`; Lua looks at `poll` wherever it
 * could run long (poll.h), and script_polled() then leaves for `way_out` by longjmp, from whatever
 * depth.  The state is not closed, it is thrown away: no __gc, no __close, no handler of the script
 * runs after a stop.  So a C function of ours that calls Lua holds nothing that is not reached from
 * the struct script: no lock, no memory of its own (`out` is there for that).
 */
#ifndef CORE_SCRIPT_INTERNAL_H
#define CORE_SCRIPT_INTERNAL_H

#include <lauxlib.h>
#include <lua.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "core/script/lua_memory.h"
#include "core/script/script.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

#define SCRIPT_NAME_BYTES 64
#define SCRIPT_LINE_BYTES 4096 /* of print */
#define SCRIPT_TABLES_MAX 32   /* that one script may make */
#define SCRIPTS_TABLES_MAX 256 /* that all scripts of a process may make */

enum script_state { SCRIPT_LOADING, SCRIPT_RUNNING, SCRIPT_ENDED, SCRIPT_FAILED, SCRIPT_STOPPED };

struct scripts;
/* A function of the script's that is called at a time, or with the rows that came (lua_timer.c). */
struct script_timer {
    struct script_timer *next;
    uint64_t id;
    uint64_t period_ns, due; /* 0: once */
    int function;            /* reference in Lua's registry */
    char name[40];           /* "": none */
    char *select;            /* the rows that it is called with; NULL: called without */
    uint64_t row;            /* the first of them that it has not had */
    bool waits;              /* their table is not there yet */
};

/* So many at once, then so many a second. */
struct bucket {
    uint64_t at;
    double left;
    bool begun;
};

/* A script's use of its share of a core (cpu_budget.c). */
struct share {
    int64_t credit_ns; /* CPU time it may use now; below 0 it waits */
    uint64_t at, cpu_at;
    bool wants;        /* between share_begin() and share_end() */
    _Atomic bool runs; /* and does not wait */
    /* Since it began: of its thread and of what worked for it; waiting because of its share. */
    _Atomic uint64_t cpu_ns, throttled_ns;
};

struct script {
    _Atomic int poll;    /* first, see poll.h: somebody wants something of the thread */
    _Atomic int stop;    /* not 0: end as soon as can be; also the cancel flag of its queries */
    struct script *next; /* lock: scripts->mutex */
    struct scripts *owner;
    char name[SCRIPT_NAME_BYTES];
    char topic[SCRIPT_NAME_BYTES + 8]; /* "script.<name>" */
    char *source;
    size_t size;
    size_t words_size;
    char *words; /* that it was started with: "limit=5", NUL, ... and an empty one */
    char *kept;  /* as JSON, what the one before it of this name has left; NULL */
    pthread_t thread;
    int users;        /* lock: scripts->mutex; who waits for it: not to be freed */
    uint64_t started; /* monotonic ns */
    struct event wake, loaded, ended;
    _Atomic bool ends;        /* it shall end by itself: its function of at_stop may still run */
    _Atomic bool has_end;     /* it has one that has not run */
    _Atomic bool keeps_state; /* `left` is wanted */
    char *left;               /* probing.state as JSON, when it has ended; NULL */
    const char *question;     /* "help" or "check": the source is only looked at; NULL: it is run */
    _Atomic uint64_t dropped; /* rows that came faster than it took them */
    _Atomic int state;        /* enum script_state */
    _Atomic uint64_t rows;    /* added to its tables */
    _Atomic uint64_t errors;
    pthread_mutex_t mutex;
    char error[ERR_TEXT_BYTES]; /* lock: mutex */
    struct share share;
    /* The script's thread only: */
    jmp_buf way_out;
    int end;      /* enum script_state: what `state` will be */
    char *answer; /* to the question, when it has ended; NULL: none */
    lua_State *L;
    struct memory memory;
    struct buf out, names; /* of the function of ours that runs */
    struct arena tree;     /* the same */
    uint64_t last_timer;
    int at_end; /* reference of the function of at_stop, when has_end was set */
    char line[SCRIPT_LINE_BYTES];
    struct script_timer *timers;
    struct table *tables[SCRIPT_TABLES_MAX]; /* it made or found */
    uint32_t n_tables, n_kept_settings;
    uint64_t last_text, text_bytes; /* the newest id of a text of its own; what they take */
    struct bucket log, settings;
    uint64_t unlogged;
};

struct scripts {
    struct host *host;
    struct sql *sql;
    struct host_store store;
    const char *version;
    pthread_mutex_t mutex;
    struct script *first; /* lock: mutex */
    /* cpu_budget.c */
    pthread_t keeper;
    bool keeps; /* lock: mutex */
    _Atomic bool over;
    struct event run;       /* a script begins to run */
    _Atomic int n_commands; /* that are inside, and touch scripts */
    struct event idle;      /* never raised: scripts_free() rests by it */
    bool closed;            /* lock: mutex; no script starts any more */
    _Atomic int n_want, n_run;
    _Atomic size_t memory_bytes; /* mapped by all */
    /* lua_table.c, lua_api.c */
    pthread_mutex_t limits; /* for the rest */
    struct table *tables[SCRIPTS_TABLES_MAX];
    uint32_t n_tables;
    uint64_t text_bytes;
    struct bucket events;
};

/* script.c */
void *script_thread(void *arg);
void script_interrupt(struct script *s); /* end it, from another thread */
void script_error(struct script *s, const char *text);
void script_say(struct script *s, int level, const char *text); /* to the log and to followers */
void script_log(struct script *s, int level, const char *text);
/* To who follows script.NAME or, where `topic` is not "", script.NAME.TOPIC; false: it was
 * dropped. */
bool script_publish(struct script *s, const char *topic, const void *payload, uint32_t size);
const char *script_state_name(int state); /* "ended", as in probing.scripts */

/* script_manager.c */
#define SCRIPT_LOAD_NS (2 * NS_PER_S) /* a script whose first lines take longer is said to run */
/* A script's source and the words that it is started with.  Borrowed. */
struct script_start {
    const char *name, *source;
    size_t size;
    const char *words; /* "limit=5", NUL, ..., and an empty one */
    size_t words_size;
    const char *kept; /* state as JSON; NULL: none */
    uint64_t limit_ns;
};

struct script_view {
    char name[SCRIPT_NAME_BYTES], error[ERR_TEXT_BYTES];
    int state;
    uint64_t started, rows, cpu_ns, throttled_ns, memory_bytes, errors, dropped;
};

int scripts_each(struct scripts *all, int (*fn)(void *arg, const struct script_view *v), void *arg);
/* A copy of the source of a script that was started; caller frees. */
int scripts_source(struct scripts *all, const char *name, char **ret, size_t *ret_size);
/* Start one.  1: its first lines still run. */
int scripts_start(struct scripts *all, const struct script_start *start);
/* The script that runs is ended and started again with its state, from a new source or its own.  A
 * source that cannot be compiled leaves it as it is; where the new one's first lines fail, the old
 * one goes on.  1: its state is lost, since it was in the middle of something. */
int scripts_reload(struct scripts *all, const struct script_start *wanted);
/* Look at a source on a script's thread, which can be ended whatever stands in it.  question:
 * "help", "check" or "compile", a function of source.lua.  *ret is NULL where there is nothing to
 * say; caller frees. */
int scripts_ask(struct scripts *all, const char *question, const struct script_start *start,
                char **ret);

/* script_commands.c */
int script_commands_add(struct scripts *all);
/* script_events.c */
int script_events_add(struct scripts *all);

/* cpu_budget.c */
bool bucket_take(struct bucket *b, uint32_t at_once, uint32_t a_second);
int share_keep(struct scripts *all); /* lock: mutex.  Start the keeper if there is none */
void share_keep_end(struct scripts *all);
void share_begin(struct script *s); /* Lua code runs from here on; first waits until it may */
void share_end(struct script *s);
void share_pay(struct script *s); /* wait while it has used more than its share, or until stop */

/* lua_api.c */
#define SCRIPT_TIME_CLASS "probing.time"
#define SCRIPT_OWN "probing.own" /* in the registry: functions of the prelude for us */
struct script *script_of(lua_State *L);
int script_open_api(lua_State *L);
/* Make a class of userdata.  methods: found by name; more: __call ...  Either may be NULL. */
void script_new_class(lua_State *L, const char *name, const luaL_Reg *methods,
                      const luaL_Reg *more);
int script_add_time(lua_State *L, struct buf *b, int at); /* as SQL writes it */

/* lua_json.c */
int script_open_json(lua_State *L); /* leaves the table on the stack */
/* Add the value at `at`.  -EINVAL, -ELOOP: JSON has no such value; or the buffer's failure. */
int script_add_json(lua_State *L, struct buf *b, int at);
int script_push_json(lua_State *L, const char *text, size_t size); /* -errno: nothing is pushed */

/* lua_query.c */
int script_query(lua_State *L);
int script_open_rows(lua_State *L);
/* Run a statement over a table's rows from_row <= number < to_row (0, 0: all), and leave the answer
 * on the stack.  -errno: nothing is left. */
int script_push_answer(lua_State *L, const char *text, size_t size, uint64_t from_row,
                       uint64_t to_row);
bool script_push_row(lua_State *L, int answer); /* false: there is no more, nil is pushed */

/* lua_on.c */
int script_on(lua_State *L);
int script_run_point(lua_State *L); /* called with a timer's id, when it is due */

/* lua_timer.c */
/* A name that a timer has already is given to the new one, and the old one is cancelled. */
struct script_timer *script_add_timer(lua_State *L, int function, const char *name);
struct script_timer *script_find_timer(const struct script *s,
                                       uint64_t id); /* NULL: it has ended */
void script_remove_timer(struct script *s, const struct script_timer *gone);
/* Leave a handle by which the script cancels it: a number, since the timer may end before. */
int script_push_timer(lua_State *L, const struct script_timer *t);
int script_every(lua_State *L);
int script_after(lua_State *L);
int script_at_stop(lua_State *L);
int script_open_timers(lua_State *L);
/* Leave the function of at_stop on the stack; false: there is none, or it has run. */
bool script_push_end(struct script *s);
/* Leave what is due on the stack, and give how many arguments it has.  -EAGAIN: nothing is, for
 * *ret_wait_ns; -ENOENT: nothing will be. */
int script_push_due(struct script *s, uint64_t now, uint64_t *ret_wait_ns);
void script_timers_free(struct script *s);

/* lua_table.c */
int script_table(lua_State *L);
int script_open_table(lua_State *L);

#endif
