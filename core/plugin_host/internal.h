/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/internal.h - what the files of core/plugin_host share: one struct a part, all
 * inside struct host.
 *
 * Threads: each part has its own lock, named beside its fields.  None is held while a plugin's code
 * runs.  The one order: control, then workers (a timer's tick is queued under both); else no lock
 * of one part is held while another part is called.
 */
#ifndef CORE_PLUGIN_HOST_INTERNAL_H
#define CORE_PLUGIN_HOST_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/call_mark.h"
#include "core/plugin_host/plugin_call.h"
#include "core/plugin_host/plugin_contract.h"
#include "core/plugin_host/plugin_host.h"
#include "sdk/lib/proc/identity.h"

#define HOST_NAME_BYTES 64 /* a plugin's name and its NUL */
#define PLUGIN_PATH_BYTES 4096
#define HOST_WORKERS 2       /* always there */
#define HOST_WORKERS_MAX 8   /* while every worker is inside a command that waits for something */
#define HOST_WORKERS_MORE 16 /* in place of those that wait for their client to read */
#define HOST_WORKERS_OWN 3   /* the last: of what is urgent, one, and of what may take a while */
#define HOST_WORKERS_ALL (HOST_WORKERS_MAX + HOST_WORKERS_MORE + HOST_WORKERS_OWN)
#define HOST_CLIENT_MAX 4    /* commands of one client run at once */
#define HOST_STREAMS_MAX 4   /* ticks of streams run at once, one of a client */
#define HOST_PLUGIN_CALLS 6  /* of one plugin: commands and ticks that run, scans that run */
#define HOST_CALLS_MAX 16    /* calls inside all plugins: other commands keep their places */
#define HOST_WAITING_MAX 256 /* commands in the queue */
#define HOST_WAITING_BYTES ((size_t)64 << 20) /* words of these: the memory is the process' */
#define HOST_EVENTS_MAX 1024 /* events in the queue: plugin_host.h promises -ENOBUFS above */
#define HOST_PLUGINS_MAX 64
#define HOST_FILES_MAX 256 /* of plugins, that are looked into */
#define HOST_EXTENSIONS_MAX 16
#define HOST_LOG_LINES 1000
#define HOST_UPLOAD_CLIENTS 8 /* connections at a time */

/* As pthread_cond_timedwait() on CLOCK_MONOTONIC takes it. */
static inline struct timespec in_future(uint64_t ns)
{
    uint64_t at = clock_monotonic() + ns;
    return (struct timespec){.tv_sec = (time_t)(at / NS_PER_S),
                             .tv_nsec = (int64_t)(at % NS_PER_S)};
}

/* ---- plugins (plugin.c, plugin_load.c, plugin_timeout.c, plugin_api.c) ---- */

enum plugin_state {
    PLUGIN_LOADING,
    PLUGIN_READY,
    PLUGIN_RUNNING,
    PLUGIN_STOPPING,
    PLUGIN_STOPPED,
    PLUGIN_FAILED
};

/* INSIDE: its init, start, stop or a handler runs now; GIVEN_UP: one of these was, and undoes the
 * plugin itself when it returns; LEFT: calls were that are counted in `running`, the last of which
 * to return undoes it (BACK). */
enum plugin_call_state { CALL_NONE, CALL_INSIDE, CALL_GIVEN_UP, CALL_LEFT, CALL_BACK };

#define LEAK_MOST 32 /* of each kind, what is remembered of a plugin */

struct leak_before;
struct born_fd {
    int fd;
    uint64_t what; /* it is of: a number is given again */
};

struct plugin_part; /* a table or subscription that a plugin asked for: see plugin_api.c */

/* One for each name; lives as long as the host, through any number of loads. */
struct plugin {
    struct host *host;
    char name[HOST_NAME_BYTES];
    _Atomic int state;         /* enum plugin_state; changed on the control thread */
    _Atomic uint32_t running;  /* commands, scans, ticks, handlers inside its code now */
    _Atomic uint32_t forks;    /* forks between BEFORE and PARENT */
    struct probing_plugin api; /* our own copy, zeroed beyond what the plugin gave */
    void *self;
    struct probing_host face;  /* what it was given */
    struct plugin_part *parts; /* control thread */
    _Atomic uint64_t users; /* bit per plugin that holds an extension of ours: index in the list */
    uint32_t index;
    _Atomic bool later; /* and it said "not yet": it is tried again */
    _Atomic int call;   /* enum plugin_call_state */
    uint32_t n_jobs;    /* lock: the workers'; threads of theirs that run its commands and ticks */
    _Atomic bool stays; /* it refused to stop, and the core leaves all the same */
    _Atomic uint64_t handling_since; /* monotonic ns; 0: no handler of it runs */
    _Atomic uint32_t broken_rules;   /* bits of enum contract_function: said in this load */
    _Atomic pid_t left_tid;          /* the control thread that was left to its handler */
    void *handle;                    /* of its file; the control thread writes */
    struct leak_before *before;      /* control thread, as all of plugin_leaks.c's */
    int born_threads[LEAK_MOST];
    struct born_fd born_fds[LEAK_MOST];
    uint32_t n_born_threads, n_born_fds;
    uint32_t n_late;                         /* loads that came back after they were given up */
    const struct declared *_Atomic declared; /* NULL: nothing; lives as long as the host */
    char *version, *doc, *path, *reason;     /* lock: host->plugins_lock */
};

static inline int plugin_state_of(const struct plugin *p)
{
    return atomic_load_explicit(&p->state, memory_order_seq_cst);
}

static inline void plugin_state_set(struct plugin *p, int state)
{
    atomic_store_explicit(&p->state, state, memory_order_seq_cst);
}

struct plugin *plugin_find(struct host *h, const char *name); /* NULL: none           [any] */
void plugin_text_set(struct plugin *p, char **at, const char *text);
/* It uses no other plugin's extension any more: those may stop. */
void plugin_release_others(struct plugin *p);
/* It is FAILED: which step and why, in one line for the table, the log and the caller.  Gives
 * `code`. */
int plugin_refuse(struct plugin *p, const char *step, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Its file (plugin_load.c).  Open it: by descriptor, path, or name in the plugin path; -errno. */
int image_open(struct host *h, const char *name, const char *path, int fd,
               char ret_path[PLUGIN_PATH_BYTES]);
/* Is there room for what it declares that it takes?  A limit that a plugin meets is met by the
 * program, too, which may end for it.  file: below 0 where its code is mapped already.  0, or
 * -ENOMEM, -EMFILE, -EAGAIN with err_set(): the limit, and how to raise it. */
int image_check_room(const char *name, int file);
/* Map a copy of the file, or find that it is mapped (sealed_copy.h).  `path`: its own, for where
 * there can be no copy; NULL: by fd.  0, or -errno with err_set(). */
int image_map(int fd, const char *name, const char *path, void **ret_handle);
/* Give the handle of a file that is mapped already, though there is none to open: it came through
 * the door of an earlier life, or of the parent of this process. */
void *image_named(const char *name);
void image_set_name(const void *handle, const char *name);
/* A call into it was given up and has not come back, in whatever life of the core. */
bool image_inside(const void *handle);
bool image_is_there(struct host *h, const char *name); /* in the plugin path */
void image_inside_set(const void *handle, bool inside);

/* Check before use what the plugin hands over (pointer_check.c).  0, or -errno with err_set(). */
bool given_bytes(const void *at, size_t n);
bool given_text(const char *text);
size_t given_copy(const void *at, void *ret, size_t n); /* gives how many bytes there are */
int given_plugin(const struct probing_plugin *api);
/* All of it, before anything is copied: plugin_refuse() where it is wrong. */
int given_whole(struct plugin *p, const struct probing_plugin *api);
int given_table(const struct probing_table_desc *d);
int given_command(const struct probing_command *c);

/* Copy and check what it declares (declarations.c); make it known from now on.  [control] */
int declared_take(struct plugin *p, const struct probing_plugin *api);
int declared_publish(struct plugin *p);
/* Lines about plugins that are installed where the command is (declared.h), in an open file. */
int declared_told(struct host *h, int fd);
void declared_free_all(struct host *h);

/* Find what it leaves behind (plugin_leaks.c): around each call into it, and in words when it is
 * gone. */
void leak_begin(struct plugin *p);
void leak_end(struct plugin *p, bool is_control);
void leak_forget(struct plugin *p);
uint32_t leak_threads(const struct plugin *p); /* that it has started so far */
/* It has failed, and everything of it is undone: plugin_refuse() with what it leaves behind. */
int leak_refuse(struct plugin *p, const char *step, int code, const char *why);
void leak_stopped(struct plugin *p, int r); /* the same after its stop(), which gave r */

/* Calls that may not come back (plugin_timeout.c).  Around init, start and stop: */
void plugin_call_begin(struct plugin *p);
bool plugin_call_try(struct plugin *p); /* the same while it runs; false: it is left */
/* false: it was given up meanwhile, nobody waits for its result, and this is not the control
 * thread any more: plugin_undo() what it has made. */
bool plugin_call_end(struct plugin *p);
int plugin_undo(struct plugin *p, bool started, bool made);
int plugin_give_up(struct host *h, const char *name, const char *step);
void plugin_try_later(struct plugin *p, bool later);
int plugin_is_inside(const struct plugin *p); /* -EBUSY: a call that was given up; 0 of NULL */

/* A load on the control thread owns what it needs: its caller may give up before it ends. */
struct load {
    struct host *host;
    char name[HOST_NAME_BYTES * 2];
    char *path;
    int fd;
    bool start;        /* it is prepared: launch */
    bool again;        /* its file as it is mapped: it has just run */
    _Atomic bool left; /* its caller has given up */
    struct load *next; /* lock: plugins_lock */
};

/* One step of a load: prepared, or (LOAD_START) started; LOAD_AGAIN: with its code as it is mapped,
 * even while the core leaves. */
enum { LOAD_START = 1, LOAD_AGAIN = 2 };
int plugin_load_step(struct host *h, const char *name, const char *path, int fd, int how);
const char *plugin_why(int code); /* what its function kept, or what the code means */
/* It was begun, and is not wanted.  false: this thread was left, and has undone it. */
bool plugin_destroy(struct plugin *p);
bool load_enter(struct load *l); /* false: another one of this plugin goes on */
void load_end(struct load *l);
void load_leave(struct host *h, const char *name);   /* its caller gives up                 [any] */
bool load_goes_in(struct load *l, struct plugin *p); /* false: load_unwanted() */
int load_unwanted(struct plugin *p, bool made);
int load_undo(struct plugin *p, bool started, bool made); /* of one that came back late */
int plugin_give_up_tick(struct plugin *p);
/* Its configure(), after it has been entered; leaves it.                          [control] */
int plugin_configure(struct plugin *p, const char *name, const char *value);
/* Calls of it do not return: it is FAILED, and why.  -ETIMEDOUT, or -EBUSY: a handler of it is
 * inside, or it is given up already. */
int plugin_switch_off(struct plugin *p, const char *why);

/* Count ourselves into the plugin's code, and mark which function the thread calls there: m's
 * function, name and object are the caller's; NULL: the caller marks it.  false: it does not run,
 * stay out.                                                                              [any] */
bool plugin_enter(struct plugin *p, struct call_mark *m);
/* Also when it is initialised only: for extensions. */
bool plugin_enter_ready(struct plugin *p, struct call_mark *m);
void plugin_leave(struct plugin *p, const struct call_mark *m);

void plugin_left(struct plugin *p);     /* tell who waits for the plugin to be empty */
void plugin_api_init(struct plugin *p); /* fill p->face */
void plugin_api_stop(struct plugin *p); /* no subscriptions, timers; tables retired  [control] */
void plugin_api_free(struct plugin *p);
void plugins_fork(struct host *h, int phase);
/* Tell the plugins that they are in a child.                                            [child] */
void plugins_disable_in_child(struct host *h);
void plugins_free(struct host *h);
const char *plugin_state_name(int state);
/* A handler begins (false: not while the plugin is left); it has ended.  Control thread, or the one
 * that was left to the handler. */
bool plugin_handler_begin(struct plugin *p);
void plugin_handler_end(struct plugin *p);
/* A control thread that was left to a plugin's handler has come back, and ends: undo the plugin. */
void plugins_thread_back(struct host *h, pid_t tid);
void plugin_came_back(struct plugin *p); /* a worker that was left to it */
void plugin_late(struct plugin *p, const char *what, uint64_t ns); /* say so; NULL: it came back */

/* ---- workers and commands (worker_pool.c, command.c) ---- */

struct job {
    struct job *next, *previous;
    void (*run)(struct host *h, struct job *j); /* frees the job, or it belongs to somebody */
    struct plugin *plugin;                      /* whose code it runs; NULL: ours */
    struct probing_reply *reply;                /* NULL: a tick */
    uint64_t deadline;                          /* monotonic ns, 0: none */
    bool counted;                               /* against HOST_WAITING_MAX */
    enum job_lane { LANE_ANY, LANE_SHORT, LANE_LONG } lane; /* whose threads it has to itself */
    bool stream;                                            /* as in host_request */
    struct host_client *client; /* workers_add() sets the core's for NULL */
    size_t bytes;               /* of its words */
    uint64_t blocked_ns; /* lock: workers; it waits for its client since then; 0: it does not */
};

struct workers {
    pthread_mutex_t mutex;
    pthread_cond_t wake[LANE_LONG + 1];   /* a job of that lane waits */
    pthread_cond_t quiet;                 /* a command has ended */
    struct job *first, *last;             /* lock: mutex; waiting */
    struct job *running;                  /* lock: mutex; being run, here or in host_run() */
    uint32_t n_waiting, n_queued, n_idle; /* lock: mutex; commands, all jobs, workers without one */
    uint32_t n_streams, n_blocked;        /* lock: mutex; of those that run */
    size_t waiting_bytes;                 /* lock: mutex; of n_waiting */
    uint64_t turn;                        /* lock: mutex; the latest that a client has had */
    struct host_client core;              /* of jobs that no client has asked for */
    uint32_t n_ending;                    /* lock: mutex; commands whose done() is being called */
    uint32_t n_left; /* lock: mutex; threads that were left and have not ended */
    bool stop;       /* lock: mutex */
    bool leaving;    /* lock: mutex; host_leave() */
    struct worker {
        struct host *host;
        pthread_t thread;
        enum { WORKER_NONE, WORKER_RUNS, WORKER_ENDED } state; /* lock: mutex */
        uint32_t turn;   /* lock: mutex; a thread of an older turn was left to its job */
        struct job *job; /* lock: mutex; what it runs */
        pid_t tid;       /* lock: mutex */
        bool extra;
        enum job_lane lane;
    } slots[HOST_WORKERS_ALL];
};

int workers_init(struct host *h);
int workers_start(struct host *h);
/* Joins; jobs that still wait are run by the last worker.  false: one that was left is inside. */
bool workers_stop(struct host *h);
void workers_done(struct host *h);
/* -EAGAIN, -ESHUTDOWN.  *ret_out: commands that lost their places to this one, linked by next: the
 * caller ends each and then calls workers_ended().  NULL: for a job that is not counted. [any] */
int workers_add(struct host *h, struct job *j, struct job **ret_out);
bool workers_remove(struct host *h, struct job *j); /* true: it waited, and now it is yours */
void workers_enter(struct host *h, struct job *j);  /* the caller runs the job itself */
void workers_leave(struct host *h, struct job *j);
/* The same in two steps: it cannot be cancelled any more; its done() has returned. */
void workers_ending(struct host *h, struct job *j);
void workers_ended(struct host *h);
bool workers_leaving(struct host *h);                /* after host_leave() */
void reply_cancel(struct probing_reply *r, int why); /* unless it is cancelled already */
/* Leave the worker that runs it to the job: nobody joins it.  false: none runs it. */
bool workers_leave_to(struct host *h, const struct job *j);
void workers_cancel(struct host *h, const struct plugin *p); /* all jobs in a plugin's code */
/* The caller waits for a plugin: n 1: another worker may take its place; -1: no longer. */
void workers_give_place(struct host *h, int n);
/* Cancel what is over its time; gives the next deadline, 0: none. */
uint64_t workers_expire(struct host *h, uint64_t now);
/* Commands that are over their time and have not begun, linked by next: the caller ends each, as
 * those of workers_add(). */
struct job *workers_take_expired(struct host *h, uint64_t now);

struct command {
    char *name, *usage, *doc; /* constant */
    char owner[HOST_NAME_BYTES];
    uint32_t flags; /* lock: commands_lock, as all below */
    int (*run)(void *self, int argc, const char *const *argv, struct probing_reply *out);
    void *self;
    struct plugin *plugin; /* NULL: built in, `self` counts; else the plugin's self */
};

/* Log who gave a command that writes; outcome: "" or what became of it.  (audit.c)      [any] */
void audit_command(struct host *h, const struct command *c, const struct host_request *r, int skip,
                   const char *outcome);

int command_add(struct host *h, struct plugin *p, const char *owner,
                const struct probing_command *c, void *self);
int commands_builtin(struct host *h);
void commands_expire(struct host *h, uint64_t now); /* answer those that had no turn in time */
/* Run a command of a plugin, on a thread that can be left to it: as plugin_call(). */
int command_call(const struct command *command, int argc, const char *const *argv,
                 struct probing_reply *reply);
/* Has the client of a running command gone?  The reply is what the plugin was given. */
bool command_is_cancelled(const struct probing_reply *out);
void commands_free(struct host *h);

/* ---- control thread, events, timers (control_thread.c, event.c) ---- */

struct message;
struct subscription;
struct timer;

struct control {
    pthread_mutex_t mutex;
    pthread_cond_t changed;             /* a call has been answered, a handler has returned */
    struct message *first, *last;       /* lock: mutex */
    uint32_t n_events;                  /* lock: mutex */
    struct subscription *subscriptions; /* lock: mutex; in order of id */
    int next_id, handling;              /* lock: mutex; id whose handler runs, 0: none */
    struct timer *timers;               /* lock: mutex */
    bool started, stop;                 /* lock: mutex */
    uint32_t turn;                      /* lock: mutex; a thread of an older turn ends */
    uint32_t strays;                    /* lock: mutex; such threads that have not ended yet */
    struct message *current;            /* lock: mutex; the call that runs now */
    pthread_t thread;
    _Atomic pid_t tid;   /* of the control thread */
    _Atomic int wake_fd; /* eventfd; another when the program has closed it */
    /* It looks at what has a time limit then, clock_now(); UINT64_MAX: it is just looking. */
    _Atomic uint64_t sleeps_until;
};

int control_init(struct host *h);
int control_start(struct host *h);
void control_stop(struct host *h);
/* Have all threads that were given up ended?  Waits for those that have just come back. */
bool control_alone(struct host *h);
void control_close(struct control *c); /* what wakes it; system calls only                [child] */
void control_done(struct host *h);
void control_wake(struct host *h);
/* Wake it by the door if the program has closed our descriptors: it opens them again. */
void control_watch(struct host *h);
/* A job with that deadline waits in the pool: let it be looked at in time. */
void control_wake_for(struct host *h, uint64_t deadline);
bool control_is_here(struct host *h);
int control_push(struct host *h, struct message *m);
/* As host_on_control(), with a time limit.  *ret_inside and -ETIMEDOUT: fn has not come back; its
 * thread is left to it, and another goes on as control thread.  -EBUSY: it had not begun, and will
 * not.  drop(arg) is called when nobody needs arg any more. */
int control_call(struct host *h, int (*fn)(void *arg), void *arg, void (*drop)(void *arg),
                 uint64_t limit_ns, bool *ret_inside);
/* false: the thread has been replaced meanwhile and must not go on. */
bool event_handle(struct host *h, uint32_t turn, const char *topic, const void *payload,
                  uint32_t size);
/* Leave the control thread to the handler it is in, and go on with another. */
int control_leave_handler(struct host *h);
/* Say which every() function is late, leave its worker to it, and switch off the plugin of one that
 * has been late for long.  true: one is running. */
bool timers_watch(struct host *h, uint64_t now);
/* Leave the threads of every() functions of a plugin that run now to them.  Gives how many. */
uint32_t timers_leave(struct host *h, struct plugin *p);
/* Is one late? */
bool timers_late(struct host *h, struct plugin *p);
void thread_left(pid_t tid); /* its name says that it is not ours any more */
void events_free(struct host *h);
int timer_add(struct host *h, struct plugin *p, uint64_t period_ns,
              void (*fn)(void *self, uint64_t now));
void timers_remove(struct host *h,
                   struct plugin *p); /* after the plugin has left RUNNING and is empty */
uint64_t timers_run(struct host *h, uint64_t now); /* gives the next time, 0: none */

struct message {
    struct message *next;
    int (*fn)(void *arg); /* a call: the caller waits and owns the message; NULL: an event */
    void *arg;
    void (*drop)(void *arg); /* NULL: the caller waits however long it takes */
    int result;
    bool done, abandoned; /* lock: control mutex; the caller has gone: who runs it frees it */
    struct err_kept *why; /* the caller's */
    uint32_t size;        /* event: payload behind the struct, then the topic */
};

/* ---- settings (setting.c) ---- */

struct setting;
struct settings {
    pthread_mutex_t mutex;
    struct setting *first; /* lock: mutex; entries are never removed, `value` changes under it */
};

/* Give every setting of a plugin its value (default, or what was kept for it).  [control] */
int settings_add_plugin(struct host *h, struct plugin *p);
int settings_configure(struct host *h, struct plugin *p);
int settings_offer(struct host *h); /* "probing.setting/1" */
struct change {
    struct host *host;
    const char *name, *value;
    char text[]; /* both, where it may outlive its caller */
};
int setting_change(void *arg); /* of a struct change  [control] */
int setting_holds(const struct probing_host *f, const char *name, const char *value);

/* ext_core.c */
int memory_offer(struct host *h); /* "probing.memory/1" */
/* plugin_api.c */
int note_offer(struct host *h);        /* "probing.note/1" */
int rows_offer(struct host *h);        /* "probing.rows/1" */
int descriptors_offer(struct host *h); /* "probing.descriptor/1" */
int settings_check(const char *owner, const struct probing_config *table, uint32_t stride);
/* Is it one of probing.plugins, which the core starts with?  Such a one may wait for what it needs,
 * whoever brings its file. */
bool settings_start_with(struct host *h, const char *plugin);
/* Every setting in turn, with its value as text (copied, so that nothing is locked meanwhile). */
int settings_each(struct host *h, int (*fn)(void *arg, const struct setting *s, const char *value),
                  void *arg);
void settings_free(struct host *h);
/* setting_alias.c: the name that a setting is kept under, "torch.variables"; `name` itself, or in
 * `ret`.                                                                            [any] */
const char *alias_resolve(struct host *h, const char *name, char ret[2 * HOST_NAME_BYTES]);
/* The same after a look at what is installed. */
const char *alias_resolve_installed(struct host *h, const char *name,
                                    char ret[2 * HOST_NAME_BYTES]);
/* May the aliases be, and does the plugin have their settings?                      [control] */
int aliases_check(struct plugin *p, const struct declared *d, const struct probing_plugin *api);
void aliases_adopt(struct host *h, const struct declared *d); /* what was set by them  [control] */
struct setting *setting_find(struct host *h, const char *name); /* lock: settings.mutex */
/* Has anybody of this name (n bytes) settings, not only some that wait?  lock: settings.mutex */
bool setting_owner_known(struct host *h, const char *owner, size_t n);

struct setting {
    struct setting *next;
    char *owner, *name, *value, *fallback, *doc; /* value NULL: as the default */
    uint32_t type, unit, flags;
    int64_t min, max;
    bool pending; /* kept for an owner that is not here yet: type and doc are unknown */
    bool gone;    /* a table's retention that goes by a more exact name now */
    int (*set)(void *self, const char *name, const char *value); /* NULL with a plugin */
    void *self;
    struct plugin *plugin;
};

/* ---- log, door, tables about ourselves (log.c, upload_socket.c, tables.c) ---- */

struct log_line {
    uint64_t ts;
    int level;
    char source[HOST_NAME_BYTES];
    char *text;
};
struct log {
    pthread_mutex_t mutex;
    struct log_line lines[HOST_LOG_LINES]; /* lock: mutex; a circle */
    uint64_t count;                        /* lock: mutex; lines ever */
    _Atomic int level;
};
int log_each(struct host *h, int (*fn)(void *arg, const struct log_line *line), void *arg);
void log_free(struct host *h);

struct upload_socket {
    int listen_fd;                  /* -1: closed; control thread, and host_fork in the child */
    int peers[HOST_UPLOAD_CLIENTS]; /* -1: free */
    struct identity_peer who[HOST_UPLOAD_CLIENTS];
    uint64_t refused_ns;                 /* clock_now() when one was turned away last */
    uint64_t since[HOST_UPLOAD_CLIENTS]; /* when each came: a silent one is shown out */
    char path[108];
};
struct pollfd;
uint32_t upload_socket_poll(struct host *h, struct pollfd *fds, uint32_t max);
void upload_socket_serve(struct host *h, const struct pollfd *fds, uint32_t n);
void upload_socket_close(struct host *h);
void upload_socket_open_again(struct host *h);

int about_add(struct host *h);

/* ---- all of it ---- */

struct host {
    char *version, *plugin_path;
    struct tables *tables;
    struct host_store store;
    _Atomic uint64_t call_ns; /* of plugins */
    uint64_t begun_ns;        /* monotonic */
    struct event *again;      /* as in host_options, ... */
    bool mapped_files;        /* ... and so is this */
    _Atomic bool
        off; /* child of a fork, or freed around a plugin that would not stop: do nothing */
    struct control control;
    struct workers workers;
    struct plugin_calls calls;
    struct settings settings;
    struct log log;
    struct upload_socket door;
    pthread_mutex_t commands_lock;
    struct command **commands; /* lock: commands_lock; entries live as long as the host */
    uint32_t n_commands;       /* lock: commands_lock */
    pthread_mutex_t plugins_lock;
    pthread_cond_t plugins_changed; /* somebody has left a plugin that is being stopped */
    struct plugin *_Atomic plugins[HOST_PLUGINS_MAX]; /* filled from the front, never removed */
    _Atomic uint32_t n_plugins;
    struct load *loads; /* lock: plugins_lock; that go on, threads that were left included */
    pthread_mutex_t extensions_lock;
    struct {
        const char *id;
        const void *part;
    } extensions[HOST_EXTENSIONS_MAX]; /* lock: its lock */
    uint32_t n_extensions;             /* lock: extensions_lock */
    struct host_declares declares;
    struct installed {
        pthread_mutex_t mutex;
        struct declared *taken; /* lock: mutex; of plugins that were loaded */
        struct declared *found; /* lock: mutex; out of files, the newest first */
        struct seen_file *seen; /* lock: mutex; HOST_FILES_MAX; NULL: never looked */
        uint32_t n_seen;        /* lock: mutex */
    } installed;
    bool has_stack;
};

static inline uint64_t plugin_limit_ns(struct host *h)
{
    return atomic_load_explicit(&h->call_ns, memory_order_relaxed);
}

static inline bool host_is_off(struct host *h)
{
    return atomic_load_explicit(&h->off, memory_order_relaxed);
}

void stack_ext_begin_in_child(void);
void plugins_begin_in_child(void);

#endif
