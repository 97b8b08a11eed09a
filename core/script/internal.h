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

#include <lua.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "core/script/lua_memory.h"
#include "core/script/script.h"
#include "sdk/lib/buf.h"

#define SCRIPT_NAME_BYTES 64
#define SCRIPT_LINE_BYTES 4096 /* of print */
#define SCRIPT_TABLES_MAX 32   /* that one script may make */
#define SCRIPTS_TABLES_MAX 256 /* that all scripts of a process may make */

enum script_state { SCRIPT_LOADING, SCRIPT_RUNNING, SCRIPT_ENDED, SCRIPT_FAILED, SCRIPT_STOPPED };

struct scripts;
struct script_timer {
    struct script_timer *next;
    uint64_t period_ns, due;
    int function; /* reference in Lua's registry */
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
    pthread_t thread;
    int users;        /* lock: scripts->mutex; who waits for it: not to be freed */
    uint64_t started; /* monotonic ns */
    struct event wake, loaded, ended;
    _Atomic int state;     /* enum script_state */
    _Atomic uint64_t rows; /* added to its tables */
    _Atomic uint64_t errors;
    pthread_mutex_t mutex;
    char error[ERR_TEXT_BYTES]; /* lock: mutex */
    struct share share;
    /* The script's thread only: */
    jmp_buf way_out;
    int end; /* enum script_state: what `state` will be */
    lua_State *L;
    struct memory memory;
    struct buf out, names; /* of the function of ours that runs */
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
    struct event run; /* a script begins to run */
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
/* To who follows; false: it was dropped. */
bool script_publish(struct script *s, const void *payload, uint32_t size);
const char *script_state_name(int state); /* "ended", as in probing.scripts */

/* cpu_budget.c */
bool bucket_take(struct bucket *b, uint32_t at_once, uint32_t a_second);
int share_keep(struct scripts *all); /* lock: mutex.  Start the keeper if there is none */
void share_keep_end(struct scripts *all);
void share_begin(struct script *s); /* Lua code runs from here on; first waits until it may */
void share_end(struct script *s);
void share_pay(struct script *s); /* wait while it has used more than its share, or until stop */

/* lua_api.c */
struct script *script_of(lua_State *L);
int script_open_api(lua_State *L);
/* lua_query.c */
int script_query(lua_State *L);
int script_open_rows(lua_State *L);
/* lua_table.c */
int script_table(lua_State *L);
int script_open_table(lua_State *L);

#endif
