/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_host.h - what plugins plug into: settings, commands, events, workers,
 * plugin loading.
 *
 * One struct host a process.  Everything a client can do is a command: a name, words, an answer
 * that streams, a status.  Built-in commands and plugins' commands are the same thing; HTTP,
 * websocket, text protocol and scripts only carry them.
 */
#ifndef CORE_PLUGIN_HOST_HOST_H
#define CORE_PLUGIN_HOST_HOST_H

#include <probing/plugin.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/catalog/catalog.h"
#include "sdk/lib/buf.h"

struct host;

/* How host reaches the store without including it (core/runtime/lifecycle.c fills these). */
struct host_store {
    void *arg;
    int (*table_add)(void *arg, const char *schema, const struct probing_table_desc *d, void *self,
                     struct table **ret);
    int (*intern)(void *arg, const void *p, size_t n, uint64_t *ret_id);
    /* table.<name>.keep=text; 1: there is no such table yet.  May be NULL. */
    int (*keep)(void *arg, const char *table, const char *text);
};

/* Functions that take the declarations of plugins (core/plugin_file/declared.h), which the host
 * keeps.  check: is what stands in them SQL, and are its names free; -EINVAL.  take: loaded false:
 * the plugin is installed, and not in this process.  May be NULL. */
struct declared;
struct host_declares {
    void *arg;
    int (*check)(void *arg, const struct declared *d);
    int (*take)(void *arg, const struct declared *d, bool loaded);
};

struct host_options {
    const char *version;
    const char *plugin_path; /* directories with ':' between, searched for <name>.so; may be NULL */
    struct tables *tables;
    struct host_store store;
    struct host_declares declares;
    bool
        mapped_files; /* a plugin may come from a file that is mapped, when there is none to open */
    uint64_t call_ns; /* how long a plugin's init, start or stop may take; 0: 10 s */
    /* Woken when host_plugins_again() or host_watch() has something to do before the time that was
     * said; NULL: they are called often. */
    struct event *again;
};

int host_new(const struct host_options *o, struct host **ret);
/* Starts the control thread and the workers: 2 "probing/work", up to 8 while all are busy, one more
 * for what is urgent, two for what is so and takes a while, and up to 16 in place of those that
 * wait for a client to read, or for a plugin. */
int host_start(struct host *h);
/* Stop every plugin, newest first.  One whose stop() does not come back, or inside which calls do
 * not return, is given up: no error.  One whose stop() refuses, or which a fork is inside, keeps
 * all of them here: its error, and those that had stopped run again.  force: it is left as it is,
 * and the others stop.                                                                [worker] */
int host_plugins_stop(struct host *h, bool force);
/* The core is about to leave: no command or plugin is taken on any more, and what runs or waits is
 * cancelled, `but` excepted (the reply of the command that asks for this; NULL: none).  Waits a
 * short while for it to end.  -EALREADY: somebody has called this before.             [worker] */
int host_leave(struct host *h, const struct probing_reply *but);
void host_stay(struct host *h); /* leaving was refused: commands are taken again        [worker] */
/* Wait until no command runs or waits, and every done() has returned; at most timeout_ns.
 * 0 or -ETIMEDOUT. */
int host_quiet(struct host *h, uint64_t timeout_ns);
/* Stops plugins (newest first), timers, workers, control; then frees.  Plugin code stays mapped.
 * false: a thread is inside a plugin, which may still use what it was given: the host's memory and
 * the tables have to stay. */
bool host_free(struct host *h);

/* ---- commands ---- */

/* A client, as far as fairness goes: the jobs of different clients are taken in turn.  Its owner
 * zeroes it and keeps it while a request of it is under way; the fields are the host's. */
struct host_client {
    uint32_t waiting, running; /* lock: the workers', as all below */
    size_t waiting_bytes;      /* words of the commands that wait */
    uint64_t turn;             /* of its next job: the least is taken first */
};

struct probing_reply { /* the core's side of one answer; transports embed it */
    /* Called on the worker that runs the command; -ECANCELED: the client has gone. */
    int (*write)(struct probing_reply *r, const void *data, size_t size);
    _Atomic int cancelled;
    bool remote;    /* the client may be on another machine; set before the command is submitted */
    bool read_only; /* the client may run no command with PROBING_WRITES; set by host_submit() */
    /* Set by a command before its first word: no secret is in its answer that this client may not
     * see (core/base/redact.h); else the transport hides them where the client may only read. */
    bool clean;
    bool takes_bytes; /* the client can be given what is no text; set before it is submitted */
    /* Set by a command before its first word when its answer is no text: what it is; static. */
    const char *media_type;
    bool ending; /* set by a command before its last words, after which it ends without a pause */
    bool urgent; /* its command is HOST_URGENT: write() must not wait; set by host_submit() */
    /* Set by a command before it ends: what is incomplete about its answer, where the answer has no
     * place to say so; "" otherwise. */
    char note[256];
};

/* Values of `cancelled`; a command looks only whether it is 0. */
enum { HOST_GONE = 1, HOST_TIMED_OUT = 2, HOST_LEAVING = 3, HOST_CROWDED = 4 };

/* A flag of built-in commands, beside PROBING_WRITES: it waits behind no other command, having a
 * worker of its own.  For short answers from memory, and for what must get through (eject). */
#define HOST_URGENT (1u << 31)
/* With HOST_URGENT: it may take a while (the stop of a plugin, a list by SQL), and shares two
 * workers with others of its kind, none of which a short one waits for. */
#define HOST_LASTS (1u << 30)

/* Add a built-in command; `c` is copied, run gets `self`.  A name of two words ("plugin load")
 * matches two words, and "config =" matches "config" before any NAME=VALUE; argv[0] is then the
 * first word and argv[1] what follows the name ("config =": the NAME=VALUE). */
int host_command_add(struct host *h, const char *owner, const struct probing_command *c,
                     void *self);

struct host_request {
    int argc;
    const char *const *argv; /* copied by host_submit() */
    /* Called in place of the command that argv names, which then only names it in errors; NULL: the
     * command. */
    int (*work)(struct probing_reply *r);
    bool read_only;              /* refuse commands with PROBING_WRITES: -EACCES */
    const char *who;             /* the client; commands with PROBING_WRITES are logged with it */
    struct host_client *client;  /* NULL: the core itself */
    bool stream;                 /* it goes on by itself: few at once, one of a client */
    uint64_t timeout_ns;         /* sets reply->cancelled when it runs out; 0: none */
    struct probing_reply *reply; /* lives until done() has returned */
    /* Called once, on a worker (or at once when refused): status as of run(); `error` is the
     * reason when status < 0, else "". */
    void (*done)(struct probing_reply *r, int status, const char *error);
};
/* Queue a command for the workers.  0, or -EAGAIN when 256 wait already (or 64 MiB of words) and no
 * other client has more of these: else the newest of the client with the most gets the -EAGAIN, by
 * its done() on this thread; -ENOENT unknown command (names the nearest), -EACCES, -ESHUTDOWN while
 * the core leaves.                                                                     [any] */
int host_submit(struct host *h, const struct host_request *r);
/* The write() of a running command waits for its client to read, since since_ns (clock_now(); 0: no
 * longer): another worker may take its place meanwhile.  Called again and again while it waits.
 * true: no place is left, others wait and none waits for a client as long as this one: it is
 * cancelled.                                                                        [worker] */
bool host_waits_for_client(struct host *h, struct probing_reply *r, uint64_t since_ns);
/* Run a command on this thread and wait for it: for scripts and tests.              [worker] */
int host_run(struct host *h, int argc, const char *const *argv, struct probing_reply *reply);
/* Run fn(arg) on the control thread and wait for it (plugin load and the like).  */
int host_on_control(struct host *h, int (*fn)(void *arg), void *arg);
/* Every command that can run now (name, usage, doc, flags), in order of name.        [worker] */
int host_commands(struct host *h, int (*fn)(void *arg, const struct probing_command *c), void *arg);

int host_replyf(struct probing_reply *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- settings ---- */

/* Add a table of settings under `owner` ("probing", "server", a plugin).  set() is called with a
 * value that has passed type and range, on [control]; may be NULL. */
int host_settings_add(struct host *h, const char *owner, const struct probing_config *table,
                      uint32_t stride, int (*set)(void *self, const char *name, const char *value),
                      void *self);
/* name: "torch.detect_nan".  -ENOENT names the nearest, -EINVAL/-ERANGE say what is allowed,
 * -EBUSY: not LIVE and its owner runs.  A setting of a plugin not loaded yet is kept for it: gives
 * 1.
 * Numbers may be written with their unit: "10s" or plain ns for PROBING_NS, "64MB" or plain bytes
 * for PROBING_BYTES, on/off for 0 to 1; set() and configure() get the plain number.
 * "table.python.torch_trace.keep" (or without the schema) goes to the store, see
 * store_retention_set(); gives 1 for a table that is still to come.                   [worker] */
int host_config_set(struct host *h, const char *name, const char *value);
int host_config_get(struct host *h, const char *name, struct buf *ret); /* [any] */
/* The name of a setting without a "probing." before its owner.                          [any] */
const char *host_setting_name(const char *name);
/* Is there somebody whose setting this is or may be: the core, a table, a plugin that is loaded or
 * installed, or that probing.plugins names?                                           [worker] */
bool host_setting_has_owner(struct host *h, const char *name);
/* Does a plugin, loaded or installed, call one of its settings so ("probing.sample_rate")? [worker]
 */
bool host_config_alias(struct host *h, const char *name);
/* The name that a setting is kept under, as far as is known; HOST_SETTING_BYTES.         [any] */
#define HOST_SETTING_BYTES 128
const char *host_config_name(struct host *h, const char *name, char *ret);

/* ---- plugins ---- */

/* Load, init, configure, start.  path: a file, or NULL to search the plugin path for `name`; fd:
 * an open file to take instead (-1: none; stays the caller's).  -EALREADY: it is loaded.  [worker]
 */
int host_plugin_load(struct host *h, const char *name, const char *path, int fd);
int host_plugin_stop(struct host *h,
                     const char *name); /* stop + destroy; -ENOENT, -EBUSY [worker] */
/* Tell what is not as it should be with a plugin, in one line; "": nothing.             [worker] */
void host_plugin_note(struct host *h, const char *name, struct buf *ret);
/* Name of the plugin whose file is mapped with this difference between addresses and its own
 * (l_addr of its link map); lives as long as the host.  NULL: none.  No lock.           [any] */
const char *host_plugin_at(struct host *h, uint64_t bias);
/* How long a plugin's function may take, from now on (call_ns of host_options).         [any] */
void host_call_limit(struct host *h, uint64_t call_ns);
/* A plugin whose event handler does not come back is given up, like one whose start does not; an
 * every() function that is late is named.  Gives when it wants to be called again: in a second
 * where one is inside, else in five.  By one thread, no worker. */
uint64_t host_watch(struct host *h);
/* Names of plugins whose init, start, stop or handler was given up and has not come back, with ", "
 * between; gives how many. */
uint32_t host_plugins_inside(struct host *h, struct buf *ret);
/* The same of those that refused to stop, and were left as they are. */
uint32_t host_plugins_staying(struct host *h, struct buf *ret);
/* Load several ("python,torch"): all are initialised before any is started.  A plugin that is not
 * found or fails is logged and listed, and the others go on.                          [worker] */
int host_plugin_load_all(struct host *h, const char *names);
/* Try those of host_plugin_load_all() again that said -EAGAIN, "not yet" (torch: not imported).
 * Gives how many still wait.                                                         [worker] */
uint32_t host_plugins_again(struct host *h);
/* Open the second door, a SOCK_SEQPACKET socket at `path` (0600; peers must have our uid or be
 * root).  One message: "plugin NAME" with the plugin's file as descriptor (SCM_RIGHTS), a socket
 * of the web kind cannot carry one.  One answer: "ok" or "error: WHY".  Closed by host_free(). */
int host_upload_socket_open(struct host *h, const char *path);

/* ---- events ---- */

/* [any]; copied; handlers run later on [control], in order.  -ENOBUFS: 1,024 wait, dropped. */
int host_publish(struct host *h, const char *topic, const void *payload, uint32_t size);
/* topic: whole, or ending in '*' for a prefix.  fn runs on [control].  Gives an id > 0. */
int host_subscribe(struct host *h, const char *topic,
                   void (*fn)(void *arg, const char *topic, const void *payload, uint32_t size),
                   void *arg);
void host_unsubscribe(struct host *h, int id); /* after it returns fn runs no more; not from fn */

/* A part that the core or a plugin that runs offers; NULL: none.  Its user sees to it that the
 * plugin is not stopped meanwhile, or that the part is of the kind that says so.          [any] */
const void *host_extension(struct host *h, const char *id);

/* ---- what plugins declare (declarations.c) ---- */

/* Call fn with what each plugin that runs declares, or with `stopped` also those that were loaded
 * and do not run any more; below 0 ends it.                                                [any] */
int host_declared_each(struct host *h, bool stopped, int (*fn)(void *arg, const struct declared *d),
                       void *arg);
/* Look at what the plugins in the plugin path declare that are not in this process. [worker] */
void host_declared_find(void *host);
/* Why a view of that plugin has no table to read; host: a struct host.              [worker] */
int host_why_no_table(void *host, const char *plugin, const char *table, char *text, size_t size);

/* Why a plugin's table has no rows, in words that go after its name; host: a struct host.  0, or
 * -ENOENT: nobody knows.                                                           [worker] */
int host_why_empty(void *host, const struct table *t, char *text, size_t size);

/* Tell fn what plugins that run cost the program's threads (probing/ext/draft/cost.h).  [worker] */
struct probing_cost;
int host_costs_each(struct host *h, int (*fn)(void *arg, const struct probing_cost *c), void *arg);

/* Offer an extension of the core ("probing.stack/1"). */
int host_extension_add(struct host *h, const char *id, const void *part);

/* Offer "probing.stack/1" over core/stack; _off: nobody is looked at any more, and its signal is
 * given back.  host_free() does that too. */
int host_stack_add(struct host *h);
void host_stack_off(struct host *h);

/* Offer "probing.signal/1" over core/guest/owned_signals.h. */
int host_signal_add(struct host *h);

/* Offer "probing.loss/1" over the counters of the tables. */
int host_loss_add(struct host *h);

/* Add a computed table of the core's own, for those who may not see core/ring.            [any] */
int host_table_add(struct host *h, const struct probing_table_desc *d, void *self);

/* Rows for those who may not see core/ring (scripts): ring_append() and the clock.      [any] */
int host_append(struct table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                const void *tail, uint32_t tail_n);

void host_log_level(struct host *h,
                    int level); /* PROBING_ERROR to _DEBUG; lines above it are dropped */
void host_logs(struct host *h, int level, const char *source, const char *text); /* [any] */
void host_log(struct host *h, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- fork: called from core/runtime/lifecycle.c's single pthread_atfork ---- */

/* PROBING_FORK_BEFORE and _PARENT, on the thread that forks. */
void host_fork(struct host *h, int phase);
/* From then on every function of the host does nothing; its descriptors are closed.    [child] */
void host_disable_in_child(struct host *h);
/* Before a forked child makes a host of its own: locks that other threads of the parent may have
 * held are new, and what they guarded is forgotten where it was the parent's. */
void host_begin_in_child(void);
/* Names of the plugins that ran in the parent when the child was forked, with ',' between.  In the
 * child, before its own host: `h` is the parent's, as memory.  Gives how many. */
uint32_t host_plugins_of_parent(struct host *h, struct buf *ret);

#endif
