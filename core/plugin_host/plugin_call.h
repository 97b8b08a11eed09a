/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_call.h - calls into a plugin whose result somebody waits for, and which
 * can be left (plugin_call.c).  Private to core/plugin_host.
 */
#ifndef CORE_PLUGIN_HOST_PLUGIN_CALL_H
#define CORE_PLUGIN_HOST_PLUGIN_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"

#define CALL_SUBJECT_BYTES 128 /* of a table's or a command's name */

struct host;
struct plugin;

/* First in a struct of what the call needs, all in one piece of memory: plugin_call_new() makes it,
 * plugin_call_free() frees it where it was not left. */
struct plugin_call {
    struct plugin_call *next, *previous, *queue_next; /* lock: calls.mutex */
    struct plugin *plugin;
    const char *function;              /* "scan"; static */
    char subject[CALL_SUBJECT_BYTES];  /* of what: a table, a command */
    int (*run)(struct plugin_call *c); /* into the plugin's code, on its thread */
    bool (*unwanted)(
        struct plugin_call *c); /* does the caller not want it any more?  May be NULL */
    const void *object;         /* as in struct call_mark */
    uint64_t limit_ns;          /* from its begin; 0: none */
    bool ready_too, always; /* as plugin_enter_ready(); it need not wait for others of its kind */
    uint64_t since;
    bool is_back;                 /* lock: calls.mutex; it was left, and is not inside any more */
    _Atomic uint64_t unwanted_ns; /* since when it was to end; 0: it is not */
    _Atomic pid_t tid;
    uint32_t looks;     /* lock: calls.mutex; of the watch that found it late */
    uint32_t n_refused; /* by its own thread: what it gave that was not taken */
    pthread_mutex_t mutex;
    pthread_cond_t ended_cond;
    bool ended;        /* lock: mutex */
    _Atomic bool left; /* lock: mutex, to change it */
    int code;
    uint64_t cpu_ns; /* that its thread used */
    struct err_kept why;
};

struct plugin_calls {
    pthread_mutex_t mutex;
    pthread_cond_t waiting, changed;    /* a call is queued; one or a thread has ended */
    struct plugin_call *inside, *queue; /* lock: mutex */
    uint32_t n_inside, n_queued;        /* lock: mutex */
    uint32_t n_threads, n_idle;         /* lock: mutex */
    bool stop;                          /* lock: mutex */
};

int calls_init(struct host *h);
void calls_done(struct host *h);
/* No more threads wait for calls.  false: some are inside a plugin, or have not ended. */
bool calls_stop(struct host *h);
void *plugin_call_new(size_t size, struct plugin *p, const char *function, const char *subject);
/* The code of c->run(), its reason kept.  -ESHUTDOWN: the plugin does not run (no reason is kept);
 * -EBUSY: it is inside too many; -ETIME and *ret_left: it has not returned, and the struct is its
 * thread's from now on.                                                                 [any] */
int plugin_call(struct plugin_call *c, bool *ret_left);
void plugin_call_free(struct plugin_call *c);
/* From c->run(), around what touches the caller: emit(), reply().  false: it may not. */
bool plugin_call_enter(struct plugin_call *c);
void plugin_call_exit(struct plugin_call *c);
/* Calls inside a plugin now, and how many of them nobody waits for any more. */
uint32_t calls_inside(struct host *h, const struct plugin *p, uint32_t *ret_left);
/* Is one inside that was to end ns ago, and that nobody waits for? */
bool calls_late(struct host *h, const struct plugin *p, uint64_t ns);
/* Then switch the plugin off: -ETIMEDOUT; -ENOENT: there is none. */
int calls_leave(struct plugin *p, uint64_t ns);
void calls_name_left(struct plugin *p); /* its threads inside are not ours any more */
bool calls_watch(struct host *h);       /* switches off what is late; true: somebody is inside */

#endif
