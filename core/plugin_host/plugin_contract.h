/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_contract.h - what the core and a plugin owe each other in a call: see
 * plugin_contract.c.
 */
#ifndef CORE_PLUGIN_HOST_PLUGIN_CONTRACT_H
#define CORE_PLUGIN_HOST_PLUGIN_CONTRACT_H

#include <stdbool.h>

struct host;
struct plugin;
struct probing_host;

/* Its functions, each marked; 0 of one that it has not.                             [control] */
/* Map its file: its constructors run, which are its code, too. */
int plugin_call_constructors(struct plugin *p, int file, const char *path, void **ret_handle);
int plugin_call_init(struct plugin *p);
int plugin_call_configure(struct plugin *p, const char *name, const char *value);
int plugin_call_start(struct plugin *p);
int plugin_call_stop(struct plugin *p);
void plugin_call_destroy(struct plugin *p);
void plugin_call_fork(struct plugin *p, int phase); /* [child] */

/* Calls that break a rule of plugin.h (plugin_contract.c): refused, and said once for each plugin
 * and function, in probing.log and as the plugin's reason. */
enum contract_function {
    CONTRACT_TABLE,
    CONTRACT_COMMAND,
    CONTRACT_SUBSCRIBE,
    CONTRACT_EVERY,
    CONTRACT_EMIT, /* its cells, ... */
    CONTRACT_EMIT_TEXT,
    CONTRACT_EMIT_THREAD,
    CONTRACT_REPLY,
    CONTRACT_INTERN,
    CONTRACT_PUBLISH,
    CONTRACT_APPEND, /* its cells, ... */
    CONTRACT_APPEND_TAIL,
    CONTRACT_APPEND_ID,
    CONTRACT_HOLDS,
    CONTRACT_RESULT,
};
#define CONTRACT_WORDS "wrong call: " /* before each; plugin_check.c looks for it */
void contract_begin(struct host *h);  /* of the host whose plugins call from now on */
void contract_end(const struct host *h);
/* Gives `code`, with that reason.  p NULL: nobody knows whose call it was.              [any] */
int contract_broken(struct plugin *p, enum contract_function f, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* 0: this is the control thread, or there is none yet; else -EWOULDBLOCK.               [any] */
int contract_control(struct plugin *p, enum contract_function f, const char *function);
/* setting_holds(), and -EWOULDBLOCK outside of the plugin's configure(). */
int contract_holds(const struct probing_host *f, const char *name, const char *value);
/* Check the result of a plugin's function: rc up to `most`, else -EPROTO.               [any] */
int contract_result(struct plugin *p, const char *function, const char *name, int rc, int most);
/* Is the calling thread inside of the call that was given `object`?                     [any] */
bool contract_inside(const void *object);
/* It is not: -EWOULDBLOCK.  caller: an address of the plugin's code.                    [any] */
int contract_outside(const void *caller, enum contract_function f, const char *function,
                     const char *of);
void contract_look(struct host *h); /* say what append() was given */

#endif
