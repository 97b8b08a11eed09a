/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/inner.h - one script's state, shared by the thread that runs it (script.c, api.c) and
 * the workers that start, list and stop scripts (scripts.c).
 */
#ifndef CORE_SCRIPT_INNER_H
#define CORE_SCRIPT_INNER_H

#include <lua.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/thread.h"
#include "core/host/host.h"
#include "core/script/script.h"

#define SCRIPT_NAME_BYTES 64
#define SCRIPT_MEMORY_BYTES \
    ((size_t)64 << 20)        /* of one script's Lua state: design.md asks for a limit */
#define SCRIPT_RUNNING_MAX 32 /* coroutines inside one another */

enum script_state { SCRIPT_LOADING, SCRIPT_RUNNING, SCRIPT_ENDED, SCRIPT_FAILED, SCRIPT_STOPPED };

struct scripts;
struct script_timer {
    struct script_timer *next;
    uint64_t period_ns, due;
    int function; /* reference in Lua's registry */
};

struct script {
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
    _Atomic int stop;      /* not 0: end as soon as can be; also the cancel flag of its queries */
    _Atomic uint64_t rows; /* added to its tables */
    pthread_mutex_t mutex; /* for the three below */
    char error[ERR_TEXT_BYTES];
    lua_State *stack[SCRIPT_RUNNING_MAX]; /* what runs now: the state, then coroutines in it */
    int depth;
    /* The script's thread only: */
    lua_State *L;
    size_t memory_bytes;
    struct script_timer *timers;
};

struct scripts {
    struct host *host;
    struct sql *sql;
    struct host_store store;
    const char *version;
    pthread_mutex_t mutex;
    struct script *first; /* lock: mutex */
};

/* script.c */
void *script_thread(void *arg);
void script_interrupt(struct script *s); /* raise stop and end what runs, from another thread */
void script_error(struct script *s, const char *text);
void script_say(struct script *s, int level, const char *text); /* to the log and to followers */
int script_open_coroutines(lua_State *L);

/* api.c */
struct script *script_of(lua_State *L);
int script_open_api(lua_State *L);
/* rows.c */
int script_query(lua_State *L);
int script_open_rows(lua_State *L);
/* store.c */
int script_table(lua_State *L);
int script_open_table(lua_State *L);

#endif
